//! Who says whether HAProxy would accept a set.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::wire::path::ManifestPath;

use super::apply::contents;
use super::pod::Content;

type Verdict = dyn Fn(&BTreeMap<String, Arc<[u8]>>) -> Result<(), String> + Send + Sync;

/// A function of the files, or nobody: then every set is good.
#[derive(Clone, Default)]
pub(super) struct Judge(Option<Arc<Verdict>>);

impl Judge {
    pub(super) fn new(
        verdict: impl Fn(&BTreeMap<String, Arc<[u8]>>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(verdict)))
    }

    /// The words of a refusal, if it is one.
    pub(super) fn ask(&self, disk: &BTreeMap<ManifestPath, Content>) -> Result<(), String> {
        match &self.0 {
            Some(verdict) => verdict(&contents(disk)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "Judge(given)",
            None => "Judge(none)",
        })
    }
}
