//! Names: what the running HAProxy calls its files, and what the set calls them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Severity};
use crate::client::backends::BACKENDS_FILE;
use crate::client::backends::ops::{Context, compose};
use crate::client::decide::names::{Use, companion_of, near, uses};
use crate::client::fileset::{Entry, FileSet};
use crate::client::push::warnings;
use crate::client::socket;
use crate::format::{HaproxyVersion, field, payload, pem};
use crate::wire::manifest::FileKind;
use crate::wire::path::ManifestPath;
use crate::wire::state::State;

/// Findings of one code in one file; more would be the same again.
const MAX_OF_A_KIND: usize = 5;

pub(super) struct Findings {
    found: Vec<Finding>,
    counts: BTreeMap<(ManifestPath, &'static str), usize>,
}

impl Findings {
    pub(super) fn of(set: &FileSet, state: &State) -> Self {
        let mut this = Self {
            found: Vec::new(),
            counts: BTreeMap::new(),
        };
        for entry in set.files() {
            this.name(&entry, set, state);
            this.otherwise(&entry, set, state);
        }
        this.silent(state);
        this.socket(set, state);
        this.warned(set, state);
        this.missing(set, state);
        this.skipped(set);
        this.version(set, state);
        this.backends(set, state);
        this.blob(set);
        this
    }

    pub(super) fn sorted(mut self) -> Vec<Finding> {
        self.found.sort_by(|one, two| {
            let key = |f: &Finding| (f.severity, f.path.clone(), f.line);
            key(one).cmp(&key(two))
        });
        self.found
    }

    pub(super) fn add(
        &mut self,
        severity: Severity,
        place: (Option<&ManifestPath>, Option<usize>),
        code: &'static str,
        text: impl Into<String>,
        next: impl Into<String>,
    ) {
        let path = place.0.cloned();
        let count = path.clone().map_or(0, |path| {
            let count = self.counts.entry((path, code)).or_default();
            *count += 1;
            *count
        });
        if count <= MAX_OF_A_KIND {
            self.found.push(Finding {
                severity,
                path,
                line: place.1,
                code,
                text: text.into(),
                next: next.into(),
            });
        }
    }

    /// Whether the running HAProxy can be told of a change of this file.
    fn name(&mut self, entry: &Entry<'_>, set: &FileSet, state: &State) {
        let path = entry.path.as_str();
        let at = (Some(entry.path), None);
        if looks_left_over(path) {
            self.add(
                Severity::Warning,
                at,
                "left_over",
                "it looks like an editor's copy, and it is pushed like any other file",
                "remove it from the directory",
            );
            return;
        }
        let used = uses(path, &state.runtime_inventory);
        if !used.is_empty() {
            if let Err(fault) = field::path("its name", path) {
                self.add(
                    Severity::Note,
                    at,
                    "name_for_no_command",
                    format!("{}, so no runtime command can name it", fault.words),
                    "rename it, here and in the configuration, to change it without a reload",
                );
            }
            if used.contains(&Use::Cert) {
                self.size(entry);
            }
            return;
        }
        let wanted = match entry.kind {
            FileKind::Map => "map",
            FileKind::Cert | FileKind::Ca => "certificate or CA file",
            FileKind::Crtlist => "crt-list",
            FileKind::Config | FileKind::General => return,
        };
        let beside = companion_of(path).is_some_and(|stem| set.get(stem).is_some());
        if beside || state.applied_plan_id.is_empty() {
            return;
        }
        if let Some((one, name)) = near(path, &state.runtime_inventory) {
            if name.starts_with("virt@") {
                self.add(
                    Severity::Warning,
                    at,
                    "other_spelling",
                    format!(
                        "the running configuration has the {} {name}, which is in memory alone and reads no file",
                        one.word()
                    ),
                    format!("write {path} there to have the file read, or remove the file"),
                );
                return;
            }
            self.add(
                Severity::Warning,
                at,
                "other_spelling",
                format!(
                    "the running configuration calls the {} {name}, so a change of {path} always takes a reload",
                    one.word()
                ),
                format!(
                    "write {path} there, with `default-path origin DIRECTORY` in the global section{}",
                    match one {
                        Use::Cert | Use::Ca | Use::Crl => " and without crt-base and ca-base",
                        Use::Map | Use::Acl | Use::CrtList => "",
                    }
                ),
            );
            return;
        }
        if state.files.contains_key(entry.path) {
            self.add(
                Severity::Note,
                at,
                "not_loaded",
                format!("the running HAProxy has no {wanted} of this name, so a change of it takes a reload"),
                "remove it if nothing uses it; if the configuration uses it, write its name there as it is here",
            );
        }
    }

    /// Whether something else was made of what a command could change.
    fn otherwise(&mut self, entry: &Entry<'_>, set: &FileSet, state: &State) {
        let path = entry.path.as_str();
        let at = (Some(entry.path), None);
        match uses(path, &state.runtime_inventory).as_slice() {
            [Use::Acl] => self.add(
                Severity::Note,
                at,
                "acl_file",
                "it holds patterns of an ACL, so a change of it takes a reload",
                "a map instead of it (`map(FILE) -m found`) changes without one",
            ),
            [one @ (Use::Map | Use::Cert | Use::Ca | Use::CrtList)] => {
                let Some(other) = set.mentions().other_use(path, *one, set) else {
                    return;
                };
                self.add(
                    Severity::Note,
                    at,
                    "used_otherwise",
                    format!(
                        "line {} of {} uses it, or may use it, for something else than a {}, so a change of it takes a reload",
                        other.line,
                        other.file,
                        one.word()
                    ),
                    "give that use a copy of its own under another name",
                );
            }
            several => {
                if let [one, other, ..] = several {
                    self.add(
                        Severity::Note,
                        at,
                        "used_otherwise",
                        format!(
                            "the running HAProxy has it as {} and as {}, so a change of it takes a reload",
                            one.word(),
                            other.word()
                        ),
                        "give one of them a copy of its own under another name",
                    );
                }
            }
        }
    }

    fn size(&mut self, entry: &Entry<'_>) {
        let room = payload::room(entry.path.as_str());
        if let Err(fault) = pem::certificate(entry.content, room) {
            if fault.kind == crate::format::FaultKind::TooBig {
                self.add(
                    Severity::Note,
                    (Some(entry.path), None),
                    "too_big",
                    format!("{}, so a change of it takes a reload", fault.words),
                    "leave certificates out of the chain that clients have anyway, such as the root",
                );
            }
        }
    }

    fn silent(&mut self, state: &State) {
        if let Some(silent) = state.worker.as_ref().filter(|worker| !worker.answers) {
            let reason = silent.reason.as_deref().unwrap_or("its socket is silent");
            self.add(
                Severity::Error,
                (None, None),
                "no_answer",
                format!("HAProxy has not answered since {}: {reason}", silent.since),
                "start it, as a master (-W) with the sockets that the agent was told",
            );
        }
    }

    /// Whether the agent will meet the worker that loads this.
    fn socket(&mut self, set: &FileSet, state: &State) {
        if let Some(doubt) = socket::doubt(set, state) {
            let (path, line) = &doubt.place;
            self.add(
                Severity::Warning,
                (Some(path), *line),
                "no_stats_socket",
                doubt.text,
                doubt.next,
            );
        }
    }

    /// What HAProxy itself said when it loaded this very set.
    fn warned(&mut self, set: &FileSet, state: &State) {
        let last = state.last_apply.as_ref();
        let ours = last.filter(|last| last.plan_id == set.plan_id());
        let mut records = ours.map(warnings).unwrap_or_default();
        records.retain(|line| line.starts_with('['));
        for record in records.iter().take(MAX_OF_A_KIND) {
            let words = record.trim_end_matches('.');
            self.add(
                Severity::Warning,
                (None, None),
                "haproxy_warned",
                format!("HAProxy warned when it loaded this set: {words}"),
                match records.len().saturating_sub(MAX_OF_A_KIND) {
                    0 => "mend it, or leave it if it is meant so".to_owned(),
                    more => format!("mend it; {more} more are in hapticctl state -o json"),
                },
            );
        }
    }

    /// Files that the running HAProxy uses below the base and the set does not have.
    fn missing(&mut self, set: &FileSet, state: &State) {
        let mut seen = BTreeSet::new();
        for one in Use::ALL {
            for name in one.names(&state.runtime_inventory) {
                let there = set.get(name).is_some()
                    || set.files().any(|entry| {
                        name.strip_suffix(entry.path.as_str())
                            .is_some_and(|front| front.ends_with('/'))
                    });
                let own = state.files.keys().any(|path| path.as_str() == name);
                if there || !own || !seen.insert(name) {
                    continue;
                }
                self.add(
                    Severity::Warning,
                    (ManifestPath::parse(name.as_str()).ok().as_ref(), None),
                    "missing",
                    format!(
                        "the running configuration uses it as {}, and this set does not have it, so it will be removed",
                        one.word()
                    ),
                    "put it into the directory, or see that the new configuration does without it",
                );
            }
        }
    }

    fn skipped(&mut self, set: &FileSet) {
        let skipped = set.skipped();
        let Some(first) = skipped.first() else { return };
        self.add(
            Severity::Note,
            (None, None),
            "skipped",
            format!(
                "{} name(s) that start with a dot are not pushed: {first}{}",
                skipped.len(),
                if skipped.len() > 1 { ", …" } else { "" }
            ),
            "rename what HAProxy shall read; the agent keeps such names for itself",
        );
    }

    fn version(&mut self, set: &FileSet, state: &State) {
        let Ok(version) = state.haproxy.version.parse::<HaproxyVersion>() else {
            return;
        };
        if set.declared().is_some() && !version.at_least(3, 4) {
            self.add(
                Severity::Note,
                (None, None),
                "version",
                format!(
                    "HAProxy {} takes servers in and out at runtime, and whole backends only by a reload",
                    version.short()
                ),
                "HAProxy 3.4 adds and removes declared backends without one",
            );
        }
        if !version.at_least(3, 2) && set.files().any(|entry| entry.kind == FileKind::Ca) {
            self.add(
                Severity::Note,
                (None, None),
                "version",
                format!(
                    "HAProxy {} cannot change CA files safely at runtime, so a change of one takes a reload",
                    version.short()
                ),
                "HAProxy 3.2 and later can",
            );
        }
    }

    /// Declared backends that HAProxy refuses, or whose servers no command changes.
    fn backends(&mut self, set: &FileSet, state: &State) {
        let Some(declared) = set.declared() else {
            return;
        };
        let at = (Some(set.config()), None);
        for profile in declared.missing_profiles() {
            self.add(
                Severity::Error,
                at,
                "no_profile",
                format!(
                    "a declared backend has the profile {profile}, and there is no line `defaults {profile}`"
                ),
                format!("write that section, or correct the profile's name in {BACKENDS_FILE}"),
            );
        }
        let Ok(version) = state.haproxy.version.parse::<HaproxyVersion>() else {
            return;
        };
        let context = Context {
            version: &version,
            declared,
            inventory: &state.runtime_inventory,
        };
        // What it would take to bring all servers in.
        let mut empty = declared.records().clone();
        for backend in empty.0.values_mut() {
            backend.servers.clear();
        }
        for why in compose(&empty, &context).err().into_iter().flatten() {
            self.add(
                Severity::Note,
                at,
                "servers_by_reload",
                format!("a new server takes a reload: {why}"),
                "change that, or leave it so if they seldom come and go",
            );
        }
    }

    fn blob(&mut self, set: &FileSet) {
        if set.plan_blob().is_none() {
            self.add(
                Severity::Warning,
                (None, None),
                "no_record",
                "the declared backends are too many for the agent to keep their record, so each change of them takes a reload",
                "declare only those that change often, and write the others into the configuration",
            );
        }
    }
}

fn looks_left_over(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let ends = [
        "~",
        ".bak",
        ".orig",
        ".rej",
        ".swp",
        ".tmp",
        ".dpkg-old",
        ".dpkg-dist",
        ".rpmsave",
    ];
    ends.iter().any(|end| file.ends_with(end)) || (file.starts_with('#') && file.ends_with('#'))
}
