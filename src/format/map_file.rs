//! Map files as HAProxy's loader reads them, and as a payload holds the same entries.
//!
//! The loader knows no quotes and no escapes. A `#` is a comment in the first column
//! only; leading blanks go; the first blank ends the key; the rest without outer blanks
//! is the value; the first CR ends the line and what follows it is lost.

use super::Fault;
use super::payload::MAX_PAYLOAD_LINE_BYTES;
use std::io::{BufRead, Read};

/// One entry; neither part is necessarily UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry<'a> {
    /// Up to the first blank.
    pub key: &'a [u8],
    /// The rest without outer blanks; may be empty.
    pub value: &'a [u8],
}

/// The entries of a file, in its order, duplicates included.
///
/// # Errors
///
/// A line above [`MAX_PAYLOAD_LINE_BYTES`] or a NUL: HAProxy would cut the one into two
/// entries and end the other early.
pub fn parse(file: &[u8]) -> Result<Vec<Entry<'_>>, Fault> {
    let mut entries = Vec::new();
    for (at, line) in file.split(|&b| b == b'\n').enumerate() {
        check(at + 1, line)?;
        entries.extend(entry(line));
    }
    Ok(entries)
}

/// The same entries one after the other, with one line in memory.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    line: Vec<u8>,
    number: usize,
}

impl<R: BufRead> Reader<R> {
    /// From the file's beginning.
    pub fn new(file: R) -> Self {
        Self {
            file,
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next entry, `None` at the end.
    ///
    /// # Errors
    ///
    /// Faults in the words of [`parse`], and what the system says.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>, String> {
        loop {
            self.line.clear();
            self.number += 1;
            // One byte more than a line may have tells that it is too long.
            let mut part = (&mut self.file).take(MAX_PAYLOAD_LINE_BYTES as u64 + 1);
            let count = part
                .read_until(b'\n', &mut self.line)
                .map_err(|error| format!("the map file cannot be read: {error}"))?;
            if count == 0 {
                return Ok(None);
            }
            let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            check(self.number, line).map_err(|fault| fault.words)?;
            if entry(line).is_some() {
                break;
            }
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(entry(line))
    }
}

/// What HAProxy's loader would mangle.
fn check(number: usize, line: &[u8]) -> Result<(), Fault> {
    if line.len() + 1 > MAX_PAYLOAD_LINE_BYTES {
        return Err(Fault::invalid(format!(
            "line {number} of the map file is longer than {} bytes",
            MAX_PAYLOAD_LINE_BYTES - 1
        )));
    }
    match line.contains(&0) {
        true => Err(Fault::invalid(format!(
            "line {number} of the map file holds a NUL byte"
        ))),
        false => Ok(()),
    }
}

fn entry(line: &[u8]) -> Option<Entry<'_>> {
    if line.first() == Some(&b'#') {
        return None;
    }
    let line = line.split(|&b| b == b'\r').next().unwrap_or_default();
    let line = trim(line);
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let (key, rest) = line.split_at_checked(end)?;
    (!key.is_empty()).then(|| Entry {
        key,
        value: trim(rest),
    })
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes {
        if !is_blank(first) {
            break;
        }
        bytes = rest;
    }
    while let [rest @ .., last] = bytes {
        if !is_blank(last) {
            break;
        }
        bytes = rest;
    }
    bytes
}

/// Payload bodies of at most `room` bytes, whole entries each. An entry is
/// `key SP value LF`, with the blank also before an empty value: a key alone would
/// swallow the line after it.
///
/// # Errors
///
/// `TooBig` for an entry above `room`.
pub fn chunks(entries: &[Entry<'_>], room: usize) -> Result<Vec<Vec<u8>>, Fault> {
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let mut open = Vec::new();
    for entry in entries {
        let size = entry.key.len() + entry.value.len() + 2;
        if size > room {
            return Err(Fault::too_big(format!(
                "a map entry has {size} bytes and {room} fit into one command"
            )));
        }
        if open.len() + size > room {
            chunks.push(std::mem::take(&mut open));
        }
        open.extend_from_slice(entry.key);
        open.push(b' ');
        open.extend_from_slice(entry.value);
        open.push(b'\n');
    }
    if !open.is_empty() {
        chunks.push(open);
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(file: &str) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let entries = parse(file.as_bytes()).unwrap();
        entries
            .iter()
            .map(|e| (text(e.key), text(e.value)))
            .collect()
    }

    #[test]
    fn lines_are_read_as_the_loader_reads_them() {
        let table: &[(&str, &[(&str, &str)])] = &[
            ("", &[]),
            ("\n\n", &[]),
            ("k v", &[("k", "v")]),
            ("k v\n", &[("k", "v")]),
            ("k\n", &[("k", "")]),
            ("k \t\n", &[("k", "")]),
            ("# c\nk v\n", &[("k", "v")]),
            (" # v\n", &[("#", "v")]),
            ("\t#x v\n", &[("#x", "v")]),
            ("  k   a  b \t\n", &[("k", "a  b")]),
            ("k\tv\n", &[("k", "v")]),
            ("k a # b\n", &[("k", "a # b")]),
            ("k v\r\nx y\r\n", &[("k", "v"), ("x", "y")]),
            ("k v\rlost\n", &[("k", "v")]),
            ("\rlost all\n", &[]),
            ("k v \r\n", &[("k", "v")]),
            ("k \"a b\" \\ ;\n", &[("k", "\"a b\" \\ ;")]),
            ("\u{feff}k v\n", &[("\u{feff}k", "v")]),
            ("k 1\nk 2\nk 1\n", &[("k", "1"), ("k", "2"), ("k", "1")]),
        ];
        for (file, wanted) in table {
            let wanted: Vec<_> = wanted
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect();
            assert_eq!(pairs(file), wanted, "{file:?}");
            assert_eq!(read(file.as_bytes()).unwrap(), wanted, "{file:?}");
        }
    }

    fn read(file: &[u8]) -> Result<Vec<(String, String)>, String> {
        let mut reader = Reader::new(file);
        let mut all = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            all.push((text(entry.key), text(entry.value)));
        }
        Ok(all)
    }

    #[test]
    fn what_the_loader_would_mangle_is_refused() {
        let line = |len: usize| vec![b'x'; len];
        let longest = line(MAX_PAYLOAD_LINE_BYTES - 1);
        for good in [longest.clone(), [&longest[..], b"\nk v"].concat()] {
            assert!(parse(&good).is_ok() && read(&good).is_ok());
        }
        let longer = line(MAX_PAYLOAD_LINE_BYTES);
        let behind = [b"k v\n", &longer[..], b"\n"].concat();
        for bad in [b"a\0b".to_vec(), b"#\0".to_vec(), longer, behind] {
            let fault = parse(&bad).unwrap_err();
            assert_eq!(read(&bad).unwrap_err(), fault.words);
        }
    }

    #[test]
    fn chunks_hold_whole_entries_within_their_room() {
        let entries = parse(b"a 1\nb 22\nc\n").unwrap();
        let all = chunks(&entries, 100).unwrap();
        assert_eq!(all, [b"a 1\nb 22\nc \n".to_vec()]);
        let two = chunks(&entries, 9).unwrap();
        assert_eq!(two, [b"a 1\nb 22\n".to_vec(), b"c \n".to_vec()]);
        assert_eq!(chunks(&entries, 8).unwrap().len(), 2);
        assert_eq!(
            chunks(&entries, 4).unwrap_err().kind,
            super::super::FaultKind::TooBig
        );
        assert!(chunks(&[], 100).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn what_is_rendered_is_read_back_the_same(
            file in proptest::collection::vec("[ab# \t\r\\\\;\"ü]{0,12}", 0..40),
            room in 40..200_usize,
        ) {
            let file = file.join("\n");
            let entries = parse(file.as_bytes()).unwrap();
            let chunks = chunks(&entries, room).unwrap();
            prop_assert!(chunks.iter().all(|chunk| chunk.len() <= room));
            let joined = chunks.concat();
            let split: Vec<_> = joined.split(|&b| b == b'\n').filter(|l| !l.is_empty()).collect();
            prop_assert_eq!(split.len(), entries.len());
            for (line, entry) in split.iter().zip(&entries) {
                let at = line.iter().position(|&b| b == b' ').unwrap();
                prop_assert_eq!((&line[..at], &line[at + 1..]), (entry.key, entry.value));
            }
        }
    }
}
