//! Sets that HAProxy itself refused, remembered for a minute.
//!
//! A controller whose render is broken sends it again and again; each reload of it
//! costs a worker start for an answer that is already known. Only HAProxy's verdict
//! on bytes is stored. Input and output errors, timeouts, an address that could not
//! be bound, a file that could not be opened and "busy" say nothing about the bytes, and
//! are never stored. Reverts neither look up nor are stored. A HAProxy that was started
//! anew may be another one, in other surroundings, so what an earlier one said is
//! forgotten with it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::wire::digest::{Digest, DigestKind, hex};
use crate::wire::manifest::Manifest;
use crate::wire::path::ManifestPath;
use crate::wire::result::ApplyResult;

/// How long a refusal is remembered.
pub const KNOWN_BAD_FOR: Duration = Duration::from_secs(60);

/// Refusals remembered at one time; the oldest goes first. A controller retries the
/// same render, so a handful would do.
pub const MAX_KNOWN_BAD: usize = 16;

/// Identifies a set of files by what the manifest says of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetKey([u8; 32]);

impl SetKey {
    /// The key as the controller declares the set.
    #[must_use]
    pub fn declared(manifest: &Manifest) -> Self {
        let mut lines: Vec<_> = manifest
            .files
            .iter()
            .map(|f| (&f.path, f.digest.to_string(), f.size))
            .collect();
        lines.sort_unstable();
        Self::over(lines.into_iter())
    }

    /// The key by the agent's own SHA-256 of each file, which no collision can forge.
    #[must_use]
    pub fn of_content<'a>(files: impl Iterator<Item = (&'a ManifestPath, [u8; 32], u64)>) -> Self {
        Self::over(files.map(|(path, sha256, size)| (path, hex(&sha256), size)))
    }

    fn over<'a>(lines: impl Iterator<Item = (&'a ManifestPath, String, u64)>) -> Self {
        let mut hasher = Sha256::new();
        for (path, digest, size) in lines {
            hasher.update(path.as_str().as_bytes());
            hasher.update(b"\0");
            hasher.update(digest.as_bytes());
            hasher.update(size.to_be_bytes());
        }
        Self(hasher.finalize().into())
    }
}

/// What the cache says before the body is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// Not remembered.
    Unknown,
    /// Refused within the last minute.
    Known(Box<ApplyResult>),
}

#[derive(Debug)]
struct Entry {
    content: SetKey,
    at: Instant,
    nack: ApplyResult,
}

/// The cache. Bounded by [`MAX_KNOWN_BAD`].
#[derive(Debug, Default)]
pub struct KnownBad {
    entries: VecDeque<Entry>,
}

impl KnownBad {
    /// Looks a manifest up before its body is read. A manifest with an XXH64 in it is
    /// never answered here: those collide at will, so its content has to be hashed
    /// first ([`KnownBad::confirm`]).
    pub fn lookup(&mut self, manifest: &Manifest, now: Instant) -> Lookup {
        self.expire(now);
        let certain = |digest: &Digest| digest.kind() == DigestKind::Sha256;
        if self.entries.is_empty() || !manifest.files.iter().all(|file| certain(&file.digest)) {
            return Lookup::Unknown;
        }
        // Of SHA-256 digests the declared key is the content's key.
        self.find(SetKey::declared(manifest))
    }

    /// Looks content up that the agent has hashed itself.
    pub fn confirm(&mut self, content: SetKey, now: Instant) -> Lookup {
        self.expire(now);
        self.find(content)
    }

    /// Whether anything is remembered, so that a key is worth computing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Remembers HAProxy's refusal of that content.
    pub fn remember(&mut self, content: SetKey, nack: ApplyResult, now: Instant) {
        self.entries.retain(|entry| entry.content != content);
        if self.entries.len() >= MAX_KNOWN_BAD {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry {
            content,
            at: now,
            nack,
        });
    }

    /// Forgets all of it: whoever gave the verdicts runs no more.
    pub fn forget(&mut self) {
        self.entries.clear();
    }

    fn find(&self, content: SetKey) -> Lookup {
        match self.entries.iter().find(|entry| entry.content == content) {
            Some(entry) => Lookup::Known(Box::new(entry.nack.clone())),
            None => Lookup::Unknown,
        }
    }

    fn expire(&mut self, now: Instant) {
        self.entries
            .retain(|entry| now.saturating_duration_since(entry.at) < KNOWN_BAD_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::digest::ContentHash;
    use crate::wire::manifest::{File, FileKind, Mode, ReservedPaths, Token};
    use crate::wire::result::ResultMode;

    fn nack() -> ApplyResult {
        ApplyResult {
            plan_id: "bad".into(),
            ok: false,
            mode: ResultMode::Rejected,
            applied_plan_id: String::new(),
            running_plan_id: String::new(),
            worker_ops_plan_id: String::new(),
            applied_token: Token::default(),
            lkg_plan_id: String::new(),
            haproxy: crate::wire::state::Haproxy::default(),
            at: String::new(),
            timing: crate::wire::result::Timing::default(),
            op_results: Vec::new(),
            reload: None,
            rollback: None,
            error: None,
            unsaved: None,
            runtime_inventory: None,
        }
    }

    fn manifest(names: &[&str], kind: DigestKind) -> Manifest {
        let hash = ContentHash::of(b"bytes");
        let files = names
            .iter()
            .map(|name| File {
                path: ManifestPath::parse(*name).unwrap(),
                digest: hash.digest(kind),
                size: hash.size,
                kind: FileKind::General,
                reload_on_change: false,
            })
            .collect();
        let manifest = Manifest {
            plan_id: "any".into(),
            plan_schema_version: 0,
            token: Token::default(),
            expected_prev_plan_id: String::new(),
            expected_prev_token: Token::default(),
            expected_worker_ops_plan_id: None,
            worker_ops_plan_id: None,
            validated_plan_id: None,
            files,
            ops: Vec::new(),
            in_place_ops: Vec::new(),
            mode: Mode::Reload,
        };
        manifest.check(&ReservedPaths::default()).unwrap();
        manifest
    }

    fn content(names: &[&str]) -> SetKey {
        let hash = ContentHash::of(b"bytes");
        let mut paths: Vec<_> = names
            .iter()
            .map(|n| ManifestPath::parse(*n).unwrap())
            .collect();
        paths.sort();
        SetKey::of_content(paths.iter().map(|path| (path, hash.sha256, hash.size)))
    }

    #[test]
    fn a_refused_set_is_known_in_any_order_and_under_any_plan_id() {
        let now = Instant::now();
        let mut cache = KnownBad::default();
        cache.remember(content(&["b", "a"]), nack(), now);
        let again = manifest(&["a", "b"], DigestKind::Sha256);
        assert!(matches!(cache.lookup(&again, now), Lookup::Known(_)));
        assert_eq!(
            cache.lookup(&manifest(&["a"], DigestKind::Sha256), now),
            Lookup::Unknown
        );
    }

    #[test]
    fn an_xxh64_set_is_answered_only_after_its_content_was_hashed() {
        let now = Instant::now();
        let mut cache = KnownBad::default();
        cache.remember(content(&["a"]), nack(), now);
        assert_eq!(
            cache.lookup(&manifest(&["a"], DigestKind::Xxh64), now),
            Lookup::Unknown
        );
        assert!(matches!(
            cache.confirm(content(&["a"]), now),
            Lookup::Known(_)
        ));
    }

    #[test]
    fn it_forgets_after_a_minute_and_never_grows() {
        let now = Instant::now();
        let mut cache = KnownBad::default();
        for index in 0..100 {
            cache.remember(content(&[&format!("f{index}")]), nack(), now);
        }
        assert_eq!(cache.entries.len(), MAX_KNOWN_BAD);
        let last = content(&["f99"]);
        assert!(matches!(
            cache.confirm(last, now + KNOWN_BAD_FOR / 2),
            Lookup::Known(_)
        ));
        assert_eq!(cache.confirm(last, now + KNOWN_BAD_FOR), Lookup::Unknown);
        assert!(cache.is_empty());
    }
}
