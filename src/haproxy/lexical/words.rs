//! One line into words, as HAProxy does it.
//!
//! Quotes, escapes and environment variables inside double quotes. The environment is
//! HAProxy's, not ours: a word that holds a variable is marked, and where its value
//! decides how the line goes on, the reading with fewer words is taken.

/// Words of one line; the next one is refused.
const MAX_WORDS: usize = 64;

/// One word, quotes and escapes resolved.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// Its bytes without what variables add.
    pub(super) text: Vec<u8>,
    /// It holds a variable, so its text is not known.
    pub(super) expanded: bool,
}

/// What C calls a space.
pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Neither a space nor anything that quotes, escapes, expands or ends.
const fn is_ordinary(byte: u8) -> bool {
    !is_space(byte) && !matches!(byte, b'"' | b'\'' | b'\\' | b'#' | b'$')
}

/// The first word of a line that has ordinary bytes and spaces only, and not too many
/// words: most lines of a configuration, and [`split`] would find nothing in them.
pub(super) fn first_if_plain(line: &[u8]) -> Option<&[u8]> {
    let mut words = 0;
    let mut in_word = false;
    for &byte in line {
        match PLAIN.get(usize::from(byte)) {
            Some(Plain::Ordinary) => {
                words += usize::from(!in_word);
                in_word = true;
            }
            Some(Plain::Blank) => in_word = false,
            Some(Plain::Not) | None => return None,
        }
    }
    let first = line.split(|&b| b == b' ').next();
    first.filter(|first| words <= MAX_WORDS && !first.is_empty())
}

#[derive(Clone, Copy)]
enum Plain {
    Ordinary,
    Blank,
    Not,
}

/// What a byte is on a plain line; a table, because every byte of the file is looked up.
const PLAIN: [Plain; 256] = {
    let mut table = [Plain::Not; 256];
    let mut byte: u8 = 0;
    loop {
        if byte == b' ' {
            table[byte as usize] = Plain::Blank;
        } else if is_ordinary(byte) {
            table[byte as usize] = Plain::Ordinary;
        }
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

/// Splits a line whose leading blanks are gone.
///
/// # Errors
///
/// What is wrong with it, for people.
pub(super) fn split(line: &[u8]) -> Result<Vec<Word>, String> {
    let mut reader = Reader {
        line,
        at: 0,
        words: Vec::new(),
        quote: Quote::None,
    };
    match (reader.run(), reader.quote) {
        (Ok(()), Quote::None) | (Err(Stop::Unsure), _) => Ok(reader.words),
        (Ok(()), Quote::Single | Quote::Double) => Err("has a quote that is not closed".to_owned()),
        (Err(Stop::Fault(what)), _) => Err(what),
    }
}

/// Why a line is read no further.
enum Stop {
    /// HAProxy refuses it.
    Fault(String),
    /// How it goes on depends on a variable.
    Unsure,
}

fn fault<T>(what: &str) -> Result<T, Stop> {
    Err(Stop::Fault(what.to_owned()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

struct Reader<'a> {
    line: &'a [u8],
    at: usize,
    words: Vec<Word>,
    quote: Quote,
}

impl Reader<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        // A carriage return ends the line even within quotes.
        while let Some(byte) = self.peek(0).filter(|&b| b != b'\r') {
            match (byte, self.quote) {
                (b'#', Quote::None) => return Ok(()),
                (b, Quote::None) if is_space(b) => {
                    self.skip_spaces();
                    if self.peek(0).is_some_and(|b| b != b'#') {
                        self.begin()?;
                    }
                    continue;
                }
                (b'"', Quote::None) => self.set_quote(Quote::Double)?,
                (b'"', Quote::Double) | (b'\'', Quote::Single) => self.set_quote(Quote::None)?,
                (b'\'', Quote::None) => self.set_quote(Quote::Single)?,
                (b'\\', Quote::None | Quote::Double) => self.escape()?,
                (b'$', Quote::Double) => self.variable()?,
                (_, Quote::None | Quote::Single | Quote::Double) => self.emit_run()?,
            }
        }
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.line.get(self.at + ahead).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek(0).is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn begin(&mut self) -> Result<(), Stop> {
        if self.words.len() >= MAX_WORDS {
            // A word of nothing but a variable without a value may not be one.
            let rest = self.line.get(self.at..).unwrap_or_default();
            return match rest.contains(&b'$') {
                true => Err(Stop::Unsure),
                false => fault(&format!("has more than {MAX_WORDS} words")),
            };
        }
        self.words.push(Word::default());
        Ok(())
    }

    /// The word being read; the first one begins with the line.
    fn word(&mut self) -> Result<&mut Word, Stop> {
        if self.words.is_empty() {
            self.begin()?;
        }
        self.words.last_mut().ok_or(Stop::Unsure)
    }

    fn set_quote(&mut self, quote: Quote) -> Result<(), Stop> {
        self.word()?;
        self.quote = quote;
        self.at += 1;
        Ok(())
    }

    fn emit(&mut self, byte: u8, read: usize) -> Result<(), Stop> {
        self.word()?.text.push(byte);
        self.at += read;
        Ok(())
    }

    /// The byte here, whatever it is, and the ordinary ones behind it.
    fn emit_run(&mut self) -> Result<(), Stop> {
        let rest = self.line.get(self.at..).unwrap_or_default();
        let more = rest.iter().skip(1).take_while(|&&b| is_ordinary(b)).count();
        let run = rest.get(..=more).unwrap_or_default();
        self.word()?.text.extend_from_slice(run);
        self.at += run.len();
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Stop> {
        match self.peek(1) {
            Some(next @ (b' ' | b'\\' | b'#' | b'\'' | b'"')) => self.emit(next, 2),
            Some(b'$') if self.quote == Quote::Double => self.emit(b'$', 2),
            Some(b't') => self.emit(b'\t', 2),
            Some(b'n') => self.emit(b'\n', 2),
            Some(b'r') => self.emit(b'\r', 2),
            Some(b'x') => {
                let digit = |at| self.peek(at).and_then(|b| char::from(b).to_digit(16));
                let value = digit(2)
                    .zip(digit(3))
                    .and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                match value {
                    Some(value) => self.emit(value, 4),
                    None => fault("has \\x without two hexadecimal digits"),
                }
            }
            Some(_) | None => self.emit(b'\\', 1),
        }
    }

    /// A variable inside double quotes.
    fn variable(&mut self) -> Result<(), Stop> {
        self.word()?.expanded = true;
        self.at += 1;
        let brace = self.peek(0) == Some(b'{');
        self.at += usize::from(brace);
        let first = self
            .peek(0)
            .filter(|&b| b.is_ascii_alphabetic() || b == b'_' || b == b'.');
        let Some(first) = first else {
            return fault("has $ without a variable's name in double quotes; write \\$");
        };
        self.at += 1;
        while self
            .peek(0)
            .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            self.at += 1;
        }
        let mut default = false;
        if brace {
            if self.peek(0) == Some(b'[') {
                if (self.peek(1), self.peek(2)) != (Some(b'*'), Some(b']')) {
                    return fault("has ${…[ without *]");
                }
                self.at += 3;
            }
            default = self.peek(0) == Some(b'-');
            while default && self.peek(0).is_some_and(|b| b != b'}') {
                self.at += 1;
            }
            if self.peek(0) != Some(b'}') {
                return fault("has ${ without }");
            }
            self.at += 1;
        }
        // Without a value HAProxy skips a closing quote and the blanks behind it, so that
        // the next word joins this one.
        let may_skip = !default && first != b'.' && self.peek(0) == Some(b'"');
        if may_skip {
            if self.peek(1) == Some(b'\r') {
                return Err(Stop::Unsure);
            }
            self.at += 1;
            self.quote = Quote::None;
            self.skip_spaces();
        }
        Ok(())
    }
}
