//! The body of an apply as a stream: `multipart/form-data`, manifest first, the parts in
//! manifest order, the plan blob last. Its length is known before a byte of it is read.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, ErrorKind, Read};

use super::client::Part;
use crate::wire::path::ManifestPath;

/// A form that is being read.
pub(super) struct Form<'f, 'p> {
    pieces: Vec<Piece<'f, 'p>>,
    at: usize,
    length: u64,
    touched: bool,
    failed: Option<ManifestPath>,
}

enum Piece<'f, 'p> {
    Bytes { bytes: Cow<'f, [u8]>, sent: usize },
    File { part: &'f mut Part<'p>, left: u64 },
}

impl<'f, 'p> Form<'f, 'p> {
    /// The sizes beside the parts are those that the manifest declares.
    pub(super) fn new(
        boundary: &str,
        manifest: Vec<u8>,
        files: Vec<(&'f mut Part<'p>, u64)>,
        plan: Option<&'f [u8]>,
    ) -> Self {
        let mut form = Self {
            pieces: Vec::new(),
            at: 0,
            length: 0,
            touched: false,
            failed: None,
        };
        form.text(format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"manifest\"\r\nContent-Type: application/json\r\n\r\n"
        ));
        form.add(manifest.into());
        for (part, size) in files {
            let name = quoted(part.path().as_str());
            form.text(format!(
                "\r\n--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n"
            ));
            form.length = form.length.saturating_add(size);
            form.pieces.push(Piece::File { part, left: size });
        }
        if let Some(blob) = plan {
            // Without a filename it is the blob even beside a file called plan.
            form.text(format!(
                "\r\n--{boundary}\r\nContent-Disposition: form-data; name=\"plan\"\r\n\r\n"
            ));
            form.add(blob.into());
        }
        form.text(format!("\r\n--{boundary}--\r\n"));
        form
    }

    /// Of the whole form, in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Whether a byte of a part has been read from its source: from then on the same
    /// request cannot be sent again.
    pub(super) fn is_touched(&self) -> bool {
        self.touched
    }

    /// The part whose source failed.
    pub(super) fn failed(&self) -> Option<&ManifestPath> {
        self.failed.as_ref()
    }

    /// Back to the start; of use only while no part was touched.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
        for piece in &mut self.pieces {
            match piece {
                Piece::Bytes { sent, .. } => *sent = 0,
                Piece::File { .. } => {}
            }
        }
    }

    fn text(&mut self, text: String) {
        self.add(text.into_bytes().into());
    }

    fn add(&mut self, bytes: Cow<'f, [u8]>) {
        self.length = self.length.saturating_add(bytes.len() as u64);
        self.pieces.push(Piece::Bytes { bytes, sent: 0 });
    }
}

impl Read for Form<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(piece) = self.pieces.get_mut(self.at) {
            let count = match piece {
                Piece::Bytes { bytes, sent } => {
                    let rest = bytes.get(*sent..).unwrap_or_default();
                    let count = rest.len().min(buffer.len());
                    buffer[..count].copy_from_slice(&rest[..count]);
                    *sent += count;
                    count
                }
                Piece::File { part, left } => {
                    let outcome = content(part, left, buffer);
                    if outcome.is_err() {
                        self.failed = Some(part.path().clone());
                    }
                    let count = outcome?;
                    self.touched |= count > 0;
                    count
                }
            };
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.at += 1;
        }
        Ok(0)
    }
}

/// Bytes of a part; 0 at its end, where the source must end too.
fn content(part: &mut Part<'_>, left: &mut u64, buffer: &mut [u8]) -> io::Result<usize> {
    if *left == 0 {
        return match part.source.read(&mut [0])? {
            0 => Ok(0),
            _ => Err(io::Error::new(
                ErrorKind::InvalidData,
                "it has more bytes than the manifest declares",
            )),
        };
    }
    let most = usize::try_from(*left)
        .unwrap_or(usize::MAX)
        .min(buffer.len());
    let count = part.source.read(&mut buffer[..most])?;
    if count == 0 && most > 0 {
        return Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            "it has fewer bytes than the manifest declares",
        ));
    }
    *left -= count as u64;
    Ok(count)
}

/// A path inside the quotes of a part's head. Manifest paths have no control
/// characters.
fn quoted(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"")
}

/// A boundary that no content can be made to contain: the standard library keys these
/// hashers at random.
pub(super) fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("haptic-{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ManifestPath {
        ManifestPath::parse(text).unwrap()
    }

    #[test]
    fn a_form_is_what_the_contract_says_and_as_long_as_it_said() {
        let mut one = Part::new(path("maps/a \"b\".map"), b"one".as_slice());
        let mut none = Part::new(path("empty"), b"".as_slice());
        let files = vec![(&mut one, 3), (&mut none, 0)];
        let mut form = Form::new("B", b"{}".to_vec(), files, Some(b"blob"));
        let length = form.length();
        let mut text = String::new();
        form.read_to_string(&mut text).unwrap();
        assert_eq!(
            text,
            "--B\r\nContent-Disposition: form-data; name=\"manifest\"\r\nContent-Type: application/json\r\n\r\n{}\
             \r\n--B\r\nContent-Disposition: form-data; name=\"maps/a \\\"b\\\".map\"; filename=\"maps/a \\\"b\\\".map\"\r\n\r\none\
             \r\n--B\r\nContent-Disposition: form-data; name=\"empty\"; filename=\"empty\"\r\n\r\n\
             \r\n--B\r\nContent-Disposition: form-data; name=\"plan\"\r\n\r\nblob\
             \r\n--B--\r\n"
        );
        assert_eq!(length, text.len() as u64);
        assert!(form.is_touched());
    }

    #[test]
    fn a_form_can_begin_again_until_a_part_was_touched() {
        let mut one = Part::new(path("a"), b"one".as_slice());
        let mut form = Form::new("B", b"{}".to_vec(), vec![(&mut one, 3)], None);
        let mut start = [0; 90];
        form.read_exact(&mut start).unwrap();
        assert!(!form.is_touched());
        form.rewind();
        let mut again = [0; 90];
        form.read_exact(&mut again).unwrap();
        assert_eq!(start, again);
    }

    #[test]
    fn a_source_of_another_size_names_its_path() {
        for (size, kind) in [(4, ErrorKind::UnexpectedEof), (2, ErrorKind::InvalidData)] {
            let mut one = Part::new(path("maps/a.map"), b"one".as_slice());
            let mut form = Form::new("B", b"{}".to_vec(), vec![(&mut one, size)], None);
            let error = form.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert_eq!(form.failed().map(ManifestPath::as_str), Some("maps/a.map"));
        }
    }

    #[test]
    fn boundaries_differ_and_fit() {
        let one = boundary();
        assert_ne!(one, boundary());
        assert!(one.len() <= 70);
    }
}
