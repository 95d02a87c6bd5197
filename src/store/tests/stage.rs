//! Staging: sizes, hashes, what is left after a failure.

use std::collections::BTreeMap;
use std::io::{self, Read};

use super::{path, store};
use crate::store::model::ModelFs;
use crate::store::stage::{StageError, StageRequest};
use crate::store::{Durability, Store, StoreError};
use crate::wire::digest::ContentHash;

/// Counts what is taken of an endless stream.
struct Endless(u64);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        buffer.fill(b'x');
        self.0 += buffer.len() as u64;
        Ok(buffer.len())
    }
}

/// Gives its bytes one at a time, interrupted before each, then breaks.
struct Trickle(Vec<u8>, bool);

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.0.is_empty() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        buffer[0] = self.0.remove(0);
        Ok(1)
    }
}

#[test]
fn content_lands_beside_its_target_whatever_its_size() {
    let fs = ModelFs::new();
    fs.mount("general");
    let store = store(&fs);
    let mut request = StageRequest::new(&store, "r-1").unwrap();
    for size in [0, 1, 65_535, 65_536, 65_537, 200_000] {
        let bytes: Vec<u8> = (0..=255).cycle().take(size).collect();
        let staged = request
            .stage_bytes(&path("general/a"), 0o640, &bytes)
            .unwrap();
        assert!(staged.staged.starts_with("general/.haptic-tmp/r-1/"));
        assert_eq!(staged.hash, ContentHash::of(&bytes));
        assert_eq!(fs.read(&staged.staged).unwrap(), bytes);
        assert_eq!(fs.hidden()[&staged.staged].mode, 0o640);
    }
    let other = request.stage_bytes(&path("b"), 0o644, b"b").unwrap();
    assert_eq!(other.staged, ".haptic-tmp/r-1/6");
    drop(request);
    assert_eq!(fs.hidden(), BTreeMap::new());
    assert_eq!(fs.dirs(), [".haptic-tmp", "general", "general/.haptic-tmp"]);
}

#[test]
fn a_part_that_is_too_long_is_stopped_at_its_first_byte_too_many() {
    for declared in [0, 10, 65_535, 65_536, 1_000_000] {
        let fs = ModelFs::new();
        let store = store(&fs);
        let mut request = StageRequest::new(&store, "r").unwrap();
        let mut stream = Endless(0);
        let error = request
            .stage(&path("a"), 0o644, &mut stream, declared)
            .unwrap_err();
        assert_eq!(stream.0, declared + 1);
        assert!(
            matches!(error, StageError::Size { got, .. } if got == declared + 1),
            "{error}"
        );
        assert_eq!(fs.hidden(), BTreeMap::new(), "nothing of it is left");
        // The request goes on.
        request.stage_bytes(&path("a"), 0o644, b"a").unwrap();
    }
}

#[test]
fn a_part_that_is_too_short_or_breaks_off_is_refused() {
    let fs = ModelFs::new();
    let store = store(&fs);
    let mut request = StageRequest::new(&store, "r").unwrap();
    let error = request
        .stage(&path("a"), 0o644, &mut &b"abc"[..], 4)
        .unwrap_err();
    assert_eq!(error.to_string(), "a: 4 bytes are declared and 3 arrived");
    let mut trickle = Trickle(b"abc".to_vec(), false);
    let error = request
        .stage(&path("a"), 0o644, &mut trickle, 4)
        .unwrap_err();
    assert!(matches!(error, StageError::Source(_)));
    assert_eq!(fs.hidden(), BTreeMap::new());
}

#[test]
fn a_disk_that_fails_anywhere_leaves_nothing_once_the_request_is_dropped() {
    let run = |store: &Store| {
        let mut request = StageRequest::new(store, "r")?;
        request.stage_bytes(&path("a"), 0o644, &[7; 100_000])?;
        request.stage_bytes(&path("b"), 0o644, b"b")?;
        request.seal()?;
        Ok::<_, StageError>(())
    };
    let whole = ModelFs::new();
    let undisturbed = store(&whole);
    let before = whole.calls();
    run(&undisturbed).unwrap();
    for n in 1..=whole.calls() - before {
        let fs = ModelFs::new();
        let store = store(&fs);
        fs.fail_at(n, libc::ENOSPC);
        let _ = run(&store);
        // One failing unlink or rmdir of the clean-up itself is for the sweep.
        let left = fs.hidden().len();
        assert!(left <= 1, "call {n} left {left}");
        if left == 1 {
            assert!(n > 8, "call {n} was no clean-up");
        }
    }
}

#[test]
fn request_ids_are_plain_names_and_never_shared() {
    let fs = ModelFs::new();
    let store = store(&fs);
    for bad in ["", "..", "a/b", ".x", "a b", &"x".repeat(65)] {
        let error = StageRequest::new(&store, bad).unwrap_err();
        assert!(matches!(error, StoreError::BadName { .. }), "{bad}");
    }
    let mut one = StageRequest::new(&store, "same").unwrap();
    let kept = one.stage_bytes(&path("a"), 0o644, b"one").unwrap();
    let mut two = StageRequest::new(&store, "same").unwrap();
    two.stage_bytes(&path("a"), 0o644, b"two").unwrap_err();
    drop(two);
    assert_eq!(fs.read(&kept.staged).unwrap(), b"one");
}

#[test]
fn process_durability_syncs_nothing() {
    let fs = ModelFs::new();
    let store = Store::new(fs.shared(), Default::default(), Durability::Process);
    fs.start_trace();
    let mut request = StageRequest::new(&store, "r").unwrap();
    request.stage_bytes(&path("a"), 0o644, b"a").unwrap();
    request.seal().unwrap();
    assert_eq!(fs.trace(), [""; 0]);
    assert_eq!(fs.mutations(), 4, "mkdir, mkdir, create, write");
}
