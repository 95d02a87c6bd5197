//! The file store on a real disk.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says so by ending; figures are printed"
)]

mod disk;
mod mounted;
mod scale;
mod unprivileged;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use haptic_agent::store::disk::DiskFs;
use haptic_agent::store::install::{Intent, install, prune};
use haptic_agent::store::journal::{Change, Journal, back_up, plan_entries};
use haptic_agent::store::mounts::Mounts;
use haptic_agent::store::prepare::{PrepareError, prepare};
use haptic_agent::store::stage::{StageError, StageRequest};
use haptic_agent::store::{Durability, Store, StoreError};
use haptic_agent::wire::path::ManifestPath;

fn path(text: &str) -> ManifestPath {
    ManifestPath::parse(text).unwrap()
}

fn store_on(base: &Path) -> Store {
    let fs = DiskFs::open(base).unwrap();
    let mounts = Mounts::probe(&fs, base).unwrap();
    Store::new(Arc::new(fs), mounts, Durability::Full)
}

#[derive(Debug)]
enum Failed {
    Stage(StageError),
    Prepare(PrepareError),
    Store(StoreError),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Failed {
    fn text(&self) -> String {
        match self {
            Self::Stage(error) => error.to_string(),
            Self::Prepare(error) => error.to_string(),
            Self::Store(error) => error.to_string(),
        }
    }
}

/// One whole change of files: staged, looked at, backed up, installed, pruned.
struct Session {
    store: Store,
    journal: Journal,
    next_backup: u64,
    request: u32,
    own_dirs: Vec<String>,
}

impl Session {
    fn new(store: Store) -> Self {
        Self {
            store,
            journal: Journal::default(),
            next_backup: 0,
            request: 0,
            own_dirs: Vec::new(),
        }
    }

    fn apply(&mut self, writes: &[(&str, &[u8])], removals: &[&str]) -> Result<(), Failed> {
        self.request += 1;
        let mut staging = StageRequest::new(&self.store, format!("r{}", self.request))?;
        let mut staged = Vec::new();
        for (target, bytes) in writes {
            let file = staging.stage_bytes(&path(target), 0o644, bytes);
            staged.push(file.map_err(Failed::Stage)?);
        }
        staging.seal()?;
        let removals: Vec<ManifestPath> = removals.iter().map(|p| path(p)).collect();
        let own_dirs = self.own_dirs.iter().cloned().collect();
        let prepared =
            prepare(&self.store, &staged, &removals, &own_dirs).map_err(Failed::Prepare)?;
        let changes = staged.iter().map(|file| (&file.path, false));
        let changes = changes.chain(removals.iter().map(|path| (path, true)));
        let planned = plan_entries(
            &self.journal,
            changes.map(|(path, removal)| Change {
                path,
                exists: prepared.existing.contains_key(path),
                removal,
                was_owned: None,
                hash: None,
            }),
            self.store.mounts(),
            &mut self.next_backup,
        );
        back_up(&self.store, &planned)?;
        self.journal.add(planned);
        let intent = Intent::new(&staged, &removals, &prepared, "haproxy.cfg");
        self.own_dirs.extend(prepared.missing_dirs);
        install(&self.store, &intent)?;
        staging.finish();
        let gone = prune(&self.store, self.own_dirs.iter().map(String::as_str))?;
        self.own_dirs.retain(|dir| !gone.contains(dir));
        Ok(())
    }
}

/// Every regular file below `base` with its content, hidden ones left out.
fn files(base: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(dir: &Path, prefix: &str, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with('.') {
                continue;
            }
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                walk(&entry.path(), &format!("{prefix}{name}/"), into);
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                into.insert(format!("{prefix}{name}"), bytes);
            }
        }
    }
    let mut into = BTreeMap::new();
    walk(base, "", &mut into);
    into
}

/// Every file in the agent's own directories below `base`.
fn left_over(base: &Path) -> Vec<String> {
    let found = Command::new("find")
        .arg(base)
        .args(["-type", "f", "-path", "*/.haptic-*"])
        .output()
        .unwrap();
    let mut names: Vec<String> = String::from_utf8(found.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

/// Runs one test of this binary again as the child of `wrapper`, with `HAPTIC_INSIDE` set. False, with
/// a message, if the wrapper does not work here.
fn rerun(wrapper: &[&str], test: &str, inside: &str) -> bool {
    let works = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg("true")
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        println!("skipped: `{}` does not work here", wrapper.join(" "));
        return false;
    }
    let ran = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("HAPTIC_INSIDE", inside)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(
        ran.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    true
}

/// What [`rerun`] handed in, if this is the inner run.
fn inside() -> Option<String> {
    std::env::var("HAPTIC_INSIDE").ok()
}
