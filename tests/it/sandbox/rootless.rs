//! A root directory with nothing in it but the binary: no `/proc`, no `/dev`, no `/tmp`,
//! no `/etc`.

use super::scene::skip;
use crate::support::agent::{Apply, Setup, tree};
use crate::support::haproxy::{Haproxy, Version, minimal};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies the binary, and the loader and libraries that this build may need, into `root`.
fn plant(root: &Path) -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_haptic-agent"));
    fs::copy(binary, root.join("haptic-agent")).unwrap();
    let needs = Command::new("ldd").arg(binary).output().unwrap();
    for word in String::from_utf8_lossy(&needs.stdout).split_whitespace() {
        if word.starts_with('/') {
            let to = root.join(word.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(word, to).unwrap();
        }
    }
    PathBuf::from("/haptic-agent")
}

#[test]
fn an_empty_root_is_enough_for_the_agent() {
    if !rustix::process::geteuid().is_root() {
        let _ = skip("only root can change the root directory");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let binary = plant(root.path());
    let base = root.path().join("base");
    fs::create_dir(&base).unwrap();
    let version = Command::new("chroot")
        .arg(root.path())
        .arg(&binary)
        .arg("--version")
        .output()
        .unwrap();
    assert!(version.status.success(), "{version:?}");
    assert!(version.stdout.starts_with(b"haptic-agent "), "{version:?}");

    let _haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let mut setup = Setup::new(Path::new("/base"));
    setup.log = root.path().join("agent.log");
    let plain = setup.command();
    let mut command = Command::new("chroot");
    command.arg(root.path()).arg(&binary).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    let mut agent = setup.spawn_as(command);
    agent.wait_ready();
    let apply = Apply::new("p1", 1, 1)
        .file("maps/host.map", b"a b\n")
        .file("haproxy.cfg", minimal(&base).as_bytes());
    apply.on(&agent.state()).succeed(&agent, "reload");
    assert_eq!(tree(&base)["maps/host.map"], b"a b\n");
    // What the kernel's /proc would have told is left out, and said once.
    let metrics = agent.metrics();
    assert!(metrics.contains("haptic_agent_ready 1"), "{metrics}");
    assert!(!metrics.contains("process_open_fds "), "{metrics}");
    let warned: Vec<_> = agent
        .records()
        .into_iter()
        .filter(|record| record["level"] == "warn")
        .collect();
    assert_eq!(warned.len(), 1, "{warned:#?}");
    assert!(warned[0].to_string().contains("/proc/self/mountinfo"));
    assert!(agent.terminate().success());
}
