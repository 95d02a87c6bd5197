//! Which worker it is: pid and start time, from `show info float`.
//!
//! A pid alone can come again; with the start time in microseconds it does not. A
//! reply that lacks one of the fields is no reply: nothing is guessed.

use crate::format::HaproxyVersion;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;

/// One worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Process id as HAProxy's own pid namespace has it.
    pub pid: u32,
    /// Start time, microseconds since the Unix epoch.
    pub start_micros: u64,
}

impl Identity {
    /// Whether it started before `other`. For some milliseconds after a reload the
    /// former worker still takes connections: an older worker is no newcomer.
    #[must_use]
    pub fn is_older_than(self, other: Self) -> bool {
        self.start_micros < other.start_micros
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} started at {} us", self.pid, self.start_micros)
    }
}

/// What one worker said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Who answered.
    pub identity: Identity,
    /// Its version.
    pub version: HaproxyVersion,
    /// It has been told to leave: what is changed there is lost.
    pub stopping: bool,
}

impl WorkerInfo {
    /// Reads the reply to `show info float`, framing removed or not.
    ///
    /// # Errors
    ///
    /// [`InfoError`] unless it starts with `Name: HAProxy` and holds each of `Version`,
    /// `Pid`, `Start_time_sec` and `Stopping` exactly once, in whole lines.
    pub fn parse(reply: &[u8]) -> Result<Self, InfoError> {
        // Descriptions and names are the operator's, in any encoding.
        let text = &*String::from_utf8_lossy(reply);
        if !text.starts_with("Name: HAProxy\n") {
            return Err(InfoError::NotInfo);
        }
        let [version, pid, start, stopping] = fields(text)?;
        let bad = |name, value: &str| InfoError::Value {
            name,
            value: value.chars().take(80).collect(),
        };
        Ok(Self {
            identity: Identity {
                pid: number(pid).ok_or_else(|| bad("Pid", pid))?,
                start_micros: micros(start).ok_or_else(|| bad("Start_time_sec", start))?,
            },
            version: version.parse().map_err(|_| bad("Version", version))?,
            stopping: match stopping {
                "0" => false,
                "1" => true,
                _ => return Err(bad("Stopping", stopping)),
            },
        })
    }
}

/// What a worker is told by.
const FIELDS: [&str; 4] = ["Version", "Pid", "Start_time_sec", "Stopping"];

/// The value of the only line `name: value` that ends in LF, for each of [`FIELDS`].
fn fields(text: &str) -> Result<[&str; FIELDS.len()], InfoError> {
    let mut values = [None; FIELDS.len()];
    let lines = text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n')?.split_once(": "));
    for (name, value) in lines {
        let Some(at) = FIELDS.iter().position(|field| *field == name) else {
            continue;
        };
        // The positions are those of the names.
        if values[at].replace(value).is_some() {
            return Err(InfoError::Field { name: FIELDS[at] });
        }
    }
    let mut all = [""; FIELDS.len()];
    for ((all, value), name) in all.iter_mut().zip(values).zip(FIELDS) {
        *all = value.ok_or(InfoError::Field { name })?;
    }
    Ok(all)
}

/// Plain digits only: `parse` alone would take a plus sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

/// Seconds with up to six decimals, trailing zeros cut, as microseconds.
fn micros(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.len() > 6 {
        return None;
    }
    let fraction: u64 = number(&format!("{fraction:0<6}"))?;
    number::<u64>(seconds)?
        .checked_mul(1_000_000)?
        .checked_add(fraction)
}

/// Why a reply does not say which worker it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InfoError {
    /// It does not start as `show info` does.
    NotInfo,
    /// A field is missing, cut, or there twice.
    Field {
        /// Which.
        name: &'static str,
    },
    /// A field holds something else than it must.
    Value {
        /// Which.
        name: &'static str,
        /// What it holds, shortened.
        value: String,
    },
}

impl fmt::Display for InfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInfo => {
                f.write_str("the answer to show info does not start with Name: HAProxy")
            }
            Self::Field { name } => write!(
                f,
                "the answer to show info has no single, whole line {name}"
            ),
            Self::Value { name, value } => {
                write!(
                    f,
                    "the answer to show info has {name}: {value:?}, which means nothing"
                )
            }
        }
    }
}

impl Error for InfoError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(version: &str, pid: &str, start: &str, stopping: &str) -> String {
        format!(
            "Name: HAProxy\nVersion: {version}\nRelease_date: 2026/10/14\nPid: {pid}\nStart_time_sec: {start}\nStopping: {stopping}\nNode: x\n\n"
        )
    }

    #[test]
    fn pid_and_start_time_are_read_to_the_microsecond() {
        let table = [
            ("1795975120.778826", 1_795_975_120_778_826),
            ("1795975120.7", 1_795_975_120_700_000),
            ("1795975120.000001", 1_795_975_120_000_001),
            ("1795975120", 1_795_975_120_000_000),
        ];
        for (start, start_micros) in table {
            let info = WorkerInfo::parse(reply("3.4.7-1", "17347", start, "0").as_bytes()).unwrap();
            assert_eq!(
                info.identity,
                Identity {
                    pid: 17347,
                    start_micros
                }
            );
            assert_eq!(info.version.full(), "3.4.7-1");
            assert!(!info.stopping);
        }
        let old = WorkerInfo::parse(reply("3.0.11", "1", "1.5", "1").as_bytes()).unwrap();
        assert!(old.stopping);
    }

    #[test]
    fn a_cut_reply_is_never_a_worker() {
        let whole = reply("3.4.7-1", "17347", "1795975120.778826", "0");
        let needed = whole.find("Node").unwrap();
        for cut in 0..needed {
            let part = whole.get(..cut).unwrap();
            assert!(WorkerInfo::parse(part.as_bytes()).is_err(), "{part:?}");
        }
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        for (version, pid, start, stopping) in [
            ("x", "1", "1.0", "0"),
            ("3.4.7", "-1", "1.0", "0"),
            ("3.4.7", "+1", "1.0", "0"),
            ("3.4.7", "", "1.0", "0"),
            ("3.4.7", "4294967296", "1.0", "0"),
            ("3.4.7", "1", "1.0000001", "0"),
            ("3.4.7", "1", "1.", "0x"),
            ("3.4.7", "1", "99999999999999999999", "0"),
            ("3.4.7", "1", "1.0", "2"),
            ("3.4.7", "1\nPid: 2", "1.0", "0"),
        ] {
            let text = reply(version, pid, start, stopping);
            assert!(WorkerInfo::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(WorkerInfo::parse(b"Name: HAProxy\xff\n").is_err());
        assert!(WorkerInfo::parse(b"").is_err());
    }
}
