//! Writing records to whoever may have stopped reading them.
//!
//! A log that is a pipe fills up when its reader hangs, and a plain write would then hang
//! as well, an apply with it. Here a record waits [`PATIENCE`] at most, and the next ones
//! not at all until there is room again: they are lost and counted, and the first record
//! that gets through is preceded by one that says how many. Nothing is kept for later.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::sys::{self, Interest, Watch};

/// How long a record may wait for room.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// What a pipe with room takes without blocking.
const PIECE_BYTES: usize = 4096;

static LOST: AtomicU64 = AtomicU64::new(0);

/// Records that nobody took since the process started.
#[must_use]
pub fn lost() -> u64 {
    LOST.load(Relaxed)
}

/// A descriptor for records. One call of `write` is one record.
pub(super) struct Patient<F> {
    out: F,
    /// The record that tells how many were lost.
    confess: fn(u64) -> String,
    /// The last record found no room.
    blocked: bool,
    /// Only a part of the last record got out.
    cut: bool,
    lost: u64,
}

impl<F: AsFd> Patient<F> {
    pub(super) fn new(out: F, confess: fn(u64) -> String) -> Self {
        Self {
            out,
            confess,
            blocked: false,
            cut: false,
            lost: 0,
        }
    }

    fn record(&mut self, record: &[u8]) -> bool {
        let patience = match self.blocked {
            true => Duration::ZERO,
            false => PATIENCE,
        };
        let end = Instant::now() + patience;
        if self.lost > 0 {
            let mut confession = (self.confess)(self.lost);
            if self.cut {
                confession.insert(0, '\n');
            }
            if !self.pieces(confession.as_bytes(), end) {
                return false;
            }
            self.lost = 0;
        }
        self.pieces(record, end)
    }

    fn pieces(&mut self, bytes: &[u8], end: Instant) -> bool {
        for piece in bytes.chunks(PIECE_BYTES) {
            let mut rest = piece;
            while !rest.is_empty() {
                if !self.has_room(end) {
                    return false;
                }
                match rustix::io::write(&self.out, rest) {
                    Ok(count) => {
                        rest = rest.get(count..).unwrap_or_default();
                        self.cut = true;
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return false,
                }
            }
        }
        self.cut = false;
        true
    }

    fn has_room(&self, end: Instant) -> bool {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut watch = [Watch::new(self.out.as_fd(), Interest::Write)];
            match sys::poll(&mut watch, Some(left)) {
                Ok(0) if left.is_zero() => return false,
                // A signal, or the time; the next look finds out.
                Ok(0) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }
}

impl<F: AsFd> Write for Patient<F> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.blocked = !self.record(record);
        if self.blocked {
            self.lost += 1;
            LOST.fetch_add(1, Relaxed);
        }
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn confess(count: u64) -> String {
        format!("{count} lost\n")
    }

    #[test]
    fn a_reader_that_hangs_costs_one_wait_and_is_told_afterwards() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Patient::new(writer, confess);
        let record = [vec![b'x'; 9_999], vec![b'\n']].concat();
        let before = lost();
        let started = Instant::now();
        for _ in 0..100 {
            assert_eq!(log.write(&record).unwrap(), record.len());
        }
        let took = started.elapsed();
        assert!(took >= PATIENCE && took < PATIENCE * 5, "{took:?}");
        let missing = lost() - before;
        assert!((80..100).contains(&missing), "{missing}");

        let mut filled = vec![0; 64 * 1024];
        let count = reader.read(&mut filled).unwrap();
        filled.truncate(count);
        log.write_all(b"here again\n").unwrap();
        drop(log);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        let all = String::from_utf8([filled, rest].concat()).unwrap();
        let tail = format!("\n{missing} lost\nhere again\n");
        assert!(all.ends_with(&tail), "{}", &all[all.len() - 60..]);
        let whole = all.lines().filter(|line| line.len() == 9_999).count();
        assert_eq!(whole as u64, 100 - missing);
    }

    #[test]
    fn a_reader_that_reads_gets_every_record() {
        let (mut reader, writer) = io::pipe().unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).unwrap();
            all
        });
        let mut log = Patient::new(writer, confess);
        for n in 0..20_000 {
            log.write_all(format!("record {n}\n").as_bytes()).unwrap();
        }
        drop(log);
        let all = reading.join().unwrap();
        let wanted: String = (0..20_000).map(|n| format!("record {n}\n")).collect();
        assert!(all == wanted, "{}", all.len());
    }
}
