//! One agent for one base directory.

use crate::support::agent::Setup;
use crate::support::haproxy::{Haproxy, Version, minimal};
use std::fs;
use std::process::Stdio;

#[test]
fn a_second_agent_on_the_same_base_directory_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    let _haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let mut first = Setup::new(&base).start();
    let alias = dir.path().join("alias");
    std::os::unix::fs::symlink(&base, &alias).unwrap();
    for name in [&base, &alias] {
        let second = Setup::new(name)
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(second.status.code(), Some(3));
        let said = String::from_utf8(second.stdout).unwrap();
        let words = format!(
            "another agent (process {} in its own pid namespace) runs on this base directory; stop it or use another --base-dir",
            first.pid()
        );
        assert!(said.contains(&words), "{said}");
    }
    // The first one did not notice, and its end frees the directory.
    assert_eq!(first.state()["applied_plan_id"], "");
    first.kill();
    drop(Setup::new(&base).start());
}
