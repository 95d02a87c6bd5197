//! Who asks Consul: a fixed token, or a file that is read again when Consul refuses.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::config::TOKEN_FILE_ENV;

/// The longest token. Consul's own have 36 bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

/// Who asks.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Token {
    /// Nobody: Consul's anonymous token.
    #[default]
    None,
    /// This token.
    Fixed(String),
    /// What the file has; it is read again when Consul refuses.
    File(PathBuf),
}

impl Token {
    /// The token to send now.
    ///
    /// # Errors
    ///
    /// The file cannot be read or has no token.
    pub fn read(&self) -> Result<Option<String>, TokenError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => Ok(Some(token.clone())),
            Self::File(path) => read_token(path).map(Some),
        }
    }
}

/// A token is a secret, so only its origin is printed.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Fixed(_) => f.write_str("Fixed(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

fn read_token(path: &Path) -> Result<String, TokenError> {
    let io = |source| TokenError::Io {
        path: path.to_path_buf(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(MAX_TOKEN_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    let token = checked_token(bytes.trim_ascii());
    token.ok_or_else(|| TokenError::Content(path.to_path_buf()))
}

/// Printable ASCII without blanks, as a header field takes it.
pub(super) fn checked_token(bytes: &[u8]) -> Option<String> {
    let fits = !bytes.is_empty() && u64::try_from(bytes.len()).is_ok_and(|n| n <= MAX_TOKEN_BYTES);
    let plain = bytes.iter().all(u8::is_ascii_graphic);
    (fits && plain).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// Why a token file gives no token.
#[derive(Debug)]
pub enum TokenError {
    /// It cannot be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// It is empty, too long, or has more than one word.
    Content(PathBuf),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, .. } => write!(
                f,
                "the token file {} cannot be read; {TOKEN_FILE_ENV} names it",
                path.display()
            ),
            Self::Content(path) => write!(
                f,
                "the token file {} has to hold one token and nothing else",
                path.display()
            ),
        }
    }
}

impl Error for TokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Content(_) => None,
        }
    }
}
