//! The few lines whose words a 3.4 master judges itself when it is told to reload.
//!
//! Before it starts a worker it reads the global section for keywords of its own and
//! leaves all others to the worker, with two exceptions for every line of the file: the
//! words `no` and `default` in front, and what follows the word `global`. What it refuses
//! there ends it.
//!
//! Its keywords stand in the global section. A line that starts with one of them in any
//! other section is refused as unknown, so the section need not be known: outside
//! conditionals and scopes a wrong argument is always a refusal.

use super::Rules;
use super::words::Word;

/// Keywords that take `no` and `default` in front, by HAProxy's own words.
const PREFIXED: [&[u8]; 7] = [
    b"option",
    b"log",
    b"busy-polling",
    b"set-dumpable",
    b"strict-limits",
    b"insecure-fork-wanted",
    b"numa-cpu-mapping",
];

/// Bytes of the file's words that a message repeats.
const MAX_REPEATED: usize = 40;

/// Who refuses a wrong line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// Every HAProxy that was measured.
    Everywhere,
    /// 3.4; an earlier one takes it.
    By3_4,
}

/// What an argument must be besides not empty.
#[derive(Clone, Copy)]
enum Argument {
    Free,
    /// The first one, a variable's name.
    Name,
    /// All of them, variables' names.
    Names,
    /// The first one, zero or more for the C library.
    NotNegative,
    /// The first one if there is one.
    Only(&'static [u8]),
}

struct Keyword {
    name: &'static [u8],
    fewest: usize,
    most: usize,
    argument: Argument,
    refused: Refused,
    /// What to write instead.
    form: &'static str,
}

const fn bare(name: &'static [u8], form: &'static str) -> Keyword {
    Keyword {
        name,
        fewest: 0,
        most: 0,
        argument: Argument::Free,
        refused: Refused::Everywhere,
        form,
    }
}

const fn with(
    name: &'static [u8],
    (fewest, most): (usize, usize),
    argument: Argument,
    form: &'static str,
) -> Keyword {
    Keyword {
        name,
        fewest,
        most,
        argument,
        refused: Refused::Everywhere,
        form,
    }
}

const KEYWORDS: [Keyword; 17] = [
    bare(b"daemon", "daemon"),
    Keyword {
        refused: Refused::By3_4,
        ..bare(
            b"expose-deprecated-directives",
            "expose-deprecated-directives",
        )
    },
    bare(b"global", "global"),
    with(b"localpeer", (1, 1), Argument::Free, "localpeer <name>"),
    with(
        b"master-worker",
        (0, 1),
        Argument::Only(b"no-exit-on-failure"),
        "master-worker",
    ),
    with(
        b"mworker-max-reloads",
        (1, 1),
        Argument::NotNegative,
        "mworker-max-reloads <number>",
    ),
    bare(b"noepoll", "noepoll"),
    bare(b"noevports", "noevports"),
    bare(b"nokqueue", "nokqueue"),
    bare(b"noktls", "noktls"),
    bare(b"nopoll", "nopoll"),
    with(b"pidfile", (1, 1), Argument::Free, "pidfile <file>"),
    with(
        b"presetenv",
        (2, 2),
        Argument::Name,
        "presetenv <name> <value>",
    ),
    bare(b"quiet", "quiet"),
    with(b"setenv", (2, 2), Argument::Name, "setenv <name> <value>"),
    with(
        b"unsetenv",
        (1, usize::MAX),
        Argument::Names,
        "unsetenv <name> ...",
    ),
    bare(b"zero-warning", "zero-warning"),
];

/// Whether a line that starts with this word is looked at.
pub(super) fn knows(name: &[u8]) -> bool {
    is_prefix(name) || KEYWORDS.iter().any(|keyword| keyword.name == name)
}

fn is_prefix(name: &[u8]) -> bool {
    matches!(name, b"no" | b"default")
}

/// The keywords seen so far that 3.4 does not take beside each other.
#[derive(Default)]
pub(super) struct Seen {
    zero_warning: bool,
    master_worker: bool,
}

impl Seen {
    /// Checks a line by its first word.
    ///
    /// # Errors
    ///
    /// What is wrong with it and what to write, for people.
    pub(super) fn check(
        &mut self,
        name: &[u8],
        words: &[Word],
        rules: Rules,
    ) -> Result<(), String> {
        let line = Line(words);
        if is_prefix(name) {
            // A later release may have more keywords that take one.
            return match rules {
                Rules::Common | Rules::Only3_4 => check_prefixed(name, line),
                Rules::Later => Ok(()),
            };
        }
        let as_3_4 = rules == Rules::Only3_4;
        let known = KEYWORDS.iter().find(|keyword| keyword.name == name);
        match known {
            Some(keyword) if as_3_4 || keyword.refused == Refused::Everywhere => {
                check_count(keyword, line)?;
                check_argument(keyword, line)?;
            }
            Some(_) | None => {}
        }
        self.zero_warning |= name == b"zero-warning";
        self.master_worker |= name == b"master-worker";
        // 3.4 warns about the one and takes the warning for an error because of the other.
        match as_3_4 && self.zero_warning && self.master_worker {
            true => Err(
                "brings zero-warning and master-worker together, which HAProxy 3.4 refuses; \
                 delete master-worker and start HAProxy with -W"
                    .to_owned(),
            ),
            false => Ok(()),
        }
    }
}

/// The words of a line by their place.
#[derive(Clone, Copy)]
struct Line<'a>(&'a [Word]);

impl<'a> Line<'a> {
    /// The word at this place, empty if there is none; nothing if that depends on a
    /// variable, which may be several words or none.
    fn at(self, place: usize) -> Option<&'a [u8]> {
        let before = self.0.get(..=place).unwrap_or(self.0);
        match before.iter().any(|word| word.expanded) {
            true => None,
            false => Some(self.0.get(place).map_or(&[], |word| word.text.as_slice())),
        }
    }
}

fn check_prefixed(prefix: &[u8], line: Line) -> Result<(), String> {
    let prefix = repeated(prefix);
    match line.at(1) {
        None => Ok(()),
        Some(keyword) if PREFIXED.contains(&keyword) => Ok(()),
        Some([]) => Err(format!(
            "has {prefix} with no keyword behind it; delete the line or complete it"
        )),
        Some(keyword) => Err(format!(
            "has {prefix} before {}, which does not take it (only option, log, busy-polling, \
             set-dumpable, strict-limits, insecure-fork-wanted and numa-cpu-mapping do); \
             delete the line or the word {prefix}",
            repeated(keyword)
        )),
    }
}

/// By place: HAProxy looks at no word behind the first that is too many, and at each
/// that must be there on its own.
fn check_count(keyword: &Keyword, line: Line) -> Result<(), String> {
    let name = repeated(keyword.name);
    let missing = |place: usize| line.at(place).is_some_and(<[u8]>::is_empty);
    let extra = keyword.most.checked_add(1).and_then(|place| line.at(place));
    match extra {
        Some(word) if !word.is_empty() => Err(format!(
            "gives {name} an argument too many, '{}'; write: {}",
            repeated(word),
            keyword.form
        )),
        Some(_) | None if (1..=keyword.fewest).any(missing) => Err(format!(
            "gives {name} too few arguments, or an empty one; write: {}",
            keyword.form
        )),
        Some(_) | None => Ok(()),
    }
}

fn check_argument(keyword: &Keyword, line: Line) -> Result<(), String> {
    let name = repeated(keyword.name);
    let first = line.at(1).filter(|word| !word.is_empty());
    let wrong = match keyword.argument {
        Argument::Free => None,
        Argument::Name => first
            .filter(|word| word.contains(&b'='))
            .map(|word| (word, "is no variable's name")),
        Argument::Names => (1..line.0.len())
            .map_while(|place| line.at(place).filter(|word| !word.is_empty()))
            .find(|word| word.contains(&b'='))
            .map(|word| (word, "is no variable's name")),
        Argument::NotNegative => first
            .filter(|word| is_negative(word))
            .map(|word| (word, "is below 0 or above 2147483647")),
        Argument::Only(option) => first
            .filter(|word| *word != option)
            .map(|word| (word, "is no option it has")),
    };
    match wrong {
        None => Ok(()),
        Some((word, why)) => Err(format!(
            "gives {name} '{}', which {why}; write: {}",
            repeated(word),
            keyword.form
        )),
    }
}

/// Whether C's `atol`, cut to its lowest 32 bits, makes a negative number of it.
fn is_negative(text: &[u8]) -> bool {
    let start = text.iter().position(|&b| !super::words::is_space(b));
    let text = text.get(start.unwrap_or(text.len())..).unwrap_or_default();
    let (minus, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut value: i64 = 0;
    for digit in digits.iter().take_while(|b| b.is_ascii_digit()) {
        let digit = i64::from(digit - b'0');
        let signed = if minus { -digit } else { digit };
        value = value.saturating_mul(10).saturating_add(signed);
    }
    (value >> 31) & 1 == 1
}

/// A word of the file within a message.
fn repeated(word: &[u8]) -> String {
    match word.get(..MAX_REPEATED) {
        Some(start) if word.len() > MAX_REPEATED => {
            format!("{}…", String::from_utf8_lossy(start))
        }
        Some(_) | None => String::from_utf8_lossy(word).into_owned(),
    }
}
