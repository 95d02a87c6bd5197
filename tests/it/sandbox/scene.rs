//! A private mount namespace, who runs in it, and HAProxy with its sockets in a
//! directory of their own.

use crate::support::agent::{Agent, Setup};
use crate::support::haproxy::{Haproxy, Version};
use crate::support::wait;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The oldest branch and the newest.
pub(super) const VERSIONS: [Version; 2] = [Version::V3_0, Version::V3_4];

/// Says why a test cannot run here. True if it may be skipped; otherwise it fails.
pub(super) fn skip(why: &str) -> bool {
    let allowed = std::env::var_os("HAPTIC_ALLOW_SKIP").is_some_and(|value| value == "1");
    assert!(
        allowed,
        "{why}; HAPTIC_ALLOW_SKIP=1 lets this test pass without"
    );
    eprintln!("skipped: {why}");
    true
}

/// Whether private mount namespaces can be had, or the test may do without.
pub(super) fn namespaces() -> bool {
    let tried = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "true"])
        .stdin(Stdio::null())
        .output();
    let why = match tried {
        Ok(tried) if tried.status.success() => return true,
        Ok(tried) => String::from_utf8_lossy(&tried.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let _ = skip(&format!(
        "a private mount namespace takes root and unshare(1): {why}"
    ));
    false
}

/// A directory that every user can get through, with `base` and `run` in it.
pub(super) struct Dirs {
    pub(super) root: tempfile::TempDir,
    pub(super) base: PathBuf,
    pub(super) run: PathBuf,
}

impl Dirs {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let of = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        Self {
            base: of("base"),
            run: of("run"),
            root,
        }
    }

    /// An agent on `base` that finds HAProxy's sockets in `run`.
    pub(super) fn setup(&self) -> Setup {
        let socket = |name: &str| self.run.join(name).to_str().unwrap().to_owned();
        Setup::new(&self.base)
            .with("--master-socket", &socket("master.sock"))
            .with("--worker-socket", &socket("worker.sock"))
    }

    /// A configuration that serves, with its sockets in `run`.
    pub(super) fn config(&self, rules: &str) -> String {
        let (base, run) = (self.base.display(), self.run.display());
        format!(
            "global\n    default-path origin {base}\n    stats socket {run}/worker.sock mode 660 level admin expose-fd listeners\n    hard-stop-after 5s\ndefaults\n    mode http\n    timeout client 5s\n    timeout connect 2s\n    timeout server 5s\nfrontend front\n    bind unix@{run}/front.sock\n{rules}    http-request return status 200\n"
        )
    }

    /// HAProxy's command line.
    pub(super) fn haproxy(&self, version: Version) -> Command {
        Haproxy::command(version, &self.base, &self.run, "mode,660,level,admin")
    }
}

/// HAProxy and an agent that see mounts of their own. The fields' order is that in which
/// they end.
pub(super) struct Mounted {
    pub(super) agent: Agent,
    pub(super) haproxy: Haproxy,
    pub(super) space: Namespace,
    pub(super) dirs: Dirs,
    /// The base directory, seen from here.
    pub(super) base: PathBuf,
}

impl Mounted {
    /// `script` mounts, with the base directory as `$1` and `more` behind it.
    pub(super) fn start(
        version: Version,
        dirs: Dirs,
        (script, more): (&str, &[&Path]),
        setup: impl FnOnce(Setup) -> Setup,
    ) -> Self {
        let paths: Vec<&Path> = std::iter::once(&*dirs.base)
            .chain(more.iter().copied())
            .collect();
        let space = Namespace::new(script, &paths);
        let base = space.seen(&dirs.base);
        fs::write(base.join("haproxy.cfg"), dirs.config("")).unwrap();
        let command = space.enter(&dirs.haproxy(version), None);
        let haproxy = Haproxy::start_as(version, &dirs.run, command);
        let setup = setup(dirs.setup());
        let agent = setup.spawn_as(space.enter(&setup.command(), None));
        agent.wait_ready();
        Self {
            agent,
            haproxy,
            space,
            dirs,
            base,
        }
    }
}

/// Who runs a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: &'static [u32],
}

/// The namespace; it lives as long as its first process.
pub(super) struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Makes one and runs the script in it, with `paths` as `$1` and so on. Mounts made
    /// there are seen nowhere else.
    pub(super) fn new(script: &str, paths: &[&Path]) -> Self {
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-euc"])
            // It ends when its standard input does, which is when the test does.
            .arg(format!("{script}\necho ready\nexec cat"))
            .arg("sh")
            .args(paths)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(holder.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line != "ready\n" {
            let mut words = String::new();
            let _ = holder.stderr.take().unwrap().read_to_string(&mut words);
            panic!("the namespace could not be made: {line}{words}");
        }
        Self { holder }
    }

    /// A path inside, as seen from here.
    pub(super) fn seen(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(path.strip_prefix("/").unwrap())
    }

    /// The same command inside, with nothing but its own environment.
    pub(super) fn enter(&self, command: &Command, user: Option<User>) -> Command {
        let mut outer = Command::new("nsenter");
        outer
            .args(["--mount", "--target", &self.holder.id().to_string(), "--"])
            .args(["sh", "-c", "cd \"$0\" && exec \"$@\""])
            .arg(command.get_current_dir().unwrap_or(Path::new("/")));
        as_user(&mut outer, user);
        outer.args(["env", "-i"]);
        for (name, value) in command.get_envs() {
            let mut pair = name.to_owned();
            pair.push("=");
            pair.push(value.unwrap());
            outer.arg(pair);
        }
        outer.arg(command.get_program()).args(command.get_args());
        outer.stdin(Stdio::null());
        outer
    }

    /// Runs a shell script inside, as `user`; whether it succeeded.
    pub(super) fn sh(&self, script: &str, user: Option<User>) -> bool {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let done = self.enter(&command, user).output().unwrap();
        done.status.success()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn as_user(outer: &mut Command, user: Option<User>) {
    let Some(user) = user else { return };
    outer.args(["setpriv", "--no-new-privs"]);
    outer.args(["--reuid", &user.uid.to_string()]);
    outer.args(["--regid", &user.gid.to_string()]);
    if user.groups.is_empty() {
        outer.arg("--clear-groups");
    } else {
        let groups: Vec<String> = user.groups.iter().map(u32::to_string).collect();
        outer.args(["--groups", &groups.join(",")]);
    }
}

/// The names in a directory, sorted; empty if it is not there.
pub(super) fn names(dir: &Path) -> Vec<String> {
    // What nothing names any more goes soon after the answer, not before it.
    let own = dir
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let mut seen = names_now(dir);
    if own {
        wait::try_until(Duration::from_millis(500), &mut || {
            seen = names_now(dir);
            seen.is_empty().then_some(())
        });
    }
    seen
}

fn names_now(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Permission bits with set-id bits.
pub(super) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}
