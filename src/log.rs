//! Log records: one line each on standard output, whatever they say.
//!
//! A record is a message and fields. The message is constant text that an operator
//! can search for; what varies stands in fields. As JSON:
//! `{"time":…,"level":…,"msg":…,field:…}`, as text: `time LEVEL msg field=value`.
//! Control characters, line separators included, are escaped in both, so nothing that
//! a peer or HAProxy says can start a line or drive a terminal. Colours are not used.
//! `target`, the module that speaks, is a field of debug and trace records only:
//! above that the message is what to look for.
//!
//! What a peer can provoke passes a [`RateLimit`] first, and a reader that hangs holds
//! nobody up: a record waits [`PATIENCE`] at most.

mod patient;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::kv::{self, Key, Value, VisitSource, VisitValue};
use log::{Level, LevelFilter, Record};

pub use patient::{PATIENCE, lost};

use patient::Patient;

use crate::cli::LogFormat;
use crate::clock::{self, UnixNanos};

/// The longest message or field, in bytes before escaping. HAProxy's words about a
/// large configuration can be longer; the answer to the controller has them whole.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// The shortest time between two records of one [`RateLimit`] key.
pub const RATE_LIMIT_INTERVAL: Duration = Duration::from_secs(1);

/// Keys of one [`RateLimit`]; further ones share a key.
const MAX_RATE_LIMIT_KEYS: usize = 64;

/// Field names that the record itself uses.
const RESERVED: [&str; 4] = ["time", "level", "msg", "target"];

static SUPPRESSED: AtomicU64 = AtomicU64::new(0);

/// Makes this the process's logger. A second call changes nothing.
pub fn init(format: LogFormat, level: LevelFilter) {
    let clock = clock::system();
    let confess = match format {
        LogFormat::Json => |count| confession(LogFormat::Json, count),
        LogFormat::Text => |count| confession(LogFormat::Text, count),
    };
    let out = Patient::new(std::io::stdout(), confess);
    let started = env_logger::Builder::new()
        .filter_level(level)
        .target(env_logger::Target::Pipe(Box::new(out)))
        .format(move |out, record| out.write_all(line(format, clock.wall(), record).as_bytes()))
        .try_init();
    // An Err means that a logger is there already, which only tests see.
    drop(started);
}

/// What is written in the place of records that nobody took.
fn confession(format: LogFormat, count: u64) -> String {
    let fields = [("records", Value::from(count))];
    let record = Record::builder()
        .level(Level::Warn)
        .args(format_args!(
            "log records were lost because nobody read them"
        ))
        .key_values(&fields)
        .build();
    line(format, clock::system().wall(), &record)
}

/// Records that rate limits have held back since the process started.
#[must_use]
pub fn suppressed() -> u64 {
    SUPPRESSED.load(Relaxed)
}

/// Lets one record a second through for each key and counts the others.
///
/// ```
/// use std::time::Instant;
/// static LIMIT: haptic_agent::log::RateLimit = haptic_agent::log::RateLimit::new();
/// assert_eq!(LIMIT.pass("bad head", Instant::now()), Some(0));
/// ```
#[derive(Debug)]
pub struct RateLimit {
    keys: Mutex<BTreeMap<&'static str, Window>>,
}

#[derive(Debug)]
struct Window {
    last: Instant,
    held_back: u64,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new()
    }
}

impl RateLimit {
    /// A limit that has seen nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            keys: Mutex::new(BTreeMap::new()),
        }
    }

    /// `Some` if a record for `key` may be written now, with the number of those held
    /// back since the one before it. The count of a flood that has ended comes with
    /// the next record, and is in [`suppressed`] at once.
    pub fn pass(&self, key: &'static str, now: Instant) -> Option<u64> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let full = keys.len() >= MAX_RATE_LIMIT_KEYS;
        let key = if full && !keys.contains_key(key) {
            ""
        } else {
            key
        };
        match keys.get_mut(key) {
            None => {
                keys.insert(
                    key,
                    Window {
                        last: now,
                        held_back: 0,
                    },
                );
                Some(0)
            }
            Some(window) if now.saturating_duration_since(window.last) >= RATE_LIMIT_INTERVAL => {
                window.last = now;
                Some(std::mem::take(&mut window.held_back))
            }
            Some(window) => {
                window.held_back += 1;
                SUPPRESSED.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

/// One record as one line, its line break included.
fn line(format: LogFormat, time: UnixNanos, record: &Record<'_>) -> String {
    let mut line = String::with_capacity(256);
    let time = time.rfc3339();
    let level = record.level();
    let target = (level >= Level::Debug).then(|| record.target());
    let msg = record.args().to_string();
    match format {
        LogFormat::Json => {
            let level = match level {
                Level::Error => "error",
                Level::Warn => "warn",
                Level::Info => "info",
                Level::Debug => "debug",
                Level::Trace => "trace",
            };
            let _ = write!(line, "{{\"time\":\"{time}\",\"level\":\"{level}\",\"msg\":");
            json_text(&mut line, &msg);
            if let Some(target) = target {
                line.push_str(",\"target\":");
                json_text(&mut line, target);
            }
        }
        LogFormat::Text => {
            let _ = write!(line, "{time} {level:<5} ");
            plain_text(&mut line, &msg);
            if let Some(target) = target {
                line.push_str(" target=");
                plain_text(&mut line, target);
            }
        }
    }
    let mut fields = Fields { format, line };
    // Our visitor never fails, and a failing field must not cost the record.
    let _ = record.key_values().visit(&mut fields);
    let mut line = fields.line;
    line.push_str(match format {
        LogFormat::Json => "}\n",
        LogFormat::Text => "\n",
    });
    line
}

/// Appends fields to a line.
struct Fields {
    format: LogFormat,
    line: String,
}

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let mut name = key.as_str().to_owned();
        if RESERVED.contains(&name.as_str()) {
            name.push('_');
        }
        match self.format {
            LogFormat::Json => {
                self.line.push(',');
                json_text(&mut self.line, &name);
                self.line.push(':');
            }
            LogFormat::Text => {
                self.line.push(' ');
                plain_text(&mut self.line, &name);
                self.line.push('=');
            }
        }
        value.visit(Scalar(self))
    }
}

/// Appends one field's value.
struct Scalar<'a>(&'a mut Fields);

impl Scalar<'_> {
    fn bare(self, value: impl std::fmt::Display) -> Result<(), kv::Error> {
        let _ = write!(self.0.line, "{value}");
        Ok(())
    }

    fn text(self, value: &str) -> Result<(), kv::Error> {
        let line = &mut self.0.line;
        match self.0.format {
            LogFormat::Json => json_text(line, value),
            LogFormat::Text if plain(value) => line.push_str(value),
            LogFormat::Text => json_text(line, value),
        }
        Ok(())
    }
}

impl<'v> VisitValue<'v> for Scalar<'_> {
    fn visit_any(&mut self, value: Value<'_>) -> Result<(), kv::Error> {
        Scalar(self.0).text(&value.to_string())
    }

    fn visit_null(&mut self) -> Result<(), kv::Error> {
        Scalar(self.0).bare("null")
    }

    fn visit_u64(&mut self, value: u64) -> Result<(), kv::Error> {
        Scalar(self.0).bare(value)
    }

    fn visit_i64(&mut self, value: i64) -> Result<(), kv::Error> {
        Scalar(self.0).bare(value)
    }

    fn visit_f64(&mut self, value: f64) -> Result<(), kv::Error> {
        // JSON has no number for the others.
        if value.is_finite() {
            Scalar(self.0).bare(value)
        } else {
            Scalar(self.0).text(&value.to_string())
        }
    }

    fn visit_bool(&mut self, value: bool) -> Result<(), kv::Error> {
        Scalar(self.0).bare(value)
    }

    fn visit_str(&mut self, value: &str) -> Result<(), kv::Error> {
        Scalar(self.0).text(value)
    }

    fn visit_borrowed_str(&mut self, value: &'v str) -> Result<(), kv::Error> {
        Scalar(self.0).text(value)
    }
}

/// Whether a text field needs no quotes to be told apart from its neighbours.
fn plain(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_TEXT_BYTES
        && !text
            .chars()
            .any(|c| c.is_whitespace() || c == '"' || c == '=' || hidden(c))
}

/// What would start a line, drive a terminal, or reorder what is shown.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{feff}'
        )
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

/// Appends a JSON string, in ASCII escapes where a character is hidden.
fn json_text(line: &mut String, text: &str) {
    line.push('"');
    escape(line, text, |c| matches!(c, '"' | '\\'));
    line.push('"');
}

/// Appends text without quotes, on one line.
fn plain_text(line: &mut String, text: &str) {
    escape(line, text, |c| c == '\\');
}

fn escape(line: &mut String, text: &str, guarded: fn(char) -> bool) {
    let (text, cut) = bounded(text);
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\t' => line.push_str("\\t"),
            '\r' => line.push_str("\\r"),
            c if guarded(c) => {
                line.push('\\');
                line.push(c);
            }
            // Every hidden character is below U+10000, so one unit of UTF-16 is enough.
            c if hidden(c) => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    if cut > 0 {
        let _ = write!(line, " [{cut} more bytes]");
    }
}

/// The text up to [`MAX_TEXT_BYTES`], and how many bytes are left out.
fn bounded(text: &str) -> (&str, usize) {
    if text.len() <= MAX_TEXT_BYTES {
        return (text, 0);
    }
    let mut end = MAX_TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (head, tail) = text.split_at(end);
    (head, tail.len())
}

#[cfg(test)]
mod tests;
