//! The rules for what an op may put into a command.
//!
//! HAProxy's command line has no quoting that holds everywhere: a blank ends a word, a
//! semicolon a command, `<<` starts a payload, a backslash disappears. A value with
//! one of them is refused, never rewritten, because a rewritten value would be another
//! value. All lengths are bytes.

use super::Fault;
use super::version::HaproxyVersion;
use crate::wire::limits::MAX_PATH_BYTES;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Server and backend names; HAProxy itself has no such limit, a line has.
const MAX_NAME_BYTES: usize = 255;
/// The longest wait that a controller may ask for, in milliseconds.
const MAX_TIMEOUT_MS: i64 = 30_000;

/// One word of a command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word(String);

/// A server's, backend's or defaults section's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

/// A file's name as HAProxy's runtime knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimePath(String);

/// A server within its backend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerRef {
    /// Its backend.
    pub backend: Name,
    /// Its name there.
    pub server: Name,
}

macro_rules! text_of {
    ($($type:ident),*) => {$(
        impl $type {
            /// As it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

text_of!(Word, Name, RuntimePath);

impl fmt::Display for ServerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.backend, self.server)
    }
}

/// A field that its kind cannot do without.
///
/// # Errors
///
/// It is not there.
pub fn required<'a, T: ?Sized>(field: &str, value: Option<&'a T>) -> Result<&'a T, Fault> {
    value.ok_or_else(|| Fault::invalid(format!("{field} is missing")))
}

/// What stays one word of a command: no blank, no control character, none of `;<>\`.
///
/// # Errors
///
/// The rule that `text` breaks; so for all of these.
pub fn word(field: &str, text: &str) -> Result<Word, Fault> {
    check_word(field, text)?;
    Ok(Word(text.to_owned()))
}

fn check_word(field: &str, text: &str) -> Result<(), Fault> {
    let rule = if text.is_empty() {
        "must not be empty"
    } else if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
        "must not hold blanks or control characters"
    } else if text
        .bytes()
        .any(|b| matches!(b, b';' | b'<' | b'>' | b'\\'))
    {
        "must not hold any of ; < > \\"
    } else {
        return Ok(());
    };
    Err(broken(field, text, rule))
}

/// An argument of a keyword, which may hold blanks, as `agent-send` does: each is sent
/// with the backslash that keeps it from ending the word. A line end cannot be sent at
/// all, because the backslash of an escape is dropped and the letter stays.
///
/// # Errors
///
/// As [`word`].
pub fn argument(field: &str, text: &str) -> Result<Word, Fault> {
    word(field, &text.replace(' ', "_")).map_err(|_| broken(field, text, ARGUMENT_RULE))?;
    Ok(Word(text.replace(' ', "\\ ")))
}

/// What [`argument`] refuses.
const ARGUMENT_RULE: &str = "must not be empty nor hold control characters or any of ; < > \\, not even as an escape like \\n";

/// What HAProxy takes as a name: letters, digits and `_.:-`, at most 255.
///
/// # Errors
///
/// As [`word`].
pub fn name(field: &str, text: &str) -> Result<Name, Fault> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-');
    let rule = if text.is_empty() {
        "must not be empty"
    } else if text.len() > MAX_NAME_BYTES {
        "must have at most 255 bytes"
    } else if !text.bytes().all(plain) {
        "may hold letters, digits and _ . : - only"
    } else {
        return Ok(Name(text.to_owned()));
    };
    Err(broken(field, text, rule))
}

/// A word that names a file: at most 255 bytes, no `#`, `@` or `*` in front.
///
/// # Errors
///
/// As [`word`].
pub fn path(field: &str, text: &str) -> Result<RuntimePath, Fault> {
    check_word(field, text)?;
    let rule = if text.len() > MAX_PATH_BYTES {
        "must have at most 255 bytes"
    } else if text.starts_with(['#', '@', '*']) {
        "must not start with # @ or *"
    } else {
        return Ok(RuntimePath(text.to_owned()));
    };
    Err(broken(field, text, rule))
}

/// A `#` in front would address an entry by its place in memory.
///
/// # Errors
///
/// As [`word`].
pub fn map_key(text: &str) -> Result<Word, Fault> {
    if text.starts_with('#') {
        return Err(broken("key", text, "must not start with #"));
    }
    word("key", text)
}

/// What a map file can hold behind a key. May be empty.
///
/// # Errors
///
/// As [`word`].
pub fn map_value(text: &str) -> Result<&str, Fault> {
    let rule = if text.contains(['\n', '\r', '\0']) {
        "must be one line without CR and NUL"
    } else if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
        "must not start or end with a blank, HAProxy would cut it"
    } else {
        return Ok(text);
    };
    Err(broken("value", text, rule))
}

/// An address literal; IPv6 with or without brackets, without zone and port.
///
/// # Errors
///
/// As [`word`].
pub fn ip(text: &str) -> Result<IpAddr, Fault> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let parsed = match inner {
        Some(inner) => inner.parse::<Ipv6Addr>().map(IpAddr::V6),
        None => text.parse::<IpAddr>(),
    };
    parsed.map_err(|_| broken("address", text, "must be an IPv4 or IPv6 address"))
}

/// 1 to 65535: HAProxy wraps larger ones and takes 0 for something else.
///
/// # Errors
///
/// It is not.
pub fn port(value: i64) -> Result<u16, Fault> {
    u16::try_from(value)
        .ok()
        .filter(|&port| port != 0)
        .ok_or_else(|| Fault::invalid(format!("port is {value} and must be 1 to 65535")))
}

/// 0 to 256.
///
/// # Errors
///
/// It is not.
pub fn weight(value: i64) -> Result<u16, Fault> {
    u16::try_from(value)
        .ok()
        .filter(|&weight| weight <= 256)
        .ok_or_else(|| Fault::invalid(format!("weight is {value} and must be 0 to 256")))
}

/// Milliseconds of a wait, 1 to 30 000.
///
/// # Errors
///
/// It is not.
pub fn timeout(value: i64) -> Result<u64, Fault> {
    u64::try_from(value)
        .ok()
        .filter(|_| (1..=MAX_TIMEOUT_MS).contains(&value))
        .ok_or_else(|| {
            Fault::invalid(format!(
                "timeout_ms is {value} and must be 1 to {MAX_TIMEOUT_MS}"
            ))
        })
}

/// A server's keyword that HAProxy takes at runtime in this version.
///
/// # Errors
///
/// `Unsupported` for the ones it does not take.
pub fn keyword_name(text: &str, version: &HaproxyVersion) -> Result<Word, Fault> {
    let name = word("keywords.name", text)?;
    let since = match text {
        "enabled" | "no-check" | "resolvers" | "init-addr" | "socks4" | "redir" | "log-proto" => {
            return Err(Fault::unsupported(format!(
                "HAProxy takes no server keyword {text} at runtime"
            )));
        }
        "init-state" => (3, 1),
        "strict-maxconn" | "idle-ping" => (3, 2),
        _ => return Ok(name),
    };
    needs(&format!("the server keyword {text}"), since, version)?;
    Ok(name)
}

/// Something that came with a version.
///
/// # Errors
///
/// This one is older.
pub fn needs(
    what: &str,
    (major, minor): (u32, u32),
    version: &HaproxyVersion,
) -> Result<(), Fault> {
    if version.at_least(major, minor) {
        return Ok(());
    }
    Err(Fault::unsupported(format!(
        "{what} needs HAProxy {major}.{minor} and this is {}",
        version.short()
    )))
}

/// A word of a crt-list row, where brackets and `#` mean something.
///
/// # Errors
///
/// As [`word`].
pub fn crt_word(field: &str, text: &str) -> Result<Word, Fault> {
    if text.contains(['[', ']']) || text.starts_with('#') {
        return Err(broken(field, text, "must not hold [ or ] nor start with #"));
    }
    word(field, text)
}

fn broken(field: &str, text: &str, rule: &str) -> Fault {
    let shown: String = text.chars().take(80).collect();
    Fault::invalid(format!("{field} is {shown:?} and {rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_a_line_would_lose() {
        for good in [
            "a",
            "ü",
            "%[src]",
            "a|b",
            "'q'",
            "\"",
            "@1",
            "#x",
            "a:b/c=d,e",
            "\u{a0}",
        ] {
            assert_eq!(word("f", good).unwrap().as_str(), good);
        }
        for bad in [
            "", " ", "a b", "a\tb", "a\n", "a\r", "\0", "\u{7f}", "a;b", "<<", "a>b", "a\\b",
        ] {
            assert!(word("f", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_are_what_haproxy_takes() {
        for good in ["s1", "a.b:c-d_E", "-", &"n".repeat(255)] {
            assert!(name("f", good).is_ok());
        }
        for bad in ["", "a/b", "a b", "ü", "a!", "a@b", "%", &"n".repeat(256)] {
            assert!(name("f", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_start_like_files() {
        for good in ["maps/a.map", "/abs/x.pem", "a#b", "x@y", &"p".repeat(255)] {
            assert!(path("f", good).is_ok());
        }
        for bad in ["", "#1", "@2", "*x", "a b", "a;b", &"p".repeat(256)] {
            assert!(path("f", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_and_values_are_what_a_file_can_hold() {
        assert!(map_key("/a?x=1#y").is_ok());
        assert!(map_key("#a").is_err());
        assert!(map_key("a b").is_err());
        for good in [
            "",
            "a b",
            "a;b",
            "\\",
            "\"x\" 'y'",
            "<<",
            "# x",
            "a\tb",
            "ü",
        ] {
            assert!(map_value(good).is_ok(), "{good:?}");
        }
        for bad in [" a", "a ", "\ta", "a\t", " ", "a\nb", "a\r", "\0"] {
            assert!(map_value(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_are_literals() {
        for (good, shown) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("[2001:db8::2]", "2001:db8::2"),
        ] {
            assert_eq!(ip(good).unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "localhost",
            "1.2.3",
            "1.2.3.4:80",
            "[::1]:80",
            "fe80::1%eth0",
            "[1.2.3.4]",
            "010.0.0.1",
            " 1.2.3.4",
            "[::1",
        ] {
            assert!(ip(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        assert!([0, -1, 65_536, i64::MAX].iter().all(|&n| port(n).is_err()));
        assert_eq!((port(1).unwrap(), port(65_535).unwrap()), (1, 65_535));
        assert!([-1, 257].iter().all(|&n| weight(n).is_err()));
        assert_eq!((weight(0).unwrap(), weight(256).unwrap()), (0, 256));
        assert!([0, -1, 30_001].iter().all(|&n| timeout(n).is_err()));
        assert_eq!(timeout(30_000).unwrap(), 30_000);
    }

    #[test]
    fn keywords_depend_on_the_version() {
        use crate::format::FaultKind;
        let refused = |word: &str, version: &str| {
            let version = version.parse().unwrap();
            keyword_name(word, &version).err().map(|fault| fault.kind)
        };
        for word in [
            "enabled",
            "no-check",
            "resolvers",
            "init-addr",
            "socks4",
            "redir",
            "log-proto",
        ] {
            assert_eq!(refused(word, "3.4.7"), Some(FaultKind::Unsupported));
        }
        assert_eq!(
            refused("init-state", "3.0.11"),
            Some(FaultKind::Unsupported)
        );
        assert_eq!(refused("init-state", "3.1.0"), None);
        for word in ["strict-maxconn", "idle-ping"] {
            assert_eq!(refused(word, "3.1.9"), Some(FaultKind::Unsupported));
            assert_eq!(refused(word, "3.2.0"), None);
        }
        assert_eq!(refused("check", "3.0.0"), None);
        assert_eq!(refused("a b", "3.0.0"), Some(FaultKind::Invalid));
    }

    #[test]
    fn arguments_of_keywords_may_hold_blanks() {
        for (text, sent) in [
            ("b/s1", Some("b/s1")),
            ("b/s1 canary", Some("b/s1\\ canary")),
            (" a  b ", Some("\\ a\\ \\ b\\ ")),
            ("b/s1\\n", None),
            ("b/s1\n", None),
            ("a\tb", None),
            ("a;b", None),
            ("", None),
        ] {
            let word = argument("f", text).ok();
            assert_eq!(word.as_ref().map(Word::as_str), sent, "{text:?}");
        }
    }

    #[test]
    fn crt_list_words_hold_no_brackets() {
        assert!(crt_word("f", "!*.example").is_ok());
        for bad in ["[x", "x]", "#x", "a b", ""] {
            assert!(crt_word("f", bad).is_err(), "{bad:?}");
        }
    }
}
