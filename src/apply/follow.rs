//! Looking many paths up in their order.
//!
//! A set of files meets the held tree path by path, and both are sorted, or nearly.
//! [`Follow`] keeps its finger in the map: the next path is usually the next entry, and
//! any other one costs an ordinary look-up. It refuses to depend on the order for more
//! than its speed.

use std::collections::{BTreeMap, btree_map};

use crate::store::files::{self, Files};
use crate::store::stamp::Observed;
use crate::wire::path::ManifestPath;

/// Something by path that can be walked from any path on.
pub(super) trait Sorted {
    type Value;
    type Ahead<'a>: Iterator<Item = (&'a ManifestPath, &'a Self::Value)> + Clone
    where
        Self: 'a;

    fn all(&self) -> Self::Ahead<'_>;
    fn ahead(&self, from: &ManifestPath) -> Self::Ahead<'_>;
}

impl<V> Sorted for BTreeMap<ManifestPath, V> {
    type Value = V;
    type Ahead<'a>
        = btree_map::Range<'a, ManifestPath, V>
    where
        V: 'a;

    fn all(&self) -> Self::Ahead<'_> {
        self.range::<ManifestPath, _>(..)
    }

    fn ahead(&self, from: &ManifestPath) -> Self::Ahead<'_> {
        self.range::<ManifestPath, _>(from..)
    }
}

impl Sorted for Files {
    type Value = Observed;
    type Ahead<'a> = files::Iter<'a>;

    fn all(&self) -> Self::Ahead<'_> {
        self.iter()
    }

    fn ahead(&self, from: &ManifestPath) -> Self::Ahead<'_> {
        self.iter_from(from)
    }
}

/// A map with a finger in it.
pub(super) struct Follow<'a, M: Sorted> {
    map: &'a M,
    ahead: M::Ahead<'a>,
}

impl<'a, M: Sorted> Follow<'a, M> {
    pub(super) fn new(map: &'a M) -> Self {
        Self {
            map,
            ahead: map.all(),
        }
    }

    /// What the map's own look-up says.
    pub(super) fn get(&mut self, path: &ManifestPath) -> Option<&'a M::Value> {
        let mut next = self.ahead.next();
        if next.is_none_or(|(found, _)| found != path) {
            self.ahead = self.map.ahead(path);
            let mut peek = self.ahead.clone();
            next = peek.next().filter(|(found, _)| *found == path);
            if next.is_some() {
                self.ahead = peek;
            }
        }
        next.map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_the_map_says_in_any_order() {
        let path = |n: u32| ManifestPath::parse(format!("d/{n:03}")).unwrap();
        let map: BTreeMap<_, _> = (0..200).step_by(2).map(|n| (path(n), n)).collect();
        let sorted: Vec<u32> = (0..210).collect();
        let even: Vec<u32> = (0..200).step_by(2).collect();
        let scattered: Vec<u32> = (0..210).map(|n| n * 73 % 210).collect();
        let backwards: Vec<u32> = (0..210).rev().collect();
        let again = vec![4, 4, 5, 5, 6, 4, 198, 199, 0, 2];
        for order in [sorted, even, scattered, backwards, again] {
            let mut follow = Follow::new(&map);
            for n in order {
                assert_eq!(follow.get(&path(n)), map.get(&path(n)), "{n}");
            }
        }
        assert_eq!(
            Follow::new(&BTreeMap::<ManifestPath, u32>::new()).get(&path(1)),
            None
        );
    }
}
