//! Connections that have been answered, until the peer closes.
//!
//! An answering thread does not wait for that itself: the wait is a switch to another
//! thread and back for each connection, and costs more than the answer. It hands the
//! connection over, and one thread looks at all of them every few milliseconds, in one
//! call. By then nearly every peer has closed, and a close without a wait is cheap.

use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::limits::{MAX_PARTING, PARTING_LOOK};
use crate::clock::Clock;
use crate::sys::{self, Interest, Watch};

/// A connection, and when it is closed at the latest.
type Open = (TcpStream, Instant);

/// Where they wait.
#[derive(Debug, Default)]
pub(super) struct Parting {
    shared: Mutex<Shared>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    arrived: Vec<Open>,
    /// Those that the looking thread has.
    watched: usize,
    /// It waits for an arrival, and has to be woken.
    idle: bool,
    stopping: bool,
}

impl Parting {
    /// Takes a connection over, or gives it back where there are too many.
    pub(super) fn take(&self, stream: TcpStream, end: Instant) -> Result<(), TcpStream> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.stopping || shared.arrived.len() + shared.watched >= MAX_PARTING {
            return Err(stream);
        }
        shared.arrived.push((stream, end));
        if std::mem::take(&mut shared.idle) {
            drop(shared);
            self.woken.notify_one();
        }
        Ok(())
    }

    /// Lets the looking thread end once the last connection has; none is taken from now on.
    pub(super) fn stop(&self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.stopping = true;
        drop(shared);
        self.woken.notify_all();
    }

    /// Looks until the stop, and then until all are closed.
    pub(super) fn look(&self, clock: &dyn Clock) {
        let mut open: Vec<Open> = Vec::new();
        while self.gather(&mut open) {
            close_finished(&mut open, clock.now());
        }
    }

    /// Waits for arrivals, or for the next look at those that are there; false at the end.
    fn gather(&self, open: &mut Vec<Open>) -> bool {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.watched = open.len();
        if open.is_empty() && shared.arrived.is_empty() {
            while shared.arrived.is_empty() {
                if shared.stopping {
                    return false;
                }
                shared.idle = true;
                let woken = self.woken.wait(shared);
                shared = woken.unwrap_or_else(PoisonError::into_inner);
            }
            shared.idle = false;
        }
        // Let a few come together. Nobody notifies meanwhile but a stop, which may
        // shorten this.
        let waited = self.woken.wait_timeout(shared, PARTING_LOOK);
        let mut shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        open.append(&mut shared.arrived);
        shared.watched = open.len();
        true
    }
}

/// Drops those whose peer has closed and those whose time is over.
fn close_finished(open: &mut Vec<Open>, now: Instant) {
    let mut watches: Vec<Watch<'_>> = open
        .iter()
        .map(|(stream, _)| Watch::new(stream.as_fd(), Interest::Hangup))
        .collect();
    // If it cannot be looked, the time ends them.
    let _ready = sys::poll(&mut watches, Some(Duration::ZERO));
    let closed: Vec<bool> = watches.iter().map(Watch::is_hung_up).collect();
    let mut closed = closed.into_iter();
    open.retain(|(_, end)| !closed.next().unwrap_or(false) && *end > now);
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::clock::{self, SystemClock};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (there, listener.accept().unwrap().0)
    }

    /// A peer that stays is closed when its time is over, one that leaves frees its place,
    /// and the thread ends after a stop.
    #[test]
    fn connections_end_with_their_peer_or_their_time() {
        let parting = Arc::new(Parting::default());
        let looking = thread::spawn({
            let parting = Arc::clone(&parting);
            move || parting.look(&SystemClock)
        });
        let (mut stays, ours) = pair();
        let start = clock::system().now();
        let time = Duration::from_millis(100);
        parting.take(ours, start + time).unwrap();
        for _ in 0..MAX_PARTING * 2 {
            let (leaves, ours) = pair();
            drop(leaves);
            let mut ours = Some(ours);
            let far = start + Duration::from_secs(600);
            while let Some(stream) = ours.take() {
                ours = parting.take(stream, far).err();
                thread::yield_now();
            }
        }
        let mut byte = [0u8; 1];
        assert_eq!(stays.read(&mut byte).unwrap(), 0);
        assert!(start.elapsed() >= time);
        parting.stop();
        looking.join().unwrap();
        let (_there, ours) = pair();
        assert!(parting.take(ours, start).is_err(), "none after the stop");
    }

    #[test]
    fn too_many_are_given_back() {
        let parting = Parting::default();
        let end = clock::system().now();
        let mut peers = Vec::new();
        for _ in 0..MAX_PARTING {
            let (there, ours) = pair();
            peers.push(there);
            parting.take(ours, end).unwrap();
        }
        let (_there, ours) = pair();
        assert!(parting.take(ours, end).is_err());
    }
}
