//! Which paths the agent owns, kept so that an apply that owns the same ones costs nothing.
//!
//! The set is in every record and every plan, and it hardly ever changes: copies share it,
//! and its text in the state file is made once. It refuses to be changed behind that text.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::wire::digest::DigestKind;
use crate::wire::path::ManifestPath;

/// The owned paths, each with how its digest is spoken of.
#[derive(Debug, Clone, Default)]
pub struct Owned(Arc<Set>);

#[derive(Debug, Default)]
struct Set {
    paths: BTreeMap<ManifestPath, DigestKind>,
    /// As JSON, once it was saved.
    text: OnceLock<Box<RawValue>>,
}

impl Owned {
    /// Changes the set; other copies keep what they have.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut BTreeMap<ManifestPath, DigestKind>)) {
        let mut paths = match Arc::get_mut(&mut self.0) {
            Some(set) => std::mem::take(&mut set.paths),
            None => self.0.paths.clone(),
        };
        change(&mut paths);
        *self = Self::from(paths);
    }
}

impl From<BTreeMap<ManifestPath, DigestKind>> for Owned {
    fn from(paths: BTreeMap<ManifestPath, DigestKind>) -> Self {
        Self(Arc::new(Set {
            paths,
            text: OnceLock::new(),
        }))
    }
}

impl FromIterator<(ManifestPath, DigestKind)> for Owned {
    fn from_iter<I: IntoIterator<Item = (ManifestPath, DigestKind)>>(paths: I) -> Self {
        Self::from(BTreeMap::from_iter(paths))
    }
}

impl Deref for Owned {
    type Target = BTreeMap<ManifestPath, DigestKind>;

    fn deref(&self) -> &Self::Target {
        &self.0.paths
    }
}

impl PartialEq for Owned {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.paths == other.0.paths
    }
}

impl Eq for Owned {}

impl Serialize for Owned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        if let Some(text) = self.0.text.get() {
            return text.serialize(serializer);
        }
        let text = serde_json::value::to_raw_value(&self.0.paths).map_err(S::Error::custom)?;
        self.0.text.get_or_init(|| text).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ManifestPath {
        ManifestPath::parse(text).unwrap()
    }

    fn json(owned: &Owned) -> String {
        serde_json::to_string(owned).unwrap()
    }

    #[test]
    fn it_is_written_as_the_map_that_it_is_before_and_after_a_change() {
        let mut owned: Owned = ["b", "a\"\u{e9}"]
            .map(|name| (path(name), DigestKind::Sha256))
            .into_iter()
            .collect();
        for _ in 0..2 {
            assert_eq!(json(&owned), serde_json::to_string(&*owned).unwrap());
        }
        let copy = owned.clone();
        assert_eq!(json(&copy), json(&owned));
        owned.change(|paths| {
            paths.remove(&path("b"));
            paths.insert(path("c"), DigestKind::Xxh64);
        });
        assert_eq!(json(&owned), serde_json::to_string(&*owned).unwrap());
        assert!(owned.contains_key(&path("c")) && !owned.contains_key(&path("b")));
        assert!(copy.contains_key(&path("b")) && !copy.contains_key(&path("c")));
        assert_ne!(copy, owned);
        // The only copy is changed in place and is not written as it was.
        owned.change(|paths| paths.clear());
        assert_eq!(json(&owned), "{}");
        let back: Owned = serde_json::from_str(&json(&copy)).unwrap();
        assert_eq!(back, copy);
    }
}
