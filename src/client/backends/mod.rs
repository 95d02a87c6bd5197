//! Backends as records: servers and backends that can change without a reload.
//!
//! The text of a configuration is never read for its meaning, so what changes in it is
//! never guessed. Who wants servers in and out at runtime declares them in
//! `backends.json` beside the configuration, and puts the placeholder line where their
//! text shall stand.

use std::error::Error;
use std::fmt;

/// The name of the records' file, in the configuration's directory.
pub const BACKENDS_FILE: &str = "backends.json";

/// A configuration with a placeholder, and the records that stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    template: Vec<u8>,
}

impl Declared {
    pub(crate) fn read(
        _name: &str,
        _source: Option<&[u8]>,
        _config: &str,
        _template: &[u8],
    ) -> Result<Option<Self>, DeclaredError> {
        Ok(None)
    }

    /// The configuration with the records' text in place of the placeholder.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        self.template.clone()
    }
}

/// What is wrong with the records or the placeholder.
#[derive(Debug)]
pub struct DeclaredError {
    words: String,
}

impl fmt::Display for DeclaredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Error for DeclaredError {}
