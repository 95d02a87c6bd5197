//! The agent's side of HAProxy's sockets, against real HAProxy 3.0, 3.2 and 3.4 and
//! against peers that misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::cast_possible_truncation
)]

mod broken;
mod lexical;
mod listing;
mod reload;
mod session;
mod surroundings;

use crate::support::haproxy::{Haproxy, Version, minimal};
use haptic_agent::haproxy::{Deadline, MasterSocket, WorkerInfo, WorkerSocket};
use std::path::Path;
use std::time::Duration;

/// Longer than anything here takes.
fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

fn worker_of(haproxy: &Haproxy) -> WorkerSocket {
    WorkerSocket::new(haproxy.worker_socket())
}

fn master_of(haproxy: &Haproxy) -> MasterSocket {
    MasterSocket::new(haproxy.master_socket())
}

fn info_of(haproxy: &Haproxy) -> WorkerInfo {
    worker_of(haproxy).info(soon()).unwrap()
}

/// Runs `test` once a version, each in a fresh directory with the smallest
/// configuration.
fn on_each(test: impl Fn(Version, &mut Haproxy)) {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let mut haproxy = Haproxy::start(version, dir.path(), &minimal(dir.path()));
        test(version, &mut haproxy);
    }
}

/// A directory and the path of a socket in it.
fn socket_in(dir: &Path) -> std::path::PathBuf {
    dir.join("fake.sock")
}
