//! As much HTTP client as the demo needs: one request a connection, bodies by length.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

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

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value, String> {
        serde_json::from_str(&self.body)
            .map_err(|error| format!("not JSON: {error}: {}", self.body))
    }
}

/// Sends one request and reads the answer to its end. `head` has further fields, each
/// ended by CRLF.
pub(crate) fn request(
    address: &str,
    method: &str,
    target: &str,
    head: &str,
    body: &[u8],
) -> Result<Answer, String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("{method} http://{address}{target}: {what}: {error}")
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
    let mut bytes = format!(
        "{method} {target} HTTP/1.1\r\n{host}{head}Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes).map_err(failed("send"))?;
    let mut answer = Vec::new();
    stream
        .take(MAX_ANSWER)
        .read_to_end(&mut answer)
        .map_err(failed("receive"))?;
    parse(&answer).ok_or_else(|| {
        format!(
            "{method} http://{address}{target}: not an answer: {:?}",
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

/// The field that a controller proves itself with.
pub(crate) fn authorization(user: &str, password: &str) -> String {
    format!(
        "Authorization: Basic {}\r\n",
        base64(format!("{user}:{password}").as_bytes())
    )
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut bits = 0_u32;
        for i in 0..3 {
            bits = bits << 8 | u32::from(three.get(i).copied().unwrap_or(0));
        }
        for i in 0..4_usize {
            let digit = usize::try_from(bits >> (18 - 6 * i) & 63).unwrap_or(0);
            if i <= three.len() {
                text.push(char::from(DIGITS[digit]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// A multipart form: the manifest first, then a part for each file.
pub(crate) fn form(manifest: &Value, files: &[(&str, &[u8])]) -> (String, Vec<u8>) {
    let boundary = "demo-boundary-7f3a91";
    let mut body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"manifest\"\r\n\r\n{manifest}\r\n"
    )
    .into_bytes();
    for (path, content) in files {
        body.extend_from_slice(
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{path}\"; filename=\"{path}\"\r\n\r\n"
            )
            .as_bytes(),
        );
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (
        format!("Content-Type: multipart/form-data; boundary={boundary}\r\n"),
        body,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        for (plain, encoded) in [
            ("", ""),
            ("a", "YQ=="),
            ("ab", "YWI="),
            ("abc", "YWJj"),
            ("a:b\u{fc}", "YTpiw7w="),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

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
