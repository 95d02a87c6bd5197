//! The watcher of a directory: looks at every file five times a second.
//!
//! Contents are compared, never times: a file may be written twice within one tick of
//! its clock. What cannot be read keeps its value. What is missing in the listing is
//! looked for by name before it counts as deleted, because a file that is replaced
//! while the names are listed is left out by some file systems.

pub mod store;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::keeper::Keeper;
use super::status::{Hold, Names};
use super::{Stop, Weights};
use crate::clock::{Clock, UnixNanos};
use crate::responder::copy::{Copy, Entry};
use crate::responder::limits::MAX_KV_KEYS;
use crate::responder::note;

use store::{DirError, Found, Store};

/// How often the directory is looked at. Tests shorten it; nobody else changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirPace {
    /// From the start of one look to the start of the next, but never so often that looks
    /// take more than half of the time.
    pub every: Duration,
    /// How long an invalid content may be one that is just being written.
    pub torn: Duration,
}

impl Default for DirPace {
    fn default() -> Self {
        Self {
            // With a look of up to 50 ms, some 8000 files, a change is seen within 250 ms.
            every: Duration::from_millis(200),
            torn: Duration::from_secs(1),
        }
    }
}

/// What a directory that does not exist means at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenMissing {
    /// That its volume is not there: there is no copy until it is.
    #[default]
    Refuse,
    /// That the store is new: it is made, empty.
    Make,
}

/// The directory store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirConfig {
    /// Its path.
    pub path: PathBuf,
    /// What it means that there is none.
    pub missing: WhenMissing,
    /// Files of one look; with more there is no copy of it.
    pub max_keys: usize,
    /// How often it is looked at.
    pub pace: DirPace,
}

impl DirConfig {
    /// The directory at `path`, looked at as often as it should be.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            missing: WhenMissing::default(),
            max_keys: MAX_KV_KEYS,
            pace: DirPace::default(),
        }
    }
}

/// One look may take this long before it is overdue, and so much longer for each file that
/// there may be; a look takes a tenth of it.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_A_FILE: Duration = Duration::from_micros(100);

/// The watcher's state.
pub(super) struct Watch {
    config: DirConfig,
    weights: Weights,
    clock: Arc<dyn Clock>,
    stop: Arc<Stop>,
    keeper: Keeper,
    files: BTreeMap<String, Known>,
    device: Option<u64>,
    inode: Option<u64>,
    version: u64,
    /// What could not be read at the last look.
    unreadable: Names,
    ignored: Names,
}

/// A file as it was last seen.
struct Known {
    bytes: Vec<u8>,
    /// What the bytes say.
    says: Entry,
    /// What is followed; `None` while a new file may still be being written.
    followed: Option<Entry>,
    invalid_since: Option<Instant>,
}

/// What one look saw.
#[derive(Default)]
struct Look {
    changed: bool,
    unreadable: Names,
    ignored: Names,
    /// A file that has to be known before the first copy, and why it is not.
    awaited: Option<String>,
}

impl Watch {
    pub(super) fn new(
        config: DirConfig,
        weights: Weights,
        clock: Arc<dyn Clock>,
        stop: Arc<Stop>,
        keeper: Keeper,
    ) -> Self {
        Self {
            config,
            weights,
            clock,
            stop,
            keeper,
            files: BTreeMap::new(),
            device: None,
            inode: None,
            version: 0,
            unreadable: Names::default(),
            ignored: Names::default(),
        }
    }

    /// Looks until the stop comes.
    pub(super) fn run(mut self) {
        let files = u32::try_from(self.config.max_keys).unwrap_or(u32::MAX);
        let longest = LOOK + LOOK_A_FILE.saturating_mul(files);
        let every = self.config.pace.every;
        let mut made = match self.config.missing {
            WhenMissing::Make => self.make_if_missing(),
            WhenMissing::Refuse => Ok(()),
        };
        loop {
            self.keeper.status().busy_for(every + longest);
            let start = self.clock.now();
            let looked = match made {
                Ok(()) => self.look(),
                Err(error) => Err(error.to_string()),
            };
            made = Ok(());
            match looked {
                Ok(look) => self.tell(look),
                Err(trouble) => self.keeper.hold(Hold::Directory, trouble),
            }
            let took = self.clock.now().saturating_duration_since(start);
            let pause = every.saturating_sub(took).max(took);
            self.keeper.status().busy_for(pause + longest);
            if self.stop.pause(pause) {
                return;
            }
        }
    }

    /// Once, at the start: a directory that vanishes later is never made anew.
    fn make_if_missing(&self) -> Result<(), DirError> {
        match Store::open(&self.config.path) {
            Err(DirError::Missing(path)) => {
                Store::make(&path)?;
                log::info!(path = path.display().to_string(); "the store's directory has been made");
                Ok(())
            }
            // The first look says what is wrong.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn look(&mut self) -> Result<Look, String> {
        let store = Store::open(&self.config.path).map_err(|error| error.to_string())?;
        if self.device.is_some_and(|device| device != store.device()) {
            return Err(format!(
                "{} is on another device than before; if it is meant, restart the responder",
                self.config.path.display()
            ));
        }
        let listing = store
            .list(self.config.max_keys)
            .map_err(|error| error.to_string())?;
        self.check_another(&store, &listing)?;
        let foreign = listing.foreign.iter();
        let mut look = Look {
            ignored: Names::of(foreign.map(|name| String::from_utf8_lossy(name).into_owned())),
            ..Look::default()
        };
        let mut before = std::mem::take(&mut self.files);
        let unlisted: Vec<String> = before
            .keys()
            .filter(|key| !listing.keys.contains(*key))
            .cloned()
            .collect();
        for key in listing.keys.into_iter().chain(unlisted) {
            let found = store.read(&key);
            let known = before.remove(&key);
            if let Some(known) = self.see(&key, known, found, &mut look) {
                self.files.insert(key, known);
            }
        }
        if look.awaited.is_none() {
            self.device = Some(store.device());
            self.inode = Some(store.inode());
        }
        Ok(look)
    }

    /// Another directory of this device may be another store that is mounted here by mistake,
    /// or the same one that somebody has put back. As with Consul, what has every override
    /// is believed, and what lacks some is not.
    fn check_another(&self, store: &Store, listing: &store::Listing) -> Result<(), String> {
        if self.inode.is_none_or(|inode| inode == store.inode()) {
            return Ok(());
        }
        let wall = self.clock.wall();
        let lost = self.files.iter().filter(|(key, known)| {
            let followed = known.followed.as_ref();
            followed.is_some_and(|entry| entry.value_at(wall).is_some())
                && !listing.keys.contains(*key)
                && matches!(store.read(key), Ok(Found::Nothing))
        });
        let lost = Names::of(lost.map(|(key, _)| key.clone()));
        match lost.count {
            0 => Ok(()),
            _ => Err(format!(
                "{} is another directory than before and lacks overrides, which are answered all the same: {lost}; \
                 mount or move the old one back; if this one is meant, write them again, or restart the responder",
                self.config.path.display()
            )),
        }
    }

    /// One file: what is known of it from now on.
    fn see(
        &self,
        key: &str,
        known: Option<Known>,
        found: io::Result<Found>,
        look: &mut Look,
    ) -> Option<Known> {
        let first = self.device.is_none();
        match (found, known) {
            (Ok(Found::Nothing), None) => None,
            (Ok(Found::Nothing), Some(known)) => {
                look.changed |= known.followed.is_some();
                None
            }
            (Ok(Found::File { bytes, .. }), Some(known)) if known.bytes == bytes => {
                Some(self.settle(known, look))
            }
            (Ok(Found::File { bytes, modified }), known) => {
                let entry = note::read_file(&bytes, self.weights).entry;
                let (followed, invalid_since) = match known {
                    Some(known) => (known.followed, known.invalid_since),
                    None => (None, None),
                };
                let known = Known {
                    bytes,
                    says: entry,
                    followed,
                    invalid_since,
                };
                let fresh = self.is_fresh(modified);
                let known = if first && !fresh {
                    // Nobody is writing it; it may be judged at once.
                    follow(known, look)
                } else {
                    self.settle(known, look)
                };
                if first && known.followed.is_none() {
                    look.awaited = Some(format!("{key} may just be being written"));
                }
                Some(known)
            }
            // At the start, too, no reason to wait: nobody is writing it.
            (Ok(Found::Other(what)), known) => {
                look.unreadable.push_as(store::shown_name(key), what);
                known
            }
            (Err(error), known) => {
                look.unreadable.push(store::shown_name(key));
                if first {
                    let path = store::display_name(&self.config.path, key);
                    look.awaited = Some(format!("{} cannot be read: {error}", path.display()));
                }
                known
            }
        }
    }

    /// Follows what the file says, an invalid content only after its time.
    fn settle(&self, mut known: Known, look: &mut Look) -> Known {
        if known.followed.as_ref() == Some(&known.says) {
            if known.says.stored().is_ok() {
                known.invalid_since = None;
            }
            return known;
        }
        if known.says.stored().is_ok() {
            known.invalid_since = None;
            return follow(known, look);
        }
        let now = self.clock.now();
        let since = *known.invalid_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= self.config.pace.torn {
            return follow(known, look);
        }
        known
    }

    fn is_fresh(&self, modified: UnixNanos) -> bool {
        let torn = i128::try_from(self.config.pace.torn.as_nanos()).unwrap_or(i128::MAX);
        (self.clock.wall().0 - modified.0).abs() < torn
    }

    fn tell(&mut self, look: Look) {
        self.tell_left_out(&look);
        if let Some(what) = look.awaited {
            return self.keeper.hold(Hold::Directory, what);
        }
        if !look.changed && self.keeper.current().is_some() {
            return self.keeper.same();
        }
        self.version += 1;
        let entries = self.files.iter().filter_map(|(key, known)| {
            let entry = known.followed.clone()?;
            Some((Box::from(key.as_str()), entry))
        });
        let copy = Copy::new(entries.collect(), self.version, self.keeper.wall());
        self.keeper.offer(copy);
    }
}

impl Watch {
    /// What a look had to leave out: shown always, logged when it is something else than
    /// at the look before.
    fn tell_left_out(&mut self, look: &Look) {
        if self.unreadable != look.unreadable {
            self.unreadable = look.unreadable.clone();
            let (count, files) = (look.unreadable.count, look.unreadable.to_string());
            if count > 0 {
                log::warn!(count, files; "files of the store cannot be read, or are no regular files: what was known of them stays, and new ones count for nothing");
            } else {
                log::info!(count; "all files of the store can be read again");
            }
        }
        if self.ignored != look.ignored {
            self.ignored = look.ignored.clone();
            let (count, files) = (look.ignored.count, look.ignored.to_string());
            if count > 0 {
                log::warn!(count, files; "names in the store's directory are no key's and count for nothing: a key is spelled with %2F for a slash, in capitals");
            }
        }
        let status = self.keeper.status();
        status.left_out(look.unreadable.clone(), look.ignored.clone());
    }
}

fn follow(mut known: Known, look: &mut Look) -> Known {
    look.changed = true;
    known.followed = Some(known.says.clone());
    known
}

#[cfg(test)]
mod tests;
