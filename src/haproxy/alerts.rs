//! HAProxy's start-up log: the words worth repeating, and whether they are about the
//! files.
//!
//! HAProxy judges, this only reads: the verdict itself is `Success=`, never a word in
//! the log. Paths and positions stay as HAProxy printed them; process ids are taken
//! out, so that the same fault reads the same each time.

use std::fmt;

/// What a refusal repeats of the log at most.
pub const MAX_WORDS_BYTES: usize = 4096;

/// Faults of the machine and the moment, in lower case: the same files may load later,
/// so they must not be remembered as bad. The words of 3.0 to 3.4; a file or name that is
/// not found counts, because it may be one that is not of the set, and so does whatever
/// ends a Lua script that ran, because it may have asked for anything.
const SURROUNDINGS: [&str; 38] = [
    "cannot bind",
    "protocols failed to start",
    "already in use",
    "out of memory",
    "cannot allocate",
    "not enough memory",
    "too many open files",
    "no space left",
    "permission denied",
    "cannot fork",
    "could not resolve",
    "invalid address",
    "cannot find user id",
    "cannot find group id",
    "no such file",
    "is a directory",
    "unable to stat",
    "stat() failed",
    "cannot open",
    "could not open",
    "couldn't open",
    "unable to open",
    "failed to open",
    "error opening",
    "error encountered while reading",
    "cannot be read",
    "unable to load dh parameters",
    "no ssl certificate specified",
    "unable to load ssl tickets keys file",
    "no private key found in",
    "error reading file",
    "cannot create the file",
    "not a directory",
    "bad file descriptor",
    "unknown user name",
    "unknown group name",
    "unknown provider",
    "lua runtime error",
];

/// The start-up log of one reload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadLog {
    text: String,
    truncated: bool,
}

impl ReloadLog {
    /// A log as it came; `truncated` when it was longer.
    #[must_use]
    pub fn new(bytes: &[u8], truncated: bool) -> Self {
        Self {
            text: String::from_utf8_lossy(bytes).trim_end().to_owned(),
            truncated,
        }
    }

    /// All of it, invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether HAProxy had more to say than was kept.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// HAProxy's own words for people, at most [`MAX_WORDS_BYTES`]: its alerts, then its
    /// warnings as far as they fit, each with its continuation lines. A log without
    /// either is given whole, minus greetings.
    #[must_use]
    pub fn words(&self) -> String {
        let records = self.records();
        let of = |level| {
            records
                .iter()
                .filter(move |record| record.level == level && !record.is_noise())
        };
        let mut chosen: Vec<_> = of(Level::Alert).chain(of(Level::Warning)).collect();
        if chosen.is_empty() {
            chosen = records.iter().filter(|record| !record.is_noise()).collect();
        }
        let mut words = String::new();
        for record in chosen {
            if !words.is_empty() {
                words.push('\n');
            }
            words.push_str(&record.to_string());
            if words.len() > MAX_WORDS_BYTES {
                break;
            }
        }
        shorten(words)
    }

    /// For a refused reload: whether it was refused for what the files say. True only
    /// when HAProxy raised a configuration alert and none about its surroundings (an
    /// address it cannot bind, memory, name resolution, a file that it cannot open), which
    /// a later try may not meet.
    #[must_use]
    pub fn is_verdict_on_files(&self) -> bool {
        let records = self.records();
        let alerts = || records.iter().filter(|record| record.level == Level::Alert);
        let about_files = alerts().any(|record| {
            record.text.starts_with("config : ") || record.text.starts_with("parsing [")
        });
        let about_surroundings = alerts().any(|record| {
            let text = record.text.to_ascii_lowercase();
            SURROUNDINGS.iter().any(|words| text.contains(words))
        });
        about_files && !about_surroundings
    }

    fn records(&self) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        for line in self.text.lines() {
            match (split_level(line), records.last_mut()) {
                (Some((level, text)), _) => records.push(Record {
                    level,
                    text: text.to_owned(),
                }),
                (None, Some(record)) => {
                    record.text.push('\n');
                    record.text.push_str(line);
                }
                (None, None) => records.push(Record {
                    level: Level::Unknown,
                    text: line.to_owned(),
                }),
            }
        }
        records
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Alert,
    Warning,
    Notice,
    Diag,
    Unknown,
}

/// One message with its continuation lines.
struct Record {
    level: Level,
    text: String,
}

impl Record {
    /// Lines that every reload has, whatever became of it.
    fn is_noise(&self) -> bool {
        const GREETINGS: [&str; 8] = [
            "haproxy version is ",
            "path to executable is ",
            "New worker (",
            "Initializing new worker (",
            "Former worker (",
            "Failed to load worker (",
            "Loading failure!",
            "Loading success.",
        ];
        self.text.trim().is_empty() || GREETINGS.iter().any(|start| self.text.starts_with(start))
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Alert => "[ALERT] ",
            Level::Warning => "[WARNING] ",
            Level::Notice => "[NOTICE] ",
            Level::Diag => "[DIAG] ",
            Level::Unknown => "",
        })?;
        f.write_str(self.text.trim_end())
    }
}

/// `[ALERT]    (17151) : text`.
fn split_level(line: &str) -> Option<(Level, &str)> {
    let (name, rest) = line.strip_prefix('[')?.split_once(']')?;
    let level = match name {
        "ALERT" => Level::Alert,
        "WARNING" => Level::Warning,
        "NOTICE" => Level::Notice,
        "DIAG" => Level::Diag,
        _ => return None,
    };
    let (pid, text) = rest.trim_start().strip_prefix('(')?.split_once(") : ")?;
    pid.bytes()
        .all(|b| b.is_ascii_digit())
        .then_some((level, text))
}

fn shorten(mut words: String) -> String {
    const MARK: &str = " […]";
    if words.len() > MAX_WORDS_BYTES {
        let mut end = MAX_WORDS_BYTES - MARK.len();
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        words.truncate(end);
        words.push_str(MARK);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "[NOTICE]   (17268) : Initializing new worker (17280)\n\
        [NOTICE]   (17280) : haproxy version is 3.2.26-1\n\
        [NOTICE]   (17280) : path to executable is /usr/sbin/haproxy\n\
        [WARNING]  (17280) : config : parsing [c.cfg:3] : a hint\n   | with a second line\n\
        [ALERT]    (17280) : config : parsing [/etc/haproxy/haproxy.cfg:16] : unknown keyword 'frobnicate' in 'backend' section\n\
        [ALERT]    (17280) : config : Fatal errors found in configuration.\n\
        [WARNING]  (17268) : Failed to load worker (17280) exited with code 1 (Exit)\n\n";
    const UNBINDABLE: &str = "[ALERT]    (17280) : Binding [/etc/haproxy/haproxy.cfg:12] for frontend g: protocol tcpv4: cannot bind socket (Cannot assign requested address) for [192.0.2.1:7].\n\
        [ALERT]    (17280) : [haproxy.main()] Some protocols failed to start their listeners! Exiting.\n";

    fn log(text: &str) -> ReloadLog {
        ReloadLog::new(text.as_bytes(), false)
    }

    #[test]
    fn alerts_come_first_and_greetings_not_at_all() {
        let words = log(REFUSED).words();
        assert_eq!(
            words,
            "[ALERT] config : parsing [/etc/haproxy/haproxy.cfg:16] : unknown keyword 'frobnicate' in 'backend' section\n\
             [ALERT] config : Fatal errors found in configuration.\n\
             [WARNING] config : parsing [c.cfg:3] : a hint\n   | with a second line"
        );
    }

    #[test]
    fn a_log_without_alerts_is_given_whole() {
        let text = "Another thing happened.\n[NOTICE]   (1) : something\n[NOTICE]   (1) : haproxy version is 3.4.7\n";
        assert_eq!(
            log(text).words(),
            "Another thing happened.\n[NOTICE] something"
        );
        assert_eq!(log("").words(), "");
    }

    #[test]
    fn words_are_bounded_at_a_character() {
        for filler in ["x", "é", "€"] {
            let text = format!("[ALERT]    (1) : config : {}\n", filler.repeat(5000));
            let words = log(&text).words();
            assert!(words.len() <= MAX_WORDS_BYTES && words.ends_with(" […]"));
            assert!(words.len() > MAX_WORDS_BYTES - 16);
        }
    }

    #[test]
    fn only_configuration_alerts_are_a_verdict_on_the_files() {
        assert!(log(REFUSED).is_verdict_on_files());
        assert!(!log(UNBINDABLE).is_verdict_on_files());
        assert!(!log(&format!("{REFUSED}{UNBINDABLE}")).is_verdict_on_files());
        assert!(!log("").is_verdict_on_files());
        assert!(!log("[WARNING]  (1) : config : a hint").is_verdict_on_files());
    }

    /// As 3.0 and 3.4 print them.
    #[test]
    fn what_lies_beside_the_set_is_no_verdict_on_it() {
        for words in [
            "'server b/s' : could not resolve address 'x.example'.",
            "'bind' : invalid address: 'x.example' in 'x.example:80'",
            "invalid args in converter 'map' : failed to open pattern file <a.map>.",
            "'bind :1' in section 'frontend' : unable to stat SSL certificate from file 'a.pem' : No such file or directory.",
            "'crt-list' : cannot open file 'a' : No such file or directory",
            "Couldn't open the ca-file 'a' (No such file or directory).",
            "errorfile : error opening file 'a'.",
            "error in Lua file 'a.lua': cannot open a.lua: No such file or directory",
            "cannot find user id for 'nobody-at-all' (0:Success)",
            "'ssl-dh-param-file': unable to load DH parameters from file <a>.",
            "Error opening OCSP response file 'a' cannot be read or parsed.",
            "invalid args in converter 'map' : error encountered while reading  <a> : Is a directory.",
            "'bind :1' in section 'frontend' : 'a' : unable to load SSL tickets keys file",
            "Lua runtime error: a.lua:1: module 'b' not found:\n\tno field package.preload['b']",
            "Lua runtime error: a.lua:1: attempt to index a nil value (local 'f')",
            "'bind :1' in section 'frontend' : No Private Key found in 'a.key'.",
            "errorfile : error reading file 'a'.",
            "global statement 'issuers-chain-path': a is not a directory.",
            "'bind' : cannot use file descriptor '99' : Bad file descriptor.",
            "'bind unix@a' in section 'frontend' : 'user' : unknown user name 'a'",
            "'stats socket' : ''group' : unknown group name 'a''",
            "ssl-provider a: unknown provider",
            "acme: cannot create the file 'a', check your permissions.",
        ] {
            let text = format!("[ALERT]    (1) : config : parsing [c:1] : {words}\n");
            assert!(!log(&text).is_verdict_on_files(), "{words}");
        }
    }

    #[test]
    fn what_the_files_themselves_say_is_a_verdict() {
        for words in [
            "unknown keyword 'frobnicate' in 'backend' section",
            "unable to load certificate from file 'a.pem': no start line.",
            "'import' is not a valid IPv4 or IPv6 address at line 1 of file 'a.map'.",
            "error in Lua file 'a.lua': a.lua:1: unexpected symbol near '@'",
            "'bind :1' in section 'frontend' : 'a' : unable to decode base64 key on line 1",
        ] {
            let text = format!("[ALERT]    (1) : config : parsing [c:1] : {words}\n");
            assert!(log(&text).is_verdict_on_files(), "{words}");
        }
    }

    #[test]
    fn a_line_that_only_looks_like_a_level_continues_its_message() {
        let text = "[ALERT]    (1) : config : first\n[ALERT] no pid\n[x] (2) : more\n";
        assert_eq!(
            log(text).words(),
            "[ALERT] config : first\n[ALERT] no pid\n[x] (2) : more"
        );
    }
}
