//! A client that never stops asking, and counts.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::http;

/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(2);

/// What came of the requests so far.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Answered as they should be.
    pub(crate) served: u64,
    /// The first that was not, if any.
    pub(crate) failure: Option<String>,
}

/// A running client; it stops when it is asked to or dropped.
#[derive(Debug)]
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    served: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Traffic {
    /// Starts asking `address` for `host`, expecting `want` as the body.
    pub(crate) fn start(address: &str, host: &str, want: &str) -> Self {
        let shared = Arc::new(Shared::default());
        let (for_thread, address) = (Arc::clone(&shared), address.to_owned());
        let (head, want) = (format!("Host: {host}\r\n"), want.to_owned());
        let thread = std::thread::spawn(move || {
            while !for_thread.stop.load(Ordering::Acquire) {
                let problem = match http::get(&address, "/", &head) {
                    Ok(answer) if answer.status == 200 && answer.body == want => None,
                    Ok(answer) => Some(format!("{} {:?}", answer.status, answer.body)),
                    Err(error) => Some(error),
                };
                match problem {
                    None => {
                        for_thread.served.fetch_add(1, Ordering::AcqRel);
                    }
                    Some(problem) => {
                        let mut failure = for_thread
                            .failure
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner);
                        failure.get_or_insert(problem);
                    }
                }
                std::thread::sleep(PAUSE);
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// How many requests have been served until now.
    pub(crate) fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Acquire)
    }

    /// Stops asking and tells what came of it.
    pub(crate) fn stop(mut self) -> Tally {
        self.end();
        let failure = self.shared.failure.lock();
        Tally {
            served: self.served(),
            failure: failure.unwrap_or_else(PoisonError::into_inner).take(),
        }
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It cannot panic; if it did, the count tells.
            let _ = thread.join();
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.end();
    }
}
