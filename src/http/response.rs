//! Answers: a status, a few headers, a body that is complete before it is sent.
//!
//! There is always a `Content-Length`, never a chunked answer: everything we say fits
//! in memory, and a length tells the client that it got all of it.

use std::fmt;

use std::io::Write as _;

/// The statuses that this crate answers with, and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// 200
    Ok,
    /// 400
    BadRequest,
    /// 401
    Unauthorized,
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 408
    RequestTimeout,
    /// 409
    Conflict,
    /// 413
    PayloadTooLarge,
    /// 415
    UnsupportedMediaType,
    /// 417
    ExpectationFailed,
    /// 431
    HeaderFieldsTooLarge,
    /// 500
    InternalServerError,
    /// 501
    NotImplemented,
    /// 503
    ServiceUnavailable,
    /// 505
    VersionNotSupported,
}

impl Status {
    /// The number.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::Conflict => 409,
            Self::PayloadTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::ExpectationFailed => 417,
            Self::HeaderFieldsTooLarge => 431,
            Self::InternalServerError => 500,
            Self::NotImplemented => 501,
            Self::ServiceUnavailable => 503,
            Self::VersionNotSupported => 505,
        }
    }

    /// The words after it, which nobody should read.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::BadRequest => "Bad Request",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not Found",
            Self::MethodNotAllowed => "Method Not Allowed",
            Self::RequestTimeout => "Request Timeout",
            Self::Conflict => "Conflict",
            Self::PayloadTooLarge => "Content Too Large",
            Self::UnsupportedMediaType => "Unsupported Media Type",
            Self::ExpectationFailed => "Expectation Failed",
            Self::HeaderFieldsTooLarge => "Request Header Fields Too Large",
            Self::InternalServerError => "Internal Server Error",
            Self::NotImplemented => "Not Implemented",
            Self::ServiceUnavailable => "Service Unavailable",
            Self::VersionNotSupported => "HTTP Version Not Supported",
        }
    }
}

/// One answer.
#[derive(Debug)]
pub struct Response {
    status: Status,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    held: Option<Held>,
}

/// What an answer keeps until it is written.
struct Held {
    _guard: Box<dyn Send>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl Response {
    /// An answer without headers and with an empty body.
    #[must_use]
    pub fn new(status: Status) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            held: None,
        }
    }

    /// Keeps `guard` until the answer is written, for a bound on answers in flight.
    #[must_use]
    pub fn holding(mut self, guard: impl Send + 'static) -> Self {
        self.held = Some(Held {
            _guard: Box::new(guard),
        });
        self
    }

    /// Plain text, exactly as given.
    #[must_use]
    pub fn text(status: Status, text: &str) -> Self {
        Self::bytes(
            status,
            "text/plain; charset=utf-8",
            text.as_bytes().to_vec(),
        )
    }

    /// JSON that the caller has serialised, with the newline that ends it.
    #[must_use]
    pub fn json(status: Status, json: Vec<u8>) -> Self {
        Self::bytes(status, "application/json", json)
    }

    /// A body of any other type.
    #[must_use]
    pub fn bytes(status: Status, content_type: &'static str, body: Vec<u8>) -> Self {
        Self {
            body,
            ..Self::new(status).header("Content-Type", content_type)
        }
    }

    /// Adds a header. `Content-Length` and `Connection` are the server's own. A control
    /// byte in the value becomes a space, so that no value can end the head.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let mut value = value.into();
        if value.bytes().any(|byte| byte.is_ascii_control()) {
            value = value.replace(|c: char| c.is_ascii_control(), " ");
        }
        self.headers.push((name, value));
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The header's value, as [`header`](Self::header) took it.
    #[must_use]
    pub fn header_value(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The bytes before the body.
    pub(super) fn head(&self, close: bool) -> Vec<u8> {
        let mut head = Vec::with_capacity(256);
        let status = self.status;
        // Writing into a Vec cannot fail.
        let _ = write!(head, "HTTP/1.1 {} {}\r\n", status.code(), status.reason());
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        if close {
            head.extend_from_slice(b"Connection: close\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_its_length_and_says_when_it_closes() {
        let answer = Response::text(Status::Conflict, "no").header("Allow", "GET");
        assert_eq!(
            String::from_utf8(answer.head(false)).unwrap(),
            "HTTP/1.1 409 Conflict\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Allow: GET\r\nContent-Length: 2\r\n\r\n"
        );
        let answer = Response::new(Status::Ok);
        assert_eq!(
            String::from_utf8(answer.head(true)).unwrap(),
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn no_value_can_end_the_head() {
        let answer = Response::new(Status::Ok).header("X", "a\r\nSet-Cookie: b\0");
        assert_eq!(answer.header_value("x"), Some("a  Set-Cookie: b "));
    }
}
