//! The files of a set, sorted by path, in chunks that copies share.
//!
//! An apply touches a few files of thousands, and readers see the set of before while it
//! runs. So a copy of a set shares all its chunks, a change copies the chunk that it falls
//! into, and the fold of the whole is made of the folds of chunks, of which a change leaves
//! all but one as they were: none of this grows with the files that nobody touched.
//!
//! Where a chunk ends is said by the path that ends it, so chunks and fold depend on the
//! files alone and not on the order in which they came: two agents, or one before and
//! after a restart, come to the same. It refuses to know what is on disk.

use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256};
use twox_hash::XxHash64;

use crate::wire::digest::hex_of;
use crate::wire::path::ManifestPath;

use super::stamp::Observed;

/// One path in so many ends its chunk. A chunk has so many files on average; how many it
/// has in the worst case costs time and nothing else.
const FILES_PER_CHUNK: u64 = 64;

/// Lines of the fold are hashed this many bytes at a time; one has at most half as many.
const FOLD_BYTES: usize = 4096;

/// Files by path.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// None is empty. Every one but the last ends with a path that [`ends_chunk`], and no
    /// other path does.
    chunks: Vec<Arc<Chunk>>,
    len: usize,
}

#[derive(Debug, Clone, Default)]
struct Chunk {
    files: Vec<(ManifestPath, Observed)>,
    /// [`Chunk::fold`], once it was asked for.
    folded: OnceLock<[u8; 32]>,
}

fn ends_chunk(path: &ManifestPath) -> bool {
    XxHash64::oneshot(0, path.as_str().as_bytes()) % FILES_PER_CHUNK == 0
}

impl Chunk {
    fn of(files: Vec<(ManifestPath, Observed)>) -> Arc<Self> {
        Arc::new(Self {
            files,
            folded: OnceLock::new(),
        })
    }

    /// The files, to be changed.
    fn change(self: &mut Arc<Self>) -> &mut Vec<(ManifestPath, Observed)> {
        let chunk = Arc::make_mut(self);
        chunk.folded.take();
        &mut chunk.files
    }

    fn find(&self, path: &ManifestPath) -> Result<usize, usize> {
        self.files.binary_search_by(|(at, _)| at.cmp(path))
    }

    fn is_before(&self, path: &ManifestPath) -> bool {
        self.files.last().is_some_and(|(last, _)| last < path)
    }

    fn fold(&self) -> [u8; 32] {
        *self.folded.get_or_init(|| {
            let mut fold = Sha256::new();
            let mut lines = Vec::with_capacity(2 * FOLD_BYTES);
            for (path, seen) in &self.files {
                lines.extend_from_slice(path.as_str().as_bytes());
                lines.push(b' ');
                lines.extend_from_slice(&hex_of(&seen.hash.sha256));
                lines.push(b'\n');
                if lines.len() >= FOLD_BYTES {
                    fold.update(&lines);
                    lines.clear();
                }
            }
            fold.update(&lines);
            fold.finalize().into()
        })
    }
}

impl Files {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file at a path.
    #[must_use]
    pub fn get(&self, path: &ManifestPath) -> Option<&Observed> {
        let chunk = self.chunks.get(self.chunk_of(path))?;
        let at = chunk.find(path).ok()?;
        Some(&chunk.files[at].1)
    }

    /// All of them, by path.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            files: [].iter(),
            chunks: self.chunks.iter(),
        }
    }

    /// Those from a path on.
    #[must_use]
    pub fn iter_from(&self, path: &ManifestPath) -> Iter<'_> {
        let chunk = self.chunk_of(path);
        let mut chunks = self.chunks[chunk..].iter();
        let files = chunks.next().map_or([].iter(), |chunk| {
            let (Ok(at) | Err(at)) = chunk.find(path);
            chunk.files[at..].iter()
        });
        Iter { files, chunks }
    }

    /// One value that stands for the whole set: SHA-256 over the folds of its chunks in
    /// their order, each SHA-256 over `path SP sha256 LF` for every file.
    #[must_use]
    pub fn fold(&self) -> [u8; 32] {
        let mut fold = Sha256::new();
        for chunk in &self.chunks {
            fold.update(chunk.fold());
        }
        fold.finalize().into()
    }

    /// Puts a file in, or another one in its place. What was there is returned.
    pub(super) fn insert(&mut self, path: ManifestPath, seen: Observed) -> Option<Observed> {
        let mut number = self.chunk_of(&path);
        if number == self.chunks.len() {
            // Behind the last one: it belongs to the last chunk, unless that one is closed.
            let last = self.chunks.last().and_then(|chunk| chunk.files.last());
            match last {
                Some((last, _)) if !ends_chunk(last) => number -= 1,
                Some(_) | None => self.chunks.push(Chunk::of(Vec::new())),
            }
        }
        let at = match self.chunks[number].find(&path) {
            Ok(at) => {
                let files = self.chunks[number].change();
                return Some(std::mem::replace(&mut files[at].1, seen));
            }
            Err(at) => at,
        };
        let ends = ends_chunk(&path);
        let files = self.chunks[number].change();
        files.insert(at, (path, seen));
        if ends && at + 1 < files.len() {
            let rest = files.split_off(at + 1);
            self.chunks.insert(number + 1, Chunk::of(rest));
        }
        self.len += 1;
        None
    }

    /// Takes a file out.
    pub(super) fn remove(&mut self, path: &ManifestPath) -> Option<Observed> {
        let number = self.chunk_of(path);
        let at = self.chunks.get(number)?.find(path).ok()?;
        let files = self.chunks[number].change();
        let (path, seen) = files.remove(at);
        self.len -= 1;
        if files.is_empty() {
            self.chunks.remove(number);
        } else if ends_chunk(&path) && number + 1 < self.chunks.len() {
            let next = self.chunks.remove(number + 1);
            let files = self.chunks[number].change();
            files.extend_from_slice(&next.files);
        }
        Some(seen)
    }

    /// Drops every file that `keep` does not want.
    pub(super) fn retain(&mut self, keep: impl Fn(&ManifestPath) -> bool) {
        let unwanted: Vec<ManifestPath> = self
            .iter()
            .map(|(path, _)| path)
            .filter(|path| !keep(path))
            .cloned()
            .collect();
        for path in &unwanted {
            self.remove(path);
        }
    }

    /// The number of the chunk that a path is in, if it is in any.
    fn chunk_of(&self, path: &ManifestPath) -> usize {
        self.chunks.partition_point(|chunk| chunk.is_before(path))
    }
}

impl PartialEq for Files {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && std::iter::zip(&self.chunks, &other.chunks)
                .all(|(a, b)| Arc::ptr_eq(a, b) || a.files == b.files)
    }
}

impl Eq for Files {}

impl<'a> IntoIterator for &'a Files {
    type Item = (&'a ManifestPath, &'a Observed);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Files in the order of their paths.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    files: std::slice::Iter<'a, (ManifestPath, Observed)>,
    chunks: std::slice::Iter<'a, Arc<Chunk>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a ManifestPath, &'a Observed);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((path, seen)) = self.files.next() {
                return Some((path, seen));
            }
            self.files = self.chunks.next()?.files.iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::digest::ContentHash;

    fn path(n: u16) -> ManifestPath {
        ManifestPath::parse(format!("maps/{n:04}.map")).unwrap()
    }

    fn seen(content: u8) -> Observed {
        Observed::expected(ContentHash::of(&[content]))
    }

    fn set(files: impl IntoIterator<Item = (u16, u8)>) -> Files {
        let mut set = Files::default();
        for (n, content) in files {
            set.insert(path(n), seen(content));
        }
        set
    }

    fn chunk_is_whole(files: &Files) {
        let mut counted = 0;
        for (number, chunk) in files.chunks.iter().enumerate() {
            let (last, before) = chunk.files.split_last().expect("a chunk is never empty");
            assert!(before.iter().all(|(path, _)| !ends_chunk(path)));
            assert!(ends_chunk(&last.0) || number + 1 == files.chunks.len());
            counted += chunk.files.len();
        }
        assert_eq!(counted, files.len());
    }

    proptest! {
        #[test]
        fn it_is_a_map_whatever_comes_and_goes(
            steps in prop::collection::vec((0u16..600, prop::option::weighted(0.7, 0u8..4)), 0..900),
            ask in prop::collection::vec(0u16..620, 20),
        ) {
            let mut files = Files::default();
            let mut model = BTreeMap::new();
            for (n, step) in steps {
                let (got, want) = match step {
                    Some(content) => (
                        files.insert(path(n), seen(content)),
                        model.insert(path(n), seen(content)),
                    ),
                    None => (files.remove(&path(n)), model.remove(&path(n))),
                };
                prop_assert_eq!(got, want);
            }
            chunk_is_whole(&files);
            prop_assert!(files.iter().eq(model.iter()));
            for n in ask {
                prop_assert_eq!(files.get(&path(n)), model.get(&path(n)));
                prop_assert!(files.iter_from(&path(n)).eq(model.range(path(n)..)));
            }
            // Built in one go, in any order, it is the same to the last chunk.
            let mut again = Files::default();
            for (path, seen) in model.iter().rev() {
                again.insert(path.clone(), *seen);
            }
            chunk_is_whole(&again);
            prop_assert_eq!(&again, &files);
            prop_assert_eq!(again.fold(), files.fold());
            let even = |path: &ManifestPath| path.as_str().as_bytes()[8] % 2 == 0;
            files.retain(even);
            model.retain(|path, _| even(path));
            chunk_is_whole(&files);
            prop_assert!(files.iter().eq(model.iter()));
        }
    }

    #[test]
    fn any_change_of_a_path_or_a_content_is_another_fold_and_back_is_the_same() {
        let all = || (0..500).map(|n| (n, 0));
        let mut files = set(all());
        assert!(files.chunks.len() > 2, "some paths end a chunk");
        let fold = files.fold();
        let mut folds = std::collections::BTreeSet::from([fold, Files::default().fold()]);
        for n in 0..500 {
            let was = files.remove(&path(n)).unwrap();
            assert!(folds.insert(files.fold()), "without {n}");
            files.insert(path(n), seen(1));
            assert!(folds.insert(files.fold()), "other content of {n}");
            files.insert(path(n), was);
            assert_eq!(files.fold(), fold, "{n}");
        }
        assert_eq!(files, set(all().rev()));
    }

    #[test]
    fn a_copy_keeps_what_it_was_and_shares_what_did_not_change() {
        let mut files = set((0..500).map(|n| (n, 0)));
        let before = files.clone();
        files.insert(path(250), seen(1));
        assert_eq!(before, set((0..500).map(|n| (n, 0))));
        let shared = std::iter::zip(&files.chunks, &before.chunks)
            .filter(|(a, b)| Arc::ptr_eq(a, b))
            .count();
        assert_eq!(shared, before.chunks.len() - 1);
    }
}
