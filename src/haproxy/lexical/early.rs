//! The few keywords whose arguments a 3.4 master counts itself when it is told to reload.
//!
//! They stand in the global section. A line that starts with one of them in any other
//! section is refused as unknown, so the section need not be known: outside conditionals
//! and scopes a wrong number of arguments is always a refusal. Their values are not
//! looked at.

use super::words::Word;

/// Keyword, fewest and most arguments.
const KEYWORDS: [(&[u8], usize, usize); 9] = [
    (b"daemon", 0, 0),
    (b"localpeer", 1, 1),
    (b"mworker-max-reloads", 1, 1),
    (b"pidfile", 1, 1),
    (b"presetenv", 2, 2),
    (b"quiet", 0, 0),
    (b"setenv", 2, 2),
    (b"unsetenv", 1, usize::MAX),
    (b"zero-warning", 0, 0),
];

/// Whether a line that starts with this word is looked at.
pub(super) fn knows(name: &[u8]) -> bool {
    KEYWORDS.iter().any(|(keyword, _, _)| *keyword == name)
}

/// Checks a line by its first word.
///
/// # Errors
///
/// What is wrong with it, for people.
pub(super) fn check(name: &[u8], words: &[Word]) -> Result<(), String> {
    let known = KEYWORDS.iter().find(|(keyword, _, _)| *keyword == name);
    // A word from the environment may be several or none, an empty one may end the list.
    let uncertain = |word: &Word| word.expanded || word.text.is_empty();
    match known {
        Some((_, fewest, most)) if !words.iter().any(uncertain) => {
            let count = words.len().saturating_sub(1);
            match count >= *fewest && count <= *most {
                true => Ok(()),
                false => Err(format!(
                    "gives {} {count} arguments, which it does not take",
                    String::from_utf8_lossy(name)
                )),
            }
        }
        Some(_) | None => Ok(()),
    }
}
