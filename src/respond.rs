//! `haptic-agent respond`: the responder as a process of its own.
//!
//! Order at start: descriptor limit, both listeners, the watcher; only then the wait for
//! the first copy, so that health can be asked for from the beginning. Without a copy by
//! the deadline the process ends with a code of its own, and what supervises it starts it
//! again: that may be a wrong address as well as a store that is away.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::cli::Respond;
use crate::cli::exit::{self, Exit};
use crate::clock;
use crate::error::Report;
use crate::http::{Deadlines, ListenAddr, Server, ServerConfig};
use crate::responder::kv::{KvStatus, SyncWait};
use crate::responder::limits::{
    LOOK_INTERVAL, MAX_PARTING, MONITORING_CONNECTIONS, THREADS, WATCHER_LATE,
};
use crate::responder::monitor::Monitor;
use crate::responder::stop::Stop;
use crate::responder::{Responder, Settings};
use crate::sys;

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// Descriptors beside one a connection: two listeners, the store, HAProxy's socket,
/// pipes, standard streams.
const OTHER_DESCRIPTORS: u64 = 64;

/// How many descriptors a responder may need at once.
#[must_use]
pub fn descriptors() -> u64 {
    // A thread in accept holds a descriptor for the connection that it waits for.
    (THREADS + MAX_PARTING + MONITORING_CONNECTIONS) as u64 + OTHER_DESCRIPTORS
}

/// Starts the responder that `respond` describes.
///
/// # Errors
/// An address cannot be had, a token not read, or no thread started.
pub fn start(respond: &Respond) -> Result<Responder, Problem> {
    let listen: ListenAddr = respond.listen.parse()?;
    Ok(Responder::start(Settings {
        listen,
        source: respond.store.clone(),
        weights: respond.weights,
        haproxy_socket: respond.haproxy_socket.clone(),
        look_every: LOOK_INTERVAL,
        clock: clock::system(),
    })?)
}

/// Opens the listener for metrics and health, and serves it in a thread of its own. Its
/// failure ends the process: a responder that nobody can see is better started again.
///
/// # Errors
/// The address cannot be had, or no thread.
pub fn serve_monitoring(address: &str, monitor: Arc<Monitor>) -> Result<(), Problem> {
    let listen: ListenAddr = address.parse()?;
    let server = Server::bind(
        &listen,
        ServerConfig {
            name: "monitoring",
            max_connections: MONITORING_CONNECTIONS,
            deadlines: Deadlines::default(),
        },
    )?;
    log::info!(listener = "monitoring", address:% = server.local_addr(); "listening");
    thread::Builder::new()
        .name("monitoring".to_owned())
        .spawn(move || {
            if let Err(error) = server.run(monitor) {
                Report::new(Exit::Failed, error).log();
                exit::now(Exit::Failed);
            }
        })?;
    Ok(())
}

/// Runs until a signal asks for the end, or the first copy does not come in time.
///
/// # Errors
/// Why it could not start, or has no copy, with the exit code that says so.
pub fn run(respond: &Respond) -> Result<(), Report> {
    let cannot_start = |problem: Problem| Report::new(Exit::CannotStart, problem);
    sys::survive_file_size_limit();
    sys::raise_nofile_limit(descriptors()).map_err(|error| cannot_start(error.into()))?;
    let signals = signals().map_err(|error| cannot_start(error.into()))?;
    let mut responder = start(respond).map_err(cannot_start)?;
    if let Some(address) = &respond.monitoring {
        serve_monitoring(address, responder.monitor()).map_err(cannot_start)?;
    }
    let status = responder.status();
    let deadline = respond.sync_deadline;
    let failed = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&failed);
    let wake = signals.wake;
    thread::Builder::new()
        .name("guard".to_owned())
        .spawn(move || {
            if status.wait_synced(deadline) == SyncWait::Late {
                let trouble = status.snapshot().trouble;
                let trouble = trouble.unwrap_or_else(|| "it has not answered yet".to_owned());
                *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
                let _the_process_ends_anyway = wake.shutdown(std::net::Shutdown::Both);
                return;
            }
            guard(&status);
        })
        .map_err(|error| cannot_start(error.into()))?;

    let mut asked = signals.asked;
    let mut byte = [0u8; 1];
    let signalled = asked.read_exact(&mut byte).is_ok();
    let trouble = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Some(trouble), false) = (trouble, signalled) {
        let problem = format!(
            "the store could not be read within --sync-deadline: {trouble}; no agent check has been answered"
        );
        return Err(Report::new(Exit::NotSynced, problem));
    }
    log::info!("stopping: HAProxy keeps every state");
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            // A second signal does not wait for open connections.
            if asked.read_exact(&mut byte).is_ok() {
                exit::now(Exit::Stopped);
            }
        })
        .map_err(|error| Report::new(Exit::Failed, error))?;
    responder.stop();
    log::info!("stopped");
    Ok(())
}

/// How often the watcher's signs of life are looked at.
const GUARD_EVERY: Duration = Duration::from_secs(20);

/// Ends the process when the watcher has given no sign of life at two looks: nobody would
/// follow the store any more, and a new process would. One look is not enough, because
/// a process that was stopped and goes on finds itself late as well.
fn guard(status: &KvStatus) {
    let pause = Stop::default();
    let mut late = false;
    // Nobody raises the stop: this ends with the process.
    while !pause.pause(GUARD_EVERY) {
        let before = std::mem::replace(&mut late, status.overdue() > WATCHER_LATE);
        if before && late {
            log::error!(
                "the watcher of the store gives no sign of life; stopping so that a restart follows the store again"
            );
            exit::now(Exit::Broken);
        }
    }
}

/// Where signals arrive, and a way to end the wait for them.
struct Signals {
    asked: UnixStream,
    wake: UnixStream,
}

fn signals() -> std::io::Result<Signals> {
    let (asked, write) = UnixStream::pair()?;
    pipe::register(SIGTERM, write.try_clone()?)?;
    pipe::register(SIGINT, write.try_clone()?)?;
    Ok(Signals { asked, wake: write })
}
