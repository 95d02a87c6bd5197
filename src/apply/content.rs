//! The managed files, for those who compare them with the worker or send them to it.
//!
//! Only owned paths are opened: an op names a file, and the name comes from outside.

use std::cell::Cell;
use std::io::{self, Read};

use crate::haproxy::ops::Content;
use crate::wire::path::ManifestPath;

use super::agent::Agent;

/// The files as they are on disk.
pub(super) struct Managed<'a> {
    agent: &'a Agent,
    owned: &'a dyn Fn(&ManifestPath) -> bool,
    unreadable: Cell<bool>,
}

impl<'a> Managed<'a> {
    /// Those of which `owned` says so.
    pub(super) fn new(agent: &'a Agent, owned: &'a dyn Fn(&ManifestPath) -> bool) -> Self {
        Self {
            agent,
            owned,
            unreadable: Cell::new(false),
        }
    }

    /// The disk did not let one of them be read, which is no fault of the op that names it.
    pub(super) fn was_unreadable(&self) -> bool {
        self.unreadable.get()
    }
}

impl Content for Managed<'_> {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String> {
        let path = ManifestPath::parse(path).map_err(|error| error.to_string())?;
        if !(self.owned)(&path) {
            return Err(format!("{path} is not among the files of the set"));
        }
        match self.agent.store.fs().open(path.as_str()) {
            Ok(file) => Ok(Box::new(Noting {
                file,
                unreadable: &self.unreadable,
            })),
            Err(error) => {
                self.unreadable.set(true);
                Err(format!("{path} cannot be read: {error}"))
            }
        }
    }
}

/// A managed file that tells when it cannot be read.
struct Noting<'a> {
    file: Box<dyn Read + Send>,
    unreadable: &'a Cell<bool>,
}

impl Read for Noting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file
            .read(buffer)
            .inspect_err(|_| self.unreadable.set(true))
    }
}
