//! [`FakeConsul`]: the key-value part of Consul over loopback, for tests of whoever
//! watches a prefix or writes below it.
//!
//! It lists, waits, reads, writes with check-and-set, deletes, and runs transactions of
//! these. Faults are queued: each one spoils one list. It answers in whole HTTP
//! replies; cut connections and slow bytes are the business of a proxy before it.

mod api;
mod store;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tiny_http::Server;

use store::Store;
pub use store::Stored;

/// What one list is answered with instead of the truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// This status and body.
    Status(u16, String),
    /// The truth without `X-Consul-Index`.
    NoIndex,
    /// The truth with this in `X-Consul-Index`.
    Index(String),
    /// The truth, said to be filtered by rights.
    Filtered,
    /// The truth, said to come from a cluster without a leader.
    Leaderless,
    /// 200 with these bytes.
    Body(Vec<u8>),
    /// The truth in chunks.
    Chunked,
    /// The truth after this time.
    Late(Duration),
}

/// What the tokens that come may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    All,
    /// Nothing: lists are empty, keys are forbidden.
    None,
    /// Only what starts with one of these.
    Below(Vec<String>),
    /// The token is unknown.
    Unknown,
}

impl Rights {
    fn allow(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::None | Self::Unknown => false,
            Self::Below(prefixes) => prefixes.iter().any(|prefix| key.starts_with(prefix)),
        }
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `GET`, `PUT` or `DELETE`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// `X-Consul-Token`.
    pub token: Option<String>,
    /// When.
    pub at: Instant,
}

impl Seen {
    /// Whether it asked for a list.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.target.contains("recurse")
    }

    /// Whether it asked to wait for a change.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.target.contains("index=")
    }
}

struct State {
    store: Store,
    rights: Rights,
    /// When set, every other token has the rights of [`Rights::Unknown`].
    only_token: Option<String>,
    leader: bool,
    says_filtered: bool,
    faults: VecDeque<Fault>,
    seen: Vec<Seen>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stopping: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running fake; it ends when this is dropped, and waiting queries with it.
pub struct FakeConsul {
    shared: Arc<Shared>,
    server: Arc<Server>,
    address: SocketAddr,
    accept: Option<JoinHandle<()>>,
}

impl FakeConsul {
    /// Starts one on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// No port or no thread.
    pub fn start() -> io::Result<Self> {
        let server = Server::http("127.0.0.1:0").map_err(io::Error::other)?;
        let address = match server.server_addr().to_ip() {
            Some(address) => address,
            None => return Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        let server = Arc::new(server);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                store: Store::new(),
                rights: Rights::All,
                only_token: None,
                leader: true,
                says_filtered: false,
                faults: VecDeque::new(),
                seen: Vec::new(),
            }),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        });
        let (theirs, queue) = (shared.clone(), server.clone());
        let accept = thread::Builder::new()
            .name("fake-consul".to_owned())
            .spawn(move || {
                for request in queue.incoming_requests() {
                    let shared = theirs.clone();
                    // A query that waits must not keep others from being answered.
                    thread::spawn(move || api::answer(&shared, request));
                }
            })?;
        Ok(Self {
            shared,
            server,
            address,
            accept: Some(accept),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stores a value and returns its index.
    pub fn put(&self, key: &str, value: &str) -> u64 {
        self.put_with_flags(key, value, 0)
    }

    /// Stores a value with flags and returns its index.
    pub fn put_with_flags(&self, key: &str, value: &str, flags: u64) -> u64 {
        self.change(|state| {
            let index = state.store.advance();
            state.store.put(key, value.as_bytes(), flags, index);
            index
        })
    }

    /// Deletes a key; false if it was not there.
    pub fn delete(&self, key: &str) -> bool {
        self.change(|state| {
            let index = state.store.advance();
            state.store.delete(key, index)
        })
    }

    /// What is stored under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Stored> {
        self.shared.lock().store.get(key).cloned()
    }

    /// Becomes a rebuilt server: empty, index 1.
    pub fn wipe(&self) {
        self.change(|state| state.store = Store::new());
    }

    /// Moves the index of the whole store, for a server that has seen more or less.
    pub fn set_index(&self, index: u64) {
        self.change(|state| state.store.set_index(index));
    }

    /// Reaps tombstones.
    pub fn reap(&self) {
        self.change(|state| state.store.reap());
    }

    /// What tokens may do from now on. Queries that wait answer as they began.
    pub fn set_rights(&self, rights: Rights) {
        self.change(|state| state.rights = rights);
    }

    /// From now on only this token is known.
    pub fn set_token(&self, token: Option<&str>) {
        self.change(|state| state.only_token = token.map(str::to_owned));
    }

    /// Whether filtered lists say so, as newer servers do.
    pub fn set_says_filtered(&self, says: bool) {
        self.change(|state| state.says_filtered = says);
    }

    /// Whether the cluster has a leader.
    pub fn set_leader(&self, leader: bool) {
        self.change(|state| state.leader = leader);
    }

    /// Spoils the next list that is not spoiled yet.
    pub fn spoil(&self, fault: Fault) {
        self.change(|state| state.faults.push_back(fault));
    }

    /// Faults that nobody has met yet.
    #[must_use]
    pub fn faults_left(&self) -> usize {
        self.shared.lock().faults.len()
    }

    /// Every request since the start.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// Changes the state and wakes whoever waits.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let outcome = change(&mut self.shared.lock());
        self.shared.changed.notify_all();
        outcome
    }
}

impl Drop for FakeConsul {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        self.server.unblock();
        if let Some(accept) = self.accept.take() {
            let _ended = accept.join();
        }
    }
}

impl fmt::Debug for FakeConsul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeConsul")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
