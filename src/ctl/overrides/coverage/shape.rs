//! The JSON of a responder's `/-/coverage`, as far as it matters here. What an older
//! responder does not say is absent, and never an error.

use std::fmt;

use serde::Deserialize;

/// What a responder says at `/-/coverage`, as far as it matters here.
#[derive(Debug, Deserialize, Default)]
pub(in crate::ctl::overrides) struct Coverage {
    /// When it said so, by its clock.
    #[serde(default)]
    pub(in crate::ctl::overrides) at: Option<String>,
    pub(in crate::ctl::overrides) store: StoreView,
    /// What its copy says, where that was asked for and it knows that question.
    #[serde(default)]
    pub(in crate::ctl::overrides) overrides: Option<CopyView>,
    /// Absent where it was given no socket.
    #[serde(default)]
    pub(in crate::ctl::overrides) haproxy: Option<HaproxyView>,
    #[serde(default)]
    pub(in crate::ctl::overrides) rows: Vec<RowView>,
}

/// The copy of a responder, by key.
#[derive(Debug, Deserialize, Default)]
pub(in crate::ctl::overrides) struct CopyView {
    #[serde(default)]
    pub(in crate::ctl::overrides) keys: Vec<CopiedKey>,
    /// Keys that it has and did not say.
    #[serde(default)]
    pub(in crate::ctl::overrides) left_out: usize,
}

#[derive(Debug, Deserialize, Default, Clone, PartialEq, Eq)]
pub(in crate::ctl::overrides) struct CopiedKey {
    pub(in crate::ctl::overrides) key: String,
    #[serde(default)]
    pub(in crate::ctl::overrides) value: Option<String>,
    #[serde(default)]
    pub(in crate::ctl::overrides) invalid: Option<String>,
    #[serde(default)]
    pub(in crate::ctl::overrides) until: Option<String>,
}

/// How a responder does with its HAProxy.
#[derive(Debug, Deserialize, Default)]
pub(in crate::ctl::overrides) struct HaproxyView {
    #[serde(default)]
    pub(super) trouble: Option<String>,
    /// False where it was not looked at for this answer.
    #[serde(default)]
    pub(super) fresh: Option<bool>,
}

/// Which store a responder follows.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(in crate::ctl::overrides) enum PlaceView {
    Consul { address: String, prefix: String },
    Directory { path: String },
}

impl fmt::Display for PlaceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consul { address, prefix } => write!(f, "{address} {prefix}"),
            Self::Directory { path } => f.write_str(path),
        }
    }
}

#[derive(Debug, Deserialize, Default)]
pub(in crate::ctl::overrides) struct NamesView {
    #[serde(default)]
    pub(in crate::ctl::overrides) named: Vec<String>,
}

#[derive(Debug, Deserialize, Default)]
pub(in crate::ctl::overrides) struct StoreView {
    #[serde(default)]
    pub(in crate::ctl::overrides) place: Option<PlaceView>,
    #[serde(default)]
    pub(in crate::ctl::overrides) trouble_since: Option<String>,
    /// Files that it cannot read.
    #[serde(default)]
    pub(in crate::ctl::overrides) unreadable: NamesView,
    pub(in crate::ctl::overrides) synced: bool,
    #[serde(default)]
    pub(in crate::ctl::overrides) hold: Option<String>,
    #[serde(default)]
    pub(in crate::ctl::overrides) trouble: Option<String>,
    /// Since the store last said what is answered.
    #[serde(default)]
    pub(in crate::ctl::overrides) age_seconds: Option<f64>,
    /// The key that is no override.
    #[serde(default)]
    pub(in crate::ctl::overrides) marker: Option<String>,
    /// What is in force although the store does not say so.
    #[serde(default)]
    pub(in crate::ctl::overrides) kept: Vec<Kept>,
}

/// An override that a hold keeps.
#[derive(Debug, Deserialize)]
pub(in crate::ctl::overrides) struct Kept {
    key: String,
    value: String,
}

impl StoreView {
    /// The overrides that a hold keeps, in words.
    pub(in crate::ctl::overrides) fn kept(&self) -> Vec<String> {
        let kept = self.kept.iter();
        kept.map(|kept| format!("{} {}", kept.key, kept.value))
            .collect()
    }
}

#[derive(Debug, Deserialize, Default)]
pub(in crate::ctl::overrides) struct RowView {
    pub(in crate::ctl::overrides) row: String,
    #[serde(default)]
    pub(in crate::ctl::overrides) state: Option<String>,
    /// Why it is in a state that is none of a good row.
    #[serde(default)]
    pub(in crate::ctl::overrides) why: Option<String>,
    #[serde(default)]
    pub(in crate::ctl::overrides) request: Vec<String>,
    #[serde(default)]
    pub(in crate::ctl::overrides) answer: Option<String>,
    #[serde(default)]
    pub(in crate::ctl::overrides) decided_by: Option<String>,
    #[serde(default)]
    pub(in crate::ctl::overrides) last_asked: Option<String>,
    #[serde(default)]
    pub(in crate::ctl::overrides) interval_seconds: Option<f64>,
    #[serde(default)]
    pub(in crate::ctl::overrides) haproxy: Option<ServerView>,
}

#[derive(Debug, Deserialize, Default)]
pub(in crate::ctl::overrides) struct ServerView {
    #[serde(default)]
    pub(super) agent: String,
    #[serde(default)]
    pub(super) agent_status: String,
    #[serde(default)]
    pub(super) base_weight: u32,
}
