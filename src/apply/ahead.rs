//! Looking at the owned files while the manifest is still coming in.
//!
//! Every apply looks at every owned file, because something else may have written one of
//! them. Of thousands of files that takes as long as it takes to receive and parse the
//! manifest that names them, so both go on side by side. It refuses to stand for the look
//! under the apply lock for longer than [`LOOK_HOLDS`], and where a thread is not worth it.

use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

use super::agent::Agent;

/// From so many files up it is worth a thread; fewer are looked at in the time that it
/// takes to start one and to let two of them meet.
const FILES_WORTH_A_THREAD: usize = 512;

/// How old a look may be for an apply to build on it. What is written meanwhile is written
/// in the moment between look and rename, which no look can close.
const LOOK_HOLDS: Duration = Duration::from_millis(100);

/// A look at every owned file that began then, within the request that it is for.
#[derive(Debug, Clone, Copy)]
pub struct Looked {
    began: Instant,
}

impl Looked {
    /// Whether an apply may still build on it.
    pub(super) fn holds(self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < LOOK_HOLDS
    }
}

impl Agent {
    /// Runs `receive`, and looks at every owned file beside it if there are many and no
    /// apply is under way. Call it once the sender is known to be allowed here.
    pub fn look_beside<T>(&self, receive: impl FnOnce() -> T) -> (T, Option<Looked>) {
        if self.view().files.len() < FILES_WORTH_A_THREAD {
            return (receive(), None);
        }
        scope(|scope| {
            let look = Builder::new()
                .name("look".to_owned())
                .spawn_scoped(scope, || self.look_at_files());
            let received = receive();
            // No thread to be had, or a panic of it: the apply looks itself.
            let looked = look.ok().and_then(|look| look.join().ok()).flatten();
            (received, looked)
        })
    }

    fn look_at_files(&self) -> Option<Looked> {
        let mut tx = self.try_lock()?;
        if tx.unfinished || tx.unsaved {
            // An apply mends that first.
            return None;
        }
        let began = self.clock.now();
        // An error is the apply's to tell.
        if tx.look_at_tree(self).ok()? {
            tx.save_quietly(self);
            self.publish(&tx);
        }
        Some(Looked { began })
    }
}
