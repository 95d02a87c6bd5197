//! Ops: which are executable, and what they change.
//!
//! Checked as a whole before the first one runs, as the agent does; the rules are those
//! of the contract, not the agent's code. No command is composed.

mod check;

use std::collections::BTreeSet;

use crate::wire::op::{Op, OpKind};
use crate::wire::result::OpResult;

pub(super) use check::{check, unknown};

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
