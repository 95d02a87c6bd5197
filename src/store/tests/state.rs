//! The state file, its phase file, and the blob.

use serde::{Deserialize, Serialize};

use super::store;
use crate::store::blob::BlobFile;
use crate::store::fs::FileKind;
use crate::store::model::{LoseUnsynced, ModelFs};
use crate::store::stage::{StageError, StagedBlob};
use crate::store::state_file::{Loaded, StateFile, Stored};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    format: u32,
    txn: u64,
    text: String,
}

const BLOB: &str = ".haptic-agent-plan.bin";

/// Receives a blob, seals it and puts it in place.
fn bring(fs: &ModelFs, mut bytes: &[u8]) -> [u8; 32] {
    let store = store(fs);
    let staged = StagedBlob::receive(&store, "r1-plan", &mut bytes, 3).unwrap();
    staged.seal().unwrap();
    let sha256 = staged.hash.sha256;
    BlobFile::new(&store, BLOB).adopt(staged).unwrap();
    sha256
}

impl Stored for Sample {
    const FORMAT: u32 = 3;

    fn txn(&self) -> u64 {
        self.txn
    }
}

fn sample(txn: u64) -> Sample {
    Sample {
        format: Sample::FORMAT,
        txn,
        text: "x".repeat(2000),
    }
}

const PATH: &str = ".haptic-agent.json";

fn file(fs: &ModelFs) -> StateFile {
    StateFile::new(&store(fs), PATH)
}

fn load(fs: &ModelFs) -> Loaded<Sample, String> {
    file(fs).load().unwrap()
}

fn found(txn: u64, phase: &str) -> Loaded<Sample, String> {
    Loaded::Found(sample(txn), Some(phase.to_owned()))
}

#[test]
fn a_state_comes_back_with_the_phase_of_its_own_transaction_only() {
    let fs = ModelFs::new();
    assert_eq!(load(&fs), Loaded::Absent);
    file(&fs).save(&sample(7)).unwrap();
    assert_eq!(load(&fs), Loaded::Found(sample(7), None));
    file(&fs).save_phase(7, &"written").unwrap();
    assert_eq!(load(&fs), found(7, "written"));
    file(&fs).save(&sample(8)).unwrap();
    assert_eq!(load(&fs), Loaded::Found(sample(8), None));
}

#[test]
fn temporaries_of_a_killed_life_are_tidied_and_in_nobody_s_way() {
    let fs = ModelFs::new();
    let state = file(&fs);
    let blob = BlobFile::new(&store(&fs), BLOB);
    let litter = || {
        for name in [PATH, ".haptic-agent.json.phase"] {
            fs.put(&format!("{name}.tmp"), b"half", 0o600, 0, 0);
        }
    };
    litter();
    state.save(&sample(1)).unwrap();
    state.save_phase(1, &"x").unwrap();
    bring(&fs, b"one");
    litter();
    state.tidy(true);
    blob.tidy(true);
    let names = || fs.hidden().into_keys().collect::<Vec<String>>();
    assert_eq!(names(), [BLOB, PATH, ".haptic-agent.json.phase"]);
    blob.tidy(false);
    assert_eq!(names(), [PATH, ".haptic-agent.json.phase"]);
}

/// One writer, as in one life of an agent: its notes are appended.
#[test]
fn the_last_whole_line_of_the_transaction_counts() {
    let fs = ModelFs::new();
    let state = file(&fs);
    let phase = format!("{PATH}.phase");
    state.save(&sample(7)).unwrap();
    for noted in ["staged", "written", "applied"] {
        state.save_phase(7, &noted).unwrap();
        assert_eq!(load(&fs), found(7, noted), "{noted}");
    }
    let whole = fs.read(&phase).unwrap();
    assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 3);
    // A state that could not be saved leaves notes of a transaction that never was.
    state.save_phase(8, &"aborting").unwrap();
    assert_eq!(load(&fs), found(7, "applied"));
    // Cut anywhere, the line before it counts.
    let lines: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    for cut in lines[1] + 1..whole.len() {
        fs.scribble(&phase, &whole[..cut]);
        assert_eq!(load(&fs), found(7, "written"), "{cut}");
    }
    // The next life begins anew, whatever it finds.
    file(&fs).save_phase(7, &"staged").unwrap();
    assert_eq!(load(&fs), found(7, "staged"));
}

/// What was noted before a write that fails, or is cut, is still there; nothing is
/// appended to a line that was cut.
#[test]
fn a_note_that_cannot_be_written_takes_nothing_back() {
    let fs = ModelFs::new();
    let state = file(&fs);
    state.save(&sample(7)).unwrap();
    state.save_phase(7, &"staged").unwrap();
    fs.fail_at(1, libc::ENOSPC);
    assert!(state.save_phase(7, &"written").is_err());
    assert_eq!(load(&fs), found(7, "staged"));
    let phase = format!("{PATH}.phase");
    let mut torn = fs.read(&phase).unwrap();
    torn.extend_from_slice(b"{\"txn\":7,\"pha");
    fs.scribble(&phase, &torn);
    state.save_phase(7, &"aborting").unwrap();
    assert_eq!(load(&fs), found(7, "aborting"));
}

#[test]
fn a_phase_file_does_not_grow_without_bound() {
    let fs = ModelFs::new();
    let state = file(&fs);
    let phase = format!("{PATH}.phase");
    for txn in 1..2000 {
        state.save_phase(txn, &"written").unwrap();
        assert!(fs.read(&phase).unwrap().len() < 17 * 1024, "{txn}");
    }
    state.save(&sample(1999)).unwrap();
    assert_eq!(load(&fs), found(1999, "written"));
}

#[test]
fn a_torn_phase_is_no_phase() {
    let fs = ModelFs::new();
    file(&fs).save(&sample(7)).unwrap();
    file(&fs).save_phase(7, &"written").unwrap();
    let phase = format!("{PATH}.phase");
    let whole = fs.read(&phase).unwrap();
    for cut in 0..whole.len() - 1 {
        fs.scribble(&phase, &whole[..cut]);
        assert_eq!(load(&fs), Loaded::Found(sample(7), None), "{cut}");
    }
    fs.scribble(&phase, &vec![0; whole.len()]);
    assert_eq!(load(&fs), Loaded::Found(sample(7), None));
    fs.scribble(&phase, &vec![b' '; 100_000]);
    assert_eq!(load(&fs), Loaded::Found(sample(7), None));
}

#[test]
fn whatever_cuts_or_fails_a_save_the_old_state_or_the_new_one_is_there() {
    let scene = || {
        let fs = ModelFs::new();
        fs.short_writes(300);
        file(&fs).save(&sample(1)).unwrap();
        fs
    };
    let fs = scene();
    let before = fs.mutations();
    file(&fs).save(&sample(2)).unwrap();
    assert_eq!(
        fs.crash(LoseUnsynced::All).read(PATH),
        fs.read(PATH),
        "a save that returned is durable"
    );
    let mutations = fs.mutations() - before;
    for n in 0..mutations {
        for seed in 0..40 {
            let fs = scene();
            fs.stop_after(n);
            file(&fs).save(&sample(2)).unwrap_err();
            let lose = match seed {
                0 => LoseUnsynced::Nothing,
                1 => LoseUnsynced::All,
                seed => LoseUnsynced::Random(seed),
            };
            let Loaded::Found(state, _) = load(&fs.crash(lose)) else {
                unreachable!("{n} {lose:?}");
            };
            assert!([sample(1), sample(2)].contains(&state));
        }
        let fs = scene();
        let state = file(&fs);
        fs.fail_at(n + 1, libc::ENOSPC);
        state.save(&sample(2)).unwrap_err();
        let only = [PATH.to_owned()];
        assert_eq!(fs.hidden().into_keys().collect::<Vec<_>>(), only, "{n}");
        file(&fs).save(&sample(3)).unwrap();
        assert_eq!(load(&fs), Loaded::Found(sample(3), None));
    }
}

#[test]
fn a_state_that_cannot_be_used_is_moved_aside_and_only_the_last_one_kept() {
    let good = serde_json::to_vec(&sample(1)).unwrap();
    let newer = br#"{"format":4,"anything":true}"#.to_vec();
    let table: [(&[u8], &str); 7] = [
        (b"", "does not parse"),
        (b"{}", "does not parse"),
        (b"\0\0\0\0", "does not parse"),
        (&good[..good.len() - 1], "does not parse"),
        (br#"{"format":3,"txn":1}"#, "does not parse"),
        (br#"{"format":"3","txn":1}"#, "does not parse"),
        (&newer, "its format is 4 and this version knows 3"),
    ];
    let fs = ModelFs::new();
    for (bytes, why) in table {
        fs.put(PATH, bytes, 0o600, 0, 0);
        let Loaded::Unusable { reason, moved_to } = load(&fs) else {
            unreachable!("{why}");
        };
        assert!(reason.contains(why), "{reason}");
        assert_eq!(moved_to, ".haptic-agent.json.bad");
        assert_eq!(fs.read(&moved_to).unwrap(), bytes);
        assert_eq!(load(&fs), Loaded::Absent);
        assert_eq!(fs.hidden().len(), 1);
    }
}

#[test]
fn a_state_that_cannot_be_read_or_moved_is_an_error_that_names_it() {
    for (call, errno) in [(1, libc::EACCES), (2, libc::EACCES), (3, libc::EIO)] {
        let fs = ModelFs::new();
        file(&fs).save(&sample(1)).unwrap();
        let file = file(&fs);
        fs.fail_at(call, errno);
        let error = file.load::<Sample, ()>().unwrap_err();
        assert!(error.to_string().contains(PATH), "{error}");
    }
    let fs = ModelFs::new();
    fs.put(PATH, b"bad", 0o600, 0, 0);
    let state = file(&fs);
    fs.fail_from(1, libc::EROFS);
    state.load::<Sample, ()>().unwrap_err();
    fs.heal();
    assert_eq!(fs.read(PATH).unwrap(), b"bad");
}

#[test]
fn what_is_no_file_is_set_aside_like_a_broken_state() {
    for kind in [FileKind::Fifo, FileKind::Socket, FileKind::Symlink] {
        let fs = ModelFs::new();
        fs.put_special(PATH, kind);
        let loaded = file(&fs).load::<Sample, ()>().unwrap();
        let Loaded::Unusable { reason, .. } = loaded else {
            unreachable!("{kind}");
        };
        assert!(reason.contains(&kind.to_string()), "{reason}");
        let again = file(&fs).load::<Sample, ()>().unwrap();
        assert!(matches!(again, Loaded::Absent), "{kind}");
    }
}

#[test]
fn a_blob_is_the_one_the_state_names_or_none() {
    let fs = ModelFs::new();
    let store = store(&fs);
    let blob = BlobFile::new(&store, BLOB);
    assert_eq!(blob.read(&[0; 32]).unwrap(), None);
    let first = bring(&fs, b"one");
    assert_eq!(blob.read(&first).unwrap().unwrap(), b"one");
    let second = bring(&fs, b"two");
    // What was adopted survives a power loss.
    let after = fs.crash(LoseUnsynced::All);
    assert_eq!(after.read(BLOB).unwrap(), b"two");
    // One that is too long, and one that nobody adopts, leave nothing.
    let mut long: &[u8] = b"four";
    let refused = StagedBlob::receive(&store, "r2-plan", &mut long, 3);
    assert!(matches!(refused, Err(StageError::Size { got: 4, .. })));
    let mut dropped: &[u8] = b"six";
    drop(StagedBlob::receive(&store, "r3-plan", &mut dropped, 3).unwrap());
    assert_eq!(fs.hidden().len(), 1);
    assert_eq!(blob.read(&first).unwrap(), None);
    assert_eq!(blob.read(&second).unwrap().unwrap(), b"two");
    let too_large = usize::try_from(crate::wire::limits::MAX_PLAN_BLOB_BYTES).unwrap() + 1;
    fs.scribble(BLOB, &vec![0; too_large]);
    assert_eq!(blob.read(&second).unwrap(), None);
    blob.remove().unwrap();
    blob.remove().unwrap();
    assert_eq!(fs.hidden().len(), 0);
}
