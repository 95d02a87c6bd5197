//! What both stores do with what they read: swap the copy, count, log transitions.

use std::sync::Arc;

use super::status::{ErrorKind, Hold, KvStatus, Names};
use crate::clock::{Clock, UnixNanos};
use crate::responder::copy::{Copy, CopyCell};

/// Invalid values that are named one by one when a copy brings them; the rest is
/// counted.
const MAX_NAMED: usize = 16;

/// The current copy and how the last read ended.
#[derive(Debug)]
pub(super) struct Keeper {
    cell: Arc<CopyCell>,
    status: Arc<KvStatus>,
    clock: Arc<dyn Clock>,
    store: String,
    current: Option<Arc<Copy>>,
    mood: Mood,
    /// What was held back since the copy was last what the store says.
    held: Option<Hold>,
}

/// What was last said about the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Held(Hold),
    Failing(Option<ErrorKind>),
}

impl Keeper {
    pub(super) fn new(
        cell: Arc<CopyCell>,
        status: Arc<KvStatus>,
        clock: Arc<dyn Clock>,
        store: String,
    ) -> Self {
        Self {
            cell,
            status,
            clock,
            store,
            current: None,
            mood: Mood::Well,
            held: None,
        }
    }

    pub(super) fn current(&self) -> Option<&Copy> {
        self.current.as_deref()
    }

    pub(super) fn status(&self) -> &KvStatus {
        &self.status
    }

    pub(super) fn wall(&self) -> UnixNanos {
        self.clock.wall()
    }

    /// The store says this. Returns whether it is news.
    pub(super) fn offer(&mut self, copy: Copy) -> bool {
        let news = match &self.current {
            Some(current) => !current.says_the_same(&copy),
            None => true,
        };
        let (keys, invalid) = (copy.len(), copy.invalid());
        if news {
            self.tell_invalid(&copy);
            self.tell_lost(&copy);
            let (store, index) = (self.store.as_str(), copy.index());
            if self.current.is_none() {
                log::info!(store, keys, invalid, index; "the store has been read");
            } else {
                log::info!(store, keys, invalid, index; "the store has changed");
            }
            let copy = Arc::new(copy);
            self.cell.swap(copy.clone());
            self.current = Some(copy);
        }
        self.mend();
        self.status.read_ok(news, keys, invalid);
        news
    }

    /// What the store says, with what it lost beside it; the hold goes on.
    pub(super) fn follow_in_hold(&mut self, copy: Copy) {
        let current = self.current.as_ref();
        if current.is_some_and(|current| current.says_the_same(&copy)) {
            return;
        }
        let (keys, invalid) = (copy.len(), copy.invalid());
        self.tell_invalid(&copy);
        let (store, index) = (self.store.as_str(), copy.index());
        log::info!(store, keys, invalid, index; "the store has changed, and what it lost is kept beside that");
        let copy = Arc::new(copy);
        self.cell.swap(copy.clone());
        self.current = Some(copy);
        self.status.holds(keys, invalid);
    }

    /// The store says what the copy says.
    pub(super) fn same(&mut self) {
        self.mend();
        if let Some(copy) = &self.current {
            self.status.read_ok(false, copy.len(), copy.invalid());
        }
    }

    /// The store says something that is not believed.
    pub(super) fn hold(&mut self, hold: Hold, trouble: String) {
        self.held = Some(hold);
        if self.mood != Mood::Held(hold) {
            self.mood = Mood::Held(hold);
            let (store, reason, keeps) = (self.store.as_str(), hold.to_string(), self.keeps());
            log::warn!(store, reason = reason, trouble = trouble, keeps; "what the store says is held back");
        }
        self.status.read_held(hold, trouble);
    }

    /// The store says nothing usable.
    pub(super) fn fail(&mut self, kind: Option<ErrorKind>, trouble: String) {
        if self.mood != Mood::Failing(kind) {
            self.mood = Mood::Failing(kind);
            let (store, keeps) = (self.store.as_str(), self.keeps());
            log::warn!(store, trouble = trouble, keeps; "the store cannot be read");
        }
        self.status.read_failed(kind, trouble);
    }

    fn mend(&mut self) {
        self.held = None;
        if self.mood != Mood::Well {
            self.mood = Mood::Well;
            let store = self.store.as_str();
            log::info!(store; "the store is read and followed again");
        }
    }

    /// What is answered meanwhile.
    fn keeps(&self) -> &'static str {
        match self.current {
            Some(_) => "the last copy",
            None => "silence",
        }
    }

    /// Names the keys that a hold had kept and that end with it: nobody has deleted them one
    /// by one, so whoever drained them may not know.
    fn tell_lost(&self, copy: &Copy) {
        let (Some(current), Some(hold)) = (&self.current, self.held) else {
            return;
        };
        let lost = current.missing_from(copy);
        if lost.is_empty() {
            return;
        }
        self.status.ended_with_hold(lost.len());
        let keys = Names::of(lost.into_iter().map(str::to_owned)).to_string();
        let (store, reason) = (self.store.as_str(), hold.to_string());
        log::warn!(store, reason, keys; "keys that were held are no longer in force: the store is followed again and lacks them");
    }

    /// Names the invalid values that the current copy does not have.
    fn tell_invalid(&self, copy: &Copy) {
        let mut fresh = copy.iter().filter(|(key, entry)| {
            let before = self.current.as_ref().and_then(|current| current.get(key));
            entry.stored().is_err() && before != Some(*entry)
        });
        for (key, entry) in fresh.by_ref().take(MAX_NAMED) {
            if let Err(why) = entry.stored() {
                log::warn!(key, why = why.to_string(); "this override counts as absent");
            }
        }
        let more = fresh.count();
        if more > 0 {
            log::warn!(more; "further overrides count as absent");
        }
    }
}
