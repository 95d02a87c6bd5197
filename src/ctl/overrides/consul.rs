//! Consul as a store to write: check-and-set on the index that was read.
//!
//! The end of an override is in the flags of its key, so value and end are one write.
//! Who and why are a key of their own beside the prefix, where no responder looks; it is
//! written in the same transaction, and belongs to the value whose index it shares.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::store::{Change, StoreError, Stored, Version};
use crate::http::basic::base64;
use crate::http::client::{Cancel, Method};
use crate::responder::copy::Entry;
use crate::responder::key::{self, Prefix};
use crate::responder::kv::consul::api::{self, Api, Reply, Within};
use crate::responder::kv::consul::reply::{self, Row};
use crate::responder::kv::{ConsulServer, Weights};
use crate::responder::limits::MOST_KV_KEYS;
use crate::responder::note::Note;
use crate::responder::stamp::Stamp;

/// A person waits, and Consul takes up to 7.4 s to say that it has no leader.
const WITHIN: Within = Within {
    connect: Duration::from_secs(5),
    whole: Duration::from_secs(15),
};

#[derive(Debug)]
pub(super) struct Consul {
    api: Api,
    prefix: Prefix,
}

/// A note as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredNote {
    /// The value that it is about, for people who look at it alone.
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

impl Consul {
    pub(super) fn new(server: ConsulServer, prefix: Prefix) -> Result<Self, StoreError> {
        let token = server.token.read().map_err(StoreError::Token)?;
        let longest = api::max_body(MOST_KV_KEYS);
        let api = Api::new(server, token, Cancel::new(), longest);
        Ok(Self { api, prefix })
    }

    pub(super) fn get(&mut self, key: &str) -> Result<Option<Stored>, StoreError> {
        let target = format!("{}?consistent", key::kv_path(&self.prefix.full(key)));
        let reply = self.read(&target)?;
        if reply.status == 404 {
            return Ok(None);
        }
        let rows = rows(&reply)?;
        let [row] = rows.as_slice() else {
            return Err(StoreError::Answer("it is not about one key".to_owned()));
        };
        let mut stored = stored(row)?;
        let target = format!(
            "{}?consistent",
            key::kv_path(&self.prefix.notes().full(key))
        );
        // Without rights for notes there is none.
        if let Ok(reply) = self.read(&target) {
            if let Ok([note]) = rows_of(&reply).as_deref() {
                stored.note = note_of(note, row.modify_index);
            }
        }
        Ok(Some(stored))
    }

    pub(super) fn list(&mut self) -> Result<Vec<(String, Stored)>, StoreError> {
        // Without rights a list is empty or short and does not say so; a look at one key
        // does.
        self.read(&format!("{}?consistent", self.prefix.path()))?;
        let target = format!("{}?recurse&consistent", self.prefix.path());
        let values = self.read(&target)?;
        let target = format!("{}?recurse&consistent", self.prefix.notes().path());
        let notes = self.read(&target).ok();
        let (below, beside) = (self.prefix.with_slash(), self.prefix.notes().with_slash());
        let note_rows = notes.as_ref().map(rows_of).transpose();
        let note_rows = note_rows.unwrap_or_default().unwrap_or_default();
        let notes: BTreeMap<&str, &Row<'_>> = note_rows
            .iter()
            .filter_map(|row| Some((row.key.strip_prefix(&beside)?, row)))
            .collect();
        let mut all = Vec::new();
        for row in rows(&values)? {
            let Some(key) = row.key.strip_prefix(&below) else {
                continue;
            };
            let folder = row.value.is_none() && (key.is_empty() || key.ends_with('/'));
            if folder {
                continue;
            }
            let mut stored = stored(&row)?;
            if let Some(note) = notes.get(key) {
                stored.note = note_of(note, row.modify_index);
            }
            all.push((key.to_owned(), stored));
        }
        Ok(all)
    }

    pub(super) fn put(
        &mut self,
        key: &str,
        change: &Change,
        before: Option<&Version>,
    ) -> Result<(), StoreError> {
        let full = self.prefix.full(key);
        let index = index_of(before);
        let flags = change.until.map_or(0, Stamp::to_flags);
        let value = change.value.to_string();
        let told = change.note.by.is_some() || change.note.why.is_some();
        if !told {
            let target = format!("{}?cas={index}&flags={flags}", key::kv_path(&full));
            let reply = self.change(Method::Put, &target, value.as_bytes())?;
            return done(&reply);
        }
        let note = StoredNote {
            value: value.clone(),
            by: change.note.by.clone(),
            why: change.note.why.clone(),
            at: change.note.at.map(|at| at.to_string()),
        };
        let note = serde_json::to_vec(&note).map_err(|e| StoreError::Answer(e.to_string()))?;
        let operations = json!([
            {"KV": {
                "Verb": "cas", "Key": full, "Value": base64(value.as_bytes()),
                "Flags": flags, "Index": index,
            }},
            {"KV": {"Verb": "set", "Key": self.prefix.notes().full(key), "Value": base64(&note)}},
        ]);
        let reply = self.change(Method::Put, "/v1/txn", operations.to_string().as_bytes())?;
        self.committed(&reply)
    }

    pub(super) fn delete(&mut self, key: &str, before: &Version) -> Result<(), StoreError> {
        let index = index_of(Some(before));
        let target = format!("{}?cas={index}", key::kv_path(&self.prefix.full(key)));
        let reply = self.change(Method::Delete, &target, b"")?;
        done(&reply)?;
        // A note without its value is shown to nobody.
        let target = key::kv_path(&self.prefix.notes().full(key));
        let _tidied = self.change(Method::Delete, &target, b"");
        Ok(())
    }

    /// What a transaction answered.
    fn committed(&self, reply: &Reply) -> Result<(), StoreError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Failed {
            op_index: usize,
            what: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Outcome {
            errors: Option<Vec<Failed>>,
        }
        let outcome: Outcome = serde_json::from_slice(&reply.body)
            .map_err(|error| StoreError::Answer(format!("{error} in {}", reply.words())))?;
        let errors = outcome.errors.unwrap_or_default();
        let denied = |failed: &&Failed| failed.what.contains("ermission denied");
        if let Some(failed) = errors.iter().find(denied) {
            return Err(match failed.op_index {
                0 => self.forbidden(failed.what.clone()),
                _ => StoreError::NoteForbidden {
                    needed: format!("key_prefix {:?} write", self.prefix.notes().with_slash()),
                },
            });
        }
        match errors.first() {
            None if reply.status == 200 => Ok(()),
            None => Err(StoreError::Answer(reply.words())),
            Some(failed) if failed.what.contains("stale") => Err(StoreError::Changed),
            Some(failed) => Err(StoreError::Answer(failed.what.clone())),
        }
    }

    fn read(&mut self, target: &str) -> Result<Reply, StoreError> {
        let reply = self.api.get(target, WITHIN);
        let reply = reply.map_err(|source| StoreError::Unreachable {
            origin: self.api.server().origin.to_string(),
            source,
        })?;
        match reply.status {
            404 if reply.index.is_some() => Ok(reply),
            404 => Err(StoreError::Answer(
                "404 without X-Consul-Index: is this a Consul agent?".to_owned(),
            )),
            _ => self.checked(reply),
        }
    }

    fn change(&mut self, method: Method, target: &str, body: &[u8]) -> Result<Reply, StoreError> {
        let reply = self.api.change(method, target, body, WITHIN);
        let origin = || self.api.server().origin.to_string();
        let reply = reply.map_err(|source| match source {
            source @ crate::http::client::Error::NotConnected(_) => StoreError::Unreachable {
                origin: origin(),
                source,
            },
            source => StoreError::Unknown {
                origin: origin(),
                source,
            },
        })?;
        match reply.status {
            // A transaction that was rolled back.
            409 => Ok(reply),
            _ => self.checked(reply),
        }
    }

    fn checked(&self, reply: Reply) -> Result<Reply, StoreError> {
        match reply.status {
            _ if reply.leaderless => Err(StoreError::NoLeader),
            200 => Ok(reply),
            403 => Err(self.forbidden(reply.words())),
            500..=599 if reply.says_no_leader() => Err(StoreError::NoLeader),
            status => Err(StoreError::Answer(format!("{status} {}", reply.words()))),
        }
    }

    fn forbidden(&self, words: String) -> StoreError {
        StoreError::Forbidden {
            words,
            needed: format!("key_prefix {:?} write", self.prefix.with_slash()),
        }
    }
}

/// `true`, or `false` where the index was another one.
fn done(reply: &Reply) -> Result<(), StoreError> {
    match reply.body.trim_ascii() {
        b"true" => Ok(()),
        b"false" => Err(StoreError::Changed),
        _ => Err(StoreError::Answer(reply.words())),
    }
}

fn index_of(version: Option<&Version>) -> u64 {
    match version {
        Some(Version::Index(index)) => *index,
        // There was nothing, which is what 0 asks for.
        Some(Version::Content(_)) | None => 0,
    }
}

fn rows(reply: &Reply) -> Result<Vec<Row<'_>>, StoreError> {
    rows_of(reply).map_err(StoreError::Answer)
}

fn rows_of(reply: &Reply) -> Result<Vec<Row<'_>>, String> {
    match reply.status {
        404 => Ok(Vec::new()),
        _ => reply::rows(&reply.body, MOST_KV_KEYS),
    }
}

fn bytes(row: &Row<'_>) -> Option<Vec<u8>> {
    match &row.value {
        Some(text) => reply::decode(text),
        None => Some(Vec::new()),
    }
}

fn stored(row: &Row<'_>) -> Result<Stored, StoreError> {
    let bytes = bytes(row).ok_or_else(|| StoreError::Answer("a value is no base64".to_owned()))?;
    Ok(Stored {
        entry: Entry::new(Weights::Set.parse(&bytes), Stamp::of_flags(row.flags)),
        note: Note::default(),
        version: Version::Index(row.modify_index),
    })
}

/// The note, if it was written together with the value that is at `index`.
fn note_of(row: &Row<'_>, index: u64) -> Note {
    let stored = bytes(row)
        .filter(|_| row.modify_index == index)
        .and_then(|bytes| serde_json::from_slice::<StoredNote>(&bytes).ok());
    match stored {
        Some(stored) => Note {
            by: stored.by,
            why: stored.why,
            at: stored.at.as_deref().and_then(Stamp::parse),
        },
        None => Note::default(),
    }
}
