//! The keys of a fake Consul and the index it answers with. No I/O, no waiting.

use std::collections::BTreeMap;

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its value.
    pub value: Vec<u8>,
    /// The writer's number.
    pub flags: u64,
    /// The index that created it.
    pub create_index: u64,
    /// The index of its last write.
    pub modify_index: u64,
}

/// Keys, tombstones and the index of the last write.
#[derive(Debug)]
pub(super) struct Store {
    keys: BTreeMap<String, Stored>,
    /// The index at which a key was deleted, until it is reaped.
    tombstones: BTreeMap<String, u64>,
    index: u64,
}

impl Store {
    /// A fresh server.
    pub(super) fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            index: 1,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Stored> {
        self.keys.get(key)
    }

    pub(super) fn below<'s>(
        &'s self,
        prefix: &'s str,
    ) -> impl Iterator<Item = (&'s String, &'s Stored)> {
        self.keys
            .range(prefix.to_owned()..)
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// The index of a list: the youngest write or delete below the prefix, or, where
    /// there never was one, that of the whole store.
    pub(super) fn index_below(&self, prefix: &str) -> u64 {
        let keys = self.below(prefix).map(|(_, stored)| stored.modify_index);
        let tombs = self
            .tombstones
            .iter()
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(_, index)| *index);
        keys.chain(tombs).max().unwrap_or(self.index)
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn set_index(&mut self, index: u64) {
        self.index = index;
    }

    pub(super) fn advance(&mut self) -> u64 {
        self.index += 1;
        self.index
    }

    /// Writes at `index`. A write of what is there already moves nothing.
    pub(super) fn put(&mut self, key: &str, value: &[u8], flags: u64, index: u64) {
        let before = self.keys.get(key);
        if before.is_some_and(|stored| stored.value == value && stored.flags == flags) {
            return;
        }
        let stored = Stored {
            value: value.to_vec(),
            flags,
            create_index: before.map_or(index, |stored| stored.create_index),
            modify_index: index,
        };
        self.keys.insert(key.to_owned(), stored);
        self.tombstones.remove(key);
    }

    pub(super) fn delete(&mut self, key: &str, index: u64) -> bool {
        let there = self.keys.remove(key).is_some();
        if there {
            self.tombstones.insert(key.to_owned(), index);
        }
        there
    }

    /// What happens to tombstones a quarter of an hour after a delete.
    pub(super) fn reap(&mut self) {
        self.tombstones.clear();
    }

    /// Whether a check-and-set with `index` may go on: 0 asks for no key.
    pub(super) fn may_set(&self, key: &str, index: u64) -> bool {
        let there = self.keys.get(key).map_or(0, |stored| stored.modify_index);
        there == index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_list_is_that_of_its_youngest_change() {
        let mut store = Store::new();
        let write = |store: &mut Store, key: &str| {
            let index = store.advance();
            store.put(key, b"x", 0, index);
        };
        assert_eq!(store.index_below("p/"), 1);
        write(&mut store, "other");
        assert_eq!(store.index_below("p/"), 2);
        write(&mut store, "p/a");
        write(&mut store, "p/b");
        write(&mut store, "other2");
        assert_eq!(store.index_below("p/"), 4);
        let index = store.advance();
        assert!(store.delete("p/b", index));
        assert_eq!(store.index_below("p/"), 6);
        store.reap();
        assert_eq!(store.index_below("p/"), 3);
        let index = store.advance();
        store.delete("p/a", index);
        assert_eq!(store.index_below("p/"), 7);
        write(&mut store, "other");
        assert_eq!(store.index_below("p/"), 7);
        store.reap();
        assert_eq!(store.index_below("p/"), 8);
    }
}
