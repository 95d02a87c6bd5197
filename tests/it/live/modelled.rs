//! An agent on a model of HAProxy: it may call itself by any release, it has as many
//! sessions as a test says, and it keeps every command.

use super::world::op;
use crate::support::agent::{Agent, Apply, Setup};
use crate::support::certs;
use crate::support::haproxy::Version;
use haptic_agent::testkit::fake_haproxy::{
    Backend, Bind, FakeHaproxy, Model, Server, Version as Branch,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub(super) const MAP: &str = "maps/path.map";
pub(super) const CERT: &str = "certs/site.pem";
pub(super) const CA: &str = "ca/clients.pem";
pub(super) const LIST: &str = "lists/site.list";
pub(super) const IDLE: &str = "certs/idle.pem";
const ROWS: &str = "certs/site.pem a.example\ncerts/idle.pem b.example\n";

/// An agent on a modelled HAProxy, with the first set applied.
pub(super) struct Site {
    pub(super) agent: Agent,
    pub(super) haproxy: FakeHaproxy,
    pub(super) version: Version,
    pub(super) files: BTreeMap<&'static str, Vec<u8>>,
    pub(super) base: PathBuf,
    seq: u64,
    _dir: tempfile::TempDir,
}

fn branch(version: Version) -> Branch {
    match version {
        Version::V3_0 => Branch::V3_0,
        Version::V3_2 => Branch::V3_2,
        Version::V3_4 => Branch::V3_4,
    }
}

impl Site {
    pub(super) fn start(version: Version) -> Self {
        Self::with(version, None, |setup| setup)
    }

    /// One that calls itself `release`, and an agent with flags of its own.
    pub(super) fn with(
        version: Version,
        release: Option<&str>,
        flags: impl FnOnce(Setup) -> Setup,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        fs::create_dir(&base).unwrap();
        let server = |name: &str| Server::new(name, "127.0.0.1", 80);
        let backend = Backend::new("b").server(server("s1")).server(server("s2"));
        let pem = certs::first().pem();
        let model = Model::new()
            .defaults("tmpl")
            .map(MAP, "/a one\n")
            .cert(CERT, &pem)
            .cert(IDLE, &pem)
            .ca(CA, 1)
            .bind(Bind::new().crt(CERT).ca_file(CA))
            .crt_list(LIST, ROWS)
            .bind(Bind::new().crt_list(LIST))
            .backend(backend);
        let loaded = model.clone();
        let mut haproxy = FakeHaproxy::builder(branch(version)).model(model);
        if let Some(release) = release {
            haproxy = haproxy.full_version(release);
        }
        let haproxy = haproxy
            .on_reload(move |_| Ok(loaded.clone()))
            .start(&base.join("master.sock"), &base.join("worker.sock"))
            .unwrap();
        let agent = flags(Setup::new(&base)).start();
        let files = BTreeMap::from([
            ("haproxy.cfg", b"# a configuration\n".to_vec()),
            (MAP, b"/a one\n".to_vec()),
            (CERT, pem.clone().into_bytes()),
            (IDLE, pem.into_bytes()),
            (CA, certs::first().cert.clone().into_bytes()),
            (LIST, ROWS.as_bytes().to_vec()),
        ]);
        let mut site = Self {
            agent,
            haproxy,
            version,
            files,
            base,
            seq: 0,
            _dir: dir,
        };
        site.apply("reload", &[]).succeed(&site.agent, "reload");
        site
    }

    pub(super) fn apply(&mut self, mode: &str, ops: &[Value]) -> Apply {
        self.seq += 1;
        let state = self.agent.state_with("?plan=0");
        let mut apply = Apply::new(&format!("p{}", self.seq), 1, self.seq).mode(mode);
        for (path, bytes) in &self.files {
            apply = apply.file(path, bytes);
            let kind = match path.split_once('/') {
                Some(("ca", _)) => "ca",
                Some(("lists", _)) => "crtlist",
                Some(_) | None => continue,
            };
            let files = apply.manifest["files"].as_array_mut().unwrap();
            files.last_mut().unwrap()["kind"] = kind.into();
        }
        apply.on(&state).edit(|manifest| {
            if mode == "auto" {
                manifest["ops"] = json!(ops);
            }
        })
    }
}

/// An op on a server of the backend `b`.
pub(super) fn server(kind: &str, name: &str, more: Value) -> Value {
    let mut fields = more;
    fields["backend"] = json!("b");
    fields["server"] = json!(name);
    op(kind, fields)
}
