//! Between an agent and a worker's socket: every byte passes, and is held against the
//! rules that early releases of HAProxy need. It passes bytes on only when the agent has
//! none left to say, and answers only when the worker has none, so that what the agent
//! leaves unfinished or unanswered is seen as it stands.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Half of a buffer: some releases read no further before they have answered.
const MOST_OUTSTANDING: usize = 8192;
/// What one command may have, payload and all, and one line.
const MOST_COMMAND: usize = 12_288;
/// What 3.0 reads of a line.
const MOST_WORDS: usize = 64;
/// Nothing more comes from a side that has been silent for so long.
const SILENCE: Duration = Duration::from_millis(3);

#[derive(Debug, Default)]
struct Seen {
    broken: BTreeSet<String>,
    commands: Vec<String>,
    deleting: usize,
    dumping: usize,
}

#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<Seen>>);

impl Notes {
    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn broken(&self, rule: &str, what: &[u8]) {
        let what = String::from_utf8_lossy(what.get(..200).unwrap_or(what)).into_owned();
        self.with(|seen| seen.broken.insert(format!("{rule}: {what:?}")));
    }
}

/// A listening tap.
#[derive(Debug)]
pub(crate) struct Tap {
    notes: Notes,
    stop: Arc<AtomicBool>,
    accept: Option<JoinHandle<()>>,
}

impl Tap {
    /// Listens on `path` for what `worker` answers.
    pub(crate) fn start(path: &Path, worker: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (notes, stop) = (Notes::default(), Arc::new(AtomicBool::new(false)));
        let (taken, stopped, worker) = (notes.clone(), Arc::clone(&stop), worker.to_path_buf());
        let accept = thread::spawn(move || serve(&listener, &worker, &taken, &stopped));
        Self {
            notes,
            stop,
            accept: Some(accept),
        }
    }

    /// Which rules were broken, and by what.
    pub(crate) fn broken(&self) -> BTreeSet<String> {
        self.notes.with(|seen| seen.broken.clone())
    }

    /// The first line of every command so far, looks included.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.notes.with(|seen| seen.commands.clone())
    }

    /// Forgets them.
    pub(crate) fn clear(&self) {
        self.notes.with(|seen| seen.commands.clear());
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(accept) = self.accept.take() {
            let _ = accept.join();
        }
    }
}

fn serve(listener: &UnixListener, worker: &Path, notes: &Notes, stop: &Arc<AtomicBool>) {
    let mut open = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let Ok((agent, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        agent.set_nonblocking(false).unwrap();
        let (worker, notes) = (PathBuf::from(worker), notes.clone());
        let stop = Arc::clone(stop);
        open.push(thread::spawn(move || {
            // A worker that is not there is a connection that ends.
            if let Ok(worker) = UnixStream::connect(worker) {
                pass(&agent, &worker, &notes, &stop);
            }
        }));
        open.retain(|thread| !thread.is_finished());
    }
    for thread in open {
        let _ = thread.join();
    }
}

/// What a silent side said.
enum Said {
    Bytes(Vec<u8>),
    Over(Vec<u8>),
}

/// Reads until the side is silent. `patient`: it has to say something first.
fn listen(side: &UnixStream, patient: bool, stop: &AtomicBool) -> Said {
    side.set_read_timeout(Some(SILENCE)).unwrap();
    let (mut said, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match (&mut &*side).read(&mut buffer) {
            Ok(0) => return Said::Over(said),
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stop.load(Ordering::SeqCst) {
                    return Said::Over(said);
                }
                if !patient || !said.is_empty() {
                    return Said::Bytes(said);
                }
            }
            Err(_) => return Said::Over(said),
        }
    }
}

fn pass(agent: &UnixStream, worker: &UnixStream, notes: &Notes, stop: &AtomicBool) {
    let mut reader = Reader::default();
    loop {
        let (turn, over) = match listen(agent, true, stop) {
            Said::Bytes(bytes) => (bytes, false),
            Said::Over(bytes) => (bytes, true),
        };
        let kind = reader.turn(&turn, notes);
        notes.with(|seen| {
            let overlaps = (kind.deletes && seen.dumping > 0) || (kind.dumps && seen.deleting > 0);
            if overlaps {
                let rule = "a dump while something is deleted".to_owned();
                seen.broken.insert(rule);
            }
            seen.deleting += usize::from(kind.deletes);
            seen.dumping += usize::from(kind.dumps);
        });
        let written = (&mut &*worker).write_all(&turn).is_ok();
        if over {
            let _ = worker.shutdown(Shutdown::Write);
        }
        let ended = written && !exchange(agent, worker, turn.len(), &mut reader, notes, stop);
        notes.with(|seen| {
            seen.deleting -= usize::from(kind.deletes);
            seen.dumping -= usize::from(kind.dumps);
        });
        if over || ended || !written {
            return;
        }
    }
}

/// Hands the answer of a turn on. What the agent sends meanwhile is outstanding as well.
/// False when the worker closed.
fn exchange(
    agent: &UnixStream,
    worker: &UnixStream,
    sent: usize,
    reader: &mut Reader,
    notes: &Notes,
    stop: &AtomicBool,
) -> bool {
    let mut outstanding = sent;
    loop {
        let (answer, open) = match listen(worker, false, stop) {
            Said::Bytes(bytes) => (bytes, true),
            Said::Over(bytes) => (bytes, false),
        };
        if !answer.is_empty() || !open {
            let heard = (&mut &*agent).write_all(&answer).is_ok();
            if !open {
                let _ = agent.shutdown(Shutdown::Both);
            }
            return open && heard;
        }
        match listen(agent, false, stop) {
            Said::Bytes(more) if more.is_empty() => {}
            Said::Bytes(more) => {
                outstanding += more.len();
                if outstanding > MOST_OUTSTANDING {
                    notes.broken("too much outstanding", &more);
                }
                reader.turn(&more, notes);
                if (&mut &*worker).write_all(&more).is_err() {
                    return false;
                }
            }
            Said::Over(_) => return false,
        }
    }
}

/// What a turn of the agent does.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    deletes: bool,
    dumps: bool,
}

/// Reads what the agent says as HAProxy does.
#[derive(Debug, Default)]
struct Reader {
    session: bool,
    begun: bool,
    /// The bytes of the payload command that is open.
    payload: Option<usize>,
}

impl Reader {
    fn turn(&mut self, turn: &[u8], notes: &Notes) -> Kind {
        let mut kind = Kind::default();
        if turn.is_empty() {
            return kind;
        }
        if turn.last() != Some(&b'\n') {
            notes.broken("a line that is not ended", turn);
        }
        let mut commands = 0;
        for line in turn.split_inclusive(|&b| b == b'\n') {
            if let Some(bytes) = &mut self.payload {
                *bytes += line.len();
                if *bytes > MOST_COMMAND {
                    notes.broken("a payload that is too big", line);
                }
                if line == b"E_O_F\n" {
                    self.payload = None;
                }
                continue;
            }
            commands += 1;
            self.line(line, &mut kind, notes);
        }
        if turn.len() > MOST_OUTSTANDING && commands > 1 {
            notes.broken("more commands than may be outstanding", turn);
        }
        kind
    }

    fn line(&mut self, line: &[u8], kind: &mut Kind, notes: &Notes) {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        if !self.begun {
            self.begun = true;
            self.session = text == "prompt";
        }
        if text.trim().is_empty() {
            notes.broken("an empty command", line);
        }
        if line.contains(&b'\r') || text.starts_with('#') {
            notes.broken("a byte that ends or comments", line);
        }
        if line.len() > MOST_COMMAND || text.split_whitespace().count() > MOST_WORDS {
            notes.broken("a line that is too long", line);
        }
        let mut parts: Vec<&str> = text.split(';').collect();
        if parts.len() > 1 {
            // The only line with several commands: tags, one look, and what ends it.
            let look = parts.len() == 3
                && parts[0] == "set severity-output number"
                && parts[1].starts_with("show ")
                && parts[2] == "show version";
            if self.session || !look {
                notes.broken("several commands on a line", line);
            }
            parts = vec![parts[1]];
        } else if !self.session && !text.starts_with("show ") {
            notes.broken("a change outside of a session", line);
        }
        let command = parts[0];
        notes.with(|seen| seen.commands.push(command.to_owned()));
        kind.deletes |= ["del server", "del backend"]
            .iter()
            .any(|words| command.starts_with(words));
        // A line of its own about the process is no dump.
        let harmless = ["show info", "show cli level", "show version"];
        kind.dumps |= command.starts_with("show ")
            && !harmless.iter().any(|words| command.starts_with(words));
        if text.ends_with(" <<E_O_F") {
            self.payload = Some(line.len());
        }
    }
}
