//! A HAProxy, its agent, upstream servers, and a model of what all of them hold.

use super::look::View;
use super::world::{STEADY, Server, World};
use crate::support::agent::{Agent, Apply, Setup, tree};
use crate::support::haproxy::{Haproxy, Version, minimal};
use crate::support::ports::Port;
use crate::support::traffic::{Backend, Load};
use crate::support::wait;
use haptic_agent::haproxy::{Deadline, Identity, WorkerSocket};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Live {
    pub(crate) agent: Agent,
    pub(crate) haproxy: Haproxy,
    pub(crate) world: World,
    pub(crate) upstreams: Vec<Backend>,
    pub(crate) setup: Setup,
    /// Kinds of ops whose effect was seen.
    pub(crate) shown: BTreeSet<String>,
    sent: BTreeMap<String, Vec<u8>>,
    seq: u64,
    base: PathBuf,
    _ports: [Port; 2],
    _dir: tempfile::TempDir,
}

impl Live {
    /// The first set is applied, and everything is as the model says.
    pub(crate) fn start(version: Version) -> Self {
        Self::with(version, |setup| setup)
    }

    pub(crate) fn with(version: Version, flags: impl FnOnce(Setup) -> Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        fs::create_dir(&base).unwrap();
        let ports = [Port::reserve(), Port::reserve()];
        let haproxy = Haproxy::start(version, &base, &minimal(&base));
        let setup = flags(Setup::new(&base));
        let agent = setup.start();
        let upstreams: Vec<Backend> = (0..4).map(|n| Backend::start(&format!("u{n}"))).collect();
        let [http, tls] = [&ports[0], &ports[1]].map(Port::number);
        let world = World::new(base.clone(), http, tls, upstreams[0].address());
        let mut live = Self {
            agent,
            haproxy,
            world,
            upstreams,
            setup,
            shown: BTreeSet::new(),
            sent: BTreeMap::new(),
            seq: 0,
            base,
            _ports: ports,
            _dir: dir,
        };
        live.apply("reload", &[]).succeed(&live.agent, "reload");
        live.agrees("the first set");
        live
    }

    /// Everything as at the start, by a reload.
    pub(crate) fn fresh(&mut self) {
        let World {
            base, http, tls, ..
        } = self.world.clone();
        self.world = World::new(base, http, tls, self.upstream(0));
        self.apply("reload", &[]).succeed(&self.agent, "reload");
        self.agrees("a fresh start");
    }

    /// GETs of the steady host in the background.
    pub(crate) fn load(&self) -> Load {
        Load::start(self.world.http, STEADY, "/")
    }

    pub(crate) fn upstream(&self, n: usize) -> SocketAddr {
        self.upstreams[n].address()
    }

    pub(crate) fn to(&self, n: usize) -> Server {
        Server::to(self.upstream(n))
    }

    /// Who runs now.
    pub(crate) fn identity(&self) -> Identity {
        let worker = WorkerSocket::new(self.haproxy.worker_socket());
        worker.info(Deadline::after(SOON)).unwrap().identity
    }

    /// The apply of the model as it is now; parts only for what is new.
    pub(crate) fn apply(&mut self, mode: &str, ops: &[Value]) -> Apply {
        self.seq += 1;
        let state = self.agent.state_with("?plan=0");
        let mut apply = Apply::new(&format!("p{}", self.seq), 1, self.seq).mode(mode);
        let files = self.world.files();
        for (path, bytes) in &files {
            apply = match self.sent.get(path) == Some(bytes) {
                true => apply.held(path, bytes),
                false => apply.file(path, bytes),
            };
        }
        self.sent = files;
        apply.on(&state).edit(|manifest| {
            for file in manifest["files"].as_array_mut().unwrap() {
                let path = file["path"].as_str().unwrap();
                if path.starts_with("ca/") {
                    file["kind"] = "ca".into();
                } else if path.starts_with("lists/") {
                    file["kind"] = "crtlist".into();
                }
            }
            if mode == "auto" {
                manifest["ops"] = json!(ops);
            }
        })
    }

    /// The next apply carries everything: what was sent may have been taken back.
    pub(crate) fn forget_sent(&mut self) {
        self.sent.clear();
    }

    /// Deletes are over, and worker, disk and state are what the model says.
    pub(crate) fn agrees(&self, what: &str) {
        let version = self.haproxy.version();
        let state = wait::until_ok("no delete waits", SOON, || {
            let state = self.agent.state_with("?plan=0");
            match state["pending_deletes"] == json!({"servers": [], "backends": []}) {
                true => Ok(state),
                false => Err(state["pending_deletes"].clone()),
            }
        });
        let (wanted, seen) = (self.world.view(), self.world.seen(&self.haproxy));
        assert_eq!(
            seen,
            wanted,
            "{version}, {what}:\n{}",
            difference(&wanted, &seen)
        );
        let mut disk = tree(&self.base);
        disk.remove("haproxy.cfg.new");
        let paths: Vec<&String> = disk.keys().collect();
        assert!(disk == self.world.files(), "{version}, {what}: {paths:?}");
        let last = format!("p{}", self.seq);
        assert_eq!(state["applied_plan_id"], last, "{version}, {what}");
        assert_eq!(state["worker_ops_plan_id"], last, "{version}, {what}");
        let divergence = self.agent.sample("haptic_runtime_map_divergence_total");
        assert!(divergence < 1.0, "{version}, {what}");
    }

    /// What clients get is what the model says, soon.
    pub(crate) fn serves(&self, what: &str, tls: bool) {
        let names = self.upstreams.iter().enumerate();
        let names: BTreeMap<SocketAddr, String> = names
            .map(|(n, upstream)| (upstream.address(), format!("u{n}")))
            .collect();
        let what = format!("{}, {what}", self.haproxy.version());
        wait::until_ok(&what, Duration::from_secs(5), || {
            self.world.clients(&names, tls)
        });
    }

    /// The certificates that are served are those of the model, soon.
    pub(crate) fn serves_tls(&self, what: &str) {
        let what = format!("{}, {what}", self.haproxy.version());
        wait::until_ok(&what, Duration::from_secs(5), || self.world.handshakes());
    }

    pub(crate) fn restart_agent(&mut self) {
        self.agent.kill();
        self.agent = self.setup.start();
    }
}

fn difference(wanted: &View, seen: &View) -> String {
    let keys = wanted.keys().chain(seen.keys());
    let differ = keys.filter(|key| wanted.get(*key) != seen.get(*key));
    let lines =
        differ.map(|key| format!("{key}: {:?} and not {:?}\n", seen.get(key), wanted.get(key)));
    lines.collect()
}
