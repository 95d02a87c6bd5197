//! The JSON of `/-/coverage`. Keys are only ever added.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::super::confirm::SeenRow;
use super::super::copy::Copy;
use super::super::kv::{Names, Source};
use super::super::limits::MAX_SHOWN_OVERRIDES;
use crate::clock::UnixNanos;

/// What `/-/coverage` shows.
#[derive(Debug, Serialize)]
pub(super) struct Whole {
    /// When, by this machine's clock.
    pub(super) at: String,
    pub(super) store: Store,
    /// What the copy says, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) overrides: Option<Overrides>,
    /// Absent without a socket to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) haproxy: Option<Haproxy>,
    pub(super) states: BTreeMap<&'static str, usize>,
    pub(super) rows: Vec<ShownRow>,
    pub(super) unasked: Vec<String>,
    pub(super) unaddressable: Vec<String>,
    pub(super) evicted: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Store {
    pub(super) place: Place,
    pub(super) synced: bool,
    pub(super) last_read: Option<String>,
    pub(super) age_seconds: Option<f64>,
    pub(super) hold: Option<&'static str>,
    pub(super) trouble: Option<String>,
    /// Since when there is trouble without a good read between.
    pub(super) trouble_since: Option<String>,
    pub(super) keys: usize,
    pub(super) invalid: Vec<Invalid>,
    /// The key without which no reply is believed, if one is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) marker: Option<String>,
    /// What is answered although the store does not say so: only in a hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kept: Vec<Kept>,
    pub(super) unreadable: Files,
    pub(super) ignored: Files,
}

/// Which store is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Place {
    /// A prefix in Consul.
    Consul {
        /// The server that is asked.
        address: String,
        /// The prefix, with its slash.
        prefix: String,
    },
    /// A directory of this machine.
    Directory {
        /// Its path.
        path: String,
    },
}

impl Place {
    /// The place of a source.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        match source {
            Source::Consul(consul) => Self::Consul {
                address: consul.server.origin.to_string(),
                prefix: consul.prefix.with_slash(),
            },
            Source::Dir(dir) => Self::Directory {
                path: dir.path.display().to_string(),
            },
        }
    }
}

/// The keys of the copy, by name.
#[derive(Debug, Serialize)]
pub(super) struct Overrides {
    pub(super) keys: Vec<Override>,
    /// How many more there are.
    pub(super) left_out: usize,
}

/// One key as the copy has it.
#[derive(Debug, Serialize)]
pub(super) struct Override {
    pub(super) key: String,
    pub(super) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) invalid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
}

pub(super) fn overrides(copy: &Copy) -> Overrides {
    let keys = copy.iter().take(MAX_SHOWN_OVERRIDES);
    let keys = keys.map(|(key, entry)| {
        let stored = entry.stored();
        Override {
            key: key.to_owned(),
            value: stored.as_ref().ok().map(ToString::to_string),
            invalid: stored.err().map(ToString::to_string),
            until: entry.until().map(|until| until.to_string()),
        }
    });
    Overrides {
        keys: keys.collect(),
        left_out: copy.len().saturating_sub(MAX_SHOWN_OVERRIDES),
    }
}

/// Names of files: how many, and the first ones.
#[derive(Debug, Serialize)]
pub(super) struct Files {
    pub(super) count: usize,
    pub(super) named: Vec<String>,
    /// The same, with what there is to say of each.
    pub(super) told: Vec<String>,
}

impl From<Names> for Files {
    fn from(names: Names) -> Self {
        Self {
            count: names.count,
            named: names.named,
            told: names.told,
        }
    }
}

/// An override that is in force because of a hold.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    pub(super) key: String,
    pub(super) value: String,
}

/// What is in force of a copy in a hold: what the store lost, or all of it where that is not
/// known key by key.
pub(super) fn kept(copy: &Copy, lost: &BTreeSet<Box<str>>, wall: UnixNanos) -> Vec<Kept> {
    let held = copy
        .iter()
        .filter(|(key, _)| lost.is_empty() || lost.contains(*key));
    let valued = held.filter_map(|(key, entry)| Some((key, entry.value_at(wall)?)));
    let kept = valued.map(|(key, value)| Kept {
        key: key.to_owned(),
        value: value.to_string(),
    });
    kept.collect()
}

#[derive(Debug, Serialize)]
pub(super) struct Invalid {
    pub(super) key: String,
    pub(super) why: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Haproxy {
    pub(super) looked_at: Option<String>,
    pub(super) trouble: Option<String>,
    /// Whether it was looked at for this request, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fresh: Option<bool>,
}

#[derive(Debug, Serialize)]
pub(super) struct ShownRow {
    pub(super) row: String,
    /// Absent without a view of HAProxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'static str>,
    /// In words, where it is none of a good row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    #[serde(flatten)]
    pub(super) asked: Option<Asked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decided_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) haproxy: Option<ShownServer>,
}

/// What a row asked and was told.
#[derive(Debug, Serialize)]
pub(super) struct Asked {
    pub(super) request: Vec<String>,
    pub(super) answer: String,
    pub(super) first_asked: String,
    pub(super) last_asked: String,
    pub(super) interval_seconds: Option<f64>,
    pub(super) count: u64,
}

/// What HAProxy says of a row.
#[derive(Debug, Serialize)]
pub(super) struct ShownServer {
    pub(super) status: String,
    pub(super) admin: u32,
    pub(super) weight: u32,
    pub(super) base_weight: u32,
    pub(super) agent: String,
    pub(super) agent_status: String,
    pub(super) agent_words: String,
}

impl From<&SeenRow> for ShownServer {
    fn from(row: &SeenRow) -> Self {
        Self {
            status: row.status.clone(),
            admin: row.admin,
            weight: row.weight,
            base_weight: row.base_weight,
            agent: row.agent.clone(),
            agent_status: row.agent_status.clone(),
            agent_words: row.agent_words.clone(),
        }
    }
}

/// What `/-/coverage?key=` shows.
#[derive(Debug, Serialize)]
pub(super) struct Explained {
    pub(super) key: String,
    pub(super) in_store: bool,
    pub(super) value: Option<String>,
    pub(super) invalid: Option<String>,
    pub(super) until: Option<String>,
    pub(super) summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) haproxy: Option<ShownServer>,
    pub(super) asked_by: Vec<ShownRow>,
}
