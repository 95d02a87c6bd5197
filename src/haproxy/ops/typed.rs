//! Ops whose fields passed their rules.

use crate::format::field::{self, Name, RuntimePath, ServerRef, Word, required};
use crate::format::{Fault, HaproxyVersion};
use crate::wire::op::{Keyword, Op, OpKind};
use std::net::IpAddr;

/// One op, checked for one version of HAProxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypedOp {
    BackendAdd {
        backend: Name,
        profile: Name,
        mode: &'static str,
        guid: Option<Word>,
    },
    BackendPublish(Name),
    BackendUnpublish(Name),
    BackendDel(Name),
    /// Without a time, of a delete later in the batch, the configured grace stands.
    WaitBackend {
        backend: Name,
        timeout_ms: Option<u64>,
    },
    ServerAdd {
        server: ServerRef,
        address: Address,
        keywords: Vec<ServerKeyword>,
    },
    ServerEnable {
        server: ServerRef,
        health: bool,
    },
    ServerDisable(ServerRef),
    ServerSetAddr {
        server: ServerRef,
        ip: IpAddr,
        port: Option<u16>,
    },
    ServerSetWeight {
        server: ServerRef,
        weight: u16,
    },
    ServerSetState {
        server: ServerRef,
        state: AdminState,
    },
    WaitServer {
        server: ServerRef,
        timeout_ms: Option<u64>,
    },
    ShutdownSessions(ServerRef),
    ServerDel(ServerRef),
    MapAdd {
        path: RuntimePath,
        key: Word,
        value: String,
    },
    MapSet {
        path: RuntimePath,
        key: Word,
        value: Word,
    },
    MapDel {
        path: RuntimePath,
        key: Word,
    },
    MapReplace(RuntimePath),
    CertSet(RuntimePath),
    CertNew(RuntimePath),
    CaSet(RuntimePath),
    CaNew(RuntimePath),
    CrtlistAdd {
        path: RuntimePath,
        cert: RuntimePath,
        /// What follows the certificate on the line, with its leading blank.
        rest: String,
    },
    CrtlistDel {
        path: RuntimePath,
        cert: RuntimePath,
    },
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Ip(IpAddr, u16),
    /// As HAProxy takes it: an absolute path, with `unix@` in front or not.
    Unix(Word),
}

impl Address {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Ip(IpAddr::V4(ip), port) => format!("{ip}:{port}"),
            // Without brackets the last group would be read as the port.
            Self::Ip(IpAddr::V6(ip), port) => format!("[{ip}]:{port}"),
            Self::Unix(path) => path.to_string(),
        }
    }
}

/// A keyword with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerKeyword {
    pub(crate) name: Word,
    pub(crate) args: Vec<Word>,
}

/// What `set server … state` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdminState {
    Ready,
    Maint,
    Drain,
}

impl AdminState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Maint => "maint",
            Self::Drain => "drain",
        }
    }
}

impl TypedOp {
    /// Checks all that can be seen in the op itself.
    pub(crate) fn parse(op: &Op, version: &HaproxyVersion) -> Result<Self, Fault> {
        let kind = OpKind::parse(&op.kind).ok_or_else(|| {
            Fault::unsupported(format!("this agent knows no op of the kind {:?}", op.kind))
        })?;
        match kind {
            OpKind::BackendAdd
            | OpKind::BackendPublish
            | OpKind::BackendUnpublish
            | OpKind::BackendDel
            | OpKind::WaitBeRemovable => field::needs(&op.kind, (3, 4), version)?,
            OpKind::ServerAdd
            | OpKind::ServerEnable
            | OpKind::ServerDisable
            | OpKind::ServerSetAddr
            | OpKind::ServerSetWeight
            | OpKind::ServerSetState
            | OpKind::WaitSrvRemovable
            | OpKind::ShutdownSessions
            | OpKind::ServerDel
            | OpKind::MapAdd
            | OpKind::MapSet
            | OpKind::MapDel
            | OpKind::MapReplace
            | OpKind::CertSet
            | OpKind::CertNew
            | OpKind::CaSet
            | OpKind::CaNew
            | OpKind::CrtlistAdd
            | OpKind::CrtlistDel => {}
        }
        Ok(match kind {
            OpKind::BackendAdd => Self::BackendAdd {
                backend: backend(op)?,
                profile: field::name("profile", required("profile", op.profile.as_deref())?)?,
                mode: match required("mode", op.mode.as_deref())? {
                    "http" => "http",
                    "tcp" => "tcp",
                    other => {
                        return Err(Fault::invalid(format!(
                            "mode is {other:?} and must be http or tcp"
                        )));
                    }
                },
                guid: op
                    .guid
                    .as_deref()
                    .map(|guid| field::word("guid", guid))
                    .transpose()?,
            },
            OpKind::BackendPublish => Self::BackendPublish(backend(op)?),
            OpKind::BackendUnpublish => Self::BackendUnpublish(backend(op)?),
            OpKind::BackendDel => Self::BackendDel(backend(op)?),
            OpKind::WaitBeRemovable => Self::WaitBackend {
                backend: backend(op)?,
                timeout_ms: timeout(op)?,
            },
            OpKind::ServerAdd => Self::ServerAdd {
                server: server(op)?,
                address: address(op)?,
                keywords: keywords(&op.keywords, version)?,
            },
            OpKind::ServerEnable => Self::ServerEnable {
                server: server(op)?,
                health: op.health.unwrap_or(false),
            },
            OpKind::ServerDisable => Self::ServerDisable(server(op)?),
            OpKind::ServerSetAddr => Self::ServerSetAddr {
                server: server(op)?,
                ip: field::ip(required("address", op.address.as_deref())?)?,
                port: op.port.map(field::port).transpose()?,
            },
            OpKind::ServerSetWeight => Self::ServerSetWeight {
                server: server(op)?,
                weight: field::weight(*required("weight", op.weight.as_ref())?)?,
            },
            OpKind::ServerSetState => Self::ServerSetState {
                server: server(op)?,
                state: match required("state", op.state.as_deref())? {
                    "ready" => AdminState::Ready,
                    "maint" => AdminState::Maint,
                    "drain" => AdminState::Drain,
                    other => {
                        return Err(Fault::invalid(format!(
                            "state is {other:?} and must be ready, maint or drain"
                        )));
                    }
                },
            },
            OpKind::WaitSrvRemovable => Self::WaitServer {
                server: server(op)?,
                timeout_ms: timeout(op)?,
            },
            OpKind::ShutdownSessions => Self::ShutdownSessions(server(op)?),
            OpKind::ServerDel => Self::ServerDel(server(op)?),
            OpKind::MapAdd => Self::MapAdd {
                path: path(op)?,
                key: key(op)?,
                value: field::map_value(op.value.as_deref().unwrap_or_default())?.to_owned(),
            },
            OpKind::MapSet => Self::MapSet {
                path: path(op)?,
                key: key(op)?,
                value: field::word("value", required("value", op.value.as_deref())?)?,
            },
            OpKind::MapDel => Self::MapDel {
                path: path(op)?,
                key: key(op)?,
            },
            OpKind::MapReplace => Self::MapReplace(path(op)?),
            OpKind::CertSet => Self::CertSet(path(op)?),
            OpKind::CertNew => Self::CertNew(path(op)?),
            OpKind::CaSet => Self::CaSet(path(op)?),
            OpKind::CaNew => Self::CaNew(path(op)?),
            OpKind::CrtlistAdd => Self::CrtlistAdd {
                path: path(op)?,
                cert: cert(op)?,
                rest: crt_list_rest(op)?,
            },
            OpKind::CrtlistDel => Self::CrtlistDel {
                path: path(op)?,
                cert: cert(op)?,
            },
        })
    }
}

fn backend(op: &Op) -> Result<Name, Fault> {
    field::name("backend", required("backend", op.backend.as_deref())?)
}

fn server(op: &Op) -> Result<ServerRef, Fault> {
    Ok(ServerRef {
        backend: backend(op)?,
        server: field::name("server", required("server", op.server.as_deref())?)?,
    })
}

fn path(op: &Op) -> Result<RuntimePath, Fault> {
    field::path("path", required("path", op.path.as_deref())?)
}

fn cert(op: &Op) -> Result<RuntimePath, Fault> {
    field::path("cert", required("cert", op.cert.as_deref())?)
}

fn key(op: &Op) -> Result<Word, Fault> {
    field::map_key(required("key", op.key.as_deref())?)
}

fn timeout(op: &Op) -> Result<Option<u64>, Fault> {
    op.timeout_ms.map(field::timeout).transpose()
}

/// Host names are refused: HAProxy takes them at runtime and leaves the server without
/// any address.
fn address(op: &Op) -> Result<Address, Fault> {
    let text = required("address", op.address.as_deref())?;
    let socket = text.strip_prefix("unix@").unwrap_or(text);
    if socket.starts_with('/') {
        return match op.port {
            None => Ok(Address::Unix(field::word("address", text)?)),
            Some(port) => Err(Fault::invalid(format!(
                "port is {port} and a unix socket has none"
            ))),
        };
    }
    let ip = field::ip(text)?;
    let port = field::port(*required("port", op.port.as_ref())?)?;
    Ok(Address::Ip(ip, port))
}

fn keywords(list: &[Keyword], version: &HaproxyVersion) -> Result<Vec<ServerKeyword>, Fault> {
    let one = |keyword: &Keyword| {
        Ok(ServerKeyword {
            name: field::keyword_name(&keyword.name, version)?,
            args: keyword
                .args
                .iter()
                .map(|arg| field::argument("keywords.args", arg))
                .collect::<Result<_, _>>()?,
        })
    };
    list.iter().map(one).collect()
}

/// Options in one bracket group, then the filters: HAProxy drops filters that stand
/// before the bracket.
fn crt_list_rest(op: &Op) -> Result<String, Fault> {
    let mut rest = String::new();
    let mut options = Vec::new();
    for option in &op.options {
        options.push(field::crt_word("options.name", &option.name)?.to_string());
        for arg in &option.args {
            options.push(field::crt_word("options.args", arg)?.to_string());
        }
    }
    if !options.is_empty() {
        rest.push_str(" [");
        rest.push_str(&options.join(" "));
        rest.push(']');
    }
    for filter in &op.sni_filters {
        rest.push(' ');
        rest.push_str(field::crt_word("sni_filters", filter)?.as_str());
    }
    Ok(rest)
}
