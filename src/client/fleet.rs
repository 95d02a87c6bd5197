//! The same to many agents side by side, an outcome for each.
//!
//! At most [`MAX_THREADS`] threads, whatever the number of agents; they end before a
//! call returns. One agent's failure is its own outcome and stops no other.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::client::Client;
use super::fileset::FileSet;
use super::push::{PushError, PushOptions, Pushed, Step, push_watched};

/// Agents that are served at one time.
pub const MAX_THREADS: usize = 16;

/// A number of agents, in the caller's order.
#[derive(Debug, Clone)]
pub struct Fleet {
    clients: Vec<Client>,
}

impl Fleet {
    /// Of these agents.
    #[must_use]
    pub fn new(clients: Vec<Client>) -> Self {
        Self { clients }
    }

    /// The agents.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Does `work` with each agent, and returns what it made of each, in their order.
    /// The number handed to it is the agent's place.
    ///
    /// # Panics
    /// Where `work` does.
    pub fn each<T: Send>(&self, work: impl Fn(usize, &Client) -> T + Sync) -> Vec<T> {
        let next = AtomicUsize::new(0);
        let made: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(self.clients.len()));
        std::thread::scope(|scope| {
            for _ in 0..self.clients.len().min(MAX_THREADS) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(client) = self.clients.get(place) else {
                            break;
                        };
                        let value = work(place, client);
                        made.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push((place, value));
                    }
                });
            }
        });
        let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        made.sort_by_key(|(place, _)| *place);
        made.into_iter().map(|(_, value)| value).collect()
    }

    /// Pushes `set` to every agent. `watch` is told each agent's steps, from several
    /// threads.
    pub fn push(
        &self,
        set: &FileSet,
        options: &PushOptions,
        watch: impl Fn(usize, &Step<'_>) + Sync,
    ) -> Vec<Result<Pushed, PushError>> {
        self.each(|place, client| push_watched(client, set, options, &|step| watch(place, step)))
    }
}
