//! `hapticctl verify`: has somebody changed the files behind the agent's back?

use std::collections::BTreeSet;

use serde_json::json;

use super::view::{Block, Report};
use super::{labels, next, plan, when, words};
use crate::client::{FileSet, Fleet, StateRead};
use crate::wire::digest::ContentHash;
use crate::wire::path::ManifestPath;
use crate::wire::state::State;

/// Differences that are listed one by one.
const MAX_SHOWN: usize = 50;

/// Paths that are named in one line.
const MAX_NAMED: usize = 3;

pub(super) fn run(fleet: &Fleet, set: Option<&FileSet>) -> Report {
    let look = StateRead {
        verify: true,
        ..StateRead::default()
    };
    let blocks = fleet.each(|_, client| {
        let before = match client.state(StateRead::default()) {
            Ok(state) => state,
            Err(error) => return plan::unasked(&error),
        };
        match client.state(look) {
            Ok(after) => block(&before, &after, set),
            Err(error) => plan::unasked(&error),
        }
    });
    let mut report = Report::new(labels(fleet), blocks);
    if let Some(set) = set {
        plan::describe(set, &mut report);
    }
    report
}

/// A file that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Difference {
    Changed(ManifestPath),
    Missing(ManifestPath),
    /// Something else than a file stands there.
    Blocked(ManifestPath, String),
    /// Owned, and not in the directory.
    Extra(ManifestPath),
}

impl Difference {
    fn line(&self) -> String {
        match self {
            Self::Changed(path) => format!("changed  {path}"),
            Self::Missing(path) => format!("missing  {path}"),
            Self::Blocked(path, what) => format!("blocked  {path}, which is {what}"),
            Self::Extra(path) => format!("extra    {path}"),
        }
    }

    fn json(&self) -> serde_json::Value {
        let (path, what) = match self {
            Self::Changed(path) => (path, "changed"),
            Self::Missing(path) => (path, "missing"),
            Self::Blocked(path, by) => {
                return json!({"path": path, "difference": "blocked", "by": by});
            }
            Self::Extra(path) => (path, "extra"),
        };
        json!({"path": path, "difference": what})
    }

    /// A file that is not there, or what is there instead.
    fn absent(path: &ManifestPath, state: &State) -> Self {
        match state.in_the_way.get(path) {
            Some(what) => Self::Blocked(path.clone(), what.clone()),
            None => Self::Missing(path.clone()),
        }
    }
}

fn block(before: &State, after: &State, set: Option<&FileSet>) -> Block {
    let differences = match set {
        Some(set) => from_set(set, after),
        None => from_records(before, after),
    };
    // A baseline that is gone was lost to a change on disk, now or earlier.
    let unknown = after.applied_plan_id.is_empty() && !after.files.is_empty();
    let silent = after.worker.as_ref().filter(|worker| !worker.answers);
    let good = differences.is_empty() && (set.is_some() || !unknown) && silent.is_none();
    let against = match set {
        Some(_) => "the directory",
        None => "the agent's records",
    };
    let title = match (differences.len(), unknown && set.is_none()) {
        (0, false) => format!(
            "{} on disk, all as in {against}",
            words::counted(after.files.len(), "file")
        ),
        (0, true) if !after.in_the_way.is_empty() => blocked(after),
        (0, true) => "the agent does not know what is applied: its files were changed earlier, or a push was refused".into(),
        (count, _) => format!("{} from {against}", words::counted(count, "difference")),
    };
    let mut block = Block::new(good, title);
    block.field("applied_plan_id", after.applied_plan_id.as_str());
    block.field(
        "differences",
        differences.iter().map(Difference::json).collect::<Vec<_>>(),
    );
    block.field("worker", json!(after.worker));
    if let Some(silent) = silent {
        block.line(format!(
            "HAProxy has not answered since {}: {}",
            when::moment(&silent.since),
            silent.reason.as_deref().unwrap_or("its socket is silent")
        ));
    }
    for difference in differences.iter().take(MAX_SHOWN) {
        block.line(difference.line());
    }
    if differences.len() > MAX_SHOWN {
        block.line(format!(
            "and {} more; -o json lists all",
            differences.len() - MAX_SHOWN
        ));
    }
    let doubtful = doubtful_directory(&differences, after);
    if let Some(dir) = doubtful {
        block.line(format!(
            "nothing is found below {dir}: if the files are there all the same, it or a directory on the way is a symbolic link, and the agent follows none"
        ));
    }
    if !good {
        block.next = Some(match set {
            _ if silent.is_some() => next::HAPROXY_IS_AWAY.into(),
            _ if !after.in_the_way.is_empty() => {
                next::WAY_BLOCKED.into()
            }
            _ if doubtful.is_some() => "if a directory on the way is a symbolic link on the agent's machine, make it a directory, or a push is refused; then hapticctl push DIR puts the files there".into(),
            Some(_) => "hapticctl push DIR puts the directory's files there".into(),
            None => "hapticctl push DIR puts the right files back; hapticctl verify DIR compares with a directory".to_owned(),
        });
    }
    block
}

/// A directory of which no file is found: it is gone, or it is a link, which a state does not
/// tell.
fn doubtful_directory<'d>(differences: &'d [Difference], state: &State) -> Option<&'d str> {
    let missing = differences
        .iter()
        .filter_map(|difference| match difference {
            Difference::Missing(path) => path.as_str().rsplit_once('/').map(|(dir, _)| dir),
            Difference::Changed(_) | Difference::Blocked(..) | Difference::Extra(_) => None,
        });
    let holds = |dir: &str| {
        let below = |path: &ManifestPath| {
            let rest = path.as_str().strip_prefix(dir);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        state.files.keys().any(below)
    };
    missing.into_iter().find(|dir| !holds(dir))
}

/// What was found before, and still stands there.
fn blocked(state: &State) -> String {
    let paths = state.in_the_way.iter();
    let paths: Vec<String> = paths
        .map(|(path, what)| format!("{path} is {what}"))
        .collect();
    format!("no file in its place: {}", words::some(&paths, MAX_NAMED))
}

/// What a look at the disk changed in the agent's records.
fn from_records(before: &State, after: &State) -> Vec<Difference> {
    let paths: BTreeSet<&ManifestPath> = before.files.keys().chain(after.files.keys()).collect();
    let mut differences = Vec::new();
    for path in paths {
        match (before.files.get(path), after.files.get(path)) {
            (Some(was), Some(is)) if was == is => {}
            (Some(_), None) => differences.push(Difference::absent(path, after)),
            (_, Some(_)) => differences.push(Difference::Changed(path.clone())),
            (None, None) => {}
        }
    }
    differences
}

fn from_set(set: &FileSet, state: &State) -> Vec<Difference> {
    let mut differences = Vec::new();
    for entry in set.files() {
        match state.files.get(entry.path) {
            None => differences.push(Difference::absent(entry.path, state)),
            Some(held) => {
                let same =
                    held.size == entry.size && ContentHash::of(entry.content).matches(&held.digest);
                if !same {
                    differences.push(Difference::Changed(entry.path.clone()));
                }
            }
        }
    }
    let extra = state
        .files
        .keys()
        .filter(|path| set.get(path.as_str()).is_none());
    differences.extend(extra.cloned().map(Difference::Extra));
    differences
}
