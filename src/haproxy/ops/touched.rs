//! What a batch leaves behind, for the look at the worker afterwards.
//!
//! Composed from the ops alone, in their order: a later op on the same object wins.

use super::typed::{Address, AdminState, TypedOp};
use crate::format::field;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The objects that a batch changes, and how they must look when it succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// Maps, by path.
    pub maps: BTreeMap<String, MapCheck>,
    /// Backends that were added or had servers changed.
    pub backends: BTreeMap<String, TouchedBackend>,
    /// Certificates, by path; true for new ones.
    pub certs: BTreeMap<String, bool>,
    /// CA files, by path; true for new ones.
    pub cas: BTreeMap<String, bool>,
    /// Rows of crt-lists, by list and certificate; whether they are there.
    pub crt_rows: BTreeMap<(String, String), bool>,
}

/// How a map is compared with its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapCheck {
    /// Entry by entry: the whole map was replaced.
    Sequence,
    /// Single entries were changed: the same entries, and the same order of the values
    /// of one key.
    Entries,
}

/// What is known of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TouchedBackend {
    /// It was added (true) or deleted (false).
    pub exists: Option<bool>,
    /// Servers by name.
    pub servers: BTreeMap<String, TouchedServer>,
}

/// What is known of a server. `None` is not compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TouchedServer {
    /// It is deleted, or will be as soon as nobody uses it.
    pub deleted: bool,
    /// Address, with a port where one was given.
    pub address: Option<(IpAddr, Option<u16>)>,
    /// Weight as it was set.
    pub weight: Option<u16>,
    /// The bits of maintenance (1) and drain (8).
    pub admin: Option<u8>,
}

impl Touched {
    /// Whether there is nothing to look at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What a later batch changed as well. Where both touched a server, only what the later
    /// one says of it is compared: whether it is the same server is not known here.
    pub fn extend(&mut self, later: Self) {
        self.maps.extend(later.maps);
        for (path, new) in later.certs {
            *self.certs.entry(path).or_default() |= new;
        }
        for (path, new) in later.cas {
            *self.cas.entry(path).or_default() |= new;
        }
        self.crt_rows.extend(later.crt_rows);
        for (name, backend) in later.backends {
            match self.backends.get_mut(&name) {
                Some(known) if backend.exists.is_none() => known.servers.extend(backend.servers),
                Some(_) | None => {
                    self.backends.insert(name, backend);
                }
            }
        }
    }

    pub(crate) fn of(ops: &[TypedOp]) -> Self {
        let mut touched = Self::default();
        for op in ops {
            touched.add(op);
        }
        touched
    }

    fn server(&mut self, server: &field::ServerRef) -> &mut TouchedServer {
        let backend = self.backends.entry(server.backend.to_string()).or_default();
        backend
            .servers
            .entry(server.server.to_string())
            .or_default()
    }

    fn backend(&mut self, name: &field::Name) -> &mut TouchedBackend {
        self.backends.entry(name.to_string()).or_default()
    }

    fn map(&mut self, path: &field::RuntimePath, check: MapCheck) {
        match self.maps.get_mut(path.as_str()) {
            Some(known) => *known = check,
            None => {
                self.maps.insert(path.as_str().to_owned(), check);
            }
        }
    }

    fn add(&mut self, op: &TypedOp) {
        match op {
            TypedOp::BackendAdd { backend, .. } => {
                *self.backend(backend) = TouchedBackend {
                    exists: Some(true),
                    ..TouchedBackend::default()
                };
            }
            TypedOp::BackendDel(backend) => {
                *self.backend(backend) = TouchedBackend {
                    exists: Some(false),
                    ..TouchedBackend::default()
                };
            }
            TypedOp::ServerAdd {
                server, address, ..
            } => {
                *self.server(server) = TouchedServer {
                    address: match address {
                        Address::Ip(ip, port) => Some((*ip, Some(*port))),
                        Address::Unix(_) => None,
                    },
                    // It begins in maintenance.
                    admin: Some(1),
                    ..TouchedServer::default()
                };
            }
            TypedOp::ServerEnable { server, .. }
            | TypedOp::ServerSetState {
                server,
                state: AdminState::Ready,
            } => {
                let server = self.server(server);
                // A delete before it is no more.
                server.deleted = false;
                server.admin = Some(0);
            }
            TypedOp::ServerDisable(server)
            | TypedOp::ServerSetState {
                server,
                state: AdminState::Maint,
            } => self.server(server).admin = Some(1),
            TypedOp::ServerSetState {
                server,
                state: AdminState::Drain,
            } => self.server(server).admin = Some(8),
            TypedOp::BackendPublish(backend) => {
                let deleted = self.backends.get_mut(backend.as_str());
                if let Some(exists) = deleted.and_then(|backend| backend.exists.as_mut()) {
                    *exists = true;
                }
            }
            TypedOp::ServerSetAddr { server, ip, port } => {
                let seen = &mut self.server(server).address;
                let before = seen.and_then(|(_, port)| port);
                *seen = Some((*ip, port.or(before)));
            }
            TypedOp::ServerSetWeight { server, weight } => {
                self.server(server).weight = Some(*weight);
            }
            TypedOp::ServerDel(server) => {
                *self.server(server) = TouchedServer {
                    deleted: true,
                    ..TouchedServer::default()
                };
            }
            TypedOp::MapAdd { path, .. }
            | TypedOp::MapSet { path, .. }
            | TypedOp::MapDel { path, .. } => {
                self.map(path, MapCheck::Entries);
            }
            TypedOp::MapReplace(path) => self.map(path, MapCheck::Sequence),
            TypedOp::CertNew(path) => {
                self.certs.insert(path.to_string(), true);
            }
            TypedOp::CertSet(path) => {
                self.certs.entry(path.to_string()).or_insert(false);
            }
            TypedOp::CaNew(path) => {
                self.cas.insert(path.to_string(), true);
            }
            TypedOp::CaSet(path) => {
                self.cas.entry(path.to_string()).or_insert(false);
            }
            TypedOp::CrtlistAdd { path, cert, .. } => {
                let row = (path.to_string(), cert.to_string());
                self.crt_rows.insert(row, true);
            }
            TypedOp::CrtlistDel { path, cert } => {
                let row = (path.to_string(), cert.to_string());
                self.crt_rows.insert(row, false);
            }
            TypedOp::BackendUnpublish(_)
            | TypedOp::WaitBackend { .. }
            | TypedOp::WaitServer { .. }
            | TypedOp::ShutdownSessions(_) => {}
        }
    }
}
