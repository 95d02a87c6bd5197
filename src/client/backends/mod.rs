//! Backends as records: servers and backends that can change without a reload.
//!
//! The text of a configuration is never read for its meaning, so a change in it is never
//! guessed to be a server more or less. Who wants servers in and out at runtime declares
//! them in `backends.json` beside the configuration, and puts the line
//!
//! ```text
//! # haptic: backends
//! ```
//!
//! where their text shall stand: a line of its own, outside of `.if`. Text and runtime
//! ops are made from the same records, so one cannot say what the other does not. The
//! file itself is never sent.
//!
//! ```json
//! {
//!   "version": 1,
//!   "profiles": {
//!     "web": {"mode": "http", "balance": "leastconn", "default_server": ["check", "inter 2s"]}
//!   },
//!   "backends": {
//!     "shop": {
//!       "profile": "web",
//!       "servers": [
//!         {"name": "s1", "address": "10.0.0.1", "port": 8080},
//!         {"name": "s2", "address": "10.0.0.2", "port": 8080, "weight": 50, "keywords": ["maxconn 100"]},
//!         {"name": "spare"}
//!       ]
//!     }
//!   }
//! }
//! ```
//!
//! | key of a profile | |
//! |---|---|
//! | the name | of a `defaults` section that the configuration has; `backend … from NAME` is written |
//! | `mode` | `http` or `tcp`, for backends that do not say it |
//! | `balance`, `hash_type` | what that section says, repeated here because nobody reads it there; not written |
//! | `default_server` | server keywords for each server, written on its line: HAProxy gives a server that is added at runtime nothing of a `default-server` line. `[]` says that there is none |
//!
//! | key of a backend | |
//! |---|---|
//! | `profile` | one of `profiles`; required |
//! | `mode` | `http` or `tcp` |
//! | `guid` | written if given |
//! | `balance`, `hash_type` | written if given; such a backend is added by a reload |
//! | `lines` | more lines of the backend, as they are; such a backend is added by a reload |
//! | `servers` | in this order |
//!
//! | key of a server | |
//! |---|---|
//! | `name` | required |
//! | `address`, `port` | an address literal with a port, or `/path` or `unix@/path` without; another address (a host name) is written and changes by reload. Without an address it is a spare slot: in maintenance, at 192.0.2.1, which leads nowhere |
//! | `weight` | 0 to 256; 1 if absent |
//! | `state` | `ready` or `maint`. There is no `drain`: a configuration cannot say it; `"weight": 0` is what survives a reload |
//! | `keywords` | one keyword with its arguments each; one of the same name in `default_server` gives way, and `no-NAME` removes it |
//!
//! An unknown key is refused with the list of known ones.

mod json;
mod keywords;
pub(crate) mod ops;
mod record;
mod schema;
mod words;

pub use record::{Address, Backend, Records, Server, ServerState};

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

/// The name of the records' file, in the configuration's directory.
pub const BACKENDS_FILE: &str = "backends.json";

/// The line of a configuration that the records' text replaces. Blanks around it do not
/// matter.
pub const PLACEHOLDER: &str = "# haptic: backends";

/// Where spare slots point: a network for documentation, which is routed nowhere. A slot
/// that is switched on by mistake times out, where 127.0.0.1 could be HAProxy itself.
pub const SENTINEL: &str = "192.0.2.1";

/// The slots' port.
pub const SENTINEL_PORT: u16 = 1;

const BEGIN: &str = "# haptic: backends begin, generated from backends.json";
const END: &str = "# haptic: backends end";

/// A configuration with a placeholder, and the records that stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Before the placeholder.
    head: Vec<u8>,
    /// After it.
    tail: Vec<u8>,
    records: Records,
}

impl Declared {
    /// `None` where there is neither placeholder nor file. `name` and `config` are the
    /// files' paths, for messages.
    pub(crate) fn read(
        name: &str,
        source: Option<&[u8]>,
        config: &str,
        template: &[u8],
    ) -> Result<Option<Self>, DeclaredError> {
        let error = |words: String| DeclaredError {
            words,
            source: None,
        };
        let mut places = Vec::new();
        let mut from = 0;
        for (line, number) in template.split_inclusive(|&b| b == b'\n').zip(1..) {
            let end = from + line.len();
            match std::str::from_utf8(line).map(str::trim) {
                Ok(PLACEHOLDER) => places.push((number, from, end)),
                Ok(BEGIN | END) => {
                    return Err(error(format!(
                        "{config} line {number}: this is generated text; keep the line `{PLACEHOLDER}` in its place, and {name} as the source"
                    )));
                }
                Ok(_) | Err(_) => {}
            }
            from = end;
        }
        let (source, (_, start, end)) = match (source, places.as_slice()) {
            (None, []) => return Ok(None),
            (Some(source), [place]) => (source, *place),
            (None, [(number, ..), ..]) => {
                return Err(error(format!(
                    "{config} line {number} is the place of declared backends and there is no {name}; write it, or remove the line"
                )));
            }
            (Some(_), []) => {
                return Err(error(format!(
                    "{name} declares backends and {config} has no place for them; put the line `{PLACEHOLDER}` where they shall stand"
                )));
            }
            (Some(_), [_, (second, ..), ..]) => {
                return Err(error(format!(
                    "{config} line {second}: the line `{PLACEHOLDER}` may be there once"
                )));
            }
        };
        let records = schema::read(name, source)?;
        let part = |range: std::ops::Range<usize>| template.get(range).unwrap_or_default().to_vec();
        Ok(Some(Self {
            head: part(0..start),
            tail: part(end..template.len()),
            records,
        }))
    }

    /// The configuration with the records' text in place of the placeholder.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        self.text_of(&self.records)
    }

    /// The same configuration with other records.
    pub(crate) fn text_of(&self, records: &Records) -> Vec<u8> {
        let mut text = self.head.clone();
        text.extend_from_slice(format!("{BEGIN}\n{records}{END}\n").as_bytes());
        text.extend_from_slice(&self.tail);
        text
    }

    /// What stands outside of the generated text.
    pub(crate) fn skeleton(&self) -> [&[u8]; 2] {
        [&self.head, &self.tail]
    }

    /// Profiles that no `defaults` line of the configuration names, each once.
    pub(crate) fn missing_profiles(&self) -> BTreeSet<&str> {
        let named: BTreeSet<&[u8]> = words::directives(self.skeleton())
            .filter(|(word, _)| *word == b"defaults")
            .filter_map(|(_, rest)| rest.split(u8::is_ascii_whitespace).next())
            .collect();
        let wanted = self
            .records
            .0
            .values()
            .map(|backend| backend.profile.as_str());
        wanted
            .filter(|profile| !named.contains(profile.as_bytes()))
            .collect()
    }

    /// The declared backends, profiles folded in.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.records
    }
}

/// What is wrong with the records or the placeholder. `Display` names the file, the place
/// in it and the rule.
#[derive(Debug)]
pub struct DeclaredError {
    words: String,
    source: Option<serde_json::Error>,
}

impl fmt::Display for DeclaredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Error for DeclaredError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests;
