//! File sets to apply, and the scene they are applied in.

use crate::VERSION;
use crate::support::agent::{Agent, Apply, Setup};
use crate::support::haproxy::{Haproxy, Version};
use crate::support::ports::Port;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path and bytes of one file.
pub(crate) type File = (String, Vec<u8>);

/// A site of `fixtures/make-site` in `base`, served by a HAProxy of its own.
pub(crate) struct Site {
    pub(crate) haproxy: Haproxy,
    pub(crate) base: PathBuf,
    pub(crate) files: Vec<File>,
    port: Port,
    _dir: tempfile::TempDir,
}

impl Site {
    /// Where it takes requests.
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Makes it and starts HAProxy on it.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(VERSION, arguments)
    }

    /// The same beside another HAProxy.
    pub(crate) fn of(version: Version, arguments: &[&str]) -> Self {
        let dir = scratch();
        let base = dir.path().join("base");
        let port = Port::reserve();
        let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/make-site"))
            .arg(&base)
            .args(["--http-port", &port.number().to_string()])
            .arg("--worker-socket")
            .arg(base.join("worker.sock"))
            .args(arguments)
            .status()
            .unwrap();
        assert!(made.success(), "make-site: {made}");
        let mut files = Vec::new();
        collect(&base, &base, &mut files);
        // As a controller sends it and a careful hand writes it: the configuration last.
        files.sort_by_key(|(path, _)| (path == "haproxy.cfg", path.clone()));
        let config = String::from_utf8(files.last().unwrap().1.clone()).unwrap();
        let haproxy = Haproxy::start(version, &base, &config);
        Self {
            haproxy,
            base,
            files,
            port,
            _dir: dir,
        }
    }

    /// The same set with one line more in every file, another one each round.
    pub(crate) fn round(&self, round: usize) -> Vec<File> {
        self.files
            .iter()
            .filter(|(path, _)| path == "haproxy.cfg" || path.starts_with("maps/"))
            .map(|(path, bytes)| {
                let mut bytes = bytes.clone();
                bytes.extend_from_slice(format!("# round {round}\n").as_bytes());
                (path.clone(), bytes)
            })
            .chain(
                self.files
                    .iter()
                    .filter(|(path, _)| path != "haproxy.cfg" && !path.starts_with("maps/"))
                    .cloned(),
            )
            .collect()
    }
}

/// A directory for one scene, where `HAPTIC_BENCH_DIR` says or the system does.
pub(crate) fn scratch() -> tempfile::TempDir {
    let named = std::env::var_os("HAPTIC_BENCH_DIR").map(PathBuf::from);
    tempfile::tempdir_in(named.unwrap_or_else(std::env::temp_dir)).unwrap()
}

fn collect(base: &Path, dir: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(base, &path, files);
        } else if path.is_file() {
            let relative = path.strip_prefix(base).unwrap();
            let relative = relative.to_str().unwrap().to_owned();
            files.push((relative, fs::read(&path).unwrap()));
        }
    }
}

/// An agent that logs what an operator's would.
pub(crate) fn setup(base: &Path, durability: &str) -> Setup {
    let mut setup = Setup::new(base).with("--durability", durability);
    setup.environment = vec![("LOG_LEVEL".into(), "info".into())];
    setup
}

/// An apply of that set on what `state` says is applied.
pub(crate) fn apply(plan: &str, files: &[File], state: &Value) -> Apply {
    let mut apply = Apply::new(plan, 1, 1).on(state);
    for (path, bytes) in files {
        apply = apply.file(path, bytes);
    }
    apply
}

/// Sends a request that was put together before, and wants that mode.
pub(crate) fn send(agent: &Agent, request: &[u8], mode: &str) -> Value {
    let reply = crate::support::agent::exchange(agent.api(), request);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json();
    assert_eq!(answer["mode"], mode, "{answer:#}");
    answer
}

/// Bytes that no one can compress or guess, the same ones for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
