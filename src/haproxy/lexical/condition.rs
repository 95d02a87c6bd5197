//! The expression behind `.if`.
//!
//! Only its form: terms joined by `&&` and `||`, `!`, parentheses, whole numbers, and
//! predicates. A predicate this does not know, quotes or escapes inside the expression,
//! and signs a later release may give a meaning leave the whole expression to HAProxy.

/// Parentheses in parentheses from which on this gives up.
const MAX_DEPTH: usize = 32;

const PREDICATES: [&[u8]; 10] = [
    b"defined",
    b"feature",
    b"streq",
    b"strneq",
    b"strstr",
    b"version_atleast",
    b"version_before",
    b"openssl_version_atleast",
    b"openssl_version_before",
    b"enabled",
];

/// Checks the words behind `.if`, joined by one blank.
///
/// # Errors
///
/// What is wrong with it, for people.
pub(super) fn check(text: &[u8]) -> Result<(), String> {
    let literal = |b: &u8| b.is_ascii() && !matches!(b, b'"' | b'\'' | b'\\');
    if text.is_empty() || text.starts_with(b" ") || !text.iter().all(literal) {
        return Ok(());
    }
    let mut reader = Reader { text, at: 0 };
    let read = reader.expression(0).and_then(|()| match reader.peek() {
        None => Ok(()),
        Some(byte) => Err(reader.stop_at(byte)),
    });
    match read {
        Ok(()) | Err(Stop::Unsure) => Ok(()),
        Err(Stop::Fault) => Err("has a condition that cannot be read".to_owned()),
    }
}

enum Stop {
    /// HAProxy refuses this.
    Fault,
    /// HAProxy may take this.
    Unsure,
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// A byte where none of its kind can stand.
    fn stop_at(&self, byte: u8) -> Stop {
        match byte {
            b'(' | b')' | b'&' | b'|' => Stop::Fault,
            _ if byte.is_ascii_alphanumeric() => Stop::Fault,
            _ => Stop::Unsure,
        }
    }

    fn expression(&mut self, depth: usize) -> Result<(), Stop> {
        loop {
            self.term(depth)?;
            self.skip_blanks();
            if !(self.rest().starts_with(b"&&") || self.rest().starts_with(b"||")) {
                return Ok(());
            }
            self.at += 2;
        }
    }

    fn term(&mut self, depth: usize) -> Result<(), Stop> {
        self.skip_blanks();
        while self.peek() == Some(b'!') {
            self.at += 1;
            self.skip_blanks();
        }
        match self.peek() {
            None => Err(Stop::Fault),
            Some(b'(') if depth >= MAX_DEPTH => Err(Stop::Unsure),
            Some(b'(') => {
                self.at += 1;
                self.expression(depth + 1)?;
                match self.peek() {
                    Some(b')') => {
                        self.at += 1;
                        Ok(())
                    }
                    Some(byte) => Err(self.stop_at(byte)),
                    None => Err(Stop::Fault),
                }
            }
            Some(b'1'..=b'9') => {
                while self.peek().is_some_and(|b| b.is_ascii_digit()) {
                    self.at += 1;
                }
                Ok(())
            }
            Some(b'0') => {
                self.at += 1;
                // Octal and hexadecimal forms are left to HAProxy.
                match self.peek() {
                    Some(b) if b.is_ascii_alphanumeric() => Err(Stop::Unsure),
                    Some(_) | None => Ok(()),
                }
            }
            Some(byte) if byte.is_ascii_alphabetic() => self.predicate(),
            Some(byte) => Err(self.stop_at(byte)),
        }
    }

    fn predicate(&mut self) -> Result<(), Stop> {
        let in_name = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
        let length = self.rest().iter().take_while(in_name).count();
        if !PREDICATES.contains(&self.rest().get(..length).unwrap_or_default()) {
            return Err(Stop::Unsure);
        }
        self.at += length;
        if self.peek() == Some(b'(') {
            let close = self.rest().iter().position(|&b| b == b')');
            self.at += close.ok_or(Stop::Fault)? + 1;
        }
        Ok(())
    }
}
