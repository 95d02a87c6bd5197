//! One-shot questions to the worker's stats socket.
//!
//! Each question is a connection of its own, read to the end of the stream, so that
//! nothing inside a listing can be taken for its end. A listing counts only with the
//! version line behind it: HAProxy prints that last, a cut answer lacks it. Listings
//! that may be long are read [row by row](Rows).

use super::identity::WorkerInfo;
use super::rows::{MAX_ROW_BYTES, Rows};
use super::session::INFO;
use super::socket::{Connection, SocketError};
use super::wait::{Backoff, Deadline};
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The whole of `show info float` has about 4 KiB.
const MAX_INFO_BYTES: usize = 256 * 1024;
/// One read of it.
const INFO_READ_BYTES: usize = 8 * 1024;
/// A listing that is held as a whole: the servers of one backend, the rows of a
/// crt-list, what is known of one certificate.
pub const MAX_DUMP_BYTES: usize = 16 * 1024 * 1024;

/// A line of what HAProxy says while another connection is at the certificates, whether it changes
/// them or lists them.
pub(crate) const LOCKED: &str = "Operations on certificates are currently locked!";
/// How long that may last; it is over in milliseconds, and asking is what causes it.
const LOCKED_PATIENCE: Duration = Duration::from_secs(2);

/// The address of a worker's stats socket. Holds no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSocket {
    path: PathBuf,
}

impl WorkerSocket {
    /// The socket at `path`, which HAProxy's configuration names in `stats socket`.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks who answers: `show info float`.
    ///
    /// # Errors
    ///
    /// [`SocketError`]; `Malformed` when something else than HAProxy answered,
    /// `Closed` when the answer was cut.
    pub fn info(&self, deadline: Deadline) -> Result<WorkerInfo, SocketError> {
        self.ask_info(deadline)?.answer(deadline)
    }

    /// Sends the question of [`info`](Self::info); its answer is read later.
    ///
    /// # Errors
    ///
    /// [`SocketError`].
    pub fn ask_info(&self, deadline: Deadline) -> Result<AskedInfo, SocketError> {
        let connection = self.send(INFO, deadline)?;
        Ok(AskedInfo { connection })
    }

    /// Runs one listing command and returns what it printed, complete and unchanged.
    ///
    /// # Errors
    ///
    /// [`DumpError`]. `Refused` whenever the answer carries a severity tag: listings
    /// have none, refusals do. A listing is never empty because something failed,
    /// except for certificates below admin level, see [`cli_level`](Self::cli_level).
    pub fn dump(&self, command: &str, deadline: Deadline) -> Result<Vec<u8>, DumpError> {
        unlocked(deadline, || {
            let body = self.tagged(command, deadline)?;
            match is_tagged(&body) {
                true => Err(refused(command, &body)),
                false => Ok(body),
            }
        })
    }

    /// Runs one listing command and hands each row it prints to `take`, as it comes.
    /// False stops the reading: what was seen stands by itself then, and whether the
    /// answer was whole is not known.
    ///
    /// # Errors
    ///
    /// As [`dump`](Self::dump), without `TooBig`. Rows handed out before mean nothing.
    pub fn each_row(
        &self,
        command: &str,
        deadline: Deadline,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), DumpError> {
        unlocked(deadline, || {
            let mut rows = self.rows(command, deadline)?;
            while let Some(row) = rows.next_row()? {
                if !take(row) {
                    return Ok(());
                }
            }
            Ok(())
        })
    }

    /// Sends one listing command; its rows are to be read. A refusal comes as an error
    /// in place of the first row.
    ///
    /// # Errors
    ///
    /// [`DumpError`].
    pub fn rows(&self, command: &str, deadline: Deadline) -> Result<Rows<'static>, DumpError> {
        self.raw_rows(command, deadline).map(Rows::without_tags)
    }

    /// What this socket lets its clients do. Below `admin`, certificate listings are
    /// silently empty and changes are refused.
    ///
    /// # Errors
    ///
    /// [`DumpError`]; `Refused` when the level is none of the three.
    pub fn cli_level(&self, deadline: Deadline) -> Result<CliLevel, DumpError> {
        let command = "show cli level";
        let body = self.tagged(command, deadline)?;
        match body.as_slice() {
            b"[6]: admin\n" => Ok(CliLevel::Admin),
            b"[6]: operator\n" => Ok(CliLevel::Operator),
            b"[6]: user\n" => Ok(CliLevel::User),
            other => Err(DumpError::Refused {
                command: command.to_owned(),
                words: shortened(other),
            }),
        }
    }

    /// The answer to one command with severity tags, framing and version line removed.
    fn tagged(&self, command: &str, deadline: Deadline) -> Result<Vec<u8>, DumpError> {
        let mut rows = self.raw_rows(command, deadline)?;
        let mut body = Vec::new();
        while let Some(row) = rows.next_row()? {
            if body.len() + row.len() > MAX_DUMP_BYTES {
                return Err(DumpError::TooBig {
                    command: command.to_owned(),
                });
            }
            body.extend_from_slice(row);
            body.push(b'\n');
        }
        Ok(body)
    }

    fn raw_rows(&self, command: &str, deadline: Deadline) -> Result<Rows<'static>, DumpError> {
        if !sendable(command) {
            return Err(DumpError::Unsendable {
                command: command.to_owned(),
            });
        }
        let line = format!("set severity-output number;{command};show version");
        let mut connection = self.send(&line, deadline).map_err(DumpError::Socket)?;
        let source = Box::new(move |buffer: &mut [u8]| connection.read(buffer, deadline));
        Ok(Rows::new(command, source))
    }

    fn send(&self, line: &str, deadline: Deadline) -> Result<Connection, SocketError> {
        let mut connection = Connection::open(&self.path, deadline)?;
        connection
            .write(format!("{line}\n").as_bytes(), deadline)
            .map_err(|error| error.source)?;
        Ok(connection)
    }
}

/// Who answers was asked, and HAProxy is about to say it.
#[derive(Debug)]
pub struct AskedInfo {
    connection: Connection,
}

impl AskedInfo {
    /// Reads the answer.
    ///
    /// # Errors
    ///
    /// As [`WorkerSocket::info`].
    pub fn answer(&mut self, deadline: Deadline) -> Result<WorkerInfo, SocketError> {
        let malformed = |path: &Path, what: String| SocketError::Malformed {
            path: path.to_path_buf(),
            what,
        };
        let mut bytes = Vec::new();
        let mut buffer = [0; INFO_READ_BYTES];
        // A blank line closes the answer; without it some line may be missing. HAProxy
        // closes the connection a moment later, which need not be waited for.
        while !bytes.ends_with(b"\n\n") {
            let count = self.connection.read(&mut buffer, deadline)?;
            bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
            if count == 0 && b"Name: HAProxy\n".starts_with(head(&bytes)) {
                return Err(SocketError::Closed {
                    path: self.connection.path().to_path_buf(),
                    doing: "reading the answer to show info",
                });
            }
            if count == 0 {
                break;
            }
            if bytes.len() > MAX_INFO_BYTES {
                let what = "the answer to show info does not end".to_owned();
                return Err(malformed(self.connection.path(), what));
            }
        }
        WorkerInfo::parse(&bytes)
            .map_err(|error| malformed(self.connection.path(), error.to_string()))
    }
}

/// Asks again while somebody else looks at the certificates or changes them. Not a row
/// has been handed out when HAProxy says so.
fn unlocked<T>(
    deadline: Deadline,
    mut ask: impl FnMut() -> Result<T, DumpError>,
) -> Result<T, DumpError> {
    let patience = deadline.within(LOCKED_PATIENCE);
    let mut backoff = Backoff::default();
    loop {
        match ask() {
            Err(DumpError::Refused { words, .. })
                if words.ends_with(LOCKED) && backoff.pause(patience) => {}
            answer => return answer,
        }
    }
}

/// The first bytes, as many as the greeting of `show info` has.
fn head(bytes: &[u8]) -> &[u8] {
    bytes.get(..b"Name: HAProxy\n".len()).unwrap_or(bytes)
}

/// One command of one line: no separator, no payload mark as its last word.
fn sendable(command: &str) -> bool {
    let breaks = |b| matches!(b, b'\n' | b'\r' | b'\0' | b';');
    let last = command.split([' ', '\t']).next_back().unwrap_or_default();
    !command.trim().is_empty() && !command.bytes().any(breaks) && !last.starts_with("<<")
}

/// Whether it begins with `[n]: `, as messages do and listings do not.
pub(super) fn is_tagged(body: &[u8]) -> bool {
    matches!(body, [b'[', b'0'..=b'7', b']', b':', b' ', ..])
}

/// A refusal, its words without the tag.
pub(super) fn refused(command: &str, answer: &[u8]) -> DumpError {
    let words = match is_tagged(answer) {
        true => answer.get(TAG_BYTES..).unwrap_or_default(),
        false => answer,
    };
    DumpError::Refused {
        command: command.to_owned(),
        words: shortened(words),
    }
}

/// `[n]: `.
const TAG_BYTES: usize = 5;

/// An answer for people: its first 200 bytes on one line.
fn shortened(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer.get(..200).unwrap_or(answer));
    text.trim().replace('\n', " / ")
}

/// What a socket lets its clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CliLevel {
    /// Everything.
    Admin,
    /// No change of servers, no certificates.
    Operator,
    /// Looking only, and not at everything.
    User,
}

impl fmt::Display for CliLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::User => "user",
        })
    }
}

/// Why there is no listing.
#[derive(Debug)]
pub enum DumpError {
    /// The socket gave no whole answer.
    Socket(SocketError),
    /// HAProxy closed before the end of the answer.
    Cut {
        /// The command.
        command: String,
        /// What had come.
        bytes: usize,
    },
    /// HAProxy refused the command or does not know it.
    Refused {
        /// The command.
        command: String,
        /// HAProxy's words, shortened.
        words: String,
    },
    /// More than [`MAX_DUMP_BYTES`].
    TooBig {
        /// The command.
        command: String,
    },
    /// A row of more than [`MAX_ROW_BYTES`].
    RowTooBig {
        /// The command.
        command: String,
    },
    /// The command would not have been one line and one command; nothing was sent.
    Unsendable {
        /// The command.
        command: String,
    },
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(_) => f.write_str("the worker's stats socket gave no answer"),
            Self::Cut { command, bytes } => write!(
                f,
                "HAProxy closed the connection in the middle of its answer to `{command}`, after {bytes} bytes"
            ),
            Self::Refused { command, words } => {
                write!(f, "HAProxy refused `{command}`: {words}")
            }
            Self::TooBig { command } => write!(
                f,
                "the answer to `{command}` is larger than {MAX_DUMP_BYTES} bytes"
            ),
            Self::RowTooBig { command } => write!(
                f,
                "a row of the answer to `{command}` is larger than {MAX_ROW_BYTES} bytes"
            ),
            Self::Unsendable { command } => {
                write!(f, "{command:?} cannot be sent as one command")
            }
        }
    }
}

impl Error for DumpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Socket(source) => Some(source),
            Self::Cut { .. }
            | Self::Refused { .. }
            | Self::TooBig { .. }
            | Self::RowTooBig { .. }
            | Self::Unsendable { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_plain_command_is_sendable() {
        for good in ["show map", "show map maps/a<b.map"] {
            assert!(sendable(good), "{good:?}");
        }
        for bad in [
            "",
            " ",
            "a;b",
            "a\nb",
            "a\rb",
            "a\0",
            "show map <<",
            "show map <<X",
        ] {
            assert!(!sendable(bad), "{bad:?}");
        }
    }
}
