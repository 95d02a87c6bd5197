//! Whole forms, cut everywhere a network could cut them.

use super::*;
use crate::http::BodyError;
use proptest::prelude::*;

/// Hands out the bytes in pieces of the given sizes, over and over.
struct Pieces<'a> {
    bytes: &'a [u8],
    sizes: Vec<usize>,
    turn: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
        let count = size.min(buffer.len()).min(self.bytes.len());
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

type Parts = Vec<(String, Option<String>, Vec<u8>)>;

/// All parts, or the first error, or the error of the end.
fn read(
    source: impl Read,
    boundary: &str,
    max_parts: usize,
    step: usize,
) -> Result<Parts, MultipartError> {
    let mut form = Multipart::new(source, boundary, max_parts);
    let mut parts = Parts::new();
    while let Some(head) = form.next_part()? {
        let mut content = Vec::new();
        let mut buffer = vec![0; step];
        loop {
            match form.read_part(&mut buffer)? {
                0 => break,
                count => content.extend_from_slice(&buffer[..count]),
            }
        }
        parts.push((head.name, head.filename, content));
    }
    form.finish()?;
    Ok(parts)
}

fn whole(text: &[u8]) -> Result<Parts, Framing> {
    read(text, "b", 10, 4096).map_err(framing)
}

fn framing(error: MultipartError) -> Framing {
    match error {
        MultipartError::Framing(framing) => framing,
        MultipartError::Transport(error) => panic!("{error}"),
    }
}

fn part(name: &str, content: &str) -> (String, Option<String>, Vec<u8>) {
    (name.to_owned(), None, content.as_bytes().to_vec())
}

const HEAD_A: &str = "Content-Disposition: form-data; name=\"a\"\r\n\r\n";

#[test]
fn forms_that_are_read() {
    let a = HEAD_A;
    let look_alikes = "--c\r\n--bx\r\n--b-\r\n--b \tx\r\n-b--\r\n--\r\n--b\rx";
    let table = [
        ("no parts", "--b--\r\n".to_owned(), vec![]),
        ("no line end at the end", "--b--".to_owned(), vec![]),
        (
            "one part",
            format!("--b\r\n{a}x\r\n--b--\r\n"),
            vec![part("a", "x")],
        ),
        (
            "an empty part",
            format!("--b\r\n{a}\r\n--b--\r\n"),
            vec![part("a", "")],
        ),
        (
            "an empty part that shares its line end",
            format!("--b\r\n{a}--b\r\n{a}--b--\r\n"),
            vec![part("a", ""), part("a", "")],
        ),
        (
            "line ends in content",
            format!("--b\r\n{a}\r\n\r\r\n\n\r\n--b--\r\n"),
            vec![part("a", "\r\n\r\r\n\n")],
        ),
        (
            "a preamble and an epilogue",
            format!("hello\r\n--bb\r\n--b\r\n{a}x\r\n--b--\r\nbye\r\n--b\r\n"),
            vec![part("a", "x")],
        ),
        (
            "padding behind delimiters",
            format!("--b \t\r\n{a}x\r\n--b-- \r\n"),
            vec![part("a", "x")],
        ),
        (
            "look-alikes of the delimiter",
            format!("--b\r\n{a}{look_alikes}\r\n--b--\r\n"),
            vec![part("a", look_alikes)],
        ),
        (
            "a bare line feed before a delimiter is content",
            format!("--b\r\n{a}x\n--b--\r\n--b--\r\n"),
            vec![part("a", "x\n--b--")],
        ),
    ];
    for (what, text, parts) in table {
        for step in [1, 2, 7, 4096] {
            for piece in [1, 2, 3, 5, 1000] {
                let source = Pieces {
                    bytes: text.as_bytes(),
                    sizes: vec![piece],
                    turn: 0,
                };
                let got = read(source, "b", 10, step).map_err(framing);
                assert_eq!(got.as_ref(), Ok(&parts), "{what}, {piece} bytes at a time");
            }
        }
    }
}

#[test]
fn forms_that_are_refused() {
    let a = HEAD_A;
    let long_field = format!("X: {}\r\n", "y".repeat(MAX_PART_HEAD_BYTES));
    let long_head = "X: y\r\n".repeat(MAX_PART_HEAD_BYTES / 6 + 1);
    let around = "x".repeat(MAX_AROUND_BYTES + 4);
    let table = [
        ("empty", String::new(), Framing::NotClosed),
        (
            "another boundary",
            format!("--c\r\n{a}x\r\n--c--\r\n"),
            Framing::NotClosed,
        ),
        ("cut in content", format!("--b\r\n{a}x"), Framing::NotClosed),
        (
            "cut before the dashes",
            format!("--b\r\n{a}x\r\n--b"),
            Framing::NotClosed,
        ),
        (
            "cut in the dashes",
            format!("--b\r\n{a}x\r\n--b-"),
            Framing::NotClosed,
        ),
        (
            "no closing delimiter",
            format!("--b\r\n{a}x\r\n--b\r\n"),
            Framing::NotClosed,
        ),
        (
            "cut in a head",
            format!("--b\r\n{}", &a[..20]),
            Framing::NotClosed,
        ),
        (
            "bytes after the close",
            format!("--b\r\n{a}x\r\n--b--x\r\n"),
            Framing::AfterClose,
        ),
        (
            "a third dash",
            format!("--b\r\n{a}x\r\n--b---\r\n"),
            Framing::AfterClose,
        ),
        (
            "a long field",
            format!("--b\r\n{long_field}{a}x\r\n--b--"),
            Framing::PartHeadTooLong,
        ),
        (
            "a long head",
            format!("--b\r\n{long_head}{a}x\r\n--b--"),
            Framing::PartHeadTooLong,
        ),
        (
            "a long preamble",
            format!("{around}\r\n--b--"),
            Framing::NoFirstDelimiter,
        ),
        (
            "a long epilogue",
            format!("--b--\r\n{around}"),
            Framing::EpilogueTooLong,
        ),
        (
            "no head",
            "--b\r\n\r\nx\r\n--b--".to_owned(),
            Framing::Disposition,
        ),
        (
            "too many parts",
            format!("--b\r\n{a}x\r\n").repeat(11) + "--b--",
            Framing::TooManyParts,
        ),
    ];
    for (what, text, why) in table {
        assert_eq!(whole(text.as_bytes()), Err(why), "{what}");
        let source = Pieces {
            bytes: text.as_bytes(),
            sizes: vec![1],
            turn: 0,
        };
        assert_eq!(
            read(source, "b", 10, 3).map_err(framing),
            Err(why),
            "{what}"
        );
    }
}

#[test]
fn a_head_of_the_full_size_passes() {
    let fill = MAX_PART_HEAD_BYTES - HEAD_A.len() - "X: \r\n".len();
    let text = format!("--b\r\nX: {}\r\n{HEAD_A}x\r\n--b--", "y".repeat(fill));
    assert_eq!(whole(text.as_bytes()), Ok(vec![part("a", "x")]));
    let text = format!("--b\r\nX: {}\r\n{HEAD_A}x\r\n--b--", "y".repeat(fill + 1));
    assert_eq!(whole(text.as_bytes()), Err(Framing::PartHeadTooLong));
}

#[test]
fn every_prefix_of_a_form_is_refused() {
    let text = format!("pre\r\n--b\r\n{HEAD_A}x\r\n--b\r\n{HEAD_A}\r\n--b--\r\n");
    let closed = text.len() - 2;
    for cut in 0..closed {
        assert_eq!(
            whole(&text.as_bytes()[..cut]),
            Err(Framing::NotClosed),
            "cut at {cut}"
        );
    }
    assert!(whole(&text.as_bytes()[..closed]).is_ok());
    // A line end that is cut in two was never one.
    assert_eq!(
        whole(&text.as_bytes()[..closed + 1]),
        Err(Framing::AfterClose)
    );
    assert!(whole(text.as_bytes()).is_ok());
}

#[test]
fn unread_parts_are_passed_over() {
    let text = format!("--b\r\n{HEAD_A}xxxx\r\n--b\r\n{HEAD_A}yy\r\n--b--\r\n");
    let mut form = Multipart::new(text.as_bytes(), "b", 2);
    let mut buffer = [0u8; 2];
    assert_eq!(
        form.read_part(&mut buffer).unwrap(),
        0,
        "before the first part"
    );
    form.next_part().unwrap().unwrap();
    assert_eq!(form.read_part(&mut buffer).unwrap(), 2);
    form.next_part().unwrap().unwrap();
    assert!(form.next_part().unwrap().is_none());
    assert!(form.next_part().unwrap().is_none());
    assert_eq!(
        form.read_part(&mut buffer).unwrap(),
        0,
        "after the last part"
    );
    form.finish().unwrap();
}

#[test]
fn a_form_that_nobody_read_to_its_end_is_not_finished() {
    let text = format!("--b\r\n{HEAD_A}xxxx\r\n--b\r\n{HEAD_A}yy\r\n--b--\r\n");
    let form = Multipart::new(text.as_bytes(), "b", 2);
    assert_eq!(form.finish().map_err(framing), Err(Framing::PartsLeft));
    let mut form = Multipart::new(text.as_bytes(), "b", 2);
    form.next_part().unwrap();
    assert_eq!(form.finish().map_err(framing), Err(Framing::PartsLeft));
}

#[test]
fn the_readers_error_comes_through_both_ways() {
    struct Cut<'a>(&'a [u8]);
    impl Read for Cut<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(BodyError::Truncated.into());
            }
            self.0.read(buffer)
        }
    }
    let text = format!("--b\r\n{HEAD_A}xxxx");
    let mut form = Multipart::new(Cut(text.as_bytes()), "b", 2);
    form.next_part().unwrap();
    let error = io::copy(&mut form.part(), &mut io::sink()).unwrap_err();
    let error = MultipartError::from(error);
    assert_eq!(error.body_error(), Some(&BodyError::Truncated));

    let mut form = Multipart::new(text.as_bytes(), "b", 2);
    form.next_part().unwrap();
    let error = io::copy(&mut form.part(), &mut io::sink()).unwrap_err();
    assert_eq!(framing(error.into()), Framing::NotClosed);
}

/// Content out of the pieces that could be mistaken for delimiters.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\r".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"-".to_vec()),
        Just(b"\r\n--bound".to_vec()),
        Just(b"--boundary".to_vec()),
        Just(b"\r\n--boundaryX".to_vec()),
        Just(b"\r\n--boundary-X".to_vec()),
        Just(b"\r\n--boundary \rX".to_vec()),
        prop::collection::vec(any::<u8>(), 0..50),
        (1usize..40_000).prop_map(|length| vec![b'z'; length]),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the content and however the network cuts it, it comes out as it went in.
    #[test]
    fn content_survives(
        contents in prop::collection::vec(content(), 0..4),
        sizes in prop::collection::vec(1usize..3000, 1..6),
        step in 1usize..5000,
    ) {
        let mut text = Vec::new();
        let mut parts = Parts::new();
        for (number, content) in contents.into_iter().enumerate() {
            // Joined pieces may form a real delimiter; then it is no content.
            let joined = [b"\r\n".as_slice(), &content, b"\r\n"].concat();
            prop_assume!(!is_delimited(&joined));
            let name = format!("p{number}");
            text.extend_from_slice(
                format!("--boundary\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").as_bytes(),
            );
            text.extend_from_slice(&content);
            text.extend_from_slice(b"\r\n");
            parts.push((name, None, content));
        }
        text.extend_from_slice(b"--boundary--\r\n");
        let source = Pieces { bytes: &text, sizes, turn: 0 };
        prop_assert_eq!(read(source, "boundary", 4, step).map_err(framing), Ok(parts));
    }

    /// No bytes make it panic, loop, or read beyond its end.
    #[test]
    fn any_bytes_end(text in prop::collection::vec(prop_oneof![
        Just(b"\r\n".to_vec()), Just(b"--b".to_vec()), Just(b"--".to_vec()),
        Just(HEAD_A.as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..4),
    ], 0..20).prop_map(|pieces| pieces.concat())) {
        let _ = whole(&text);
    }
}

/// Whether a line of `bytes` is a delimiter of `boundary`, read the slow way.
fn is_delimited(bytes: &[u8]) -> bool {
    let mark = b"\r\n--boundary";
    bytes
        .windows(mark.len())
        .enumerate()
        .filter(|(_, window)| window == mark)
        .any(|(at, _)| {
            let rest = &bytes[at..][mark.len()..];
            let rest_of_line = rest.windows(2).position(|pair| pair == b"\r\n");
            rest.starts_with(b"--")
                || rest_of_line
                    .is_some_and(|end| rest[..end].iter().all(|byte| matches!(byte, b' ' | b'\t')))
        })
}
