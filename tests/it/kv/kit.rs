//! A watcher under test, and what it is asked.

use crate::support::wait;
use haptic_agent::clock::{self, Clock as _};
use haptic_agent::responder::copy::{Copy, CopyCell};
use haptic_agent::responder::kv::{
    self, ConsulConfig, ConsulPace, DirConfig, DirPace, ErrorKind, Hold, KvSnapshot, KvStatus,
    ReadResult, Source, SyncWait, WatchConfig, Watcher, Weights,
};
use haptic_agent::responder::value::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for what has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The prefix of these tests.
pub(crate) const PREFIX: &str = "fleet/state";

/// Deadlines and pauses for tests: a tenth or less of the real ones.
pub(crate) fn quick() -> ConsulPace {
    let ms = Duration::from_millis;
    ConsulPace {
        connect: ms(2000),
        plain: ms(10_000),
        wait: ms(1000),
        slack: ms(2000),
        gap: ms(50),
        idle_gap: ms(250),
        retry_min: ms(20),
        retry_max: ms(200),
        hold: ms(200),
    }
}

/// A running watcher with what it writes.
pub(crate) struct Watched {
    pub(crate) cell: Arc<CopyCell>,
    pub(crate) status: Arc<KvStatus>,
    pub(crate) watcher: Watcher,
}

impl Watched {
    pub(crate) fn start(source: Source) -> Self {
        Self::start_with(source, Weights::Set)
    }

    pub(crate) fn start_with(source: Source, weights: Weights) -> Self {
        let cell = Arc::new(CopyCell::new());
        let status = Arc::new(KvStatus::new(clock::system()));
        let config = WatchConfig {
            source,
            weights,
            clock: clock::system(),
        };
        let watcher = kv::watch(config, cell.clone(), status.clone()).unwrap();
        Self {
            cell,
            status,
            watcher,
        }
    }

    /// A quick watcher of a Consul.
    pub(crate) fn consul(address: SocketAddr) -> Self {
        Self::start(Source::Consul(consul(address)))
    }

    /// A quick watcher of a directory.
    pub(crate) fn dir(path: &Path) -> Self {
        Self::start(Source::Dir(dir(path)))
    }

    pub(crate) fn synced(self) -> Self {
        assert_eq!(self.status.wait_synced(Some(PATIENCE)), SyncWait::Synced);
        self
    }

    pub(crate) fn snapshot(&self) -> KvSnapshot {
        self.status.snapshot()
    }

    pub(crate) fn copy(&self) -> Arc<Copy> {
        self.cell.load().expect("there is a copy")
    }

    /// What an answer would follow now.
    pub(crate) fn value(&self, key: &str) -> Option<Value> {
        let copy = self.copy();
        copy.get(key)?.value_at(clock::SystemClock.wall())
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.copy().iter().map(|(key, _)| key.to_owned()).collect()
    }

    pub(crate) fn until_value(&self, key: &str, value: Option<Value>) {
        wait::until_ok(&format!("{key} is {value:?}"), PATIENCE, || {
            let now = self.value(key);
            if now == value { Ok(()) } else { Err(now) }
        });
    }

    pub(crate) fn until_keys(&self, keys: &[&str]) {
        wait::until_ok(&format!("the keys are {keys:?}"), PATIENCE, || {
            let now = self.keys();
            if now == keys { Ok(()) } else { Err(now) }
        });
    }

    pub(crate) fn until_held(&self, hold: Hold) {
        self.until(&format!("held back by {hold}"), |now| {
            now.hold == Some(hold)
        });
    }

    pub(crate) fn until_error(&self, kind: ErrorKind) {
        let before = self.snapshot().errors(kind);
        self.until(&format!("an error {kind}"), |now| now.errors(kind) > before);
    }

    /// Waits for so many more reads that ended like this.
    pub(crate) fn until_more(&self, result: ReadResult, more: u64) {
        let before = self.snapshot().reads(result);
        self.until(&format!("{more} more reads {result}"), |now| {
            now.reads(result) >= before + more
        });
    }

    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&KvSnapshot) -> bool) {
        wait::until_ok(what, PATIENCE, || {
            let now = self.snapshot();
            if holds(&now) {
                Ok(())
            } else {
                Err(Box::new(now))
            }
        });
    }
}

/// The configuration of a quick watcher.
pub(crate) fn consul(address: SocketAddr) -> ConsulConfig {
    let address = address.to_string();
    let config = ConsulConfig::new(Some(&address), PREFIX, None, &|_| None).unwrap();
    ConsulConfig {
        pace: quick(),
        ..config
    }
}

/// The configuration of a quick watcher of a directory.
pub(crate) fn dir(path: &Path) -> DirConfig {
    DirConfig {
        pace: DirPace {
            every: Duration::from_millis(20),
            torn: Duration::from_millis(500),
        },
        ..DirConfig::new(path.to_path_buf())
    }
}

/// The full name of a key.
pub(crate) fn full(key: &str) -> String {
    format!("{PREFIX}/{key}")
}
