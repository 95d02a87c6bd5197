//! Each changed file by itself: what it needs, and why.

use std::collections::BTreeSet;

use serde::Serialize;

use super::meaning::means;
use super::mentions::can_be_found;
use super::names::{COMPANIONS, Use, alias, companion_of, near, uses};
use super::phases::Phases;
use super::record::{Record, skeleton};
use super::{Change, Verdict, maps};
use crate::client::backends::ops::{Context, compose};
use crate::client::backends::{BACKENDS_FILE, Declared};
use crate::client::fileset::{Entry, FileSet};
use crate::format::{HaproxyVersion, field};
use crate::wire::digest::ContentHash;
use crate::wire::manifest::FileKind;
use crate::wire::path::ManifestPath;
use crate::wire::state::{HeldFile, State};

/// The sort of a reason, for programs; its wire name is the variant in snake case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Whoever pushes asked for a reload.
    Asked,
    /// The agent does not know what is applied.
    UnknownBaseline,
    /// Its worker is not known to run what is applied.
    UnknownWorker,
    /// The worker did not answer its agent.
    NoAnswer,
    /// Something went wrong, and a reload is what ends that.
    Degraded,
    /// The agent speaks another version of the contract.
    ApiVersion,
    /// Another controller's files, compared by a digest that is not safe.
    WeakDigest,
    /// A reload waits for its time already.
    ReloadPending,
    /// HAProxy's version is not known, or too old for it.
    Version,
    /// The agent does not know a kind of op that would be needed.
    MissingOp,
    /// More ops than fit one apply, or more deletes than may wait.
    TooManyOps,
    /// The configuration, outside of declared backends.
    Configuration,
    /// Declared backends that no op changes.
    Backends,
    /// A file that was not there.
    Added,
    /// A file that is not there any more.
    Removed,
    /// The running HAProxy does not know it under this name.
    NotInInventory,
    /// It has several uses.
    SeveralUses,
    /// It belongs to a certificate beside it.
    Companion,
    /// Its content is not what a runtime command could carry.
    Content,
    /// It is larger than what a runtime command can carry.
    TooBig,
    /// A crt-list that changed anywhere but at its end.
    CrtList,
    /// A revocation list.
    Crl,
    /// A file that HAProxy reads only when it starts.
    OnlyAtStart,
    /// Runtime ops bring the change to the worker.
    Ops,
    /// The change means nothing to HAProxy.
    Meaningless,
    /// Nothing differs.
    Same,
}

/// What one file needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) needs: Verdict,
    pub(super) why: Why,
    /// One reason each.
    pub(super) texts: Vec<String>,
}

impl Found {
    pub(super) fn reload(why: Why, text: impl Into<String>) -> Self {
        Self {
            needs: Verdict::Reload,
            why,
            texts: vec![text.into()],
        }
    }

    pub(super) fn op(text: impl Into<String>) -> Self {
        Self {
            needs: Verdict::Runtime,
            why: Why::Ops,
            texts: vec![text.into()],
        }
    }

    pub(super) fn meaningless(text: impl Into<String>) -> Self {
        Self {
            needs: Verdict::FileOnly,
            why: Why::Meaningless,
            texts: vec![text.into()],
        }
    }
}

/// A file that differs.
pub(super) struct Difference<'a> {
    pub(super) path: &'a ManifestPath,
    pub(super) change: Change,
    /// None if it was removed.
    pub(super) entry: Option<Entry<'a>>,
    pub(super) held: Option<&'a HeldFile>,
}

/// All files that differ, by path.
pub(super) fn differences<'a>(set: &'a FileSet, state: &'a State) -> Vec<Difference<'a>> {
    let mut found: Vec<Difference<'a>> = Vec::new();
    for entry in set.files() {
        let held = state.files.get(entry.path);
        let same = held.is_some_and(|held| {
            held.size == entry.size
                && (held.digest == entry.digest
                    || ContentHash::of(entry.content).matches(&held.digest))
        });
        if !same {
            found.push(Difference {
                path: entry.path,
                change: match held {
                    Some(_) => Change::Changed,
                    None => Change::Added,
                },
                entry: Some(entry),
                held,
            });
        }
    }
    for (path, held) in &state.files {
        if set.get(path.as_str()).is_none() {
            found.push(Difference {
                path,
                change: Change::Removed,
                entry: None,
                held: Some(held),
            });
        }
    }
    found.sort_by(|one, two| one.path.cmp(two.path));
    found
}

/// Goes over the files and collects ops.
pub(super) struct Judge<'a> {
    pub(super) set: &'a FileSet,
    pub(super) state: &'a State,
    pub(super) version: &'a HaproxyVersion,
    pub(super) record: Option<&'a Record>,
    pub(super) differing: BTreeSet<&'a str>,
    pub(super) phases: Phases,
    /// New certificates that a line of a crt-list brings in.
    pub(super) covered: BTreeSet<String>,
}

impl Judge<'_> {
    /// What each of them needs, in their order.
    pub(super) fn all(&mut self, differences: &[Difference<'_>]) -> Vec<Found> {
        // A list first: whether a new certificate can be added depends on it.
        let is_list = |one: &Difference<'_>| {
            uses(one.path.as_str(), &self.state.runtime_inventory) == [Use::CrtList]
        };
        let lists: Vec<bool> = differences.iter().map(is_list).collect();
        let mut found: Vec<Option<Found>> = vec![None; differences.len()];
        for turn in [true, false] {
            for ((one, list), slot) in differences.iter().zip(&lists).zip(&mut found) {
                if *list == turn {
                    *slot = Some(self.one(one));
                }
            }
        }
        found.into_iter().flatten().collect()
    }

    fn one(&mut self, difference: &Difference<'_>) -> Found {
        let path = difference.path.as_str();
        let Some(entry) = &difference.entry else {
            return Found::reload(
                Why::Removed,
                "it is removed, and HAProxy has to show that it can do without",
            );
        };
        if difference.path == self.set.config() {
            return self.config(difference.held);
        }
        if let Some(stem) = companion_of(path).filter(|stem| self.is_certificate(stem)) {
            return Found::reload(
                Why::Companion,
                format!(
                    "it belongs to {stem}, and HAProxy reads the two together only when it starts"
                ),
            );
        }
        match uses(path, &self.state.runtime_inventory).as_slice() {
            [] => self.unknown(difference, entry),
            [one] => self.used(*one, difference, entry),
            several => {
                let words: Vec<&str> = several.iter().map(|one| one.word()).collect();
                Found::reload(
                    Why::SeveralUses,
                    format!("HAProxy uses it as {}", words.join(" and as ")),
                )
            }
        }
    }

    fn is_certificate(&self, path: &str) -> bool {
        let held = self.state.runtime_inventory.certs.iter();
        held.into_iter().any(|name| name == path)
            || self
                .set
                .get(path)
                .is_some_and(|entry| matches!(entry.kind, FileKind::Cert | FileKind::Ca))
    }

    /// A file that the running HAProxy knows by this name.
    fn used(&mut self, one: Use, difference: &Difference<'_>, entry: &Entry<'_>) -> Found {
        let path = entry.path.as_str();
        if let Err(fault) = field::path("its name", path) {
            return Found::reload(
                Why::Content,
                format!("{}, so no runtime command can name it", fault.words),
            );
        }
        if let Some(text) = self.otherwise(path, one) {
            return Found::reload(Why::SeveralUses, text);
        }
        let fits = matches!(
            (one, entry.kind),
            (Use::Map, FileKind::Map)
                | (Use::Cert | Use::Ca, FileKind::Cert | FileKind::Ca)
                | (Use::CrtList, FileKind::Crtlist)
        );
        if fits && self.means_the_same(difference, entry) {
            return Found::meaningless(
                "only what HAProxy does not read changed: comments, blanks, line ends",
            );
        }
        if let Some(other) = alias(path, &self.state.runtime_inventory) {
            return Found::reload(
                Why::NotInInventory,
                format!(
                    "the running HAProxy holds this file as {other} too, and a runtime command changes what is held under one name; write {path} everywhere to change it at runtime"
                ),
            );
        }
        match one {
            Use::Map => {
                let unordered = self.set.is_unordered(path);
                let before = difference
                    .held
                    .filter(|_| unordered)
                    .and_then(|held| self.record?.map(entry.path, &held.digest));
                maps::judge(entry, difference.held, before, &mut self.phases)
            }
            Use::Cert => match self.companion(path) {
                Some(other) => Found::reload(
                    Why::Companion,
                    format!(
                        "{other} belongs to it, and HAProxy reads the two together only when it starts: a certificate that is replaced at runtime loses it"
                    ),
                ),
                None => self.certificate(entry),
            },
            Use::Ca => self.authority(entry),
            Use::Acl => Found::reload(
                Why::OnlyAtStart,
                "it holds patterns of an ACL, which HAProxy reads only when it starts",
            ),
            Use::Crl => Found::reload(
                Why::Crl,
                "it is a revocation list, which is not changed at runtime",
            ),
            Use::CrtList => self.crt_list(entry, difference.held),
        }
    }

    /// Another use of the file, by the text of the set, which no command would reach.
    fn otherwise(&self, path: &str, one: Use) -> Option<String> {
        match one {
            Use::Map | Use::Cert | Use::Ca | Use::CrtList => {}
            // Reloaded anyway, for a reason of their own.
            Use::Acl | Use::Crl => return None,
        }
        if !can_be_found(path) {
            return Some(
                "its name holds characters by which it cannot be told whether the configuration uses it for something else too".to_owned(),
            );
        }
        let other = self.set.mentions().other_use(path, one, self.set)?;
        Some(format!(
            "line {} of {} uses it, or may use it, for something else than a {}, and that changes only when HAProxy starts",
            other.line,
            other.file,
            one.word()
        ))
    }

    /// A companion in the set, or one that is gone from it.
    fn companion(&self, path: &str) -> Option<String> {
        COMPANIONS
            .iter()
            .map(|end| format!("{path}{end}"))
            .find(|other| {
                self.differing.contains(other.as_str())
                    || self.set.files().any(|file| file.path.as_str() == other)
            })
    }

    fn means_the_same(&self, difference: &Difference<'_>, entry: &Entry<'_>) -> bool {
        let before = difference
            .held
            .and_then(|held| self.record?.means(entry.path, &held.digest));
        before.is_some_and(|before| means(entry).as_deref() == Some(before))
    }

    /// A file that the running HAProxy does not know, at least not by this name.
    fn unknown(&mut self, difference: &Difference<'_>, entry: &Entry<'_>) -> Found {
        let path = entry.path.as_str();
        if self.covered.contains(path) {
            return Found::op("the certificate can be added at runtime");
        }
        if let Some((one, name)) = near(path, &self.state.runtime_inventory) {
            if name.starts_with("virt@") {
                return Found::reload(
                    Why::NotInInventory,
                    format!(
                        "the running HAProxy has the {} {name}, which is in memory alone; if it reads this file it is as something else",
                        one.word()
                    ),
                );
            }
            return Found::reload(
                Why::NotInInventory,
                format!(
                    "the running HAProxy has the {} {name}, which may be this file, but under this name it knows none; write {path} in the configuration, below `default-path origin`, to change it at runtime",
                    one.word()
                ),
            );
        }
        let (why, text) = match (difference.change, entry.kind) {
            (Change::Added, FileKind::Cert) => (
                Why::Added,
                "it is a new certificate, and no line at the end of a loaded crt-list names it",
            ),
            (Change::Added, _) => (Why::Added, self.added()),
            (Change::Changed | Change::Removed, FileKind::Map) => (
                Why::NotInInventory,
                "the running HAProxy has no map of this name; if it uses the file it is as something else, such as an ACL's",
            ),
            (Change::Changed | Change::Removed, FileKind::Cert | FileKind::Ca) => (
                Why::NotInInventory,
                "the running HAProxy holds no certificate and no CA file of this name",
            ),
            (Change::Changed | Change::Removed, FileKind::Crtlist) => (
                Why::NotInInventory,
                "the running HAProxy has no crt-list of this name",
            ),
            (Change::Changed | Change::Removed, FileKind::Config | FileKind::General) => (
                Why::OnlyAtStart,
                "HAProxy reads such a file only when it starts (error pages, Lua, ACLs and others)",
            ),
        };
        Found::reload(why, text)
    }

    /// Of a file that the agent does not hold. Before the first push the same bytes may
    /// stand there already.
    fn added(&self) -> &'static str {
        match self.state.applied_plan_id.is_empty() {
            true => "the agent has not put it there, so whatever stands there is replaced",
            false => "it is a new file",
        }
    }

    fn config(&mut self, held: Option<&HeldFile>) -> Found {
        let Some(held) = held else {
            return Found::reload(Why::Added, self.added());
        };
        let Some(declared) = self.set.declared() else {
            return Found::reload(Why::Configuration, "the configuration changed");
        };
        let Some(records) = self.record.and_then(|record| record.backends.as_ref()) else {
            if self.state.applied_plan_stored && self.state.applied_plan.is_none() {
                return Found::reload(
                    Why::Configuration,
                    "the configuration changed, and the state was read without its plan, so its declared backends cannot be compared",
                );
            }
            return Found::reload(
                Why::Configuration,
                format!(
                    "the configuration changed, and the applied plan carries no record of its declared backends ({BACKENDS_FILE}), so they cannot be compared"
                ),
            );
        };
        if !is(held, &declared.text_of(records)) {
            return match self.same_skeleton(declared) {
                false => Found::reload(
                    Why::Configuration,
                    "the configuration changed outside of the declared backends",
                ),
                true => Found::reload(
                    Why::Configuration,
                    "the text that the agent holds was not made from the records of the applied plan by this program",
                ),
            };
        }
        let context = Context {
            version: self.version,
            declared,
            inventory: &self.state.runtime_inventory,
        };
        match compose(records, &context) {
            Ok(ops) if ops.notes.is_empty() => {
                Found::meaningless("the declared backends mean the same as before")
            }
            Ok(ops) => {
                let texts = ops.notes.clone();
                self.phases.backends(ops);
                Found {
                    needs: Verdict::Runtime,
                    why: Why::Ops,
                    texts,
                }
            }
            Err(texts) => Found {
                needs: Verdict::Reload,
                why: Why::Backends,
                texts,
            },
        }
    }

    fn same_skeleton(&self, declared: &Declared) -> bool {
        let before = self.record.and_then(|record| record.skeleton.as_deref());
        before == Some(skeleton(declared).as_str())
    }
}

/// Whether these are the bytes that the agent holds.
fn is(held: &HeldFile, bytes: &[u8]) -> bool {
    held.size == bytes.len() as u64 && ContentHash::of(bytes).matches(&held.digest)
}
