//! From the text of one value to its type.
//!
//! Each function here takes what was typed and answers with a value that obeys the
//! rule, or with what was expected instead. They look at nothing but the text: no
//! file, no name service, no clock.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::http::addr::ListenAddr;
use crate::responder::kv::{Weights, WhenMissing};
use crate::responder::limits::MOST_KV_KEYS;
use crate::store::lock::LOCK_FILE;
use crate::store::mounts::{LKG_DIR, TMP_DIR};
use crate::store::transfer::COPY_NAME;
use crate::wire::limits::{MAX_RELOAD_INTERVAL_MS, MAX_RELOAD_MS};
use crate::wire::path::ManifestPath;

/// The longest path that fits a unix socket address together with its closing NUL.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The longest state file name: with the suffix of its temporary it stays a name
/// that every filesystem takes.
pub const MAX_STATE_FILE_BYTES: usize = 200;

/// A session that lasts longer than an hour is not waited for: the next reload lets it end.
const MAX_DELETE_GRACE: Duration = Duration::from_secs(3600);

/// A store that is away for longer than that is no matter of starting up any more.
const MAX_SYNC_DEADLINE: Duration = Duration::from_secs(3600);

/// Whoever waits longer for an agent looks at it first.
const MAX_PATIENCE: Duration = Duration::from_secs(3600);

/// The least reload timeout: a refusal of a large configuration needs part of it.
const MIN_RELOAD_TIMEOUT: Duration = Duration::from_secs(1);

/// How the other files start that the agent keeps in the base directory: the plan, its
/// lock, what is received, backups, copies.
const TAKEN_NAMES: [&str; 5] = [
    ".haptic-agent-plan.bin",
    LOCK_FILE,
    TMP_DIR,
    LKG_DIR,
    COPY_NAME,
];

/// How far the agent goes to keep what it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Everything is synced: survives a power cut.
    Full,
    /// Nothing is synced: survives a killed agent, not a lost machine.
    Process,
}

/// How a log record looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// One line for people.
    Text,
}

/// Permission bits of a file: at most 0777, readable by its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u32);

impl FileMode {
    /// The bits, as `chmod` takes them.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// What a value should have been: the rest of the sentence "expected …".
pub type Expected = String;

/// A directory or socket path: any bytes, but some.
pub(super) fn path(text: &OsStr) -> Result<PathBuf, Expected> {
    if text.is_empty() {
        return Err("a path".into());
    }
    Ok(PathBuf::from(text))
}

/// Text for a parser that wants UTF-8.
pub(super) fn utf8(text: &OsStr) -> Result<&str, Expected> {
    text.to_str().ok_or_else(|| "text in UTF-8".into())
}

/// The main configuration file: a manifest path.
pub(super) fn manifest_path(text: &OsStr) -> Result<ManifestPath, Expected> {
    ManifestPath::parse(utf8(text)?)
        .map_err(|why| format!("a path below the base directory, like haproxy.cfg: {why}"))
}

/// The state file: one component, hidden, and not a name that is taken.
pub(super) fn state_file(text: &OsStr) -> Result<String, Expected> {
    let text = utf8(text)?;
    let hidden = text.len() > 1 && text.starts_with('.') && !text.starts_with("..");
    if !hidden || text.contains('/') || text.chars().any(char::is_control) {
        return Err(
            "a file name that starts with one dot and has no slash, like .haptic-agent.json".into(),
        );
    }
    if text.len() > MAX_STATE_FILE_BYTES {
        return Err(format!("at most {MAX_STATE_FILE_BYTES} bytes"));
    }
    if TAKEN_NAMES.iter().any(|taken| text.starts_with(taken)) {
        return Err("a name that the agent does not use for something else".into());
    }
    Ok(text.into())
}

/// The shortest time between two reloads.
pub(super) fn reload_interval(text: &OsStr) -> Result<Duration, Expected> {
    let most = Duration::from_millis(MAX_RELOAD_INTERVAL_MS);
    within(text, Duration::ZERO, most)
        .ok_or_else(|| "a time from 0 to 60s, like 500ms, 5s or 1m".into())
}

/// The deadline of one reload.
pub(super) fn reload_timeout(text: &OsStr) -> Result<Duration, Expected> {
    let most = Duration::from_millis(MAX_RELOAD_MS);
    within(text, MIN_RELOAD_TIMEOUT, most)
        .ok_or_else(|| "a time from 1s to 60s, like 30s or 1m".into())
}

/// How long sessions may end by themselves.
pub(super) fn delete_grace(text: &OsStr) -> Result<Duration, Expected> {
    within(text, Duration::ZERO, MAX_DELETE_GRACE)
        .ok_or_else(|| "a time from 0 to 1h, like 30s or 5m".into())
}

/// How long a person waits for something.
pub(super) fn patience(text: &OsStr) -> Result<Duration, Expected> {
    within(text, Duration::ZERO, MAX_PATIENCE)
        .ok_or_else(|| "a time from 0 to 1h, like 30s or 5m".into())
}

/// `yes` or `no`.
pub(super) fn yes_or_no(text: &OsStr) -> Result<bool, Expected> {
    match text.to_str() {
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        Some(_) | None => Err("yes or no".into()),
    }
}

fn within(text: &OsStr, least: Duration, most: Duration) -> Option<Duration> {
    duration(text.to_str()?).filter(|time| (least..=most).contains(time))
}

/// `0`, or numbers each with a unit of `ms`, `s`, `m` or `h`: `1m30s`.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let millis: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(millis)?)?;
        rest = tail;
    }
    Some(Duration::from_millis(total))
}

/// Permission bits in octal.
pub(super) fn file_mode(text: &OsStr) -> Result<FileMode, Expected> {
    let bits = text.to_str().and_then(|text| {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let octal = !digits.is_empty() && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
        if octal {
            u32::from_str_radix(digits, 8).ok()
        } else {
            None
        }
    });
    match bits {
        Some(bits) if bits <= 0o777 && bits & 0o400 != 0 => Ok(FileMode(bits)),
        Some(_) | None => {
            Err("octal permission bits up to 0777 that let the owner read, like 0640".into())
        }
    }
}

/// `full` or `process`.
pub(super) fn durability(text: &OsStr) -> Result<Durability, Expected> {
    match text.to_str() {
        Some("full") => Ok(Durability::Full),
        Some("process") => Ok(Durability::Process),
        Some(_) | None => Err("full or process".into()),
    }
}

/// `json` or `text`.
pub(super) fn log_format(text: &OsStr) -> Result<LogFormat, Expected> {
    match text.to_str() {
        Some("json") => Ok(LogFormat::Json),
        Some("text") => Ok(LogFormat::Text),
        Some(_) | None => Err("json or text".into()),
    }
}

/// A level name in either case.
pub(super) fn log_level(text: &str) -> Result<log::LevelFilter, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "error" => Ok(log::LevelFilter::Error),
        "warn" => Ok(log::LevelFilter::Warn),
        "info" => Ok(log::LevelFilter::Info),
        "debug" => Ok(log::LevelFilter::Debug),
        "trace" => Ok(log::LevelFilter::Trace),
        _ => Err("error, warn, info, debug or trace".into()),
    }
}

/// A listen address, kept as text; the listener takes it apart again.
pub(super) fn listen(text: &OsStr) -> Result<String, Expected> {
    let text = utf8(text)?;
    match text.parse::<ListenAddr>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("an address like :5555, 127.0.0.1:5555 or [::1]:5555".into()),
    }
}

/// A listen address, or `off` (an empty word means the same).
pub(super) fn listen_or_off(text: &OsStr) -> Result<Option<String>, Expected> {
    if text.is_empty() || text == "off" {
        return Ok(None);
    }
    let address = listen(text).map_err(|expected| format!("{expected}, or off"))?;
    Ok(Some(address))
}

/// What a directory of keys that does not exist means.
pub(super) fn when_missing(text: &OsStr) -> Result<WhenMissing, Expected> {
    match text.to_str() {
        Some("refuse") => Ok(WhenMissing::Refuse),
        Some("make") => Ok(WhenMissing::Make),
        _ => Err("refuse or make".into()),
    }
}

/// How many keys a store may have.
pub(super) fn max_keys(text: &OsStr) -> Result<usize, Expected> {
    let digits = utf8(text)?;
    let number = digits
        .parse()
        .ok()
        .filter(|n| (1..=MOST_KV_KEYS).contains(n));
    number
        .filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| format!("a number from 1 to {MOST_KV_KEYS}"))
}

/// `set` or `keep`: whether answers carry weights.
pub(super) fn weights(text: &OsStr) -> Result<Weights, Expected> {
    match text.to_str() {
        Some("set") => Ok(Weights::Set),
        Some("keep") => Ok(Weights::Keep),
        Some(_) | None => Err("set or keep".into()),
    }
}

/// How long the first read of the store may take; 0 is no limit.
pub(super) fn sync_deadline(text: &OsStr) -> Result<Option<Duration>, Expected> {
    match within(text, Duration::ZERO, MAX_SYNC_DEADLINE) {
        Some(Duration::ZERO) => Ok(None),
        Some(time) => Ok(Some(time)),
        None => Err("a time from 0 to 1h, like 15s or 1m".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn durations_in_every_unit() {
        let table = [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("500ms", Some(500)),
            ("5s", Some(5000)),
            ("1m", Some(60_000)),
            ("1m30s", Some(90_000)),
            ("1m0s", Some(60_000)),
            ("1h", Some(3_600_000)),
            ("", None),
            ("5", None),
            ("s", None),
            ("5 s", None),
            ("-5s", None),
            ("+5s", None),
            ("1.5s", None),
            ("5S", None),
            ("5sec", None),
            ("5s5", None),
            ("99999999999999999999s", None),
            ("9999999999999999999h", None),
        ];
        for (text, want) in table {
            assert_eq!(duration(text), want.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn reload_times_have_ends() {
        assert!(reload_interval(os("0")).is_ok());
        assert!(reload_interval(os("60s")).is_ok());
        assert!(reload_interval(os("60001ms")).is_err());
        assert!(reload_timeout(os("1s")).is_ok());
        assert!(reload_timeout(os("1m")).is_ok());
        assert!(reload_timeout(os("999ms")).is_err());
        assert!(reload_timeout(os("61s")).is_err());
        assert!(reload_timeout(os("0")).is_err());
    }

    #[test]
    fn modes_are_octal_and_readable() {
        let table = [
            ("0644", Some(0o644)),
            ("640", Some(0o640)),
            ("0o600", Some(0o600)),
            ("0777", Some(0o777)),
            ("0400", Some(0o400)),
            ("0200", None),
            ("4755", None),
            ("0888", None),
            ("", None),
            ("0o", None),
            ("+644", None),
            ("rw-r--r--", None),
            ("77777777777777", None),
        ];
        for (text, want) in table {
            assert_eq!(
                file_mode(os(text)).ok().map(FileMode::bits),
                want,
                "{text:?}"
            );
        }
    }

    #[test]
    fn addresses_are_numeric() {
        for good in [
            ":5555",
            ":0",
            "127.0.0.1:1",
            "0.0.0.0:65535",
            "[::1]:80",
            "[::]:0",
        ] {
            assert_eq!(listen(os(good)).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "5555",
            ":",
            ":65536",
            ":-1",
            ":+1",
            "localhost:80",
            "::1:80",
            "[::1]",
            "[]:1",
            "[127.0.0.1]:1",
            "[::1:1",
            "::1]:1",
            "127.0.0.1:http",
            "1.2.3:4",
            "127.0.0.1:1 ",
        ] {
            assert!(listen(os(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_state_file_is_hidden_from_manifests() {
        assert_eq!(state_file(os(".a")).as_deref(), Ok(".a"));
        let long = format!(".{}", "x".repeat(MAX_STATE_FILE_BYTES));
        for bad in [
            "",
            ".",
            "..",
            "..a",
            "a",
            "a/.b",
            ".a/b",
            "/.a",
            ".a\n",
            ".haptic-lkg",
            ".haptic-tmp",
            ".haptic-agent-plan.bin",
            ".haptic-agent.lock",
            ".haptic-copy-1",
            &long,
        ] {
            assert!(state_file(os(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn words_are_exact() {
        assert_eq!(durability(os("process")), Ok(Durability::Process));
        assert!(durability(os("Full")).is_err());
        assert_eq!(log_format(os("text")), Ok(LogFormat::Text));
        assert!(log_format(os("")).is_err());
        assert_eq!(log_level("WARN"), Ok(log::LevelFilter::Warn));
        assert!(log_level("off").is_err());
        assert!(manifest_path(os("/etc/haproxy/haproxy.cfg")).is_err());
        assert!(path(os("")).is_err());
    }
}
