//! What whole applies are shown with: a HAProxy that serves a word, an agent beside it,
//! and photographs of everything that a refusal must leave alone.

use crate::support::agent::{Agent, Apply, Setup};
use crate::support::haproxy::{Haproxy, Version, preamble};
use crate::support::ports::Port;
use crate::support::traffic;
use crate::support::wait;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// How long anything that has to happen may take on a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A HAProxy and its agent; both end when this is dropped, the agent first.
pub(crate) struct Rig {
    pub(crate) agent: Agent,
    pub(crate) haproxy: Haproxy,
    pub(crate) setup: Setup,
    pub(crate) base: PathBuf,
    port: Port,
    _dir: TempDir,
}

impl Rig {
    /// A HAProxy that serves `bootstrap`, and a ready agent without pacing.
    pub(crate) fn new(version: Version) -> Self {
        Self::with(version, |setup| setup)
    }

    /// Like [`Rig::new`], with flags of its own.
    pub(crate) fn with(version: Version, flags: impl FnOnce(Setup) -> Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        fs::create_dir(&base).unwrap();
        let port = Port::reserve();
        let haproxy = Haproxy::start(version, &base, &serving(&base, port.number(), "bootstrap"));
        let setup = flags(Setup::new(&base));
        let agent = setup.start();
        Self {
            agent,
            haproxy,
            setup,
            base,
            port,
            _dir: dir,
        }
    }

    /// [`Rig::new`] with the plan `p1` applied: its configuration answers `one`, and it
    /// has a map.
    pub(crate) fn applied(version: Version) -> Self {
        let rig = Self::new(version);
        rig.first().succeed(&rig.agent, "reload");
        rig
    }

    /// The apply of `p1`.
    pub(crate) fn first(&self) -> Apply {
        Apply::new("p1", 1, 1)
            .file("haproxy.cfg", self.config("one").as_bytes())
            .file("maps/host.map", b"a.example be_a\n")
            .on(&self.agent.state())
    }

    /// An apply of the set that answers `word`, built on what is applied now; the map is
    /// held already.
    pub(crate) fn next(&self, plan_id: &str, word: &str) -> Apply {
        self.raw(plan_id, self.config(word).as_bytes())
    }

    /// Like [`Rig::next`], with these bytes for a configuration.
    pub(crate) fn raw(&self, plan_id: &str, config: &[u8]) -> Apply {
        let state = self.agent.state_with("?plan=0");
        let epoch = state["applied_token"]["leader_epoch"].as_u64().unwrap();
        let seq = state["applied_token"]["render_seq"].as_u64().unwrap();
        Apply::new(plan_id, epoch.max(1), seq + 1)
            .file("haproxy.cfg", config)
            .held("maps/host.map", b"a.example be_a\n")
            .on(&state)
    }

    /// A whole configuration that answers `word`.
    pub(crate) fn config(&self, word: &str) -> String {
        serving(&self.base, self.port.number(), word)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// What a client gets now.
    pub(crate) fn word(&self) -> String {
        let answer = traffic::get_port(self.port(), "any", "/").unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.base, &self.agent, &self.haproxy)
    }

    /// A new agent in place of the one that ended, ready.
    pub(crate) fn restart_agent(&mut self) {
        self.agent = self.setup.start();
    }

    /// Ends HAProxy, and starts it again with whatever `haproxy.cfg` is on disk.
    pub(crate) fn restart_haproxy(&mut self) {
        let config = fs::read_to_string(self.base.join("haproxy.cfg")).unwrap();
        self.restart_haproxy_with(&config);
    }

    /// Ends HAProxy, and starts it with `config` copied over `haproxy.cfg`, as a container
    /// that comes up with its bootstrap configuration does.
    pub(crate) fn restart_haproxy_with(&mut self, config: &str) {
        let version = self.haproxy.version();
        self.haproxy.kill();
        for socket in ["master.sock", "worker.sock"] {
            let _ = fs::remove_file(self.base.join(socket));
        }
        self.haproxy = Haproxy::start(version, &self.base, config);
    }

    /// Waits until the state shows what `look` wants.
    pub(crate) fn until_state(&self, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        wait::until_ok(what, SOON, || {
            let state = self.agent.state_with("?plan=0");
            if look(&state) { Ok(state) } else { Err(state) }
        })
    }
}

/// A configuration that answers every request with `word`.
pub(crate) fn serving(base: &Path, port: u16, word: &str) -> String {
    format!(
        "{}frontend front\n    bind 127.0.0.1:{port}\n    http-request return status 200 content-type text/plain string {word}\n",
        preamble(base)
    )
}

/// One file as `stat` and a read see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Photo {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) mtime: (i64, i64),
    pub(crate) bytes: Vec<u8>,
}

/// Every regular file of the tree, hidden ones only by name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) files: BTreeMap<String, Photo>,
    pub(crate) leftovers: Vec<String>,
    pub(crate) state: Value,
    pub(crate) worker: u32,
}

impl Snapshot {
    pub(crate) fn take(base: &Path, agent: &Agent, haproxy: &Haproxy) -> Self {
        Self {
            files: photos(base),
            leftovers: leftovers(base),
            state: agent.state(),
            worker: haproxy.worker_pid(),
        }
    }
}

/// Photographs of every file that a manifest could name.
pub(crate) fn photos(base: &Path) -> BTreeMap<String, Photo> {
    let mut out = BTreeMap::new();
    walk(base, base, &mut |relative, path| {
        let hidden = relative.split('/').any(|part| part.starts_with('.'));
        if hidden || relative == "haproxy.log" {
            return;
        }
        let meta = fs::symlink_metadata(path).unwrap();
        let photo = Photo {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            inode: meta.ino(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            bytes: fs::read(path).unwrap(),
        };
        out.insert(relative.to_owned(), photo);
    });
    out
}

/// What staging and backups hold, by name, once the agent had time to let go of what
/// nothing names any more: it does so after its answer.
pub(crate) fn leftovers(base: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    wait::try_until(Duration::from_millis(500), &mut || {
        seen = leftovers_now(base);
        seen.is_empty().then_some(())
    });
    seen
}

fn leftovers_now(base: &Path) -> Vec<String> {
    let mut out = Vec::new();
    walk(base, base, &mut |relative, _| {
        if relative.contains(".haptic-tmp/") || relative.contains(".haptic-lkg/") {
            out.push(relative.to_owned());
        }
    });
    out.sort();
    out
}

fn walk(base: &Path, dir: &Path, see: &mut dyn FnMut(&str, &Path)) {
    for entry in fs::read_dir(dir).unwrap() {
        // A staging directory may go while it is looked at.
        let Ok(entry) = entry else { continue };
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            if entry.path().exists() {
                walk(base, &entry.path(), see);
            }
        } else if kind.is_file() {
            let path = entry.path();
            let relative = path.strip_prefix(base).unwrap();
            see(&relative.to_string_lossy(), &path);
        }
    }
}
