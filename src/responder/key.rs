//! How a key is spelled: in a request, in a Consul path, as a file name.
//!
//! A key is what stands below the prefix, byte for byte; nothing is folded or
//! normalised. What cannot be spelled in one of the three ways is refused there.

use std::error::Error;
use std::fmt;

/// The longest key that is looked at. A request line has 1024 bytes and has to hold a
/// row and its groups.
pub const MAX_KEY_BYTES: usize = 512;
/// The longest name of a file that Linux takes.
pub const MAX_NAME_BYTES: usize = 255;
/// The longest prefix; with the longest key it stays below what Consul stores.
pub const MAX_PREFIX_BYTES: usize = 512;

/// Whether a request can name `key`: no blank and no control byte, not empty, not too
/// long. Commas and upper case are fine: the request is ours, not HAProxy's reply.
#[must_use]
pub fn is_addressable(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_KEY_BYTES
        && !key.bytes().any(|byte| byte <= b' ' || byte == 0x7f)
}

/// Where the keys are in Consul: no slash around it, no segment that a path would lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    text: String,
}

impl Prefix {
    /// Takes a prefix as it was typed and drops the slashes around it.
    ///
    /// # Errors
    ///
    /// [`KeyError`]: empty, too long, `//` inside, a dot segment, or a control byte.
    pub fn new(typed: &str) -> Result<Self, KeyError> {
        let text = typed.trim_matches('/');
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        checked_path(text, MAX_PREFIX_BYTES)?;
        Ok(Self {
            text: text.to_owned(),
        })
    }

    /// The prefix with its slash behind, as every key in Consul starts.
    #[must_use]
    pub fn with_slash(&self) -> String {
        format!("{}/", self.text)
    }

    /// The request path of everything below the prefix.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/v1/kv/{}/", escape(&self.text))
    }

    /// The full name of `key` in Consul.
    #[must_use]
    pub fn full(&self, key: &str) -> String {
        format!("{}/{key}", self.text)
    }

    /// The prefix of the notes that belong to this one: beside it, never below it, and
    /// not starting with its text, because a reader that forgets the slash would take
    /// `state-notes` for a part of `state`.
    #[must_use]
    pub fn notes(&self) -> Self {
        let text = match self.text.rsplit_once('/') {
            Some((parent, last)) => format!("{parent}/.notes/{last}"),
            None => format!(".notes/{}", self.text),
        };
        Self { text }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The request path of one full name in Consul.
#[must_use]
pub fn kv_path(full: &str) -> String {
    format!("/v1/kv/{}", escape(full))
}

/// Whether Consul keeps this path as it is.
///
/// # Errors
///
/// [`KeyError`]: empty, too long, `//` inside, a dot segment, or a control byte.
pub fn checked_path(path: &str, max: usize) -> Result<(), KeyError> {
    if path.is_empty() {
        return Err(KeyError::Empty);
    }
    if path.len() > max {
        return Err(KeyError::TooLong {
            bytes: path.len(),
            max,
        });
    }
    if path.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(KeyError::Control);
    }
    for segment in path.split('/') {
        match segment {
            "" => return Err(KeyError::EmptySegment),
            "." | ".." => return Err(KeyError::DotSegment),
            _ => {}
        }
    }
    Ok(())
}

/// A key as a person or a tool names it to the writer: addressable and storable.
///
/// # Errors
///
/// [`KeyError`] with what is wrong.
pub fn checked_key(key: &str) -> Result<(), KeyError> {
    checked_path(key, MAX_KEY_BYTES)?;
    if is_addressable(key) {
        Ok(())
    } else {
        Err(KeyError::Blank)
    }
}

/// Percent-encodes every byte that is neither unreserved nor a slash.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            other => push_hex(&mut out, other),
        }
    }
    out
}

/// The file name of `key` in the directory store.
///
/// # Errors
///
/// [`KeyError`]: empty, or longer than [`MAX_NAME_BYTES`] when spelled as a name.
pub fn file_name(key: &str) -> Result<String, KeyError> {
    if key.is_empty() {
        return Err(KeyError::Empty);
    }
    let mut name = String::with_capacity(key.len() + 8);
    for (at, byte) in key.bytes().enumerate() {
        match byte {
            b'.' if at == 0 => push_hex(&mut name, byte),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                name.push(char::from(byte));
            }
            other => push_hex(&mut name, other),
        }
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(KeyError::NameTooLong { bytes: name.len() });
    }
    Ok(name)
}

/// The key of a file name; `None` when the name is not what [`file_name`] makes of any
/// key, so that a key has exactly one file.
#[must_use]
pub fn key_of_name(name: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let (digits, tail) = tail.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    let key = String::from_utf8(bytes).ok()?;
    let again = file_name(&key).ok()?;
    (again.as_bytes() == name).then_some(key)
}

/// The name that a misspelt one may mean: escapes in small letters, or bytes that have to be
/// escaped and are not. `None` where even that gives no key.
#[must_use]
pub fn meant_name(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.split_at_checked(2).filter(|_| first == b'%');
        let escaped = digits.and_then(|(digits, tail)| {
            let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            Some((byte, tail))
        });
        let (byte, tail) = escaped.unwrap_or((first, tail));
        bytes.push(byte);
        rest = tail;
    }
    let key = String::from_utf8(bytes).ok()?;
    file_name(&key).ok().filter(|meant| meant != name)
}

fn push_hex(out: &mut String, byte: u8) {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    out.push('%');
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

/// Why a text is no key, or no prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// Nothing is left without the slashes around it.
    Empty,
    /// Longer than allowed.
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Longer than a file name, once spelled as one.
    NameTooLong {
        /// The length of the name.
        bytes: usize,
    },
    /// Two slashes in a row, or one at an end.
    EmptySegment,
    /// `.` or `..` between slashes.
    DotSegment,
    /// A control byte.
    Control,
    /// A blank, which ends a word of the request.
    Blank,
}

impl KeyError {
    /// What is wrong, without an example: for what is no key itself, as a prefix.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::Empty => "it is empty".to_owned(),
            Self::TooLong { bytes, max } => {
                format!("it has {bytes} bytes and at most {max} are possible")
            }
            Self::NameTooLong { bytes } => format!(
                "its file name would have {bytes} bytes and at most {MAX_NAME_BYTES} are possible; use a shorter key"
            ),
            Self::EmptySegment => {
                "it has a slash at an end or two in a row, which no server row has".to_owned()
            }
            Self::DotSegment => {
                "it has a segment . or .., which is lost on the way to the store".to_owned()
            }
            Self::Control => "it has a control character".to_owned(),
            Self::Blank => {
                "it has a blank, and a blank separates keys in what HAProxy sends (agent-send)"
                    .to_owned()
            }
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        match self {
            Self::Empty => f.write_str("; write for instance be_web/srv1"),
            Self::TooLong { .. }
            | Self::NameTooLong { .. }
            | Self::EmptySegment
            | Self::DotSegment
            | Self::Control
            | Self::Blank => Ok(()),
        }
    }
}

impl Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_loses_the_slashes_around_it_and_nothing_else() {
        let table = [
            ("a", "a/", "/v1/kv/a/"),
            ("/a/b/", "a/b/", "/v1/kv/a/b/"),
            ("///a", "a/", "/v1/kv/a/"),
            ("a b/ü", "a b/ü/", "/v1/kv/a%20b/%C3%BC/"),
            (
                "a%2Fb?c#d;e+f\\g",
                "a%2Fb?c#d;e+f\\g/",
                "/v1/kv/a%252Fb%3Fc%23d%3Be%2Bf%5Cg/",
            ),
            (".a/..b", ".a/..b/", "/v1/kv/.a/..b/"),
        ];
        for (typed, slash, path) in table {
            let prefix = Prefix::new(typed).unwrap();
            assert_eq!(prefix.with_slash(), slash);
            assert_eq!(prefix.path(), path);
        }
    }

    #[test]
    fn what_a_misspelt_name_may_mean() {
        for (name, meant) in [
            ("web%2fs1", Some("web%2Fs1")),
            ("with blank", Some("with%20blank")),
            ("50%", Some("50%25")),
            ("%41", Some("A")),
            ("web%2Fs1", None),
            ("%ff", None),
        ] {
            assert_eq!(meant_name(name).as_deref(), meant, "{name}");
        }
    }

    #[test]
    fn a_prefix_that_consul_would_change_is_refused() {
        let table = [
            ("", KeyError::Empty),
            ("//", KeyError::Empty),
            ("a//b", KeyError::EmptySegment),
            ("a/./b", KeyError::DotSegment),
            ("..", KeyError::DotSegment),
            ("/a/../b", KeyError::DotSegment),
            ("a\nb", KeyError::Control),
            ("a\u{7f}", KeyError::Control),
        ];
        for (typed, why) in table {
            assert_eq!(Prefix::new(typed), Err(why), "{typed:?}");
        }
        let long = "a".repeat(MAX_PREFIX_BYTES + 1);
        assert!(matches!(Prefix::new(&long), Err(KeyError::TooLong { .. })));
    }

    #[test]
    fn notes_are_beside_the_prefix_and_share_no_text_with_it() {
        for (prefix, notes) in [
            ("haptic-agent/state", "haptic-agent/.notes/state"),
            ("s", ".notes/s"),
        ] {
            let prefix = Prefix::new(prefix).unwrap();
            assert_eq!(prefix.notes().to_string(), notes);
            assert!(!prefix.notes().with_slash().starts_with(&prefix.to_string()));
        }
    }

    #[test]
    fn keys_that_a_request_cannot_name() {
        for key in ["web/s1", "canary", "a,b", "ü", "%", "a\\b"] {
            assert!(is_addressable(key), "{key:?}");
        }
        for key in [
            "",
            "a b",
            "a\tb",
            "a\n",
            "a\u{7f}",
            &"a".repeat(MAX_KEY_BYTES + 1),
        ] {
            assert!(!is_addressable(key), "{key:?}");
        }
        assert_eq!(checked_key("a b"), Err(KeyError::Blank));
        assert_eq!(checked_key("a//b"), Err(KeyError::EmptySegment));
        assert_eq!(checked_key("web/"), Err(KeyError::EmptySegment));
        assert_eq!(checked_key("web/s1"), Ok(()));
    }

    #[test]
    fn file_names_and_back() {
        let table = [
            ("canary", "canary"),
            ("canary/x", "canary%2Fx"),
            ("web/s1", "web%2Fs1"),
            (".hidden", "%2Ehidden"),
            ("a.b", "a.b"),
            ("..", "%2E."),
            ("ü %", "%C3%BC%20%25"),
            ("UP-low_9", "UP-low_9"),
            ("~", "%7E"),
        ];
        for (key, name) in table {
            assert_eq!(file_name(key).unwrap(), name);
            assert_eq!(key_of_name(name.as_bytes()).unwrap(), key);
        }
        assert_eq!(file_name(""), Err(KeyError::Empty));
        assert_eq!(file_name(&"/".repeat(85)).unwrap().len(), 255);
        assert_eq!(
            file_name(&"/".repeat(86)),
            Err(KeyError::NameTooLong { bytes: 258 })
        );
    }

    #[test]
    fn a_key_has_one_name_only() {
        for name in [
            "web%2fs1", "%77eb", "%", "%2", "%zz", "%+1", "web/s1", "a b", ".x", "%FF", "~", "",
        ] {
            assert_eq!(key_of_name(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(key_of_name(b"\xff"), None);
    }

    proptest! {
        #[test]
        fn every_key_that_has_a_name_comes_back_from_it(key in ".{1,80}") {
            if let Ok(name) = file_name(&key) {
                prop_assert!(!name.starts_with('.') && !name.contains('/'));
                prop_assert_eq!(key_of_name(name.as_bytes()), Some(key));
            }
        }

        #[test]
        fn every_name_that_has_a_key_is_that_keys_name(name in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(key) = key_of_name(&name) {
                prop_assert_eq!(file_name(&key).unwrap().into_bytes(), name);
            }
        }
    }
}
