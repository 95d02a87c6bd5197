//! crt-lists as HAProxy's loader reads them.
//!
//! A line is a certificate, then options in one pair of brackets, then SNI filters, all
//! separated by white space; brackets need none around them. A `#` is a comment in the
//! first column only. The last line must end in LF. Which options there are, and whether
//! a name leads to a file, is HAProxy's to say.

use super::Fault;
use std::collections::BTreeSet;

/// A line of this many bytes, LF included, is the longest that the loader takes.
const MAX_LINE_BYTES: usize = 65_535;

/// One certificate of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'a> {
    /// Where it stands, from 1.
    pub line: usize,
    /// The certificate's name as written.
    pub cert: &'a [u8],
    /// The words between the brackets.
    pub options: Vec<&'a [u8]>,
    /// The words behind them.
    pub filters: Vec<&'a [u8]>,
    /// Words between the name and the bracket, which the loader drops with a warning.
    pub dropped: Vec<&'a [u8]>,
    /// Its bracket is not closed, so that what was meant to be options are filters.
    pub unclosed: bool,
}

/// A line that the loader refuses, and the whole configuration with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Where it stands, from 1.
    pub line: usize,
    /// Its rule, to be read behind `line N`.
    pub what: &'static str,
}

impl From<BadLine> for Fault {
    fn from(bad: BadLine) -> Self {
        Self::invalid(format!("line {} of the crt-list {}", bad.line, bad.what))
    }
}

/// All rows in their order.
///
/// # Errors
///
/// The first line that the loader refuses.
pub fn parse(file: &[u8]) -> Result<Vec<Row<'_>>, Fault> {
    rows(file)
        .collect::<Result<_, _>>()
        .map_err(|bad| bad.into())
}

/// Each row, and each line that is refused.
pub fn rows(file: &[u8]) -> impl Iterator<Item = Result<Row<'_>, BadLine>> {
    let whole = file.is_empty() || file.ends_with(b"\n");
    let last = file.iter().filter(|&&b| b == b'\n').count() + 1;
    file.split(|&b| b == b'\n')
        .zip(1..)
        .filter_map(move |(text, line)| {
            let open = line == last && !whole;
            row(text, line, open)
                .map_err(|what| BadLine { line, what })
                .transpose()
        })
}

/// The certificates that a list names, also on lines that the loader refuses.
#[must_use]
pub fn names(file: &[u8]) -> BTreeSet<Vec<u8>> {
    let rows = file
        .split(|&b| b == b'\n')
        .filter(|line| !line.starts_with(b"#"));
    rows.filter_map(|line| words(line.split(|&b| b == b'[').next()?).next())
        .map(<[u8]>::to_vec)
        .collect()
}

fn row(text: &[u8], line: usize, open: bool) -> Result<Option<Row<'_>>, &'static str> {
    if text.contains(&0) {
        return Err("holds a NUL byte");
    }
    if text.len() >= MAX_LINE_BYTES {
        return Err("has more than 65534 bytes");
    }
    if matches!(text.first(), Some(b'#' | b'\r')) {
        return Ok(None);
    }
    if open {
        return Err("is the last one and has no line end, HAProxy takes that for a cut file");
    }
    let Some((start, rest)) = bracket(text, b'[') else {
        return match text.contains(&b']') {
            true => Err("has a ] without a ["),
            false => Ok(plain(text, line)),
        };
    };
    let closed = bracket(rest, b']');
    let (options, filters) = closed.unwrap_or((&[], rest));
    if start.contains(&b']') {
        return Err("has a ] before its [");
    }
    if options.contains(&b'[') || filters.contains(&b'[') {
        return Err("has more than one [");
    }
    if filters.contains(&b']') {
        return Err("has more than one ]");
    }
    let mut before = words(start);
    let cert = before.next().ok_or("has no certificate before its [")?;
    Ok(Some(Row {
        line,
        cert,
        options: words(options).collect(),
        filters: words(filters).collect(),
        dropped: before.collect(),
        unclosed: closed.is_none(),
    }))
}

fn plain(text: &[u8], line: usize) -> Option<Row<'_>> {
    let mut words = words(text);
    let cert = words.next()?;
    Some(Row {
        line,
        cert,
        options: Vec::new(),
        filters: words.collect(),
        dropped: Vec::new(),
        unclosed: false,
    })
}

/// What stands before and after the first `mark`.
fn bracket(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == mark)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The words of C's `isspace`.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| matches!(b, b' ' | b'\t' | b'\r' | 0x0b | 0x0c))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cert|options|filters|dropped` a row, words joined by commas.
    fn shown(file: &str) -> Result<Vec<String>, String> {
        let join = |words: &[&[u8]]| -> String {
            let words: Vec<_> = words.iter().map(|w| String::from_utf8_lossy(w)).collect();
            words.join(",")
        };
        let rows = parse(file.as_bytes()).map_err(|fault| fault.words)?;
        Ok(rows
            .iter()
            .map(|row| {
                format!(
                    "{}|{}|{}|{}",
                    String::from_utf8_lossy(row.cert),
                    join(&row.options),
                    join(&row.filters),
                    join(&row.dropped)
                )
            })
            .collect())
    }

    #[test]
    fn lines_are_read_as_the_loader_reads_them() {
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            ("\n \t\n\r\n", &[]),
            ("# c\na.pem\n", &["a.pem|||"]),
            ("#[\n", &[]),
            ("# open", &[]),
            (" # x\n", &["#||x|"]),
            ("a.pem\r\n", &["a.pem|||"]),
            ("\ta.pem  *.x !y.x\n", &["a.pem||*.x,!y.x|"]),
            ("a.pem [alpn h2] x\n", &["a.pem|alpn,h2|x|"]),
            ("a.pem[alpn h2]x\n", &["a.pem|alpn,h2|x|"]),
            ("a.pem []\n", &["a.pem|||"]),
            ("a.pem f [alpn h2] x\n", &["a.pem|alpn,h2|x|f"]),
            ("a b # c\n", &["a||b,#,c|"]),
            ("a [x y\n", &["a||x,y|"]),
            ("a\nb\n", &["a|||", "b|||"]),
        ];
        for (file, wanted) in table {
            assert_eq!(shown(file).unwrap(), *wanted, "{file:?}");
        }
    }

    #[test]
    fn what_the_loader_refuses_is_named_by_its_line() {
        for (file, line) in [
            ("a.pem", 1),
            ("a\nb", 2),
            ("a\n \t", 2),
            ("[alpn h2]\n", 1),
            ("a x]\n", 1),
            ("a ] [x]\n", 1),
            ("a [x] [y]\n", 1),
            ("a [x] y]\n", 1),
            ("a\nb\0\n", 2),
        ] {
            let fault = shown(file).unwrap_err();
            assert!(fault.starts_with(&format!("line {line} ")), "{fault}");
        }
        let long = format!("{}\n", "x".repeat(MAX_LINE_BYTES));
        assert!(shown(&long).is_err());
        assert!(shown(&long[1..]).is_ok());
    }

    #[test]
    fn names_are_the_first_words() {
        let names = names(b"# no.pem\na.pem x\n [\nb.pem[alpn h2]\r\n\n  c.pem");
        let names: Vec<_> = names.iter().map(|n| String::from_utf8_lossy(n)).collect();
        assert_eq!(names, ["a.pem", "b.pem", "c.pem"]);
    }
}
