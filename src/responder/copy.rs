//! The copy of the store that answers come from: whole, immutable, swapped by one
//! exchange of a pointer.
//!
//! A reader takes the copy once and answers from it, so no answer mixes two versions.
//! The lock of [`CopyCell`] covers that exchange alone: a copy is built before and the
//! old one is freed after it.

use super::stamp::Stamp;
use super::value::{InvalidValue, Value};
use crate::clock::UnixNanos;
use std::mem;
use std::sync::{Arc, PoisonError, RwLock};

/// What the store has under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    stored: Result<Value, InvalidValue>,
    until: Option<Stamp>,
}

impl Entry {
    /// An entry; with `until` it counts as absent from that second on.
    #[must_use]
    pub fn new(stored: Result<Value, InvalidValue>, until: Option<Stamp>) -> Self {
        Self { stored, until }
    }

    /// What the store says, whether or not its time is over.
    ///
    /// # Errors
    ///
    /// Why it counts as absent.
    pub fn stored(&self) -> Result<Value, &InvalidValue> {
        match &self.stored {
            Ok(value) => Ok(*value),
            Err(why) => Err(why),
        }
    }

    /// When it ends by itself.
    #[must_use]
    pub fn until(&self) -> Option<Stamp> {
        self.until
    }

    /// What an answer given `now` has to follow; `None` counts as absent, because the
    /// value is invalid or its time is over.
    #[must_use]
    pub fn value_at(&self, now: UnixNanos) -> Option<Value> {
        let value = self.stored.as_ref().ok().copied()?;
        match self.until {
            Some(end) if end.has_come(now) => None,
            Some(_) | None => Some(value),
        }
    }
}

/// All entries of the store at one moment.
#[derive(Debug, PartialEq, Eq)]
pub struct Copy {
    /// By key, ascending.
    entries: Vec<(Box<str>, Entry)>,
    invalid: usize,
    index: u64,
    read_at: UnixNanos,
}

impl Copy {
    /// A copy of `entries`, in any order, as they were at `index` and read at
    /// `read_at`. Of two entries with one key the later one counts.
    #[must_use]
    pub fn new(mut entries: Vec<(Box<str>, Entry)>, index: u64, read_at: UnixNanos) -> Self {
        // Stable, so the later of two comes last; `dedup_by` then keeps it in front.
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                mem::swap(later, kept);
            }
            same
        });
        entries.shrink_to_fit();
        let invalid = entries
            .iter()
            .filter(|(_, entry)| entry.stored.is_err())
            .count();
        Self {
            entries,
            invalid,
            index,
            read_at,
        }
    }

    /// The entry of a key, compared byte for byte.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Entry> {
        let key = key.as_ref();
        let found = self
            .entries
            .binary_search_by(|(name, _)| name.as_bytes().cmp(key));
        let (_, entry) = self.entries.get(found.ok()?)?;
        Some(entry)
    }

    /// Every key with its entry, by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(key, entry)| (&**key, entry))
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no override at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many values are invalid.
    #[must_use]
    pub fn invalid(&self) -> usize {
        self.invalid
    }

    /// Consul's index of the reply, or the number of the directory's version.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// When it was read.
    #[must_use]
    pub fn read_at(&self) -> UnixNanos {
        self.read_at
    }

    /// Whether both say the same about every key, wherever and whenever they were read.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.entries == other.entries
    }

    /// The keys that `newer` lacks, in order.
    #[must_use]
    pub fn missing_from<'a>(&'a self, newer: &Self) -> Vec<&'a str> {
        let mut missing = Vec::new();
        let mut there = newer.iter().map(|(key, _)| key).peekable();
        for (key, _) in self.iter() {
            while there.next_if(|other| *other < key).is_some() {}
            if there.peek() != Some(&key) {
                missing.push(key);
            }
        }
        missing
    }
}

/// Where the current copy is; empty until the first one has been read.
#[derive(Debug, Default)]
pub struct CopyCell {
    current: RwLock<Option<Arc<Copy>>>,
}

impl CopyCell {
    /// A cell without a copy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The current copy; `None` until the first one is there.
    #[must_use]
    pub fn load(&self) -> Option<Arc<Copy>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// Puts a whole copy in place of the current one, which is returned.
    pub fn swap(&self, copy: Arc<Copy>) -> Option<Arc<Copy>> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.replace(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(entries: &[(&str, Value)]) -> Copy {
        let entries = entries
            .iter()
            .map(|(key, value)| (Box::from(*key), Entry::new(Ok(*value), None)))
            .collect();
        Copy::new(entries, 1, UnixNanos(0))
    }

    #[test]
    fn keys_are_found_byte_for_byte() {
        let copy = copy(&[
            ("web/s1", Value::Ready),
            ("canary", Value::Drain),
            ("Canary", Value::Maint),
            ("canary/x", Value::Weight(5)),
        ]);
        let value = |key: &str| copy.get(key).and_then(|e| e.value_at(UnixNanos(0)));
        assert_eq!(value("canary"), Some(Value::Drain));
        assert_eq!(value("Canary"), Some(Value::Maint));
        assert_eq!(value("canary/x"), Some(Value::Weight(5)));
        assert_eq!(value("web/s1"), Some(Value::Ready));
        assert_eq!(value("web/s2"), None);
        assert!(copy.get(b"\xff").is_none());
        let keys: Vec<_> = copy.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["Canary", "canary", "canary/x", "web/s1"]);
    }

    #[test]
    fn the_later_of_two_entries_counts() {
        let copy = copy(&[
            ("a", Value::Ready),
            ("b", Value::Ready),
            ("a", Value::Drain),
        ]);
        assert_eq!(copy.len(), 2);
        assert_eq!(copy.get("a").unwrap().stored(), Ok(Value::Drain));
    }

    #[test]
    fn an_entry_ends_at_its_time() {
        let entry = Entry::new(Ok(Value::Drain), Stamp::at(10));
        assert_eq!(entry.value_at(UnixNanos(9_999_999_999)), Some(Value::Drain));
        assert_eq!(entry.value_at(UnixNanos(10_000_000_000)), None);
        assert_eq!(entry.stored(), Ok(Value::Drain));
        let invalid = Entry::new(Err(InvalidValue::Empty), None);
        assert_eq!(invalid.value_at(UnixNanos(0)), None);
    }

    #[test]
    fn what_a_newer_copy_lacks() {
        let value = Value::Drain;
        let old = copy(&[("a", value), ("b", value), ("d", value)]);
        let table: [(&[&str], &[&str]); 6] = [
            (&["a", "b", "d"], &[]),
            (&["a", "b", "c", "d", "e"], &[]),
            (&[], &["a", "b", "d"]),
            (&["b"], &["a", "d"]),
            (&["0", "c", "e"], &["a", "b", "d"]),
            (&["a", "d"], &["b"]),
        ];
        for (newer, missing) in table {
            let newer: Vec<_> = newer.iter().map(|key| (*key, value)).collect();
            assert_eq!(old.missing_from(&copy(&newer)), missing);
        }
    }

    #[test]
    fn invalid_values_are_counted() {
        let entries = vec![
            (Box::from("a"), Entry::new(Err(InvalidValue::Empty), None)),
            (Box::from("b"), Entry::new(Ok(Value::Drain), None)),
        ];
        assert_eq!(Copy::new(entries, 1, UnixNanos(0)).invalid(), 1);
    }

    #[test]
    fn a_cell_hands_out_the_last_copy() {
        let cell = CopyCell::new();
        assert!(cell.load().is_none());
        let first = Arc::new(copy(&[("a", Value::Drain)]));
        assert!(cell.swap(first.clone()).is_none());
        let held = cell.load().unwrap();
        let old = cell.swap(Arc::new(copy(&[]))).unwrap();
        assert!(Arc::ptr_eq(&old, &held) && Arc::ptr_eq(&old, &first));
        assert_eq!(held.len(), 1);
        assert!(cell.load().unwrap().is_empty());
    }
}
