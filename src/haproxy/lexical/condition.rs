//! The expression behind `.if`.
//!
//! Only its form: terms joined by `&&` and `||`, `!`, parentheses, whole numbers, and
//! predicates with the number of arguments they take. A predicate this does not know, quotes or escapes inside the expression,
//! and signs a later release may give a meaning leave the whole expression to HAProxy.

use super::Rules;

/// Parentheses in parentheses from which on this gives up.
const MAX_DEPTH: usize = 32;

/// Predicates that take one argument or none.
const ONE: [&[u8]; 9] = [
    b"defined",
    b"feature",
    b"version_atleast",
    b"version_before",
    b"openssl_version_atleast",
    b"openssl_version_before",
    b"awslc_api_atleast",
    b"awslc_api_before",
    b"enabled",
];

/// Predicates that take two.
const TWO: [&[u8]; 3] = [b"streq", b"strneq", b"strstr"];

/// Checks the words behind `.if`, joined by one blank.
///
/// # Errors
///
/// What is wrong with it, for people.
pub(super) fn check(text: &[u8], rules: Rules) -> Result<(), String> {
    let literal = |b: &u8| b.is_ascii() && !matches!(b, b'"' | b'\'' | b'\\');
    if text.is_empty() || text.starts_with(b" ") || !text.iter().all(literal) {
        return Ok(());
    }
    let mut reader = Reader { text, at: 0, rules };
    let read = reader.expression(0).and_then(|()| match reader.peek() {
        None => Ok(()),
        Some(byte) => Err(reader.end_at(byte)),
    });
    match read {
        Ok(()) if rules == Rules::Only3_4 && is_unread_ssl_version(text) => Err(
            "has a condition whose SSL version has less than three parts; write for example: \
             openssl_version_atleast(3.0.0)"
                .to_owned(),
        ),
        Ok(()) | Err(Stop::Unsure) => Ok(()),
        Err(Stop::Count(wanted)) => Err(format!(
            "has a condition with a wrong number of arguments; this predicate takes {wanted}"
        )),
        Err(Stop::Fault) => Err("has a condition that cannot be read".to_owned()),
    }
}

enum Stop {
    /// HAProxy refuses this.
    Fault,
    /// HAProxy refuses this number of arguments; what it takes, for people.
    Count(&'static str),
    /// HAProxy may take this.
    Unsure,
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    rules: Rules,
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

    /// A byte where the expression or its parenthesis ends.
    fn end_at(&self, byte: u8) -> Stop {
        match self.rules {
            Rules::Only3_4 => Stop::Fault,
            Rules::Common | Rules::Later => self.stop_at(byte),
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
                    Some(byte) => Err(self.end_at(byte)),
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
        let name = self.rest().get(..length).unwrap_or_default();
        let two = TWO.contains(&name);
        if !two && !ONE.contains(&name) {
            return Err(Stop::Unsure);
        }
        self.at += length;
        let mut commas = 0;
        if self.peek() == Some(b'(') {
            let close = self.rest().iter().position(|&b| b == b')');
            let close = close.ok_or(Stop::Fault)?;
            let inner = self.rest().get(..close).unwrap_or_default();
            commas = inner.iter().filter(|&&b| b == b',').count();
            self.at += close + 1;
        }
        match (two, commas) {
            (true, 1) | (false, 0) => Ok(()),
            (true, _) => Err(Stop::Count("two")),
            (false, _) => Err(Stop::Count("one")),
        }
    }
}

/// Whether all of the expression is one question for the SSL library's version that 3.4
/// cannot read. Among other terms its turn may never come.
fn is_unread_ssl_version(text: &[u8]) -> bool {
    let bare = text.iter().position(|b| !matches!(b, b'!' | b' '));
    let term = text.get(bare.unwrap_or(text.len())..).unwrap_or_default();
    let one = |name: &[u8]| {
        let argument = term.strip_prefix(name)?;
        match argument {
            [] => Some(argument),
            [b'(', inner @ .., b')'] => Some(inner),
            _ => None,
        }
    };
    let argument = one(b"openssl_version_atleast").or_else(|| one(b"openssl_version_before"));
    argument.is_some_and(|argument| {
        !argument.contains(&b')') && argument.iter().filter(|&&b| b == b'.').count() < 2
    })
}
