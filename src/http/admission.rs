//! Which connections may live: a fixed number of slots, each in one phase.
//!
//! When all slots are taken, the connection that has waited longest without a request
//! being served is shut for the newcomer; a request that is being served is never
//! touched. One lock guards the table; nothing is read or written under it. Shutting a
//! socket under it is what makes the choice final: a connection that turns BUSY at the
//! same moment learns from [`Slot::enter`] that it lost.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::limits::{SHUT_WAIT, SLOT_WAIT};
use crate::clock::{Clock as _, SystemClock};

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its request head is awaited or arriving.
    Head,
    /// A request is being served: read, handled, answered.
    Busy,
    /// It waits between two requests.
    Idle,
    /// It is answered and only drained.
    Linger,
}

impl Phase {
    fn may_be_shut(self) -> bool {
        match self {
            Self::Busy => false,
            Self::Head | Self::Idle | Self::Linger => true,
        }
    }
}

/// The slots of one server.
#[derive(Debug)]
pub(super) struct Admission {
    table: Mutex<Table>,
    freed: Condvar,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    next: u64,
    stopping: bool,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    stream: Arc<TcpStream>,
    phase: Phase,
    since: Instant,
    shut: bool,
}

/// Nobody could be shut for the newcomer, or not in time.
#[derive(Debug)]
pub(super) struct Full;

/// A connection's place; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Slot {
    admission: Arc<Admission>,
    number: u64,
}

impl Admission {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            table: Mutex::new(Table::default()),
            freed: Condvar::new(),
            capacity: capacity.max(1),
        }
    }

    /// A slot in phase HEAD for `stream`, and whether another connection was shut for it.
    pub(super) fn admit(self: &Arc<Self>, stream: Arc<TcpStream>) -> Result<(Slot, bool), Full> {
        let mut table = self.lock();
        let mut shut = false;
        if table.entries.len() >= self.capacity {
            table.shut_oldest().ok_or(Full)?;
            shut = true;
            table = self
                .freed
                .wait_timeout_while(table, SLOT_WAIT, |table| {
                    table.entries.len() >= self.capacity
                })
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if table.entries.len() >= self.capacity {
                return Err(Full);
            }
        }
        let number = table.next;
        table.next += 1;
        table.entries.push(Entry {
            number,
            stream,
            phase: Phase::Head,
            since: SystemClock.now(),
            shut: false,
        });
        let slot = Slot {
            admission: Arc::clone(self),
            number,
        };
        Ok((slot, shut))
    }

    /// Ends everything that serves no request, gives the rest `grace`, then shuts it
    /// too. Returns how many connections are still there.
    pub(super) fn drain(&self, grace: Duration) -> usize {
        let mut table = self.lock();
        table.stopping = true;
        table.shut_where(Phase::may_be_shut);
        table = self.wait_until_empty(table, grace);
        if !table.entries.is_empty() {
            table.shut_where(|_| true);
            table = self.wait_until_empty(table, SHUT_WAIT);
        }
        table.entries.len()
    }

    fn wait_until_empty<'t>(
        &self,
        table: MutexGuard<'t, Table>,
        time: Duration,
    ) -> MutexGuard<'t, Table> {
        self.freed
            .wait_timeout_while(table, time, |table| !table.entries.is_empty())
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Every change of the table is one assignment or one push, so it is whole even if
    /// a thread died while it held the lock.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn shut_oldest(&mut self) -> Option<()> {
        let oldest = self
            .entries
            .iter_mut()
            .filter(|entry| entry.phase.may_be_shut() && !entry.shut)
            .min_by_key(|entry| entry.since)?;
        oldest.shut();
        Some(())
    }

    fn shut_where(&mut self, wanted: impl Fn(Phase) -> bool) {
        for entry in &mut self.entries {
            if wanted(entry.phase) && !entry.shut {
                entry.shut();
            }
        }
    }
}

impl Entry {
    fn shut(&mut self) {
        self.shut = true;
        let _gone_already = self.stream.shutdown(Shutdown::Both);
    }
}

impl Slot {
    /// Moves the connection to another phase. `false` means that it must close now: it
    /// was shut for another one, or waits for a request while the server stops.
    #[must_use]
    pub(super) fn enter(&self, phase: Phase) -> bool {
        let mut table = self.admission.lock();
        let stopping = table.stopping;
        let Some(entry) = table
            .entries
            .iter_mut()
            .find(|entry| entry.number == self.number)
        else {
            return false;
        };
        entry.phase = phase;
        entry.since = SystemClock.now();
        !entry.shut
            && match phase {
                Phase::Head | Phase::Idle => !stopping,
                Phase::Busy | Phase::Linger => true,
            }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.admission.lock();
        table.entries.retain(|entry| entry.number != self.number);
        drop(table);
        self.admission.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// Both ends of a connection.
    fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        (Arc::new(listener.accept().unwrap().0), client)
    }

    fn is_shut(mut client: &TcpStream) -> bool {
        client.set_nonblocking(true).unwrap();
        matches!(client.read(&mut [0u8; 1]), Ok(0))
    }

    #[test]
    fn the_longest_waiting_goes_and_the_busy_stays() {
        let admission = Arc::new(Admission::new(2));
        let (busy, busy_peer) = pair();
        let (idle, mut idle_peer) = pair();
        let (busy, _) = admission.admit(busy).unwrap();
        let (idle, _) = admission.admit(idle).unwrap();
        assert!(busy.enter(Phase::Busy));
        assert!(idle.enter(Phase::Idle));
        let watcher = std::thread::spawn(move || {
            let ended = matches!(idle_peer.read(&mut [0u8; 1]), Ok(0));
            assert!(!idle.enter(Phase::Busy), "a shut connection must not serve");
            drop(idle);
            ended
        });
        let (_newcomer, shut) = admission.admit(pair().0).unwrap();
        assert!(shut);
        assert!(watcher.join().unwrap());
        assert!(!is_shut(&busy_peer));
    }

    #[test]
    fn nobody_is_shut_while_all_are_busy() {
        let admission = Arc::new(Admission::new(1));
        let (stream, peer) = pair();
        let (slot, _) = admission.admit(stream).unwrap();
        assert!(slot.enter(Phase::Busy));
        assert!(matches!(admission.admit(pair().0), Err(Full)));
        assert!(!is_shut(&peer));
        drop(slot);
        assert!(admission.admit(pair().0).is_ok());
    }

    #[test]
    fn a_stop_ends_the_waiting_at_once_and_the_busy_after_their_grace() {
        let admission = Arc::new(Admission::new(4));
        let (waiting, waiting_peer) = pair();
        let (busy, busy_peer) = pair();
        let (_waiting, _) = admission.admit(waiting).unwrap();
        let (busy, _) = admission.admit(busy).unwrap();
        assert!(busy.enter(Phase::Busy));
        assert_eq!(admission.drain(Duration::ZERO), 2);
        assert!(is_shut(&waiting_peer));
        assert!(is_shut(&busy_peer));
        assert!(!busy.enter(Phase::Idle));
    }
}
