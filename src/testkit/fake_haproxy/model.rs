//! What a worker of the fake holds: what its configuration said, and what commands have
//! changed since.
//!
//! Values, no sockets. A model is built by whoever plays the configuration: a test at the
//! start, the reload hook afterwards. Commands work on it in `servers`, `backends`,
//! `maps` and `tls`.

use std::time::Instant;

use super::pem::Pem;

/// A branch of HAProxy; each lacks or answers some commands differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 3.0, as 3.0.11.
    V3_0,
    /// 3.2, as 3.2.26.
    V3_2,
    /// 3.4, as 3.4.7.
    V3_4,
}

impl Version {
    /// What it says of itself.
    #[must_use]
    pub fn full(self) -> &'static str {
        match self {
            Self::V3_0 => "3.0.11-1+deb13u4",
            Self::V3_2 => "3.2.26-1",
            Self::V3_4 => "3.4.7-1",
        }
    }
}

/// Everything a worker has loaded.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub(super) frontends: Vec<String>,
    pub(super) defaults: Vec<String>,
    pub(super) backends: Vec<Backend>,
    pub(super) maps: Vec<Map>,
    pub(super) binds: Vec<Bind>,
    pub(super) certs: Vec<Cert>,
    pub(super) cas: Vec<Ca>,
    pub(super) crls: Vec<String>,
    pub(super) crt_lists: Vec<CrtList>,
    pub(super) cert_transaction: Option<CertTransaction>,
    pub(super) ca_transaction: Option<Ca>,
    /// What 3.4 says once more in front of its answer to `del backend`.
    pub(super) said: Vec<String>,
    /// The next id of a proxy; frontends and backends share them.
    next_proxy: u32,
    /// The next address of a map entry.
    pub(super) next_entry: u64,
}

/// The first id that a proxy of the configuration gets.
const FIRST_PROXY: u32 = 2;

impl Model {
    /// Nothing loaded.
    #[must_use]
    pub fn new() -> Self {
        Self {
            next_proxy: FIRST_PROXY,
            next_entry: 0x5500_0000_1000,
            ..Self::default()
        }
    }

    /// A frontend; its name cannot be a backend's.
    #[must_use]
    pub fn frontend(mut self, name: &str) -> Self {
        self.frontends.push(name.to_owned());
        self.next_proxy += 1;
        self
    }

    /// A named defaults section, which `add backend … from` can refer to.
    #[must_use]
    pub fn defaults(mut self, name: &str) -> Self {
        self.defaults.push(name.to_owned());
        self
    }

    /// A backend; see [`Backend::new`].
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.add_backend(backend);
        self
    }

    pub(super) fn add_backend(&mut self, mut backend: Backend) {
        backend.id = self.next_proxy;
        self.next_proxy += 1;
        self.backends.push(backend);
    }

    /// A map with the content of its file.
    #[must_use]
    pub fn map(mut self, name: &str, file: &str) -> Self {
        let mut map = Map {
            name: name.to_owned(),
            current: 0,
            newest: 0,
            entries: Vec::new(),
        };
        for line in file.split('\n') {
            let line = line.split('\r').next().unwrap_or_default();
            let rest = line.trim_start_matches([' ', '\t']);
            if line.starts_with('#') || rest.is_empty() {
                continue;
            }
            let (key, value) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
            let address = self.take_address();
            map.entries.push(Entry {
                address,
                version: 0,
                key: key.to_owned(),
                value: value.trim_matches([' ', '\t']).to_owned(),
            });
        }
        self.maps.push(map);
        self
    }

    pub(super) fn take_address(&mut self) -> u64 {
        self.next_entry += 0x40;
        self.next_entry
    }

    /// A certificate with the content of its file, unused until a bind or a crt-list names
    /// it.
    #[must_use]
    pub fn cert(mut self, name: &str, file: &str) -> Self {
        self.certs.push(Cert {
            name: name.to_owned(),
            pem: Pem::read(file),
            from_file: true,
        });
        self
    }

    /// A CA file with so many certificates.
    #[must_use]
    pub fn ca(mut self, name: &str, certificates: usize) -> Self {
        self.cas.push(Ca {
            name: name.to_owned(),
            certificates,
        });
        self
    }

    /// A CRL file.
    #[must_use]
    pub fn crl(mut self, name: &str) -> Self {
        self.crls.push(name.to_owned());
        self
    }

    /// A crt-list with the content of its file: `cert [options] filter…` a line.
    #[must_use]
    pub fn crt_list(mut self, name: &str, file: &str) -> Self {
        let mut list = CrtList {
            name: name.to_owned(),
            next_line: 1,
            rows: Vec::new(),
        };
        for line in file.lines().filter(|line| !line.trim().is_empty()) {
            list.rows.push(Row::parse(line, list.next_line));
            list.next_line += 1;
        }
        self.crt_lists.push(list);
        self
    }

    /// A `bind … ssl`: what it names is in use.
    #[must_use]
    pub fn bind(mut self, bind: Bind) -> Self {
        self.binds.push(bind);
        self
    }

    /// A backend by its name.
    #[must_use]
    pub fn find(&self, backend: &str) -> Option<&Backend> {
        self.backends.iter().find(|known| known.name == backend)
    }

    /// A map's entries as lookups see them, in HAProxy's order.
    #[must_use]
    pub fn entries(&self, map: &str) -> Option<Vec<(String, String)>> {
        let map = self.maps.iter().find(|known| known.name == map)?;
        let seen = map
            .entries
            .iter()
            .filter(|entry| entry.version == map.current);
        Some(
            seen.map(|entry| (entry.key.clone(), entry.value.clone()))
                .collect(),
        )
    }

    /// The certificates' names, sorted.
    #[must_use]
    pub fn cert_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.certs.iter().map(|cert| cert.name.clone()).collect();
        names.sort_unstable();
        names
    }
}

/// A backend.
#[derive(Debug, Clone)]
pub struct Backend {
    pub(super) name: String,
    pub(super) id: u32,
    /// Its load balancing takes servers at runtime.
    pub(super) dynamic: bool,
    /// Something of the configuration points to it.
    pub(super) referenced: bool,
    pub(super) published: bool,
    pub(super) guid: Option<String>,
    /// Streams that are attached to it.
    pub(super) streams: usize,
    pub(super) servers: Vec<Server>,
    pub(super) next_server: u32,
}

impl Backend {
    /// A backend that takes servers at runtime and that nothing points to.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            id: 0,
            dynamic: true,
            referenced: false,
            published: true,
            guid: None,
            streams: 0,
            servers: Vec::new(),
            next_server: 1,
        }
    }

    /// A static algorithm: no servers at runtime, no weights.
    #[must_use]
    pub fn fixed(mut self) -> Self {
        self.dynamic = false;
        self
    }

    /// A rule of the configuration names it: it cannot be deleted.
    #[must_use]
    pub fn referenced(mut self) -> Self {
        self.referenced = true;
        self
    }

    /// A server of the configuration, up.
    #[must_use]
    pub fn server(mut self, server: Server) -> Self {
        self.add_server(server);
        self
    }

    pub(super) fn add_server(&mut self, mut server: Server) {
        server.id = self.next_server;
        self.next_server += 1;
        self.servers.push(server);
    }

    /// Its servers' names, in HAProxy's order.
    #[must_use]
    pub fn server_names(&self) -> Vec<&str> {
        self.servers
            .iter()
            .map(|server| server.name.as_str())
            .collect()
    }

    /// One of its servers.
    #[must_use]
    pub fn find(&self, server: &str) -> Option<&Server> {
        self.servers.iter().find(|known| known.name == server)
    }
}

/// A server.
#[derive(Debug, Clone)]
pub struct Server {
    pub(super) name: String,
    pub(super) id: u32,
    /// `None` is a unix socket.
    pub(super) address: Option<String>,
    pub(super) port: u16,
    pub(super) weight: u32,
    pub(super) initial_weight: u32,
    /// 1 maintenance, 8 drain.
    pub(super) admin: u32,
    pub(super) check: bool,
    pub(super) agent: Option<Agent>,
    /// Connections that keep it from being deleted.
    pub(super) connections: usize,
    /// An address that was answered and is not in place yet.
    pub(super) coming: Option<Coming>,
}

/// A server's agent check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) port: u16,
    pub(super) asked: bool,
}

/// HAProxy answers before another of its tasks puts the address in place.
#[derive(Debug, Clone)]
pub(super) struct Coming {
    pub(super) at: Instant,
    pub(super) address: String,
    pub(super) port: u16,
}

impl Server {
    /// A server on an address of the configuration, weight 1, ready.
    #[must_use]
    pub fn new(name: &str, address: &str, port: u16) -> Self {
        Self {
            name: name.to_owned(),
            id: 0,
            address: Some(address.to_owned()),
            port,
            weight: 1,
            initial_weight: 1,
            admin: 0,
            check: false,
            agent: None,
            connections: 0,
            coming: None,
        }
    }

    /// Its weight in the configuration.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self.initial_weight = weight;
        self
    }

    /// Its address and port; `-` is a unix socket.
    #[must_use]
    pub fn place(&self) -> (&str, u16) {
        (self.address.as_deref().unwrap_or("-"), self.port)
    }

    /// Its weight now.
    #[must_use]
    pub fn current_weight(&self) -> u32 {
        self.weight
    }

    /// 0 ready, 1 maintenance, 8 drain.
    #[must_use]
    pub fn admin_state(&self) -> u32 {
        self.admin
    }
}

/// A map.
#[derive(Debug, Clone)]
pub(super) struct Map {
    pub(super) name: String,
    pub(super) current: u32,
    pub(super) newest: u32,
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) address: u64,
    pub(super) version: u32,
    pub(super) key: String,
    pub(super) value: String,
}

/// A listener with certificates.
#[derive(Debug, Clone, Default)]
pub struct Bind {
    pub(super) certs: Vec<String>,
    pub(super) list: Option<String>,
    pub(super) ca: Option<String>,
    /// On 3.0 a CA commit takes the bind away from its certificates.
    pub(super) detached: bool,
}

impl Bind {
    /// A listener with nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `crt`.
    #[must_use]
    pub fn crt(mut self, name: &str) -> Self {
        self.certs.push(name.to_owned());
        self
    }

    /// `crt-list`.
    #[must_use]
    pub fn crt_list(mut self, name: &str) -> Self {
        self.list = Some(name.to_owned());
        self
    }

    /// `ca-file`.
    #[must_use]
    pub fn ca_file(mut self, name: &str) -> Self {
        self.ca = Some(name.to_owned());
        self
    }
}

/// A certificate store.
#[derive(Debug, Clone)]
pub(super) struct Cert {
    pub(super) name: String,
    pub(super) pem: Pem,
    /// HAProxy read it when it started.
    pub(super) from_file: bool,
}

/// The one certificate transaction.
#[derive(Debug, Clone)]
pub(super) struct CertTransaction {
    pub(super) name: String,
    pub(super) pem: Pem,
}

/// A CA file, or the one CA transaction.
#[derive(Debug, Clone)]
pub(super) struct Ca {
    pub(super) name: String,
    pub(super) certificates: usize,
}

/// A crt-list.
#[derive(Debug, Clone)]
pub(super) struct CrtList {
    pub(super) name: String,
    pub(super) next_line: u32,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) cert: String,
    pub(super) line: u32,
    pub(super) options: Option<String>,
    pub(super) filters: String,
}

impl Row {
    /// `cert [options] filter…`.
    pub(super) fn parse(text: &str, line: u32) -> Self {
        let (cert, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let rest = rest.trim();
        let bracket = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (options, filters) = match bracket {
            Some((options, filters)) => (Some(options.trim().to_owned()), filters.trim()),
            None => (None, rest),
        };
        Self {
            cert: cert.to_owned(),
            line,
            options,
            filters: filters.to_owned(),
        }
    }
}
