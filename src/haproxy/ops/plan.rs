//! Which deletes of a batch can wait.
//!
//! Pure. A delete whose name comes again later in the batch cannot; neither can that of
//! a server whose backend cannot. Waits and shutdowns in front of a delete that waits
//! are its own business: they only say how long it may take.

use super::typed::TypedOp;
use crate::format::field::{Name, ServerRef};
use crate::haproxy::deletes::Key;
use std::collections::{BTreeMap, BTreeSet};

/// Which deletes of a batch cannot wait, and what the ops before them ask for.
#[derive(Default)]
pub(super) struct Deletes {
    /// Deletes of something that is added again later.
    pub(super) in_place: BTreeSet<usize>,
    /// Waits and shutdowns that a later delete carries out.
    pub(super) absorbed: BTreeSet<usize>,
    /// By the delete.
    pub(super) asked: BTreeMap<usize, Asked>,
}

#[derive(Default, Clone, Copy)]
pub(super) struct Asked {
    pub(super) timeout_ms: Option<u64>,
    pub(super) cut: bool,
}

impl Deletes {
    /// From the end to the front, so that "later" is what has been seen.
    pub(super) fn of(ops: &[TypedOp]) -> Self {
        let mut this = Self::default();
        let mut added = BTreeSet::new();
        let mut removed_in_place = BTreeSet::new();
        let mut next_delete: BTreeMap<Key, usize> = BTreeMap::new();
        for (at, op) in ops.iter().enumerate().rev() {
            match op {
                TypedOp::BackendAdd { backend, .. } => {
                    added.insert(backend_key(backend));
                }
                TypedOp::ServerAdd { server, .. } => {
                    added.insert(server_key(server));
                }
                TypedOp::BackendDel(backend) => {
                    let key = backend_key(backend);
                    if added.contains(&key) {
                        this.in_place.insert(at);
                        removed_in_place.insert(backend.clone());
                    }
                    next_delete.insert(key, at);
                }
                TypedOp::ServerDel(server) => {
                    let key = server_key(server);
                    if added.contains(&key) || removed_in_place.contains(&server.backend) {
                        this.in_place.insert(at);
                    }
                    next_delete.insert(key, at);
                }
                TypedOp::WaitBackend {
                    backend,
                    timeout_ms,
                } => this.absorb(at, next_delete.get(&backend_key(backend)), |asked| {
                    asked.timeout_ms = asked.timeout_ms.or(*timeout_ms);
                }),
                TypedOp::WaitServer { server, timeout_ms } => {
                    this.absorb(at, next_delete.get(&server_key(server)), |asked| {
                        asked.timeout_ms = asked.timeout_ms.or(*timeout_ms);
                    });
                }
                TypedOp::ShutdownSessions(server) => {
                    this.absorb(at, next_delete.get(&server_key(server)), |asked| {
                        asked.cut = true;
                    });
                }
                TypedOp::BackendPublish(_)
                | TypedOp::BackendUnpublish(_)
                | TypedOp::ServerEnable { .. }
                | TypedOp::ServerDisable(_)
                | TypedOp::ServerSetAddr { .. }
                | TypedOp::ServerSetWeight { .. }
                | TypedOp::ServerSetState { .. }
                | TypedOp::MapAdd { .. }
                | TypedOp::MapSet { .. }
                | TypedOp::MapDel { .. }
                | TypedOp::MapReplace(_)
                | TypedOp::CertSet(_)
                | TypedOp::CertNew(_)
                | TypedOp::CaSet(_)
                | TypedOp::CaNew(_)
                | TypedOp::CrtlistAdd { .. }
                | TypedOp::CrtlistDel { .. } => {}
            }
        }
        this
    }

    fn absorb(&mut self, at: usize, delete: Option<&usize>, ask: impl FnOnce(&mut Asked)) {
        if let Some(&delete) = delete {
            self.absorbed.insert(at);
            ask(self.asked.entry(delete).or_default());
        }
    }
}

pub(super) fn server_key(server: &ServerRef) -> Key {
    Key::Server {
        backend: server.backend.to_string(),
        server: server.server.to_string(),
    }
}

pub(super) fn backend_key(backend: &Name) -> Key {
    Key::Backend {
        backend: backend.to_string(),
    }
}
