//! What a controller wants: maps, backends with servers, certificates, CA files and a
//! crt-list. Every change gives the ops for it; the files are composed from the whole.

use crate::support::certs::{self, Material};
use crate::support::haproxy::preamble;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub(crate) const HOSTS: &str = "maps/host.map";
pub(crate) const PATHS: &str = "maps/path.map";
pub(crate) const LIST: &str = "lists/site.list";
pub(crate) const DEFAULT: &str = "certs/default.pem";
pub(crate) const CLIENTS: &str = "ca/clients.pem";
/// The backend that the background load uses; its server `keep` never changes.
pub(crate) const STEADY: &str = "steady";
/// In front of the name of every backend that the model does not follow.
pub(crate) const EXTRA: &str = "extra";

/// A certificate for `m<n>.example`, with its serial as HAProxy prints it.
pub(crate) struct Made {
    pub(crate) material: Material,
    pub(crate) serial: String,
}

pub(crate) fn made(n: usize) -> &'static Made {
    static ALL: OnceLock<Vec<Made>> = OnceLock::new();
    let all = ALL.get_or_init(|| (0..4).map(|n| make(&format!("m{n}.example"))).collect());
    &all[n]
}

fn make(name: &str) -> Made {
    let material = certs::make(name);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cert.pem");
    std::fs::write(&file, &material.cert).unwrap();
    let done = Command::new("openssl")
        .args(["x509", "-noout", "-serial", "-in"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let serial = text.trim().strip_prefix("serial=").unwrap().to_owned();
    Made { material, serial }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admin {
    Ready,
    Maint,
    Drain,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) weight: u16,
    pub(crate) admin: Admin,
    pub(crate) check: bool,
    /// Spoken to over TLS as `m<n>.example`, and verified with this CA file.
    pub(crate) ca: Option<(usize, &'static str)>,
}

impl Server {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self {
            address,
            weight: 1,
            admin: Admin::Maint,
            check: false,
            ca: None,
        }
    }

    pub(crate) fn ready(self) -> Self {
        Self {
            admin: Admin::Ready,
            ..self
        }
    }

    /// Whether new requests go to it.
    pub(crate) fn serves(&self) -> bool {
        self.admin == Admin::Ready && self.weight > 0
    }

    fn keywords(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut all = vec![("weight", vec![self.weight.to_string()])];
        if self.check {
            all.push(("check", Vec::new()));
            all.push(("inter", vec!["500ms".to_owned()]));
        }
        if let Some((n, ca)) = self.ca {
            all.push(("sni", vec![format!("str(m{n}.example)")]));
            all.push(("ssl", Vec::new()));
            all.push(("verify", vec!["required".to_owned()]));
            all.push(("ca-file", vec![ca.to_owned()]));
        }
        all
    }
}

/// One row of the crt-list behind the default one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) cert: String,
    pub(crate) alpn: bool,
    pub(crate) filter: String,
}

impl Row {
    pub(crate) fn text(&self) -> String {
        let options = if self.alpn { " [alpn h2]" } else { "" };
        format!("{}{options} {}", self.cert, self.filter)
    }
}

pub(crate) type Servers = BTreeMap<String, Server>;

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) base: PathBuf,
    pub(crate) http: u16,
    pub(crate) tls: u16,
    pub(crate) maps: BTreeMap<&'static str, Vec<(String, String)>>,
    pub(crate) backends: BTreeMap<String, Servers>,
    /// Which certificate stands under a name.
    pub(crate) certs: BTreeMap<String, usize>,
    pub(crate) rows: Vec<Row>,
    pub(crate) cas: BTreeMap<&'static str, Vec<usize>>,
    /// Certificates that the worker holds, used or not: they go at a reload only.
    pub(crate) stored: BTreeSet<String>,
    /// Sections that the model does not follow: their names start with [`EXTRA`].
    pub(crate) more_config: String,
    /// Files that the model does not follow.
    pub(crate) more_files: BTreeMap<String, Vec<u8>>,
}

pub(crate) fn op(kind: &str, fields: Value) -> Value {
    let mut fields = fields;
    fields["kind"] = json!(kind);
    fields
}

fn of_server(kind: &str, backend: &str, server: &str, more: Value) -> Value {
    let mut fields = more;
    fields["backend"] = json!(backend);
    fields["server"] = json!(server);
    op(kind, fields)
}

impl World {
    /// Hosts `steady` and `b` with a server each at `first`, one certificate, one CA.
    pub(crate) fn new(base: PathBuf, http: u16, tls: u16, first: SocketAddr) -> Self {
        let one = |name: &str| {
            let server = Server::to(first).ready();
            Servers::from([(name.to_owned(), server)])
        };
        let route = |to: &str| (to.to_owned(), to.to_owned());
        Self {
            base,
            http,
            tls,
            maps: BTreeMap::from([
                (HOSTS, vec![route(STEADY), route("b")]),
                (PATHS, vec![("/map/a".to_owned(), "one".to_owned())]),
            ]),
            backends: BTreeMap::from([
                (STEADY.to_owned(), one("keep")),
                ("b".to_owned(), one("s1")),
            ]),
            certs: BTreeMap::from([(DEFAULT.to_owned(), 0)]),
            rows: Vec::new(),
            cas: BTreeMap::from([(CLIENTS, vec![1])]),
            stored: BTreeSet::from([DEFAULT.to_owned()]),
            more_config: String::new(),
            more_files: BTreeMap::new(),
        }
    }

    /// A reload loads what the files say: nothing else is held, and what a file cannot say
    /// is said by a weight.
    pub(crate) fn reloaded(&mut self) {
        self.stored = self.rows.iter().map(|row| row.cert.clone()).collect();
        self.stored.insert(DEFAULT.to_owned());
        let servers = self.backends.values_mut().flat_map(BTreeMap::values_mut);
        for server in servers.filter(|server| server.admin == Admin::Drain) {
            (server.admin, server.weight) = (Admin::Ready, 0);
        }
    }

    pub(crate) fn tls_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.tls))
    }

    // --- maps

    pub(crate) fn map_add(&mut self, map: &'static str, key: &str, value: &str) -> Value {
        let rows = self.maps.get_mut(map).unwrap();
        rows.push((key.to_owned(), value.to_owned()));
        op("map_add", json!({"path": map, "key": key, "value": value}))
    }

    pub(crate) fn map_set(&mut self, map: &'static str, key: &str, value: &str) -> Value {
        let rows = self.maps.get_mut(map).unwrap();
        for row in rows.iter_mut().filter(|row| row.0 == key) {
            value.clone_into(&mut row.1);
        }
        op("map_set", json!({"path": map, "key": key, "value": value}))
    }

    pub(crate) fn map_del(&mut self, map: &'static str, key: &str) -> Value {
        self.maps.get_mut(map).unwrap().retain(|row| row.0 != key);
        op("map_del", json!({"path": map, "key": key}))
    }

    /// The map becomes `rows`.
    pub(crate) fn map_replace(&mut self, map: &'static str, rows: Vec<(String, String)>) -> Value {
        self.maps.insert(map, rows);
        op("map_replace", json!({"path": map}))
    }

    // --- servers

    pub(crate) fn server(&mut self, backend: &str, server: &str) -> &mut Server {
        let servers = self.backends.get_mut(backend).unwrap();
        servers.get_mut(server).unwrap()
    }

    /// The op only: a server comes in maintenance.
    pub(crate) fn server_add(&mut self, backend: &str, name: &str, server: Server) -> Value {
        let keywords = server.keywords().into_iter();
        let keywords: Vec<Value> = keywords
            .map(|(name, args)| json!({"name": name, "args": args}))
            .collect();
        let address = json!({
            "address": server.address.ip().to_string(), "port": server.address.port(),
            "keywords": keywords,
        });
        let servers = self.backends.get_mut(backend).unwrap();
        let server = Server {
            admin: Admin::Maint,
            ..server
        };
        servers.insert(name.to_owned(), server);
        of_server("server_add", backend, name, address)
    }

    pub(crate) fn server_enable(&mut self, backend: &str, name: &str) -> Value {
        let server = self.server(backend, name);
        server.admin = Admin::Ready;
        let health = server.check;
        of_server("server_enable", backend, name, json!({"health": health}))
    }

    pub(crate) fn server_disable(&mut self, backend: &str, name: &str) -> Value {
        self.server(backend, name).admin = Admin::Maint;
        of_server("server_disable", backend, name, json!({}))
    }

    pub(crate) fn server_set_state(&mut self, backend: &str, name: &str, admin: Admin) -> Value {
        self.server(backend, name).admin = admin;
        let word = match admin {
            Admin::Ready => "ready",
            Admin::Maint => "maint",
            Admin::Drain => "drain",
        };
        of_server("server_set_state", backend, name, json!({"state": word}))
    }

    pub(crate) fn server_set_weight(&mut self, backend: &str, name: &str, weight: u16) -> Value {
        self.server(backend, name).weight = weight;
        of_server(
            "server_set_weight",
            backend,
            name,
            json!({"weight": weight}),
        )
    }

    pub(crate) fn server_set_addr(&mut self, backend: &str, name: &str, to: SocketAddr) -> Value {
        self.server(backend, name).address = to;
        let address = json!({"address": to.ip().to_string(), "port": to.port()});
        of_server("server_set_addr", backend, name, address)
    }

    pub(crate) fn server_del(&mut self, backend: &str, name: &str) -> Value {
        self.backends.get_mut(backend).unwrap().remove(name);
        of_server("server_del", backend, name, json!({}))
    }

    pub(crate) fn wait_server(&self, backend: &str, name: &str) -> Value {
        let budget = json!({"timeout_ms": 2000});
        of_server("wait_srv_removable", backend, name, budget)
    }

    pub(crate) fn shutdown(&self, backend: &str, name: &str) -> Value {
        of_server("shutdown_sessions", backend, name, json!({}))
    }

    // --- backends

    /// The whole of a new backend, routed by its name.
    pub(crate) fn backend_comes(&mut self, name: &str, servers: &Servers) -> Vec<Value> {
        self.backends.insert(name.to_owned(), Servers::new());
        let mut ops = vec![op(
            "backend_add",
            json!({"backend": name, "profile": "dynamic", "mode": "http"}),
        )];
        for (server, wanted) in servers {
            ops.push(self.server_add(name, server, wanted.clone()));
            if wanted.admin == Admin::Ready {
                ops.push(self.server_enable(name, server));
            }
        }
        ops.push(op("backend_publish", json!({"backend": name})));
        ops.push(self.map_add(HOSTS, name, name));
        ops
    }

    /// The whole sequence that takes it away.
    pub(crate) fn backend_goes(&mut self, name: &str) -> Vec<Value> {
        let mut ops = vec![self.map_del(HOSTS, name)];
        ops.push(op("backend_unpublish", json!({"backend": name})));
        let servers: Vec<String> = self.backends[name].keys().cloned().collect();
        for server in servers {
            ops.push(self.server_disable(name, &server));
            ops.push(self.wait_server(name, &server));
            ops.push(self.server_del(name, &server));
        }
        ops.push(op(
            "wait_be_removable",
            json!({"backend": name, "timeout_ms": 2000}),
        ));
        ops.push(op("backend_del", json!({"backend": name})));
        self.backends.remove(name);
        ops
    }

    // --- certificates

    pub(crate) fn cert_set(&mut self, path: &str, n: usize) -> Value {
        self.certs.insert(path.to_owned(), n);
        op("cert_set", json!({"path": path}))
    }

    pub(crate) fn cert_new(&mut self, path: &str, n: usize) -> Value {
        self.certs.insert(path.to_owned(), n);
        self.stored.insert(path.to_owned());
        op("cert_new", json!({"path": path}))
    }

    pub(crate) fn row_add(&mut self, row: Row) -> Value {
        let options = match row.alpn {
            true => json!([{"name": "alpn", "args": ["h2"]}]),
            false => json!([]),
        };
        let fields = json!({
            "path": LIST, "cert": row.cert, "options": options, "sni_filters": [row.filter],
        });
        self.rows.push(row);
        op("crtlist_add", fields)
    }

    /// The row and the file of its certificate.
    pub(crate) fn row_del(&mut self, cert: &str) -> Value {
        self.rows.retain(|row| row.cert != cert);
        self.certs.remove(cert);
        op("crtlist_del", json!({"path": LIST, "cert": cert}))
    }

    pub(crate) fn ca_set(&mut self, path: &'static str, made: Vec<usize>) -> Value {
        self.cas.insert(path, made);
        op("ca_set", json!({"path": path}))
    }

    pub(crate) fn ca_new(&mut self, path: &'static str, made: Vec<usize>) -> Value {
        self.cas.insert(path, made);
        op("ca_new", json!({"path": path}))
    }

    // --- files

    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::from([
            ("haproxy.cfg".to_owned(), self.config().into_bytes()),
            (LIST.to_owned(), self.list().into_bytes()),
        ]);
        for (path, rows) in &self.maps {
            let text: String = rows.iter().map(|(k, v)| format!("{k} {v}\n")).collect();
            files.insert((*path).to_owned(), text.into_bytes());
        }
        for (path, n) in &self.certs {
            files.insert(path.clone(), made(*n).material.pem().into_bytes());
        }
        for (path, all) in &self.cas {
            let text: String = all.iter().map(|n| &*made(*n).material.cert).collect();
            files.insert((*path).to_owned(), text.into_bytes());
        }
        files.extend(self.more_files.clone());
        files
    }

    fn list(&self) -> String {
        let rows = self.rows.iter().map(|row| row.text() + "\n");
        format!("{DEFAULT}\n{}", rows.collect::<String>())
    }

    fn config(&self) -> String {
        let mut text = preamble(&self.base);
        text.push_str(&format!(
            "frontend front
    bind 127.0.0.1:{http}
    http-request return status 200 content-type text/plain lf-string %[path,map({PATHS},none)] if {{ path_beg /map/ }}
    use_backend %[req.hdr(host),map({HOSTS},fallback)]
frontend tls
    bind 127.0.0.1:{tls} ssl crt-list {LIST} ca-file {CLIENTS} verify optional crt-ignore-err all ca-ignore-err all
    http-request return status 200 content-type text/plain lf-string verify=%[ssl_c_verify],%[ssl_c_ca_err]
backend fallback
    http-request return status 418
",
            http = self.http,
            tls = self.tls,
        ));
        for (name, servers) in &self.backends {
            text.push_str(&format!("backend {name}\n    balance roundrobin\n"));
            text.push_str("    option redispatch\n    retries 3\n    timeout server 30s\n");
            for (name, server) in servers {
                text.push_str(&format!("    server {name} {}", server.address));
                let drained = server.admin == Admin::Drain;
                let weight = if drained { 0 } else { server.weight };
                for (word, args) in (Server {
                    weight,
                    ..server.clone()
                })
                .keywords()
                {
                    text.push_str(&format!(" {word}"));
                    args.iter()
                        .for_each(|arg| text.push_str(&format!(" {arg}")));
                }
                if server.admin == Admin::Maint {
                    text.push_str(" disabled");
                }
                text.push('\n');
            }
        }
        text.push_str(&self.more_config);
        text.push_str("defaults dynamic\n    mode http\n    balance roundrobin\n    option redispatch\n    retries 3\n    timeout connect 2s\n    timeout server 30s\n");
        text
    }
}
