//! As much HTTP client as the demo needs: one GET a connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The most that a connection may stay silent.
const SILENCE: Duration = Duration::from_secs(90);
/// The longest answer that is read.
const MAX_ANSWER: u64 = 16 * 1024 * 1024;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: String,
}

/// Asks and reads the answer to its end. `head` has further fields, each ended by CRLF.
pub(crate) fn get(address: &str, target: &str, head: &str) -> Result<Answer, String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("GET http://{address}{target}: {what}: {error}")
    };
    let mut stream = TcpStream::connect(address).map_err(failed("connect"))?;
    stream
        .set_read_timeout(Some(SILENCE))
        .and_then(|()| stream.set_write_timeout(Some(SILENCE)))
        .map_err(failed("timeout"))?;
    let host = if head.to_ascii_lowercase().contains("host:") {
        String::new()
    } else {
        format!("Host: {address}\r\n")
    };
    let request = format!("GET {target} HTTP/1.1\r\n{host}{head}Connection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .map_err(failed("send"))?;
    let mut answer = Vec::new();
    stream
        .take(MAX_ANSWER)
        .read_to_end(&mut answer)
        .map_err(failed("receive"))?;
    parse(&answer).ok_or_else(|| {
        format!(
            "GET http://{address}{target}: not an answer: {:?}",
            String::from_utf8_lossy(&answer)
        )
    })
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let body = bytes.get(end + 4..)?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let declared = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let length = name.eq_ignore_ascii_case("content-length");
        length.then(|| value.trim().parse::<usize>().ok())?
    });
    let complete = declared.is_none_or(|length| length == body.len());
    complete.then(|| Answer {
        status,
        body: String::from_utf8_lossy(body).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").is_none());
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Le").is_none());
        assert_eq!(
            parse(b"HTTP/1.1 409 Conflict\r\n\r\nx").map(|a| a.status),
            Some(409)
        );
    }
}
