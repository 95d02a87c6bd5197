//! The plan blob: what a set was made of, for the decision after it.
//!
//! A state says which files the agent holds by digest and size alone. The blob beside
//! them, which the agent keeps without a look, adds what a comparison needs: the
//! declared records, what each file means, and the content of maps whose entries may be
//! changed one by one. It is JSON in UTF-8:
//!
//! | key | |
//! |---|---|
//! | `format` | `haptic-plan` |
//! | `version` | [`PLAN_SCHEMA_VERSION`], also the manifest's `plan_schema_version` |
//! | `plan_id` | of the set |
//! | `by` | who pushed it, in their own words; left out if they did not say |
//! | `backends` | the declared records, profiles folded in; left out without any |
//! | `skeleton` | SHA-256 of the configuration outside of the generated text |
//! | `files` | by path: `digest` of the content, and `means`, a digest of what HAProxy's loader makes of it |
//! | `maps` | by path: the content of maps declared to be unordered |
//!
//! Nothing in it is believed by itself. Records count only if they, put into the new
//! configuration's skeleton, give the very bytes that the agent holds; a meaning or a
//! content only if its digest is the one of the state. A blob of another format, version
//! or plan is none. Above [`MAX_PLAN_BLOB_BYTES`] first `maps` are left out, then
//! `files`, then all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::meaning::means;
use crate::client::backends::{Declared, Records};
use crate::client::fileset::FileSet;
use crate::format::base64;
use crate::wire::digest::{Digest, hex};
use crate::wire::limits::MAX_PLAN_BLOB_BYTES;
use crate::wire::manifest::FileKind;
use crate::wire::path::ManifestPath;
use crate::wire::state::State;

/// The blob's version, `plan_schema_version` of a manifest that carries it.
pub const PLAN_SCHEMA_VERSION: i64 = 1;

const FORMAT: &str = "haptic-plan";

/// Characters of a name that are kept.
const MAX_BY_CHARS: usize = 128;

/// What is known of the applied set beyond its digests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    format: String,
    version: i64,
    plan_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) backends: Option<Records>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) skeleton: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    files: BTreeMap<ManifestPath, Meaning>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    maps: BTreeMap<ManifestPath, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Meaning {
    digest: Digest,
    means: String,
}

impl Record {
    fn of(set: &FileSet, by: Option<&str>) -> Self {
        let files = set.files().filter_map(|entry| {
            let means = means(&entry)?;
            let digest = entry.digest;
            Some((entry.path.clone(), Meaning { digest, means }))
        });
        let maps = set
            .files()
            .filter(|entry| entry.kind == FileKind::Map && set.is_unordered(entry.path.as_str()));
        let maps = maps.filter_map(|entry| {
            let text = std::str::from_utf8(entry.content).ok()?;
            Some((entry.path.clone(), text.to_owned()))
        });
        Self {
            format: FORMAT.to_owned(),
            version: PLAN_SCHEMA_VERSION,
            plan_id: set.plan_id().to_owned(),
            by: by.map(|by| by.chars().take(MAX_BY_CHARS).collect()),
            backends: set.declared().map(|declared| declared.records().clone()),
            skeleton: set.declared().map(skeleton),
            files: files.collect(),
            maps: maps.collect(),
        }
    }

    /// The applied plan's, if the state carries one of ours.
    pub(super) fn read(state: &State) -> Option<Self> {
        let bytes = base64::decode(state.applied_plan.as_deref()?)?;
        let record: Self = serde_json::from_slice(&bytes).ok()?;
        let ours = record.format == FORMAT
            && record.version == PLAN_SCHEMA_VERSION
            && record.plan_id == state.applied_plan_id;
        ours.then_some(record)
    }

    /// What the content of that digest means, if it is known.
    pub(super) fn means(&self, path: &ManifestPath, held: &Digest) -> Option<&str> {
        let known = self.files.get(path)?;
        (known.digest == *held).then_some(known.means.as_str())
    }

    /// The content of that digest, if it is at hand.
    pub(super) fn map(&self, path: &ManifestPath, held: &Digest) -> Option<&[u8]> {
        let content = self.maps.get(path)?.as_bytes();
        (Digest::Sha256(Sha256::digest(content).into()) == *held).then_some(content)
    }
}

/// Names the configuration outside of the generated text.
pub(super) fn skeleton(declared: &Declared) -> String {
    let [head, tail] = declared.skeleton();
    let mut hash = Sha256::new();
    hash.update(format!("{}\n", head.len()));
    hash.update(head);
    hash.update(tail);
    hex(&hash.finalize())
}

/// Who pushed what is applied, as they said themselves, if the state carries a plan of
/// ours. Nobody has checked it; it is for people who want to ask somebody.
#[must_use]
pub fn pushed_by(state: &State) -> Option<String> {
    Record::read(state)?.by
}

pub(crate) fn encode(set: &FileSet, by: Option<&str>) -> Option<Vec<u8>> {
    let mut record = Record::of(set, by);
    let fits = |record: &Record| {
        let bytes = serde_json::to_vec(record).ok()?;
        (bytes.len() as u64 <= MAX_PLAN_BLOB_BYTES).then_some(bytes)
    };
    if let Some(bytes) = fits(&record) {
        return Some(bytes);
    }
    record.maps.clear();
    if let Some(bytes) = fits(&record) {
        return Some(bytes);
    }
    record.files.clear();
    fits(&record)
}
