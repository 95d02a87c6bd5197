//! From the bytes of a request to its keys.
//!
//! The line is the operator's `agent-send`, so nothing in it is HAProxy's grammar: words
//! between blanks, ended by the first line feed. Without one the end of the stream ends it,
//! or a pause behind what HAProxy sends in one piece. A request that may have been cut is
//! none: `app` of `app/web1` is another key, and a group that is cut off would bring its
//! rows back. Pure: the caller reads, this module decides whether that is enough.

use super::limits::{MAX_KEYS, MAX_LINE_BYTES, MAX_UNENDED_BYTES};

/// What the bytes so far amount to.
// One lives on the stack of each connection; an allocation a request would cost more.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// At least one key, at most [`MAX_KEYS`], as sent.
    Keys(Keys<'a>),
    /// A line without a key.
    NoKey,
    /// More than [`MAX_LINE_BYTES`], or than [`MAX_KEYS`] keys.
    TooLong,
}

/// The keys of one request, the most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys<'a> {
    words: [&'a [u8]; MAX_KEYS],
    count: usize,
}

impl<'a> Keys<'a> {
    /// All of them in order; never empty.
    #[must_use]
    pub fn as_slice(&self) -> &[&'a [u8]] {
        self.words.get(..self.count).unwrap_or(&[])
    }

    /// The first, under which the row is known.
    #[must_use]
    pub fn first(&self) -> &'a [u8] {
        self.as_slice().first().copied().unwrap_or(b"")
    }
}

/// Whether more bytes can change what `received` means: no line feed yet, and not too
/// long either.
#[must_use]
pub fn wants_more(received: &[u8]) -> bool {
    received.len() <= MAX_LINE_BYTES && !received.contains(&b'\n')
}

/// Whether a pause, or the end of the time, may end what came without a line feed in so
/// many pieces. Nothing at all may: it names no key.
#[must_use]
pub fn may_end(received: &[u8], pieces: usize) -> bool {
    pieces <= 1 && received.len() <= MAX_UNENDED_BYTES
}

/// Reads a request. The caller has stopped at a line feed, at the end of the stream, where
/// [`may_end`] allows it, or when [`wants_more`] said so; at most `MAX_LINE_BYTES + 1` bytes
/// count.
#[must_use]
pub fn parse(received: &[u8]) -> Request<'_> {
    let line = match received.iter().position(|byte| *byte == b'\n') {
        Some(end) if end < MAX_LINE_BYTES => received.get(..end).unwrap_or(&[]),
        Some(_) => return Request::TooLong,
        None if received.len() <= MAX_LINE_BYTES => received,
        None => return Request::TooLong,
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut keys = Keys {
        words: [b""; MAX_KEYS],
        count: 0,
    };
    let words = line.split(|byte| matches!(byte, b' ' | b'\t'));
    for word in words.filter(|word| !word.is_empty()) {
        match keys.words.get_mut(keys.count) {
            Some(place) => *place = word,
            None => return Request::TooLong,
        }
        keys.count += 1;
    }
    match keys.count {
        0 => Request::NoKey,
        _ => Request::Keys(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(received: &[u8]) -> Vec<&[u8]> {
        match parse(received) {
            Request::Keys(keys) => keys.as_slice().to_vec(),
            other => panic!("{:?} gave {other:?}", String::from_utf8_lossy(received)),
        }
    }

    #[test]
    fn words_up_to_the_line_feed() {
        let table: [(&[u8], &[&[u8]]); 14] = [
            (b"web/s1\n", &[b"web/s1"]),
            (b"web/s1 canary\n", &[b"web/s1", b"canary"]),
            (b"web/s1 canary\r\n", &[b"web/s1", b"canary"]),
            (b"  web/s1 \t canary  \n", &[b"web/s1", b"canary"]),
            (b"web/s1", &[b"web/s1"]),
            (b"web/s1\r", &[b"web/s1"]),
            (b"web/s1\ncanary\n", &[b"web/s1"]),
            (b"web/s1\n\xff\xff", &[b"web/s1"]),
            (b"WEB/S1\n", &[b"WEB/S1"]),
            (b"a,b;c=%41\n", &[b"a,b;c=%41"]),
            // Neither a carriage return inside nor any other byte divides or ends a key.
            (b"a\rb\n", &[b"a\rb"]),
            (b"a\r\r\n", &[b"a\r"]),
            (b"\x00\x0b\xff\n", &[b"\x00\x0b\xff"]),
            (b"a a a\n", &[b"a", b"a", b"a"]),
        ];
        for (received, want) in table {
            assert_eq!(keys(received), want, "{}", received.escape_ascii());
        }
    }

    #[test]
    fn lines_without_a_key() {
        for received in [
            &b""[..],
            b"\n",
            b"\r\n",
            b"\r",
            b" ",
            b" \t \r\n",
            b"\nweb/s1\n",
        ] {
            assert_eq!(parse(received), Request::NoKey, "{received:?}");
        }
    }

    #[test]
    fn keys_are_counted() {
        let line = |count: usize| [b"k ".repeat(count), b"\n".to_vec()].concat();
        assert_eq!(keys(&line(MAX_KEYS)).len(), MAX_KEYS);
        assert_eq!(parse(&line(MAX_KEYS + 1)), Request::TooLong);
        assert_eq!(parse(&line(500)), Request::TooLong);
        assert_eq!(keys(b"first second\n"), [&b"first"[..], b"second"]);
        match parse(b"first second\n") {
            Request::Keys(keys) => assert_eq!(keys.first(), b"first"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bytes_are_counted_with_the_line_end() {
        let text = vec![b'x'; MAX_LINE_BYTES + 1];
        let ended = |length: usize, end: &[u8]| [&text[..length], end].concat();
        assert_eq!(keys(&ended(MAX_LINE_BYTES, b""))[0].len(), MAX_LINE_BYTES);
        assert_eq!(
            keys(&ended(MAX_LINE_BYTES - 1, b"\n"))[0].len(),
            MAX_LINE_BYTES - 1
        );
        assert_eq!(parse(&ended(MAX_LINE_BYTES, b"\n")), Request::TooLong);
        assert_eq!(parse(&text), Request::TooLong);
    }

    #[test]
    fn what_may_have_been_cut_is_not_ended_by_a_pause() {
        let longest = [b'x'; MAX_UNENDED_BYTES];
        assert!(may_end(b"", 0));
        assert!(may_end(b"app/web1 canary", 1));
        assert!(may_end(&longest, 1));
        assert!(!may_end(b"app", 2));
        assert!(!may_end(&[&longest[..], b"x"].concat(), 1));
    }

    #[test]
    fn reading_stops_at_the_line_feed_or_when_it_is_too_long() {
        assert!(wants_more(b""));
        assert!(wants_more(b"web/s1 canary"));
        assert!(!wants_more(b"web/s1\n"));
        assert!(!wants_more(b"\nx"));
        assert!(wants_more(&[b'x'; MAX_LINE_BYTES]));
        assert!(!wants_more(&[b'x'; MAX_LINE_BYTES + 1]));
    }
}
