//! No privileges, no home, no user database, and a file system that is read-only but for
//! the base directory.

use super::scene::{Dirs, Namespace, User, VERSIONS, mode, names, namespaces};
use crate::support::agent::{Agent, Apply, Setup, tree};
use crate::support::certs;
use crate::support::haproxy::{Haproxy, Version};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

const AGENT: User = User {
    uid: 65534,
    gid: 65534,
    groups: &[],
};

/// A group that the agent and HAProxy share.
const SHARED: u32 = 4242;
const AGENT_SHARING: User = User {
    groups: &[SHARED],
    ..AGENT
};
const HAPROXY_SHARING: User = User {
    uid: 65533,
    gid: 65533,
    groups: &[SHARED],
};
const STRANGER: User = User {
    uid: 65532,
    gid: 65532,
    groups: &[],
};

/// `$1` base, `$2` HAProxy's run directory, `$3` the directory with the agent's binary,
/// `$4` where that is bound. Everything but the first two is made read-only, and no user
/// has a name.
const READ_ONLY: &str = "mount --bind \"$3\" \"$4\"
mount --bind /dev/null /etc/passwd
mount --bind /dev/null /etc/group
mount --bind \"$1\" \"$1\"
mount --bind \"$2\" \"$2\"
cut -d' ' -f5 /proc/self/mountinfo | while read -r point; do
  case $point in \"$1\"|\"$2\") continue ;; esac
  mount -o remount,bind,ro \"$point\" 2>/dev/null || true
done
if touch \"$4/../probe\" 2>/dev/null; then echo 'still writable'; exit 1; fi";

fn read_only(dirs: &Dirs) -> (Namespace, PathBuf) {
    let binary = Path::new(env!("CARGO_BIN_EXE_haptic-agent"));
    let bin = dirs.root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let paths = [&dirs.base, &dirs.run, binary.parent().unwrap(), &bin];
    let space = Namespace::new(READ_ONLY, &paths);
    (space, bin.join(binary.file_name().unwrap()))
}

/// The agent's command line with the binary where everybody can reach it, and nothing in
/// its environment but what it needs.
fn spawn(setup: &Setup, space: &Namespace, binary: &Path, user: User) -> Agent {
    let plain = setup.command();
    let mut command = Command::new(binary);
    command.args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    let agent = setup.spawn_as(space.enter(&command, Some(user)));
    agent.wait_ready();
    agent
}

/// HAProxy's executable must be reachable for everybody, which is a matter of where the
/// servers are unpacked.
fn reachable(version: Version) {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let seen = command
        .arg(version.executable())
        .arg("-v")
        .output()
        .unwrap();
    assert!(
        seen.status.success(),
        "an unprivileged user cannot run {}; HAPTIC_SERVERS must lie in a directory that everybody can enter",
        version.executable().display()
    );
}

fn give(path: &Path, uid: u32, gid: u32, bits: u32) {
    chown(path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

fn status(agent: &Agent, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn an_unprivileged_user_with_one_writable_directory_is_enough() {
    if !namespaces() {
        return;
    }
    for version in VERSIONS {
        reachable(version);
        let dirs = Dirs::new();
        let (space, binary) = read_only(&dirs);
        let config = dirs.config("");
        fs::write(dirs.base.join("haproxy.cfg"), &config).unwrap();
        for path in [&dirs.base, &dirs.run, &dirs.base.join("haproxy.cfg")] {
            let bits = if path.is_dir() { 0o755 } else { 0o600 };
            give(path, AGENT.uid, AGENT.gid, bits);
        }
        assert!(!space.sh("touch /tmp/probe", Some(AGENT)));
        assert!(
            !space.sh("touch /tmp/probe", None),
            "root cannot write either"
        );
        let command = space.enter(&dirs.haproxy(version), Some(AGENT));
        let _haproxy = Haproxy::start_as(version, &dirs.run, command);
        let mut agent = spawn(&dirs.setup(), &space, &binary, AGENT);
        assert_eq!(status(&agent, "Uid:"), "65534");
        assert_eq!(status(&agent, "CapEff:").trim_start_matches('0'), "");
        let environment = fs::read(format!("/proc/{}/environ", agent.pid())).unwrap();
        let environment = String::from_utf8(environment).unwrap();
        let mut given: Vec<&str> = environment
            .split_terminator('\0')
            .map(|pair| pair.split('=').next().unwrap())
            .collect();
        given.sort_unstable();
        assert_eq!(
            given,
            ["DATAPLANE_PASSWORD", "DATAPLANE_USERNAME", "LOG_LEVEL"]
        );

        let pem = certs::first().pem();
        let broken = format!("{}nonsense\n", dirs.config(""));
        let config = dirs.config(&format!(
            "    bind unix@{}/tls.sock ssl crt certs/site.pem\n",
            dirs.run.display()
        ));
        let first = Apply::new("p1", 1, 1)
            .file("certs/site.pem", pem.as_bytes())
            .file("maps/host.map", b"a b\n")
            .file("haproxy.cfg", config.as_bytes());
        let state = first.on(&agent.state()).succeed(&agent, "reload");
        for (path, bits) in [
            ("certs/site.pem", 0o640),
            ("maps/host.map", 0o644),
            // It was there before, and keeps what it had.
            ("haproxy.cfg", 0o600),
            ("certs", 0o755),
        ] {
            assert_eq!(mode(&dirs.base.join(path)), bits, "{version} {path}");
            let owner = fs::metadata(dirs.base.join(path)).unwrap();
            assert_eq!((owner.uid(), owner.gid()), (AGENT.uid, AGENT.gid));
        }
        // Refused by HAProxy and put back by a user who may do nothing else.
        let good = tree(&dirs.base);
        let bad = Apply::new("p2", 1, 2)
            .file("maps/host.map", b"a c\n")
            .file("haproxy.cfg", broken.as_bytes());
        bad.on(&state).fail(&agent, "reload");
        assert_eq!(tree(&dirs.base), good, "{version}");
        assert_eq!(
            agent.state_with("?verify=1")["files"]["maps/host.map"]["size"],
            4
        );
        assert!(agent.sample("process_open_fds") > 0.0);
        assert!(agent.terminate().success());

        // Other modes for what is new from here on.
        let setup = dirs
            .setup()
            .with("--file-mode", "0604")
            .with("--secret-mode", "0400");
        let agent = spawn(&setup, &space, &binary, AGENT);
        let again = Apply::new("p3", 1, 3)
            .held("certs/site.pem", pem.as_bytes())
            .file("certs/more.pem", certs::second().pem().as_bytes())
            .file("maps/more.map", b"x y\n")
            .file("maps/host.map", b"a d\n")
            .file("haproxy.cfg", config.as_bytes());
        again.on(&agent.state()).succeed(&agent, "reload");
        for (path, bits) in [
            ("certs/more.pem", 0o400),
            ("maps/more.map", 0o604),
            ("maps/host.map", 0o644),
            ("certs/site.pem", 0o640),
        ] {
            assert_eq!(mode(&dirs.base.join(path)), bits, "{version} {path}");
        }
    }
}

#[test]
fn haproxy_under_another_user_reads_certificates_through_the_shared_group() {
    if !namespaces() {
        return;
    }
    for version in VERSIONS {
        reachable(version);
        let dirs = Dirs::new();
        let (space, binary) = read_only(&dirs);
        let bootstrap = dirs.base.join("haproxy.cfg");
        fs::write(&bootstrap, dirs.config("")).unwrap();
        // What lies in a set-gid directory belongs to its group, new directories too.
        give(&dirs.base, AGENT.uid, SHARED, 0o2750);
        give(&dirs.run, HAPROXY_SHARING.uid, SHARED, 0o2770);
        give(&bootstrap, AGENT.uid, SHARED, 0o640);
        let command = space.enter(&dirs.haproxy(version), Some(HAPROXY_SHARING));
        let haproxy = Haproxy::start_as(version, &dirs.run, command);
        let agent = spawn(&dirs.setup(), &space, &binary, AGENT_SHARING);
        let rule = format!(
            "    bind unix@{}/tls.sock ssl crt certs/site.pem\n",
            dirs.run.display()
        );
        let first = Apply::new("p1", 1, 1)
            .file("certs/site.pem", certs::first().pem().as_bytes())
            .file("haproxy.cfg", dirs.config(&rule).as_bytes());
        let before = haproxy.worker_pid();
        let state = first.on(&agent.state()).succeed(&agent, "reload");
        assert_ne!(haproxy.worker_pid(), before, "{version}");
        let listed = state["runtime_inventory"]["certs"].to_string();
        assert!(listed.contains("site.pem"), "{version}: {listed}");
        for (path, bits) in [
            ("certs/site.pem", 0o640),
            ("haproxy.cfg", 0o640),
            ("certs", 0o2755),
        ] {
            let path = dirs.base.join(path);
            assert_eq!(mode(&path), bits, "{version} {path:?}");
            let owner = fs::metadata(&path).unwrap();
            assert_eq!((owner.uid(), owner.gid()), (AGENT.uid, SHARED), "{path:?}");
        }
        let secret = format!("cat {}/certs/site.pem", dirs.base.display());
        assert!(space.sh(&secret, Some(HAPROXY_SHARING)), "{version}");
        assert!(!space.sh(&secret, Some(STRANGER)), "{version}");
        // Neither staging nor backups are anyone else's, the shared group's included.
        for own in [".haptic-tmp", ".haptic-lkg"] {
            assert_eq!(mode(&dirs.base.join(own)) & 0o777, 0o700, "{version}");
            let list = format!("ls {}/{own}", dirs.base.display());
            assert!(!space.sh(&list, Some(HAPROXY_SHARING)), "{version}");
        }
        // A rotated certificate keeps its group although the new inode is the agent's.
        let second = Apply::new("p2", 1, 2)
            .file("certs/site.pem", certs::second().pem().as_bytes())
            .file("haproxy.cfg", dirs.config(&rule).as_bytes());
        second.on(&state).succeed(&agent, "reload");
        assert!(space.sh(&secret, Some(HAPROXY_SHARING)), "{version}");
        assert!(!space.sh(&secret, Some(STRANGER)), "{version}");
        assert_eq!(names(&dirs.base.join(".haptic-tmp")), [""; 0]);
    }
}
