//! The rules of a batch, before its first command: those of the contract, not the agent's
//! code.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::testkit::fake_agent::knobs::Knobs;
use crate::testkit::fake_agent::pod::Pod;
use crate::wire::limits::{
    MAX_PATH_BYTES, MAX_PENDING_BACKEND_DELETES, MAX_PENDING_SERVER_DELETES,
};
use crate::wire::op::{Op, OpKind};

use super::NotExecutable;

type Checked = Result<(), (&'static str, String)>;

fn invalid<T>(words: impl Into<String>) -> Result<T, (&'static str, String)> {
    Err(("invalid", words.into()))
}

/// Checks a whole batch.
pub(in crate::testkit::fake_agent) fn check(
    ops: &[Op],
    pod: &Pod,
    knobs: &Knobs,
) -> Result<(), NotExecutable> {
    let mut batch = Batch {
        pod,
        added: Vec::new(),
        new_cas: BTreeSet::new(),
        servers: pod.worker.servers.clone(),
        backends: pod.worker.backends.clone(),
    };
    for (index, op) in ops.iter().enumerate() {
        let checked = match known(op, knobs) {
            Some(kind) => batch
                .op(op, kind)
                .and_then(|()| has_its_time(op, kind, ops.get(index..).unwrap_or_default())),
            None => Err(("unsupported", no_such_kind(op))),
        };
        checked.map_err(|(outcome, words)| NotExecutable {
            index,
            outcome,
            words,
            kind: op.kind.clone(),
        })?;
    }
    Ok(())
}

/// A wait needs its time, unless it belongs to a delete behind it.
fn has_its_time(op: &Op, kind: OpKind, rest: &[Op]) -> Checked {
    let delete = match kind {
        OpKind::WaitSrvRemovable => "server_del",
        OpKind::WaitBeRemovable => "backend_del",
        _ => return Ok(()),
    };
    let of_it = |other: &Op| {
        other.kind == delete && other.backend == op.backend && other.server == op.server
    };
    match op.timeout_ms.is_none() && !rest.iter().any(of_it) {
        true => invalid("timeout_ms is missing"),
        false => Ok(()),
    }
}

/// The first op whose kind is not known.
pub(in crate::testkit::fake_agent) fn unknown(ops: &[Op], knobs: &Knobs) -> Option<NotExecutable> {
    let index = ops.iter().position(|op| known(op, knobs).is_none())?;
    let op = ops.get(index)?;
    Some(NotExecutable {
        index,
        outcome: "unsupported",
        words: no_such_kind(op),
        kind: op.kind.clone(),
    })
}

fn no_such_kind(op: &Op) -> String {
    format!("this agent knows no op of the kind {:?}", op.kind)
}

/// The op's kind, unless the fake plays an agent that does not know it.
pub(in crate::testkit::fake_agent) fn known(op: &Op, knobs: &Knobs) -> Option<OpKind> {
    let kind = OpKind::parse(&op.kind)?;
    match &knobs.known_ops {
        Some(known) => known.contains(&op.kind).then_some(kind),
        None => Some(kind),
    }
}

struct Batch<'a> {
    pod: &'a Pod,
    /// Servers added so far, and whether with `check`.
    added: Vec<(String, bool)>,
    new_cas: BTreeSet<String>,
    servers: BTreeSet<String>,
    backends: BTreeSet<String>,
}

impl Batch<'_> {
    fn op(&mut self, op: &Op, kind: OpKind) -> Checked {
        match kind {
            OpKind::BackendAdd => {
                self.since((3, 4), &op.kind)?;
                backend(op)?;
                name("profile", op.profile.as_deref())?;
                one_of("mode", op.mode.as_deref(), &["http", "tcp"])?;
                op.guid.as_deref().map_or(Ok(()), |guid| word("guid", guid))
            }
            OpKind::BackendPublish | OpKind::BackendUnpublish => {
                self.since((3, 4), &op.kind)?;
                backend(op)
            }
            OpKind::BackendDel => {
                self.since((3, 4), &op.kind)?;
                backend(op)?;
                let most = MAX_PENDING_BACKEND_DELETES;
                queued(&mut self.backends, op.backend.clone(), most)
            }
            OpKind::WaitBeRemovable => {
                self.since((3, 4), &op.kind)?;
                backend(op)?;
                op.timeout_ms
                    .map_or(Ok(()), |time| number("timeout_ms", Some(time), 1, 30_000))
            }
            OpKind::ServerAdd => self.server_add(op),
            OpKind::ServerEnable => {
                let id = server(op)?;
                let added = self.added.iter().find(|(added, _)| *added == id);
                match (op.health, added) {
                    (Some(true), Some((_, false))) => invalid(format!(
                        "health checks of {id} cannot be enabled, it was added without the keyword check"
                    )),
                    (_, _) => Ok(()),
                }
            }
            OpKind::ServerDisable | OpKind::ShutdownSessions => server(op).map(drop),
            OpKind::ServerSetAddr => {
                server(op)?;
                ip(op.address.as_deref())?;
                op.port
                    .map_or(Ok(()), |port| number("port", Some(port), 1, 65_535))
            }
            OpKind::ServerSetWeight => {
                server(op)?;
                number("weight", op.weight, 0, 256)
            }
            OpKind::ServerSetState => {
                server(op)?;
                one_of("state", op.state.as_deref(), &["ready", "maint", "drain"])
            }
            OpKind::WaitSrvRemovable => {
                server(op)?;
                op.timeout_ms
                    .map_or(Ok(()), |time| number("timeout_ms", Some(time), 1, 30_000))
            }
            OpKind::ServerDel => {
                let id = server(op)?;
                queued(&mut self.servers, Some(id), MAX_PENDING_SERVER_DELETES)
            }
            OpKind::MapAdd => {
                path("path", op.path.as_deref())?;
                key(op)?;
                map_value(op.value.as_deref().unwrap_or_default())
            }
            OpKind::MapSet => {
                path("path", op.path.as_deref())?;
                key(op)?;
                word("value", required("value", op.value.as_deref())?)
            }
            OpKind::MapDel => {
                path("path", op.path.as_deref())?;
                key(op)
            }
            OpKind::MapReplace => self.content(op).map(drop),
            OpKind::CertSet | OpKind::CertNew => {
                let pem = self.content(op)?;
                match pem.contains("CERTIFICATE-----") && pem.contains("PRIVATE KEY-----") {
                    true => Ok(()),
                    false => invalid("the file must hold a certificate and its private key"),
                }
            }
            OpKind::CaSet => {
                let new = op.path.as_ref().is_some_and(|p| self.new_cas.contains(p));
                if !new {
                    self.since((3, 2), &op.kind)?;
                }
                self.authority(op)
            }
            OpKind::CaNew => {
                self.new_cas.extend(op.path.clone());
                self.authority(op)
            }
            OpKind::CrtlistAdd => {
                path("path", op.path.as_deref())?;
                path("cert", op.cert.as_deref())?;
                let words = op.options.iter();
                let words = words.flat_map(|o| std::iter::once(&o.name).chain(&o.args));
                for text in words.chain(&op.sni_filters) {
                    if text.contains(['[', ']']) || text.starts_with('#') {
                        return invalid(format!("{text:?} must not hold [ or ] nor start with #"));
                    }
                    word("options and sni_filters", text)?;
                }
                Ok(())
            }
            OpKind::CrtlistDel => {
                path("path", op.path.as_deref())?;
                path("cert", op.cert.as_deref())
            }
        }
    }

    fn server_add(&mut self, op: &Op) -> Checked {
        let id = server(op)?;
        let address = required("address", op.address.as_deref())?;
        let socket = address.strip_prefix("unix@").unwrap_or(address);
        if socket.starts_with('/') {
            word("address", address)?;
            if op.port.is_some() {
                return invalid("a unix socket has no port");
            }
        } else {
            ip(Some(address))?;
            number("port", op.port, 1, 65_535)?;
        }
        for keyword in &op.keywords {
            word("keywords.name", &keyword.name)?;
            for argument in &keyword.args {
                // An argument may hold blanks, as that of agent-send does.
                word("keywords.args", &argument.replace(' ', "_"))?;
            }
            match keyword.name.as_str() {
                "enabled" | "no-check" | "resolvers" | "init-addr" | "socks4" | "redir"
                | "log-proto" => {
                    let words = format!(
                        "HAProxy takes no server keyword {} at runtime",
                        keyword.name
                    );
                    return Err(("unsupported", words));
                }
                "init-state" => self.since((3, 1), &keyword.name)?,
                "strict-maxconn" | "idle-ping" => self.since((3, 2), &keyword.name)?,
                // Which others HAProxy takes, it says itself.
                _ => {}
            }
        }
        let check = op.keywords.iter().any(|keyword| keyword.name == "check");
        self.added.push((id, check));
        Ok(())
    }

    fn since(&self, branch: (u32, u32), what: &str) -> Checked {
        let here = self.pod.worker.branch();
        match here >= branch {
            true => Ok(()),
            false => {
                let ((major, minor), (is_major, is_minor)) = (branch, here);
                let words = format!(
                    "{what} needs HAProxy {major}.{minor} and this is {is_major}.{is_minor}"
                );
                Err(("unsupported", words))
            }
        }
    }

    fn authority(&self, op: &Op) -> Checked {
        match self.content(op)?.contains("CERTIFICATE-----") {
            true => Ok(()),
            false => invalid("the file holds no certificate"),
        }
    }

    /// The file that the op sends, as it is on disk now.
    fn content(&self, op: &Op) -> Result<String, (&'static str, String)> {
        let name = required("path", op.path.as_deref())?;
        path("path", Some(name))?;
        let held = self.pod.disk.iter().find(|(path, _)| path.as_str() == name);
        match held {
            Some((_, content)) => Ok(String::from_utf8_lossy(&content.bytes).into_owned()),
            None => invalid(format!("{name} is not among the files of the set")),
        }
    }
}

fn queued(waiting: &mut BTreeSet<String>, key: Option<String>, most: usize) -> Checked {
    waiting.extend(key);
    match waiting.len() > most {
        true => {
            let words = "too many deletes are waiting for their sessions to end";
            Err(("queue_full", words.to_owned()))
        }
        false => Ok(()),
    }
}

fn required<'a>(field: &str, value: Option<&'a str>) -> Result<&'a str, (&'static str, String)> {
    match value {
        Some(text) => Ok(text),
        None => invalid(format!("{field} is missing")),
    }
}

fn word(field: &str, text: &str) -> Checked {
    let bad = |c: char| c <= ' ' || matches!(c, '\u{7f}' | ';' | '<' | '>' | '\\');
    match text.is_empty() || text.contains(bad) {
        true => invalid(format!("{field} is {text:?} and is no word of a command")),
        false => Ok(()),
    }
}

fn name(field: &str, value: Option<&str>) -> Checked {
    let text = required(field, value)?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
    match (1..=255).contains(&text.len()) && text.bytes().all(plain) {
        true => Ok(()),
        false => invalid(format!("{field} is {text:?} and is no name")),
    }
}

fn backend(op: &Op) -> Checked {
    name("backend", op.backend.as_deref())
}

/// `backend/server`.
fn server(op: &Op) -> Result<String, (&'static str, String)> {
    backend(op)?;
    name("server", op.server.as_deref())?;
    Ok(format!(
        "{}/{}",
        op.backend.as_deref().unwrap_or_default(),
        op.server.as_deref().unwrap_or_default()
    ))
}

fn path(field: &str, value: Option<&str>) -> Checked {
    let text = required(field, value)?;
    word(field, text)?;
    match text.len() <= MAX_PATH_BYTES && !text.starts_with(['#', '@', '*']) {
        true => Ok(()),
        false => invalid(format!(
            "{field} is {text:?} and names no file of the runtime"
        )),
    }
}

fn key(op: &Op) -> Checked {
    let text = required("key", op.key.as_deref())?;
    match text.starts_with('#') {
        true => invalid(format!("key is {text:?} and must not start with #")),
        false => word("key", text),
    }
}

fn map_value(text: &str) -> Checked {
    let blank = [' ', '\t'];
    let cut = text.starts_with(blank) || text.ends_with(blank);
    match cut || text.contains(['\n', '\r', '\0']) {
        true => invalid("value must be one line without blanks at its ends"),
        false => Ok(()),
    }
}

fn ip(value: Option<&str>) -> Checked {
    let text = required("address", value)?;
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let parsed = inner.unwrap_or(text).parse::<IpAddr>();
    match parsed {
        Ok(ip) if inner.is_none() || ip.is_ipv6() => Ok(()),
        Ok(_) | Err(_) => invalid(format!(
            "address is {text:?} and is no IPv4 or IPv6 address"
        )),
    }
}

fn one_of(field: &str, value: Option<&str>, allowed: &[&str]) -> Checked {
    let text = required(field, value)?;
    match allowed.contains(&text) {
        true => Ok(()),
        false => invalid(format!(
            "{field} is {text:?} and must be one of {allowed:?}"
        )),
    }
}

fn number(field: &str, value: Option<i64>, least: i64, most: i64) -> Checked {
    match value {
        None => invalid(format!("{field} is missing")),
        Some(value) if (least..=most).contains(&value) => Ok(()),
        Some(value) => invalid(format!("{field} is {value} and must be {least} to {most}")),
    }
}
