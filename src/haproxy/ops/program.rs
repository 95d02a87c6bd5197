//! What a batch is made of: stretches of commands whose answers are known in advance,
//! and procedures that must read an answer before they go on.

use super::expect::Expect;
use crate::format::field::{Name, RuntimePath, ServerRef};
use crate::format::pem::{CaBundle, CertPem};
use crate::haproxy::command::Command;
use crate::haproxy::deletes::Key;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// One piece of a batch; the pieces run in their order, with a barrier between them.
#[derive(Debug, Clone)]
pub(crate) enum Segment {
    /// Pipelined; `steps[n]` tells what `commands[n]` is and must be answered.
    Plain {
        commands: Vec<Command>,
        steps: Vec<Step>,
    },
    /// `del map` of neighbouring ops, each until the key is not found.
    MapDels(Vec<MapDel>),
    /// Waits until addresses that were set can be seen: HAProxy applies them later.
    Settle(Vec<Settle>),
    MapReplace(MapReplace),
    Cert(CertProgram),
    Ca(CaProgram),
    CrtAdd {
        op: usize,
        path: RuntimePath,
        cert: RuntimePath,
        rest: String,
    },
    CrtDel {
        op: usize,
        path: RuntimePath,
        cert: RuntimePath,
        /// The certificates that the list on disk names; `None` when it has no file.
        on_disk: Option<BTreeSet<Vec<u8>>>,
    },
    /// A delete that cannot wait, because the same name comes again.
    Remove(Remove),
}

/// One command of one op.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) op: usize,
    pub(crate) expect: Expect,
    /// Whether the op is done with it.
    pub(crate) last: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct MapDel {
    pub(crate) op: usize,
    pub(crate) command: Command,
}

#[derive(Debug, Clone)]
pub(crate) struct Settle {
    pub(crate) op: usize,
    pub(crate) server: ServerRef,
    pub(crate) ip: IpAddr,
    pub(crate) port: Option<u16>,
}

#[derive(Debug, Clone)]
pub(crate) struct MapReplace {
    pub(crate) op: usize,
    pub(crate) path: RuntimePath,
    /// Bodies of the payloads, whole entries each.
    pub(crate) chunks: Vec<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub(crate) struct CertProgram {
    pub(crate) op: usize,
    pub(crate) path: RuntimePath,
    pub(crate) new: bool,
    pub(crate) pem: CertPem,
    /// Whether a commit that updates nothing shows that the certificate in use stays.
    pub(crate) zero: ZeroUpdates,
}

/// What a certificate commit means that names no updated instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroUpdates {
    /// Normal: nothing uses it yet.
    Fine,
    /// The old one stays (before 3.2, a CA commit by anyone causes it).
    NotApplied,
    /// The old one stays if the certificate is in use.
    NotAppliedIfUsed,
}

#[derive(Debug, Clone)]
pub(crate) struct CaProgram {
    pub(crate) op: usize,
    pub(crate) path: RuntimePath,
    pub(crate) new: bool,
    pub(crate) bundle: CaBundle,
}

#[derive(Debug, Clone)]
pub(crate) struct Remove {
    pub(crate) op: usize,
    /// Servers first.
    pub(crate) targets: Vec<Target>,
    /// Whether the op is the delete itself; else it follows as an add.
    pub(crate) is_delete: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) key: Key,
    /// Sessions may be cut at once.
    pub(crate) cut: bool,
}

/// The words of what stops a server's traffic for good: its agent first, whose next
/// answer could end the maintenance.
pub(crate) fn stop_server(server: &ServerRef) -> [String; 2] {
    [
        format!("disable agent {server}"),
        format!("disable server {server}"),
    ]
}

pub(crate) fn unpublish(backend: &Name) -> String {
    format!("unpublish backend {backend}")
}
