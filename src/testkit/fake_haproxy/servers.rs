//! Commands on servers.

use std::time::{Duration, Instant};

use super::model::{Agent, Backend, Coming, Model, Server, Version};
use super::reply::{Reply, WARNING};

/// How long HAProxy takes to put an address in place that it has answered already.
const SETTLES_AFTER: Duration = Duration::from_micros(300);

pub(super) const NO_BACKEND: &str = "No such backend.";
const NO_SERVER: &str = "No such server.";
const STOPPING: &str = "Proxy is disabled.";

/// What `add server` takes, and how many words follow.
const KEYWORDS: &[(&str, usize)] = &[
    ("addr", 1),
    ("agent-addr", 1),
    ("agent-check", 0),
    ("agent-inter", 1),
    ("agent-port", 1),
    ("agent-send", 1),
    ("alpn", 1),
    ("backup", 0),
    ("ca-file", 1),
    ("check", 0),
    ("check-ssl", 0),
    ("ciphers", 1),
    ("ciphersuites", 1),
    ("cookie", 1),
    ("crl-file", 1),
    ("crt", 1),
    ("disabled", 0),
    ("downinter", 1),
    ("error-limit", 1),
    ("fall", 1),
    ("fastinter", 1),
    ("guid", 1),
    ("inter", 1),
    ("maxconn", 1),
    ("maxqueue", 1),
    ("minconn", 1),
    ("observe", 1),
    ("on-error", 1),
    ("on-marked-down", 1),
    ("on-marked-up", 1),
    ("pool-max-conn", 1),
    ("pool-purge-delay", 1),
    ("port", 1),
    ("proto", 1),
    ("rise", 1),
    ("send-proxy", 0),
    ("send-proxy-v2", 0),
    ("slowstart", 1),
    ("sni", 1),
    ("ssl", 0),
    ("ssl-max-ver", 1),
    ("ssl-min-ver", 1),
    ("verify", 1),
    ("verifyhost", 1),
    ("weight", 1),
];

/// What no server takes at runtime.
const STATIC_ONLY: &[&str] = &[
    "enabled",
    "init-addr",
    "log-proto",
    "no-check",
    "redir",
    "resolvers",
    "socks4",
];

/// Puts addresses in place whose time has come.
pub(super) fn settle(model: &mut Model, now: Instant) {
    for backend in &mut model.backends {
        for server in &mut backend.servers {
            if let Some(coming) = server.coming.take_if(|coming| coming.at <= now) {
                server.address = Some(coming.address);
                server.port = coming.port;
            }
        }
    }
}

/// `backend/server`, both found.
fn find<'a>(model: &'a mut Model, id: Option<&String>) -> Result<&'a mut Server, Reply> {
    let (backend, server) = split(id)?;
    let backend = model
        .backends
        .iter_mut()
        .find(|known| known.name == backend);
    let backend = backend.ok_or_else(|| Reply::err(NO_BACKEND))?;
    let server = backend
        .servers
        .iter_mut()
        .find(|known| known.name == server);
    server.ok_or_else(|| Reply::err(NO_SERVER))
}

fn split(id: Option<&String>) -> Result<(&str, &str), Reply> {
    id.and_then(|id| id.split_once('/'))
        .ok_or_else(|| Reply::err("Require 'backend/server'."))
}

fn or_refusal(done: Result<Reply, Reply>) -> Reply {
    match done {
        Ok(reply) | Err(reply) => reply,
    }
}

pub(super) fn add(model: &mut Model, words: &[String], version: Version) -> Reply {
    or_refusal(try_add(model, words, version))
}

fn try_add(model: &mut Model, words: &[String], version: Version) -> Result<Reply, Reply> {
    let (backend, name) = split(words.first())?;
    let known = model
        .backends
        .iter_mut()
        .find(|known| known.name == backend);
    let backend = known.ok_or_else(|| Reply::err(NO_BACKEND))?;
    if !backend.dynamic {
        return Err(Reply::err(match version {
            Version::V3_0 | Version::V3_2 => {
                "Backend must use a dynamic load balancing to support dynamic servers.".to_owned()
            }
            Version::V3_4 => format!(
                "Backend does not support dynamic servers : backend '{}' uses a non dynamic load balancing method.",
                backend.name
            ),
        }));
    }
    if backend.servers.iter().any(|server| server.name == name) {
        let text = "Already exists a server with the same name in backend.";
        return Err(Reply::err(text));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    if let Some(bad) = name.chars().find(|c| !plain(*c)) {
        return Err(Reply::err(format!(
            "character '{bad}' is not permitted in server name '{name}'."
        )));
    }
    let Some(address) = words.get(1) else {
        let text = "'server' expects <name> and <addr>[:<port>] as arguments.";
        return Err(Reply::err(text));
    };
    let (address, port) = place(address)?;
    let mut server = Server::new(name, "", port);
    server.address = address;
    server.admin = 1;
    let keywords = words.get(2..).unwrap_or_default();
    take_keywords(&mut server, keywords, version)?;
    backend.add_server(server);
    Ok(Reply::info("New server registered."))
}

/// An address as `add server` reads it; `None` is a unix socket.
fn place(text: &str) -> Result<(Option<String>, u16), Reply> {
    let socket = text.strip_prefix("unix@").unwrap_or(text);
    if socket.starts_with('/') {
        return Ok((None, 0));
    }
    // A bare IPv6 address loses its last group to the port.
    let (address, port) = text.rsplit_once(':').unwrap_or((text, "0"));
    let number: i64 = port.parse().unwrap_or(-1);
    let Ok(port) = u16::try_from(number) else {
        return Err(Reply::err(format!("invalid port '{port}'")));
    };
    let address = address.trim_start_matches('[').trim_end_matches(']');
    Ok((Some(address.to_owned()), port))
}

fn take_keywords(server: &mut Server, words: &[String], version: Version) -> Result<(), Reply> {
    let mut agent = None;
    let mut agent_port = 0;
    let mut rest = words;
    while let Some((word, behind)) = rest.split_first() {
        if STATIC_ONLY.contains(&word.as_str()) {
            return Err(Reply::err(format!(
                "'{word}' option is not accepted for dynamic server"
            )));
        }
        let since = match word.as_str() {
            "init-state" => Some((Version::V3_2, 1)),
            "strict-maxconn" => Some((Version::V3_2, 0)),
            "idle-ping" => Some((Version::V3_2, 1)),
            _ => None,
        };
        let newer = since.filter(|(branch, _)| version >= *branch);
        let known = KEYWORDS.iter().find(|(keyword, _)| keyword == word);
        let arguments = match (known, newer) {
            (Some((_, count)), _) => *count,
            (None, Some((_, count))) => count,
            (None, None) => return Err(Reply::err(format!("unknown keyword '{word}'."))),
        };
        let argument = behind.first().map(String::as_str).unwrap_or_default();
        match word.as_str() {
            "weight" => {
                let weight = argument.parse().unwrap_or(u32::MAX);
                if weight > 256 {
                    return Err(Reply::err(format!(
                        "weight of server {} is not within 0 and 256 ({argument})..",
                        server.name
                    )));
                }
                server.weight = weight;
                server.initial_weight = weight;
            }
            "check" => server.check = true,
            "agent-check" => agent = Some(()),
            "agent-port" => agent_port = argument.parse().unwrap_or_default(),
            // The others change nothing that a command shows.
            _ => {}
        }
        rest = behind.get(arguments..).unwrap_or_default();
    }
    server.agent = agent.map(|()| Agent {
        port: agent_port,
        asked: false,
    });
    Ok(())
}

/// `enable` and `disable`: `health`, `agent` or `server`.
pub(super) fn switch(model: &mut Model, on: bool, words: &[String], stopping: bool) -> Reply {
    let (what, id) = (words.first().map(String::as_str), words.get(1));
    let server = match find(model, id) {
        Ok(server) => server,
        Err(refusal) => return refusal,
    };
    match (what, on) {
        (Some("health"), true) if !server.check => {
            Reply::err("Health check was not configured on this server, cannot enable.")
        }
        (Some("agent"), true) => match &mut server.agent {
            Some(agent) => {
                agent.asked = true;
                Reply::Silent
            }
            None => Reply::err("Agent was not configured on this server, cannot enable."),
        },
        (Some("agent"), false) => {
            if let Some(agent) = &mut server.agent {
                agent.asked = false;
            }
            Reply::Silent
        }
        (Some("server"), _) if stopping => Reply::err(STOPPING),
        (Some("server"), true) => {
            server.admin &= !1;
            Reply::Silent
        }
        (Some("server"), false) => {
            server.admin |= 1;
            went_down(model, id);
            Reply::Silent
        }
        (_, _) => Reply::Silent,
    }
}

/// What 3.4 keeps for its next answer about a backend.
fn went_down(model: &mut Model, id: Option<&String>) {
    let Ok((name, server)) = split(id) else {
        return;
    };
    let up = |server: &&Server| server.admin & 1 == 0;
    let left = model
        .find(name)
        .map_or(0, |b| b.servers.iter().filter(up).count());
    model.said = vec![format!(
        "Server {name}/{server} is going DOWN for maintenance. {left} active and 0 backup servers left. 0 sessions active, 0 requeued, 0 remaining in queue."
    )];
    if left == 0 {
        model
            .said
            .push(format!("backend '{name}' has no server available!"));
    }
}

/// `set server`.
pub(super) fn set(model: &mut Model, words: &[String], now: Instant, stopping: bool) -> Reply {
    let fixed = words
        .first()
        .and_then(|id| id.split_once('/'))
        .and_then(|(backend, _)| model.find(backend))
        .is_some_and(|backend| !backend.dynamic);
    let server = match find(model, words.first()) {
        Ok(server) => server,
        Err(refusal) => return refusal,
    };
    let what = words.get(1).map(String::as_str);
    let argument = words.get(2).map(String::as_str).unwrap_or_default();
    match what {
        Some("weight" | "state") if stopping => Reply::err(STOPPING),
        Some("weight") => set_weight(server, argument, fixed),
        Some("state") => {
            server.admin = match argument {
                "ready" => 0,
                "drain" => 8,
                "maint" => 1,
                _ => {
                    return Reply::err(
                        "'set server <srv> state' expects 'ready', 'drain' and 'maint'.",
                    );
                }
            };
            Reply::Silent
        }
        Some("agent") => match server.agent {
            Some(_) => Reply::Silent,
            None => Reply::err("agent checks are not enabled on this server."),
        },
        Some("addr") => {
            let port = (words.get(3).map(String::as_str) == Some("port")).then(|| words.get(4));
            let port = port.flatten().map(String::as_str);
            Reply::Tagged(WARNING, set_address(server, argument, port, now))
        }
        Some(_) | None => Reply::err(
            "usage: set server <backend>/<server> addr | agent | agent-addr | agent-port | agent-send | check-addr | check-port | fqdn | health | ssl | state | weight",
        ),
    }
}

fn set_weight(server: &mut Server, text: &str, fixed: bool) -> Reply {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let Ok(weight) = text.get(..digits).unwrap_or_default().parse::<u32>() else {
        return Reply::err("Require <weight> or <weight%>.");
    };
    match text.get(digits..) {
        Some("") | None => {}
        Some(_) => return Reply::err("Trailing garbage in weight string"),
    }
    if weight > 256 {
        return Reply::err("Absolute weight can only be between 0 and 256 inclusive.");
    }
    if fixed {
        return Reply::err(
            "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.",
        );
    }
    server.weight = weight;
    Reply::Silent
}

/// Answered at once, against what is in place; put in place a moment later.
fn set_address(server: &mut Server, address: &str, port: Option<&str>, now: Instant) -> String {
    let Ok(ip) = address.parse::<std::net::IpAddr>() else {
        return format!("Invalid addr '{address}'");
    };
    let Some(old) = server.address.clone() else {
        return "Update for the current server address family is only supported through configuration file.".to_owned();
    };
    let new_port = match port.map(|text| (text, text.parse::<i64>())) {
        None => server.port,
        // It wraps.
        Some((_, Ok(number))) => {
            let low = u64::try_from(number.rem_euclid(65_536)).unwrap_or_default();
            u16::try_from(low).unwrap_or_default()
        }
        Some((text, Err(_))) => return format!("problem converting port '{text}' to an int"),
    };
    let mut changes = Vec::new();
    let new = ip.to_string();
    if new != old {
        changes.push(format!("IP changed from '{old}' to '{new}'"));
    }
    if new_port != server.port {
        let old = server.port;
        changes.push(format!("port changed from '{old}' to '{new_port}'"));
    }
    if changes.is_empty() {
        return "nothing changed".to_owned();
    }
    server.coming = Some(Coming {
        at: now + SETTLES_AFTER,
        address: new,
        port: new_port,
    });
    format!("{} by 'stats socket command'", changes.join(", "))
}

/// Why a server cannot be deleted now; `None`: it can.
pub(super) fn kept(model: &mut Model, id: Option<&String>) -> Result<Option<&'static str>, Reply> {
    let server = find(model, id)?;
    Ok(match (server.admin & 1, server.connections) {
        (0, _) => Some("Only servers in maintenance mode can be deleted."),
        (_, 0) => None,
        (_, _) => Some("Server still has connections attached to it, cannot remove it."),
    })
}

pub(super) fn del(model: &mut Model, words: &[String]) -> Reply {
    let id = words.first();
    match kept(model, id) {
        Err(refusal) => return refusal,
        Ok(Some(why)) => return Reply::err(why),
        Ok(None) => {}
    }
    if let Ok((name, server)) = split(id) {
        let found = model.backends.iter_mut().find(|known| known.name == name);
        if let Some(backend) = found {
            backend.servers.retain(|known| known.name != server);
        }
    }
    model.said.push("Server deleted.".to_owned());
    Reply::info("Server deleted.")
}

pub(super) fn shutdown_sessions(model: &mut Model, words: &[String]) -> Reply {
    or_refusal(find(model, words.first()).map(|server| {
        server.connections = 0;
        Reply::Silent
    }))
}

pub(super) fn show_state(model: &Model, words: &[String]) -> Reply {
    let name = words.first();
    if let Some(name) = name {
        if model.find(name).is_none() {
            return Reply::err("Can't find backend.");
        }
    }
    let mut text = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n".to_owned();
    let shown = |backend: &&Backend| name.is_none_or(|name| *name == backend.name);
    for backend in model.backends.iter().filter(shown) {
        for server in &backend.servers {
            text.push_str(&state_row(backend, server));
        }
    }
    Reply::Plain(text)
}

fn state_row(backend: &Backend, server: &Server) -> String {
    let op = if server.admin & 1 == 0 { 2 } else { 0 };
    let (agent, agent_port) = match server.agent {
        None => (0, 0),
        Some(agent) => (if agent.asked { 22 } else { 18 }, agent.port),
    };
    format!(
        "{} {} {} {} {} {op} {} {} {} 1 1 0 0 {} {agent} 0 0 - {} - 0 0 - - {agent_port}\n",
        backend.id,
        backend.name,
        server.id,
        server.name,
        server.address.as_deref().unwrap_or("-"),
        server.admin,
        server.weight,
        server.initial_weight,
        if server.check { 6 } else { 0 },
        server.port,
    )
}
