//! The queue: what waits, for which worker, and what was decided about it.

use super::machine::State;
use crate::haproxy::identity::Identity;
use crate::wire::limits::{MAX_PENDING_BACKEND_DELETES, MAX_PENDING_SERVER_DELETES};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// A server.
    Server {
        /// Its backend.
        backend: String,
        /// Its name.
        server: String,
    },
    /// A backend.
    Backend {
        /// Its name.
        backend: String,
    },
}

impl Key {
    /// The backend, or the server's backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        match self {
            Self::Server { backend, .. } | Self::Backend { backend } => backend,
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::Server { .. } => ObjectKind::Server,
            Self::Backend { .. } => ObjectKind::Backend,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { backend, server } => write!(f, "{backend}/{server}"),
            Self::Backend { backend } => f.write_str(backend),
        }
    }
}

/// The label of a delete's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A server.
    Server,
    /// A backend.
    Backend,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeleteOutcome {
    /// The object is gone, now or before.
    Done,
    /// An attempt was refused; the entry stays.
    Deferred,
    /// Given up; the object stays until the next reload.
    Abandoned,
    /// Another worker, or the object is wanted again.
    Superseded,
}

/// One delete as an op asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteRequest {
    /// What.
    pub key: Key,
    /// How long its sessions may take, in milliseconds, where the op says so.
    pub grace_ms: Option<u64>,
}

/// Something to count and to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteEvent {
    /// What.
    pub key: Key,
    /// What happened to it.
    pub outcome: DeleteOutcome,
    /// HAProxy's words or the reason; may be empty.
    pub words: String,
}

/// One waiting delete. Only what it was asked for outlives the process: it starts
/// from *waiting* then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grace_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) attempts: u32,
    #[serde(skip)]
    pub(crate) state: State,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form.
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// All waiting deletes, and the worker that they belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Queue {
    worker: Option<Identity>,
    entries: BTreeMap<Key, Entry>,
    /// Given up, and still there until a reload; at most as many as may wait. A restart
    /// forgets them: then only an op that names one again would look for it.
    abandoned: BTreeSet<Key>,
    events: Vec<DeleteEvent>,
}

/// As it stands in the state file: JSON has no maps with such keys.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Stored {
    #[serde(default)]
    worker: Option<Identity>,
    #[serde(default)]
    entries: Vec<(Key, Entry)>,
}

impl From<Stored> for Queue {
    fn from(stored: Stored) -> Self {
        Self {
            worker: stored.worker,
            entries: stored.entries.into_iter().collect(),
            abandoned: BTreeSet::new(),
            events: Vec::new(),
        }
    }
}

impl From<Queue> for Stored {
    fn from(queue: Queue) -> Self {
        Self {
            worker: queue.worker,
            entries: queue.entries.into_iter().collect(),
        }
    }
}

impl Queue {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The worker that the entries belong to.
    #[must_use]
    pub fn worker(&self) -> Option<Identity> {
        self.worker
    }

    /// Whether that object waits to be deleted.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether it is known why that object is still there: its delete waits, or was given
    /// up.
    #[must_use]
    pub fn knows(&self, key: &Key) -> bool {
        self.contains(key) || self.abandoned.contains(key)
    }

    /// What waits, as the state lists it: `backend/server` and `backend`, sorted.
    #[must_use]
    pub fn pending(&self) -> (Vec<String>, Vec<String>) {
        let of = |kind| {
            let keys = self.entries.keys().filter(move |key| key.kind() == kind);
            keys.map(Key::to_string).collect()
        };
        (of(ObjectKind::Server), of(ObjectKind::Backend))
    }

    /// How many of a kind wait.
    #[must_use]
    pub fn count(&self, kind: ObjectKind) -> usize {
        self.entries.keys().filter(|key| key.kind() == kind).count()
    }

    /// How many more of a kind may wait.
    #[must_use]
    pub fn room(&self, kind: ObjectKind) -> usize {
        let most = match kind {
            ObjectKind::Server => MAX_PENDING_SERVER_DELETES,
            ObjectKind::Backend => MAX_PENDING_BACKEND_DELETES,
        };
        most.saturating_sub(self.count(kind))
    }

    /// From now on the queue belongs to `worker`; entries for another are superseded.
    pub fn bind(&mut self, worker: Identity) {
        if self.worker != Some(worker) {
            self.supersede_all("another worker runs now");
            self.worker = Some(worker);
        }
    }

    /// Drops everything, for example before a reload's new worker is talked to.
    pub fn supersede_all(&mut self, why: &str) {
        let keys: Vec<Key> = self.entries.keys().cloned().collect();
        for key in keys {
            self.finish(&key, DeleteOutcome::Superseded, why);
        }
        self.abandoned.clear();
    }

    /// The object is wanted again. False when it did not wait.
    pub fn cancel(&mut self, key: &Key) -> bool {
        self.abandoned.remove(key);
        self.finish(key, DeleteOutcome::Superseded, "it is wanted again")
    }

    /// Adds entries for `worker`. A second delete of one object merges into the first:
    /// the shorter grace counts.
    pub fn add(&mut self, requests: &[DeleteRequest], worker: Identity) {
        self.bind(worker);
        for request in requests {
            self.abandoned.remove(&request.key);
            let entry = self
                .entries
                .entry(request.key.clone())
                .or_insert_with(|| Entry {
                    grace_ms: request.grace_ms,
                    attempts: 0,
                    state: State::Waiting,
                });
            let grace_ms = match (entry.grace_ms, request.grace_ms) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            };
            if grace_ms != entry.grace_ms {
                entry.grace_ms = grace_ms;
                entry.state = State::Waiting;
            }
        }
    }

    /// What is to be counted and logged since the last call.
    pub fn take_events(&mut self) -> Vec<DeleteEvent> {
        std::mem::take(&mut self.events)
    }

    /// The end of an entry. False when there is none.
    pub(crate) fn finish(&mut self, key: &Key, outcome: DeleteOutcome, words: &str) -> bool {
        let room = self.abandoned.len() < MAX_PENDING_SERVER_DELETES + MAX_PENDING_BACKEND_DELETES;
        match outcome {
            DeleteOutcome::Abandoned if room => self.abandoned.insert(key.clone()),
            DeleteOutcome::Abandoned | DeleteOutcome::Deferred => false,
            DeleteOutcome::Done | DeleteOutcome::Superseded => self.abandoned.remove(key),
        };
        let was = self.entries.remove(key).is_some();
        if was {
            self.note(key, outcome, words);
        }
        was
    }

    pub(crate) fn note(&mut self, key: &Key, outcome: DeleteOutcome, words: &str) {
        self.events.push(DeleteEvent {
            key: key.clone(),
            outcome,
            words: words.to_owned(),
        });
    }

    /// The servers of a backend that wait.
    pub(crate) fn servers_of(&self, backend: &str) -> BTreeSet<Key> {
        let keys = self.entries.keys();
        keys.filter(|key| key.kind() == ObjectKind::Server && key.backend() == backend)
            .cloned()
            .collect()
    }

    pub(crate) fn entries_mut(&mut self) -> &mut BTreeMap<Key, Entry> {
        &mut self.entries
    }

    pub(crate) fn abandoned(&self) -> &BTreeSet<Key> {
        &self.abandoned
    }

    pub(crate) fn entries(&self) -> &BTreeMap<Key, Entry> {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> Key {
        Key::Server {
            backend: "b".to_owned(),
            server: name.to_owned(),
        }
    }

    fn request(key: Key, grace_ms: Option<u64>) -> DeleteRequest {
        DeleteRequest { key, grace_ms }
    }

    const ONE: Identity = Identity {
        pid: 1,
        start_micros: 1,
    };
    const TWO: Identity = Identity {
        pid: 1,
        start_micros: 2,
    };

    #[test]
    fn entries_belong_to_one_worker() {
        let mut queue = Queue::default();
        queue.add(&[request(server("a"), None)], ONE);
        queue.bind(ONE);
        assert!(queue.contains(&server("a")) && queue.take_events().is_empty());
        queue.bind(TWO);
        assert!(queue.is_empty());
        let events = queue.take_events();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].outcome, DeleteOutcome::Superseded);
        assert!(queue.take_events().is_empty());
    }

    #[test]
    fn a_second_delete_merges_and_shortens_the_grace() {
        let mut queue = Queue::default();
        queue.add(&[request(server("a"), None)], ONE);
        queue.add(&[request(server("a"), Some(500))], ONE);
        queue.add(&[request(server("a"), Some(900))], ONE);
        assert_eq!(queue.count(ObjectKind::Server), 1);
        assert_eq!(queue.entries()[&server("a")].grace_ms, Some(500));
    }

    #[test]
    fn the_caps_are_those_of_the_contract() {
        let mut queue = Queue::default();
        let all: Vec<_> = (0..MAX_PENDING_SERVER_DELETES)
            .map(|n| request(server(&n.to_string()), None))
            .collect();
        queue.add(&all, ONE);
        assert_eq!(queue.room(ObjectKind::Server), 0);
        assert_eq!(queue.room(ObjectKind::Backend), MAX_PENDING_BACKEND_DELETES);
    }

    #[test]
    fn what_was_given_up_is_known_until_it_is_wanted_or_gone() {
        let given_up = || {
            let mut queue = Queue::default();
            queue.add(&[request(server("a"), None)], ONE);
            queue.finish(&server("a"), DeleteOutcome::Abandoned, "");
            assert!(queue.is_empty() && queue.knows(&server("a")));
            assert!(!queue.knows(&server("b")));
            queue
        };
        for end in [
            |queue: &mut Queue| queue.bind(TWO),
            |queue: &mut Queue| queue.supersede_all(""),
            |queue: &mut Queue| assert!(!queue.cancel(&server("a"))),
            |queue: &mut Queue| {
                queue.finish(&server("a"), DeleteOutcome::Done, "");
            },
        ] {
            let mut queue = given_up();
            end(&mut queue);
            assert!(!queue.knows(&server("a")));
        }
        let mut queue = given_up();
        queue.add(&[request(server("a"), None)], ONE);
        assert!(queue.contains(&server("a")) && queue.abandoned().is_empty());
        let most = MAX_PENDING_SERVER_DELETES + MAX_PENDING_BACKEND_DELETES;
        for n in 0..most + 5 {
            queue.finish(&server(&n.to_string()), DeleteOutcome::Abandoned, "");
        }
        assert_eq!(queue.abandoned().len(), most);
    }

    #[test]
    fn what_is_stored_comes_back_as_waiting() {
        let mut queue = Queue::default();
        let backend = Key::Backend {
            backend: "b".to_owned(),
        };
        queue.add(
            &[
                request(server("a"), Some(7)),
                request(backend.clone(), None),
            ],
            ONE,
        );
        let text = serde_json::to_string(&queue).unwrap();
        let back: Queue = serde_json::from_str(&text).unwrap();
        assert_eq!(back, queue);
        assert_eq!(
            back.pending(),
            (vec!["b/a".to_owned()], vec!["b".to_owned()])
        );
        assert!(back.contains(&backend));
        assert_eq!(
            serde_json::from_str::<Queue>("{}").unwrap(),
            Queue::default()
        );
    }
}
