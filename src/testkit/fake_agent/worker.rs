//! What the fake agent pretends its HAProxy to be: a process id and the names it loaded.
//!
//! Maps are known entry by entry, because a command may name an entry that is not there.
//! Servers and backends are not known at all: who is right about them is HAProxy's
//! business, and the fake takes every op on them unless a test says otherwise.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::{Clock as _, SystemClock};
use crate::wire::manifest::FileKind;
use crate::wire::path::ManifestPath;
use crate::wire::state::{Haproxy, PendingDeletes, RuntimeInventory, WorkerAnswer};

use super::pod::{Content, Owned};

/// The process id of the first worker; later ones count up.
const FIRST_PID: u32 = 1000;

/// One map as the worker holds it, in insertion order.
pub(super) type Entries = Vec<(String, String)>;

/// What ops can change.
#[derive(Debug, Clone, Default)]
pub(super) struct Loaded {
    pub(super) maps: BTreeMap<String, Entries>,
    pub(super) certs: BTreeSet<String>,
    pub(super) cas: BTreeSet<String>,
    pub(super) crt_lists: BTreeSet<String>,
    /// Servers and backends that ops have added; those of the configuration are not known.
    pub(super) added: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct Worker {
    version: String,
    pid: u32,
    started: u64,
    pub(super) loaded: Loaded,
    shown: RuntimeInventory,
    pub(super) servers: BTreeSet<String>,
    pub(super) backends: BTreeSet<String>,
    answer: WorkerAnswer,
}

impl Worker {
    pub(super) fn new(version: &str) -> Self {
        let mut worker = Self {
            version: version.to_owned(),
            pid: FIRST_PID,
            started: now_micros(),
            loaded: Loaded::default(),
            shown: RuntimeInventory::default(),
            servers: BTreeSet::new(),
            backends: BTreeSet::new(),
            answer: WorkerAnswer {
                answers: true,
                since: SystemClock.wall().rfc3339(),
                reason: None,
            },
        };
        worker.refresh();
        worker
    }

    /// Whether it answers its socket.
    pub(super) fn answer(&self) -> WorkerAnswer {
        self.answer.clone()
    }

    /// It answers from now on, or does not and why.
    pub(super) fn set_answer(&mut self, silent: Option<String>) {
        if self.answer.answers != silent.is_none() {
            self.answer.since = SystemClock.wall().rfc3339();
        }
        self.answer.answers = silent.is_none();
        self.answer.reason = silent;
    }

    /// A new worker with these files; the deletes of the old one are void.
    pub(super) fn load(
        &mut self,
        disk: &BTreeMap<ManifestPath, Content>,
        owned: &BTreeMap<ManifestPath, Owned>,
    ) {
        self.set_answer(None);
        self.pid = self.pid.wrapping_add(1);
        self.started = now_micros().max(self.started + 1);
        self.servers.clear();
        self.backends.clear();
        self.loaded = Loaded::default();
        for (path, content) in disk {
            let name = path.to_string();
            match owned.get(path).map(|owned| owned.kind) {
                Some(FileKind::Map) => {
                    self.loaded.maps.insert(name, entries(&content.bytes));
                }
                Some(FileKind::Cert) => {
                    self.loaded.certs.insert(name);
                }
                Some(FileKind::Ca) => {
                    self.loaded.cas.insert(name);
                }
                Some(FileKind::Crtlist) => {
                    self.loaded.crt_lists.insert(name);
                }
                Some(FileKind::Config | FileKind::General) | None => {}
            }
        }
        self.refresh();
    }

    /// Takes over what is loaded into what is shown.
    pub(super) fn refresh(&mut self) {
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect();
        let fresh = RuntimeInventory {
            generation: self.shown.generation,
            maps: self.loaded.maps.keys().cloned().collect(),
            acl_files: Vec::new(),
            certs: names(&self.loaded.certs),
            ca_files: names(&self.loaded.cas),
            crl_files: Vec::new(),
            crt_lists: names(&self.loaded.crt_lists),
        };
        if fresh != self.shown || fresh.generation == 0 {
            self.shown = RuntimeInventory {
                generation: fresh.generation + 1,
                ..fresh
            };
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// As HAProxy says it; from here on.
    pub(super) fn set_version(&mut self, version: &str) {
        version.clone_into(&mut self.version);
    }

    /// Its branch, `(3, 4)`; `(0, 0)` for a version that is none.
    pub(super) fn branch(&self) -> (u32, u32) {
        let mut numbers = self.version.split(['.', '-', '+']);
        let mut next = || numbers.next()?.parse().ok();
        match (next(), next()) {
            (Some(major), Some(minor)) => (major, minor),
            (_, _) => (0, 0),
        }
    }

    pub(super) fn inventory(&self) -> RuntimeInventory {
        self.shown.clone()
    }

    pub(super) fn haproxy(&self) -> Haproxy {
        let digits = |c: char| c.is_ascii_digit() || c == '.';
        let short: String = self.version.chars().take_while(|c| digits(*c)).collect();
        Haproxy {
            version: short,
            full_version: self.version.clone(),
            worker_pid: self.pid,
            worker_start_time_unix_micros: self.started,
        }
    }

    pub(super) fn pending_deletes(&self) -> PendingDeletes {
        PendingDeletes {
            servers: self.servers.iter().cloned().collect(),
            backends: self.backends.iter().cloned().collect(),
        }
    }
}

/// A map file's entries: the first word of a line is the key, the rest the value; a line
/// that starts with `#` is a comment.
pub(super) fn entries(file: &[u8]) -> Entries {
    let text = String::from_utf8_lossy(file);
    let blank = [' ', '\t'];
    let mut found = Vec::new();
    for line in text.split('\n') {
        let line = line.split('\r').next().unwrap_or_default();
        let rest = line.trim_start_matches(blank);
        if line.starts_with('#') || rest.is_empty() {
            continue;
        }
        let (key, value) = rest.split_once(blank).unwrap_or((rest, ""));
        found.push((key.to_owned(), value.trim_matches(blank).to_owned()));
    }
    found
}

fn now_micros() -> u64 {
    u64::try_from(SystemClock.wall().0 / 1000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_files_as_the_loader_reads_them() {
        let file = b"# note\na 1\n  b\t two words \n\nc\r\nd x\ry\n #e f\n";
        let wanted = [
            ("a", "1"),
            ("b", "two words"),
            ("c", ""),
            ("d", "x"),
            ("#e", "f"),
        ];
        let wanted = wanted.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(entries(file), wanted);
    }

    #[test]
    fn branches_of_versions() {
        for (version, branch) in [
            ("3.4.7-1", (3, 4)),
            ("3.0.11-1+deb13u4", (3, 0)),
            ("3.2", (3, 2)),
            ("x", (0, 0)),
        ] {
            assert_eq!(Worker::new(version).branch(), branch);
        }
    }
}
