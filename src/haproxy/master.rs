//! The master socket: one `reload`, and the process list.
//!
//! One call is one connection and at most one command. Nothing is repeated here: what
//! to do after a busy or lost answer is decided in [`reload`](mod@super::reload).

use super::alerts::ReloadLog;
use super::socket::{Connection, Ended, SocketError};
use super::wait::Deadline;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is kept of the answer to one reload; a start-up log of this size has
/// thousands of warnings.
pub const MAX_RELOAD_REPLY_BYTES: usize = 1024 * 1024;
/// How long the log may follow its verdict. HAProxy sends both at once and closes.
const LOG_GRACE: Duration = Duration::from_secs(1);
/// `show proc` lists a line a process.
const MAX_PROC_BYTES: usize = 1024 * 1024;
/// The only thing a busy master says.
const BUSY: &[u8] = b"Another reload is still in progress.";

/// The address of a master socket. Holds no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterSocket {
    path: PathBuf,
}

/// What became of one `reload` command.
#[derive(Debug)]
pub enum ReloadReply {
    /// `Success=1`: the new worker has taken over.
    Success {
        /// Its start-up log.
        log: ReloadLog,
    },
    /// `Success=0` with a reason: the old worker serves on.
    Refused {
        /// The start-up log.
        log: ReloadLog,
    },
    /// Another reload was running; this one was not begun.
    Busy,
    /// The command could not be sent.
    NotSent {
        /// Why.
        error: SocketError,
    },
    /// The command was sent and no verdict came back: it may have been carried out.
    NoVerdict {
        /// What came instead.
        what: String,
    },
}

impl MasterSocket {
    /// The socket at `path`, which HAProxy was started with (`-S`).
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends `reload` once and reads the verdict. The log behind a verdict is read to
    /// the end of the stream, [`MAX_RELOAD_REPLY_BYTES`], or a second, whichever is
    /// first; how it ends does not change the verdict.
    #[must_use]
    pub fn reload_once(&self, deadline: Deadline) -> ReloadReply {
        let mut connection = match self.open(deadline) {
            Ok(connection) => connection,
            Err(error) => return ReloadReply::NotSent { error },
        };
        if let Err(error) = connection.write(b"reload\n", deadline) {
            return match error.written {
                0 => ReloadReply::NotSent {
                    error: error.source,
                },
                _ => ReloadReply::NoVerdict {
                    what: error.source.to_string(),
                },
            };
        }
        read_verdict(&mut connection, deadline)
    }

    fn open(&self, deadline: Deadline) -> Result<Connection, SocketError> {
        Connection::open(&self.path, deadline).map_err(SocketError::of_master)
    }

    /// The master's process list.
    ///
    /// # Errors
    ///
    /// [`SocketError`]; `Malformed` when there is no header or no master in it.
    pub fn show_proc(&self, deadline: Deadline) -> Result<ProcList, SocketError> {
        let mut connection = self.open(deadline)?;
        connection
            .write(b"show proc;quit\n", deadline)
            .map_err(|error| error.source)?;
        let mut reply = Vec::new();
        // A list that is cut off is still a list; HAProxy cuts very long ones itself.
        let _: Ended = connection.read_to_end(&mut reply, MAX_PROC_BYTES, deadline)?;
        ProcList::parse(&String::from_utf8_lossy(&reply)).ok_or_else(|| SocketError::Malformed {
            path: self.path.clone(),
            what: "show proc lists no master; is this the master socket (-S)?".to_owned(),
        })
    }
}

fn read_verdict(connection: &mut Connection, deadline: Deadline) -> ReloadReply {
    let mut reply = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    let mut until = deadline;
    let mut decided = false;
    let ended = loop {
        let room = MAX_RELOAD_REPLY_BYTES
            .saturating_sub(reply.len())
            .min(buffer.len());
        if room == 0 {
            break "its answer does not end".to_owned();
        }
        match connection.read(buffer.get_mut(..room).unwrap_or_default(), until) {
            Ok(0) => break "it closed the connection".to_owned(),
            Ok(count) => reply.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(error) => break error.to_string(),
        }
        match Verdict::find(&reply) {
            Found::Verdict(Verdict {
                success: false,
                log,
            }) if log.trim_ascii() == BUSY => {
                return ReloadReply::Busy;
            }
            Found::Verdict(_) if !decided => {
                decided = true;
                until = deadline.within(LOG_GRACE);
            }
            Found::Verdict(_) | Found::NotYet => {}
            Found::Never => break "its answer is no verdict".to_owned(),
        }
    };
    match Verdict::find(&reply) {
        Found::Verdict(Verdict { success, log }) => {
            let log = ReloadLog::new(log, reply.len() >= MAX_RELOAD_REPLY_BYTES);
            match success {
                true => ReloadReply::Success { log },
                false => ReloadReply::Refused { log },
            }
        }
        Found::NotYet | Found::Never => ReloadReply::NoVerdict {
            what: no_verdict(&ended, &reply),
        },
    }
}

fn no_verdict(ended: &str, reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply.get(..200).unwrap_or(reply));
    match text.trim() {
        "" => format!("the master took the reload and said nothing: {ended}"),
        some => format!("the master took the reload and said {some:?}: {ended}"),
    }
}

/// `Success=0` or `Success=1`, a line `--`, the log. Where HAProxy has no memory to share
/// with the process that loads its files (3.0 without a writable `/dev/shm`, or built
/// without it), there is no log and an empty line ends the answer instead.
struct Verdict<'a> {
    success: bool,
    log: &'a [u8],
}

enum Found<'a> {
    Verdict(Verdict<'a>),
    /// What is there may become one.
    NotYet,
    /// What is there cannot.
    Never,
}

impl Verdict<'_> {
    fn find(reply: &[u8]) -> Found<'_> {
        let mut open = false;
        for (start, success) in [
            (&b"Success=1\n--\n"[..], true),
            (b"Success=0\n--\n", false),
            (b"Success=1\n\n", true),
            (b"Success=0\n\n", false),
        ] {
            if let Some(log) = reply.strip_prefix(start) {
                return Found::Verdict(Verdict { success, log });
            }
            open = open || start.starts_with(reply);
        }
        if open { Found::NotYet } else { Found::Never }
    }
}

/// The processes as the master lists them. Which of the workers serves does not follow
/// from this list: branches differ in where they put it after a refused reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcList {
    /// The master's pid.
    pub master_pid: u32,
    /// Reloads since the master started.
    pub reloads: u32,
    /// Refused reloads as the master counts them, which differs between branches.
    pub failed: u32,
    /// Pids under `# workers`.
    pub workers: Vec<u32>,
    /// Pids under `# old workers`.
    pub old_workers: Vec<u32>,
}

impl ProcList {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|line| line.starts_with("#<PID>"))?;
        let row = lines.next()?;
        let mut words = row.split_ascii_whitespace();
        let master_pid = words.next()?.parse().ok()?;
        words.next().filter(|kind| *kind == "master")?;
        let reloads = words.next()?.parse().ok()?;
        let failed = row
            .split_once("[failed: ")?
            .1
            .split_once(']')?
            .0
            .parse()
            .ok()?;
        let mut list = Self {
            master_pid,
            reloads,
            failed,
            workers: Vec::new(),
            old_workers: Vec::new(),
        };
        let mut section = "";
        for line in lines {
            let mut words = line.split_ascii_whitespace();
            match (words.next(), words.next(), section) {
                (Some("#"), _, _) => section = line,
                (Some(pid), Some("worker"), "# workers") => list.workers.push(pid.parse().ok()?),
                (Some(pid), Some("worker"), "# old workers") => {
                    list.old_workers.push(pid.parse().ok()?);
                }
                (Some(_) | None, _, _) => {}
            }
        }
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_both_lines() {
        let whole = b"Success=1\n--\n";
        for cut in 0..whole.len() {
            assert!(
                matches!(Verdict::find(whole.get(..cut).unwrap()), Found::NotYet),
                "{cut}"
            );
        }
        for text in [
            "Success=2",
            "success=1\n--\n",
            "Success=1\n-\n",
            "\nSuccess=1\n--\n",
            "x",
        ] {
            assert!(
                matches!(Verdict::find(text.as_bytes()), Found::Never),
                "{text:?}"
            );
        }
        let Found::Verdict(good) = Verdict::find(b"Success=1\n--\nlog") else {
            panic!("no verdict");
        };
        assert!(good.success && good.log == b"log");
        let Found::Verdict(mute) = Verdict::find(b"Success=0\n\n") else {
            panic!("no verdict");
        };
        assert!(!mute.success && mute.log.is_empty());
    }

    #[test]
    fn process_lists_of_all_branches() {
        let old = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n6698            master          2 [failed: 1]   0d00h00m01s     3.0.11-1+deb13u4\n# workers\n6701            worker          0               0d00h00m01s     3.0.11-1+deb13u4\n# programs\n\n";
        let list = ProcList::parse(old).unwrap();
        assert_eq!((list.master_pid, list.reloads, list.failed), (6698, 2, 1));
        assert_eq!((list.workers, list.old_workers), (vec![6701], vec![]));

        let new = "#<PID> <type> <reloads> <uptime> <version>\n17268 master 2 [failed: 1] 0d00h00m01s 3.2.26-1\n# workers\n# old workers\n17273 worker 1 0d00h00m01s 3.2.26-1\n\n";
        let list = ProcList::parse(new).unwrap();
        assert_eq!((list.workers, list.old_workers), (vec![], vec![17273]));
    }

    #[test]
    fn what_is_no_process_list() {
        for text in [
            "",
            "Name: HAProxy\n",
            "#<PID> <type>\n",
            "#<PID> x\n1 worker 0 [failed: 0]\n",
        ] {
            assert_eq!(ProcList::parse(text), None, "{text:?}");
        }
    }
}
