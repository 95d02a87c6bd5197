//! Sending a request, with an eye on the answer.

use std::io::{self, ErrorKind, Read};
use std::time::Instant;

use super::error::{Error, Phase};
use super::head::{Head, is_token};
use super::stream::Wrote;
use super::{Body, CHUNK_BYTES, Connection, MAX_HEAD_BYTES, Method, Request, Until};

/// The hex digits of a chunk's size and its line end.
const CHUNK_HEAD_BYTES: usize = 8;

impl Connection {
    /// Sends head and body. `Some` is the head of an answer that came before all was
    /// sent; nothing more is sent then.
    pub(super) fn transmit(
        &mut self,
        request: Request<'_>,
        until: Until,
    ) -> Result<Option<Head>, Error> {
        let mut sender = Sender {
            early: Early {
                until: until.head,
                writes: 0,
                interim: 0,
            },
            connection: self,
        };
        let mut first = head_of(&request, &sender.connection.host)?;
        match request.body {
            Body::None => sender.send(&first),
            Body::Bytes(bytes) if first.len() + bytes.len() <= CHUNK_BYTES => {
                first.extend_from_slice(bytes);
                sender.send(&first)
            }
            Body::Bytes(bytes) => match sender.send(&first)? {
                Some(head) => Ok(Some(head)),
                None => sender.send(bytes),
            },
            Body::Stream { source, length } => match length {
                Some(length) => sender.by_length(first, source, length),
                None => sender.in_chunks(first, source),
            },
        }
    }

    /// Looks for an answer without waiting.
    fn answered(&mut self, interim: &mut usize) -> Result<Option<Head>, Error> {
        let mut buffer = [0; MAX_HEAD_BYTES];
        match self.stream.read_now(&mut buffer) {
            Ok(None) => Ok(None),
            Ok(Some(0)) => Err(self.ended(None)),
            Ok(Some(count)) => {
                self.input.extend_from_slice(&buffer[..count]);
                self.parse_head(interim)
            }
            Err(error) => Err(self.ended(Some(error))),
        }
    }
}

struct Early {
    until: Instant,
    writes: u64,
    interim: usize,
}

struct Sender<'c> {
    connection: &'c mut Connection,
    early: Early,
}

impl Sender<'_> {
    fn by_length(
        &mut self,
        mut buffer: Vec<u8>,
        source: &mut dyn Read,
        length: u64,
    ) -> Result<Option<Head>, Error> {
        let mut left = length;
        while left > 0 {
            let room = CHUNK_BYTES.saturating_sub(buffer.len());
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(room);
            let count = fill(source, &mut buffer, most)?;
            if count < most {
                return Err(Error::Source(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "it ended before its declared length",
                )));
            }
            left -= count as u64;
            if left == 0 {
                break;
            }
            if let Some(head) = self.send(&buffer)? {
                return Ok(Some(head));
            }
            buffer.clear();
        }
        // Before the last byte leaves: a peer that has them all may act.
        if fill(source, &mut Vec::new(), 1)? != 0 {
            return Err(Error::Source(io::Error::new(
                ErrorKind::InvalidData,
                "it goes on after its declared length",
            )));
        }
        self.send(&buffer)
    }

    fn in_chunks(&mut self, head: Vec<u8>, source: &mut dyn Read) -> Result<Option<Head>, Error> {
        let mut buffer = head;
        loop {
            let start = buffer.len();
            buffer.resize(start + CHUNK_HEAD_BYTES, b'0');
            let room = CHUNK_BYTES.saturating_sub(start + CHUNK_HEAD_BYTES);
            let count = fill(source, &mut buffer, room)?;
            let line = format!("{count:06x}\r\n");
            buffer[start..start + CHUNK_HEAD_BYTES].copy_from_slice(line.as_bytes());
            buffer.extend_from_slice(b"\r\n");
            if let Some(head) = self.send(&buffer)? {
                return Ok(Some(head));
            }
            if count == 0 {
                return Ok(None);
            }
            buffer.clear();
        }
    }

    /// All of `bytes`, unless an answer comes first.
    fn send(&mut self, bytes: &[u8]) -> Result<Option<Head>, Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Before its first bytes nobody answers a request.
            if self.early.writes > 0 {
                if let Some(head) = self.connection.answered(&mut self.early.interim)? {
                    return Ok(Some(head));
                }
            }
            self.early.writes += 1;
            if Instant::now() >= self.early.until {
                return Err(Error::Timeout(Phase::Send));
            }
            let slice = &rest[..rest.len().min(CHUNK_BYTES)];
            match self.connection.stream.write_slice(slice) {
                Wrote::Bytes(count) => rest = rest.get(count..).unwrap_or_default(),
                Wrote::Gone(error) => return self.last_words(error).map(Some),
            }
        }
        Ok(None)
    }

    /// The peer takes no more. What it said before that is still here to read.
    fn last_words(&mut self, error: io::Error) -> Result<Head, Error> {
        match self.connection.read_head(self.early.until) {
            Ok(head) => Ok(head),
            Err(Error::Reset(_)) => Err(Error::Reset(Some(error))),
            Err(other) => Err(other),
        }
    }
}

/// Reads until `most` bytes were added or the source ends.
fn fill(source: &mut dyn Read, buffer: &mut Vec<u8>, most: usize) -> Result<usize, Error> {
    let start = buffer.len();
    buffer.resize(start + most, 0);
    let mut filled = 0;
    while filled < most {
        match source.read(&mut buffer[start + filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Source(error)),
        }
    }
    buffer.truncate(start + filled);
    Ok(filled)
}

fn head_of(request: &Request<'_>, host: &str) -> Result<Vec<u8>, Error> {
    let target = request.target;
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::Request(
            "its target must start with a slash and be percent-encoded",
        ));
    }
    let mut head = format!(
        "{} {target} HTTP/1.1\r\nHost: {host}\r\n",
        request.method.as_str()
    );
    for &(name, value) in request.fields {
        let fits = |byte: u8| byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
        if !is_token(name.as_bytes()) || !value.bytes().all(fits) {
            return Err(Error::Request("a field's name or value cannot be sent"));
        }
        head += &format!("{name}: {value}\r\n");
    }
    match &request.body {
        Body::None => match request.method {
            Method::Get | Method::Head | Method::Delete => {}
            Method::Post | Method::Put => head += "Content-Length: 0\r\n",
        },
        Body::Bytes(bytes) => head += &format!("Content-Length: {}\r\n", bytes.len()),
        Body::Stream { length, .. } => match length {
            Some(length) => head += &format!("Content-Length: {length}\r\n"),
            None => head += "Transfer-Encoding: chunked\r\n",
        },
    }
    head += "\r\n";
    if head.len() > MAX_HEAD_BYTES {
        return Err(Error::Request("its head is too long"));
    }
    Ok(head.into_bytes())
}
