//! Why a head was refused, in the client's words and with the answer's status.

use std::fmt;

use crate::http::response::Status;

/// Why a head was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// A control byte, NUL included.
    ControlByte,
    /// A carriage return or a line feed that stands alone.
    BareLineBreak,
    /// Not method, space, target, space, version.
    RequestLine,
    /// The request line is longer than 4 KiB.
    RequestLineTooLong,
    /// The method is not a token.
    Method,
    /// The target is neither a path nor an absolute `http` URL.
    Target,
    /// The third word is not a version at all.
    Version,
    /// A version other than 1.0 and 1.1.
    VersionUnknown,
    /// The head is longer than 16 KiB.
    TooLong,
    /// More than 64 header fields.
    TooManyFields,
    /// A header name is empty, not a token, or has a space before its colon.
    FieldName,
    /// A header value goes on in a second line.
    Folded,
    /// `Host` is missing in 1.1, or there twice.
    Host,
    /// Two `Content-Length`, even if they agree.
    LengthTwice,
    /// A `Content-Length` that is not 1 to 18 digits.
    Length,
    /// A `Transfer-Encoding` other than exactly `chunked`.
    EncodingUnknown,
    /// Two `Transfer-Encoding`, one in 1.0, or one beside a length.
    EncodingMisplaced,
    /// An `Expect` other than `100-continue`.
    Expect,
    /// The head did not arrive in time.
    Late,
}

impl HeadError {
    /// The status that the refusal is answered with.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::ControlByte
            | Self::BareLineBreak
            | Self::RequestLine
            | Self::Method
            | Self::Target
            | Self::Version
            | Self::FieldName
            | Self::Folded
            | Self::Host
            | Self::LengthTwice
            | Self::Length
            | Self::EncodingMisplaced => Status::BadRequest,
            Self::Late => Status::RequestTimeout,
            Self::Expect => Status::ExpectationFailed,
            Self::RequestLineTooLong | Self::TooLong | Self::TooManyFields => {
                Status::HeaderFieldsTooLarge
            }
            Self::EncodingUnknown => Status::NotImplemented,
            Self::VersionUnknown => Status::VersionNotSupported,
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ControlByte => "control byte in the request head",
            Self::BareLineBreak => "lines of a request head end in CR LF, neither stands alone",
            Self::RequestLine => "the request line must be a method, a target and a version",
            Self::RequestLineTooLong => "the request line is longer than 4096 bytes",
            Self::Method => "the method is not a token",
            Self::Target => "the target must be a path that starts with a slash",
            Self::Version => "the request line does not end in a version",
            Self::VersionUnknown => "only HTTP/1.0 and HTTP/1.1 are spoken here",
            Self::TooLong => "the request head is longer than 16384 bytes",
            Self::TooManyFields => "the request head has more than 64 fields",
            Self::FieldName => "a header name is not a token directly before its colon",
            Self::Folded => "folded header values are not accepted",
            Self::Host => "exactly one Host header is required",
            Self::LengthTwice => "Content-Length is given twice",
            Self::Length => "Content-Length must be 1 to 18 digits",
            Self::EncodingUnknown => "the only transfer encoding is chunked",
            Self::EncodingMisplaced => {
                "Transfer-Encoding must be given once, in HTTP/1.1, without a Content-Length"
            }
            Self::Expect => "the only expectation is 100-continue",
            Self::Late => "the request head took too long",
        })
    }
}

impl std::error::Error for HeadError {}
