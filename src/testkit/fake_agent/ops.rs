//! Ops: which are executable, and what they change.
//!
//! Checked as a whole before the first one runs, as the agent does; the rules are those
//! of the contract, not the agent's code. No command is composed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::wire::limits::{
    MAX_PATH_BYTES, MAX_PENDING_BACKEND_DELETES, MAX_PENDING_SERVER_DELETES,
};
use crate::wire::op::{Op, OpKind};
use crate::wire::result::OpResult;

use super::knobs::{Knobs, OpFault};
use super::pod::Pod;
use super::worker::{self, Worker};

/// Why a batch cannot be run at all.
#[derive(Debug)]
pub(super) struct NotExecutable {
    pub(super) index: usize,
    /// `invalid`, `unsupported` or `queue_full`.
    pub(super) outcome: &'static str,
    pub(super) words: String,
    kind: String,
}

impl NotExecutable {
    pub(super) fn message(&self) -> String {
        let Self {
            index, kind, words, ..
        } = self;
        format!("op {index} ({kind}) is not executable: {words}")
    }

    /// The results of a batch of which nothing was sent.
    pub(super) fn results(&self, ops: &[Op]) -> Vec<OpResult> {
        let one = |(at, op): (usize, &Op)| OpResult {
            kind: op.kind.clone(),
            ok: false,
            output: Some(match at == self.index {
                true => format!("{}: {}", self.outcome, self.words),
                false => "not sent: another op of the batch is not executable".to_owned(),
            }),
        };
        ops.iter().enumerate().map(one).collect()
    }
}

/// How a batch ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Complete,
    Refused(String),
    Unknown(String),
}

type Checked = Result<(), (&'static str, String)>;

fn invalid<T>(words: impl Into<String>) -> Result<T, (&'static str, String)> {
    Err(("invalid", words.into()))
}

/// Checks a whole batch.
pub(super) fn check(ops: &[Op], pod: &Pod, knobs: &Knobs) -> Result<(), NotExecutable> {
    let mut batch = Batch {
        pod,
        added: Vec::new(),
        new_cas: BTreeSet::new(),
        servers: pod.worker.servers.clone(),
        backends: pod.worker.backends.clone(),
    };
    for (index, op) in ops.iter().enumerate() {
        let checked = match known(op, knobs) {
            Some(kind) => batch.op(op, kind),
            None => Err((
                "unsupported",
                "this agent knows no op of that kind".to_owned(),
            )),
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

/// The op's kind, unless the fake plays an agent that does not know it.
pub(super) fn known(op: &Op, knobs: &Knobs) -> Option<OpKind> {
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

/// Runs a batch that passed [`check`]. The results, how it ended, and whether a command
/// reached the worker.
pub(super) fn run(ops: &[Op], pod: &mut Pod, knobs: &Knobs) -> (Vec<OpResult>, Ended) {
    let hold = knobs.hold_deletes;
    let mut ended = Ended::Complete;
    let mut results = Vec::new();
    let mut servers = pod.worker.servers.clone();
    let mut backends = pod.worker.backends.clone();
    for op in ops {
        if ended != Ended::Complete {
            results.push(result(op, false, Some("not_run".to_owned())));
            continue;
        }
        let done = match knobs.op_faults.get(&op.kind) {
            Some(OpFault::Refuse(words)) => Err(words.clone()),
            Some(OpFault::NoAnswer) => {
                ended = Ended::Unknown("the worker gave no answer".to_owned());
                results.push(result(op, false, Some("unknown".to_owned())));
                continue;
            }
            None => effect(op, pod, hold, &mut servers, &mut backends),
        };
        match done {
            Ok(()) => results.push(result(op, true, None)),
            Err(words) => {
                results.push(result(op, false, Some(words.clone())));
                ended = Ended::Refused(format!("{}: {words}", op.kind));
            }
        }
    }
    if ended == Ended::Complete {
        pod.worker.servers = if hold { servers } else { BTreeSet::new() };
        pod.worker.backends = if hold { backends } else { BTreeSet::new() };
    }
    (results, ended)
}

fn result(op: &Op, ok: bool, output: Option<String>) -> OpResult {
    OpResult {
        kind: op.kind.clone(),
        ok,
        output,
    }
}

const NO_MAP: &str = "Unknown map identifier. Please use #<id> or <file>.";
const BUSY: &str = "Server still has connections attached to it, cannot remove it.";

/// What one op changes, or HAProxy's refusal. `servers` and `backends` are the deletes
/// that wait once the batch has succeeded; with `hold` what they name is still there.
fn effect(
    op: &Op,
    pod: &mut Pod,
    hold: bool,
    servers: &mut BTreeSet<String>,
    backends: &mut BTreeSet<String>,
) -> Result<(), String> {
    let Some(kind) = OpKind::parse(&op.kind) else {
        return Err("Unknown command".to_owned());
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (path, key, value) = (text(&op.path), text(&op.key), text(&op.value));
    let backend = text(&op.backend);
    let id = format!("{backend}/{}", text(&op.server));
    let Worker { loaded, .. } = &mut pod.worker;
    match kind {
        OpKind::MapAdd => {
            let map = loaded.maps.get_mut(&path).ok_or(NO_MAP)?;
            map.push((key, value));
        }
        OpKind::MapSet => {
            let map = loaded.maps.get_mut(&path).ok_or(NO_MAP)?;
            let mut found = false;
            for entry in map.iter_mut().filter(|(known, _)| *known == key) {
                entry.1.clone_from(&value);
                found = true;
            }
            if !found {
                return Err("entry not found.".to_owned());
            }
        }
        OpKind::MapDel => {
            let map = loaded.maps.get_mut(&path).ok_or(NO_MAP)?;
            map.retain(|(known, _)| *known != key);
        }
        OpKind::MapReplace => {
            let file = pod.disk.iter().find(|(held, _)| held.as_str() == path);
            let fresh = file.map(|(_, content)| worker::entries(&content.bytes));
            let map = loaded.maps.get_mut(&path).ok_or(NO_MAP)?;
            *map = fresh.unwrap_or_default();
        }
        OpKind::CertSet if !loaded.certs.contains(&path) => {
            return Err(format!(
                "Can't replace a certificate which is not referenced by the configuration!\nCan't update {path}!"
            ));
        }
        OpKind::CertNew if !loaded.certs.insert(path.clone()) => {
            return Err(format!("Certificate '{path}' already exists!"));
        }
        OpKind::CaSet if !loaded.cas.contains(&path) => {
            return Err(format!(
                "Can't replace a CA file which is not referenced by the configuration!\nCan't update {path}!"
            ));
        }
        OpKind::CaNew if !loaded.cas.insert(path.clone()) => {
            return Err(format!("CA file '{path}' already exists!"));
        }
        OpKind::CrtlistAdd | OpKind::CrtlistDel if !loaded.crt_lists.contains(&path) => {
            return Err(format!("crt-list '{path}' does not exist!"));
        }
        OpKind::CrtlistAdd if !loaded.certs.contains(&text(&op.cert)) => {
            return Err(format!("HAProxy holds no certificate {}", text(&op.cert)));
        }
        OpKind::ServerDel => {
            loaded.added.remove(&id);
            servers.insert(id);
        }
        OpKind::BackendDel => {
            loaded.added.remove(&backend);
            backends.insert(backend);
        }
        OpKind::ServerAdd if hold && servers.contains(&id) => {
            return Err(BUSY.to_owned());
        }
        OpKind::BackendAdd if hold && backends.contains(&backend) => {
            return Err("Backend still has attached streams on it.".to_owned());
        }
        OpKind::ServerAdd if !loaded.added.insert(id.clone()) => {
            return Err("Already exists a server with the same name in backend.".to_owned());
        }
        OpKind::BackendAdd if !loaded.added.insert(backend.clone()) => {
            return Err(format!(
                "Error during backend creation : name is already used by other proxy 'backend {backend}'."
            ));
        }
        OpKind::ServerAdd | OpKind::ServerEnable => {
            servers.remove(&id);
        }
        OpKind::ServerSetState if op.state.as_deref() == Some("ready") => {
            servers.remove(&id);
        }
        OpKind::BackendAdd | OpKind::BackendPublish => {
            backends.remove(&backend);
        }
        OpKind::BackendUnpublish
        | OpKind::WaitBeRemovable
        | OpKind::ServerDisable
        | OpKind::ServerSetAddr
        | OpKind::ServerSetWeight
        | OpKind::ServerSetState
        | OpKind::WaitSrvRemovable
        | OpKind::ShutdownSessions
        | OpKind::CertSet
        | OpKind::CertNew
        | OpKind::CaSet
        | OpKind::CaNew
        | OpKind::CrtlistAdd
        | OpKind::CrtlistDel => {}
    }
    Ok(())
}
