//! An agent on a model of HAProxy: it may call itself by any release, it has as many
//! sessions as a test says, and it keeps every command.

use crate::support::agent::{Agent, Apply, Setup};
use crate::support::certs;
use crate::support::haproxy::Version;
use haptic_agent::testkit::fake_haproxy::{
    Backend, Bind, FakeHaproxy, Model, Server, Version as Branch,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

pub(super) const MAP: &str = "maps/path.map";
pub(super) const CERT: &str = "certs/site.pem";
pub(super) const CA: &str = "ca/clients.pem";

/// An agent on a modelled HAProxy, with the first set applied.
pub(super) struct Site {
    pub(super) agent: Agent,
    pub(super) haproxy: FakeHaproxy,
    pub(super) version: Version,
    pub(super) files: BTreeMap<&'static str, Vec<u8>>,
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
            .ca(CA, 1)
            .bind(Bind::new().crt(CERT).ca_file(CA))
            .backend(backend);
        let mut haproxy = FakeHaproxy::builder(branch(version)).model(model);
        if let Some(release) = release {
            haproxy = haproxy.full_version(release);
        }
        let haproxy = haproxy
            .on_reload(|running| Ok(running.clone()))
            .start(&base.join("master.sock"), &base.join("worker.sock"))
            .unwrap();
        let agent = flags(Setup::new(&base)).start();
        let files = BTreeMap::from([
            ("haproxy.cfg", b"# a configuration\n".to_vec()),
            (MAP, b"/a one\n".to_vec()),
            (CERT, pem.into_bytes()),
            (CA, certs::first().cert.clone().into_bytes()),
        ]);
        let mut site = Self {
            agent,
            haproxy,
            version,
            files,
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
            if path.starts_with("ca/") {
                let files = apply.manifest["files"].as_array_mut().unwrap();
                files.last_mut().unwrap()["kind"] = "ca".into();
            }
        }
        apply.on(&state).edit(|manifest| {
            if mode == "auto" {
                manifest["ops"] = json!(ops);
            }
        })
    }
}
