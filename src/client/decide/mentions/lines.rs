//! Which lines are worth taking apart.
//!
//! A configuration has tens of thousands of lines, and hardly one of them names a file of
//! the set. A line is passed over only where no word of it can be such a name, however it
//! is quoted; whatever is in doubt is taken apart. It refuses to say what a line means.

use std::collections::HashSet;

use super::{DIRECTORY_WORDS, last};

/// Bits of the hint; as many as keep most words of a configuration from being looked up
/// in a set of some hundred names.
const HINT_BITS: usize = 4096;

/// The last components of the set's paths.
pub(super) struct Names<'a> {
    names: HashSet<&'a str>,
    /// [`place`] of every name, and of every word that a directory follows.
    hint: Box<[bool; HINT_BITS]>,
}

/// What a byte is to a line that is only glanced at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Byte {
    OfName,
    Quote,
    /// What it stands for is seen only by taking the line apart.
    Doubt,
    Between,
}

const BYTES: [Byte; 256] = {
    let mut bytes = [Byte::Between; 256];
    let mut byte: u8 = 0;
    loop {
        bytes[byte as usize] = match byte {
            b'_' | b'-' | b'.' | b'/' | b'+' | b'~' | b'@' => Byte::OfName,
            b'"' | b'\'' => Byte::Quote,
            b'\\' | b'$' | 0x80.. => Byte::Doubt,
            _ if byte.is_ascii_alphanumeric() => Byte::OfName,
            _ => Byte::Between,
        };
        if byte == u8::MAX {
            break bytes;
        }
        byte += 1;
    }
};

impl<'a> Names<'a> {
    pub(super) fn new(names: impl Iterator<Item = &'a str>) -> Self {
        let names: HashSet<&str> = names.collect();
        let mut hint = Box::new([false; HINT_BITS]);
        for word in names.iter().chain(&DIRECTORY_WORDS) {
            hint[place(word)] = true;
        }
        Self { names, hint }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether a word of the line may be one of the names, or one that a directory follows.
    pub(super) fn may_be_in(&self, line: &str) -> bool {
        let bytes = line.as_bytes();
        let kind = |byte: &u8| BYTES[usize::from(*byte)];
        let mut start = 0;
        for (at, byte) in bytes.iter().enumerate() {
            match kind(byte) {
                Byte::OfName => continue,
                Byte::Doubt => return true,
                Byte::Quote => {
                    // Within a word it is no part of it.
                    let mut rest = bytes[at..].iter().map(kind);
                    let next = rest.find(|next| *next != Byte::Quote);
                    if at > start && next == Some(Byte::OfName) {
                        return true;
                    }
                }
                Byte::Between => {}
            }
            if self.is_one(line, start, at) {
                return true;
            }
            start = at + 1;
        }
        self.is_one(line, start, bytes.len())
    }

    fn is_one(&self, line: &str, start: usize, end: usize) -> bool {
        let Some(run) = line.get(start..end).filter(|run| !run.is_empty()) else {
            return false;
        };
        let file = last(run.rsplit('@').next().unwrap_or(run));
        // What these end in depends on what stands before.
        matches!(file, "" | "." | "..")
            || (self.hint[place(file)] && self.has(file))
            || (self.hint[place(run)] && DIRECTORY_WORDS.contains(&run))
    }
}

/// Where a word's hint is.
fn place(word: &str) -> usize {
    let bytes = word.as_bytes();
    let of = |byte: Option<&u8>| byte.map_or(0, |byte| usize::from(*byte));
    let mixed = bytes.len() * 0x9d
        + of(bytes.first()) * 0x1f
        + of(bytes.last()) * 0x101
        + of(bytes.get(bytes.len() / 2)) * 0x3d;
    mixed % HINT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_seen_wherever_and_however_it_stands() {
        let names = Names::new(["host.map", "a.pem", "errors"].into_iter());
        for line in [
            "use_backend %[req.hdr(host),map(maps/host.map)]",
            "bind :443 ssl crt ssl/a.pem",
            "crt \"ssl/a.pem\"",
            "crt ss\"l/a.p\"em",
            "crt a.\"\"pem",
            "crt a.pe'm'",
            "crt a\\.pem",
            "crt ${DIR}",
            "lua host.map",
            "x virt@a.pem",
            "a.pem",
            "a.pem#",
            "-f other\u{2013}a.pem",
            "errorfiles somewhere",
            "bind :1 ca-file \"x\"",
        ] {
            assert!(names.may_be_in(line), "{line}");
        }
        for line in [
            "",
            "http-response set-header Strict-Transport-Security \"max-age=1\" if { ssl_fc }",
            "server a 127.0.0.1:80 weight 100",
            "crt b.pem",
            "xhost.map.old host.mapx",
        ] {
            assert!(!names.may_be_in(line), "{line}");
        }
    }

    proptest! {
        /// What is passed over has, taken apart, no word with a name in it.
        #[test]
        fn what_is_passed_over_names_nothing(line in "[ab./@\"'\\\\$ ({\u{e9}\u{2013}-]{0,24}") {
            let names = Names::new(["a", "b.a", "ab"].into_iter());
            if !names.may_be_in(&line) {
                for word in super::super::words(&line) {
                    for (_, name) in super::super::names_in(&word) {
                        let plain = super::super::plain(&name);
                        prop_assert!(!names.has(last(&plain)), "{name:?} of {line:?}");
                        prop_assert!(!name.contains(super::super::VARIABLE), "{line:?}");
                    }
                }
            }
        }
    }
}
