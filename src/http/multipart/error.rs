//! Why a form could not be read: its own framing, or the reader below it.

use std::fmt;
use std::io;

use crate::http::body::BodyError;

/// Why a multipart body could not be read.
#[derive(Debug)]
pub enum MultipartError {
    /// The bytes are not what the boundary promised.
    Framing(Framing),
    /// The reader below failed; see [`MultipartError::body_error`].
    Transport(io::Error),
}

/// What is wrong with a multipart body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The content type is not `multipart/form-data`.
    NotMultipart,
    /// The content type's boundary is missing, given twice, or not 1 to 70 of the
    /// characters that boundaries are made of.
    Boundary,
    /// The content type's parameters cannot be read.
    Parameters,
    /// No delimiter within the first 64 KiB.
    NoFirstDelimiter,
    /// The body ends without the closing delimiter.
    NotClosed,
    /// The closing delimiter is followed by something on its own line.
    AfterClose,
    /// More than 64 KiB after the closing delimiter.
    EpilogueTooLong,
    /// The caller stopped before the closing delimiter.
    PartsLeft,
    /// More parts than the caller allowed.
    TooManyParts,
    /// A part's head is longer than 8 KiB.
    PartHeadTooLong,
    /// A part's head has more than 16 fields.
    TooManyPartFields,
    /// A line of a part's head is not a name, a colon and a value.
    PartField,
    /// A part without exactly one `Content-Disposition: form-data` with one name.
    Disposition,
    /// A part's name or filename is not UTF-8.
    NotUtf8,
    /// A part with a transfer encoding that changes its bytes.
    Encoded,
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotMultipart => "the request must be multipart/form-data",
            Self::Boundary => "the content type needs one boundary of 1 to 70 characters",
            Self::Parameters => "the content type's parameters are malformed",
            Self::NoFirstDelimiter => "no multipart delimiter in the first 65536 bytes",
            Self::NotClosed => "the multipart body ends without its closing delimiter",
            Self::AfterClose => "the closing delimiter is not alone on its line",
            Self::EpilogueTooLong => "more than 65536 bytes after the closing delimiter",
            Self::PartsLeft => "the multipart body has parts that nobody asked for",
            Self::TooManyParts => "the multipart body has too many parts",
            Self::PartHeadTooLong => "a part's head is longer than 8192 bytes",
            Self::TooManyPartFields => "a part's head has more than 16 fields",
            Self::PartField => "a line in a part's head is not a header field",
            Self::Disposition => {
                "a part needs exactly one Content-Disposition: form-data with one name"
            }
            Self::NotUtf8 => "a part's name or filename is not UTF-8",
            Self::Encoded => "a part must not have a Content-Transfer-Encoding",
        })
    }
}

impl std::error::Error for Framing {}

impl MultipartError {
    /// The body error below, if it was one.
    #[must_use]
    pub fn body_error(&self) -> Option<&BodyError> {
        match self {
            Self::Framing(_) => None,
            Self::Transport(error) => BodyError::of(error),
        }
    }
}

impl fmt::Display for MultipartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(framing) => framing.fmt(f),
            Self::Transport(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MultipartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Framing(_) => None,
            Self::Transport(error) => error.source(),
        }
    }
}

impl From<Framing> for MultipartError {
    fn from(framing: Framing) -> Self {
        Self::Framing(framing)
    }
}

/// The way back for errors that came out of a [`PartReader`](super::PartReader).
impl From<io::Error> for MultipartError {
    fn from(error: io::Error) -> Self {
        let framing = error.get_ref().and_then(|inner| inner.downcast_ref());
        match framing {
            Some(framing) => Self::Framing(*framing),
            None => Self::Transport(error),
        }
    }
}
