//! The names that a configuration's text mentions.
//!
//! No parser: words are cut out wherever they stand, comments left out. That is enough
//! to say "this name occurs", which only ever forbids something.

use std::collections::HashSet;

/// Every name of some lines, and every pair `a/b`.
pub(super) struct Mentions<'a> {
    names: HashSet<&'a [u8]>,
    pairs: HashSet<(&'a [u8], &'a [u8])>,
}

impl<'a> Mentions<'a> {
    pub(super) fn of(texts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut this = Self {
            names: HashSet::new(),
            pairs: HashSet::new(),
        };
        for line in texts.into_iter().flat_map(lines) {
            for piece in line.split(|&b| !is_name(b) && b != b'/') {
                let mut before = None;
                for name in piece.split(|&b| b == b'/') {
                    this.names.insert(name);
                    if let Some(before) = before {
                        this.pairs.insert((before, name));
                    }
                    before = Some(name);
                }
            }
        }
        this
    }

    pub(super) fn name(&self, name: &str) -> bool {
        self.names.contains(name.as_bytes())
    }

    pub(super) fn pair(&self, one: &str, two: &str) -> bool {
        self.pairs.contains(&(one.as_bytes(), two.as_bytes()))
    }
}

/// The first word of each line, and what follows it.
pub(super) fn directives<'a>(
    texts: impl IntoIterator<Item = &'a [u8]>,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    texts.into_iter().flat_map(lines).filter_map(|line| {
        let line = line.trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace);
        let (first, rest) = line.split_at_checked(end.unwrap_or(line.len()))?;
        (!first.is_empty()).then_some((first, rest.trim_ascii()))
    })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n')
        .filter(|line| !line.trim_ascii_start().starts_with(b"#"))
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_pairs_wherever_they_stand() {
        let text: &[u8] = b"# be_no a/no\n  use_backend be_x if { nbsrv(be-y) gt 0 }\n track z/s1,srv_is_up(q/s2)\n";
        let seen = Mentions::of([text]);
        for name in ["be_x", "be-y", "z", "s1", "q", "s2", "if"] {
            assert!(seen.name(name), "{name}");
        }
        for name in ["be_no", "be", "x", "a"] {
            assert!(!seen.name(name), "{name}");
        }
        assert!(seen.pair("z", "s1") && seen.pair("q", "s2"));
        assert!(!seen.pair("a", "no") && !seen.pair("s1", "s2"));
    }

    #[test]
    fn directives_are_first_words() {
        let text: &[u8] = b"\n # balance x\n\tbalance  uri depth 1 \ndefault-server\n";
        let seen: Vec<_> = directives([text]).collect();
        let wanted: [(&[u8], &[u8]); 2] = [(b"balance", b"uri depth 1"), (b"default-server", b"")];
        assert_eq!(seen, wanted);
    }
}
