//! A listener with its connections: bind, run, stop.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::accept::AcceptLoop;
use super::addr::ListenAddr;
use super::admission::Admission;
use super::limits::{Deadlines, LISTEN_BACKLOG};
use super::request::Request;
use super::response::Response;
use super::stop::{StopSignal, Stopper};
use crate::sys;

/// What answers requests. Calls come from many threads at once.
///
/// The order inside a call is the service's: route and method, credentials, declared
/// length, and only then the body. An answer may come before the body was read; the
/// server then drains the client, so that it gets to see the answer. A panic is
/// answered with 500 and ends that connection only.
pub trait Service: Send + Sync + 'static {
    /// Answers one request.
    fn call(&self, request: &mut Request<'_>) -> Response;
}

impl<F> Service for F
where
    F: Fn(&mut Request<'_>) -> Response + Send + Sync + 'static,
{
    fn call(&self, request: &mut Request<'_>) -> Response {
        self(request)
    }
}

/// What one listener needs to know.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The listener's name in log lines and thread names, at most 10 bytes.
    pub name: &'static str,
    /// How many connections, and so threads, may live at once; at least 1.
    pub max_connections: usize,
    /// How long each wait on a peer may take.
    pub deadlines: Deadlines,
}

/// What a server has counted since it was bound.
#[derive(Debug, Default)]
pub struct ServerStats {
    /// Connections that have a thread now.
    pub open: AtomicU64,
    /// Connections taken from the listener.
    pub accepted: AtomicU64,
    /// Accepts that failed, whatever the reason.
    pub accept_errors: AtomicU64,
    /// Connections that were answered 503 because all others were busy or no thread or
    /// descriptor was left.
    pub refused_busy: AtomicU64,
    /// Connections without a request that were shut for a newcomer.
    pub evicted: AtomicU64,
    /// Threads that could not be started.
    pub spawn_errors: AtomicU64,
    /// Requests handed to the service.
    pub requests: AtomicU64,
    /// Calls of the service, or connections, that ended in a panic.
    pub panics: AtomicU64,
}

/// A bound listener.
#[derive(Debug)]
pub struct Server {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) config: ServerConfig,
    pub(super) stop: Arc<StopSignal>,
    pub(super) stats: Arc<ServerStats>,
    pub(super) admission: Arc<Admission>,
    /// Given up for a moment when no descriptor is left, so that a waiting connection
    /// can be taken and told.
    pub(super) reserve: UnixDatagram,
}

impl Server {
    /// Opens the listener; connections wait in the kernel until [`run`](Self::run).
    ///
    /// # Errors
    /// The address is taken, not ours, or needs a privilege; no descriptor is left.
    pub fn bind(address: &ListenAddr, config: ServerConfig) -> Result<Self, BindError> {
        let failed = |source| BindError {
            name: config.name,
            address: *address,
            source,
        };
        let listener = listen_first(address).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let stop = StopSignal::new().map_err(failed)?;
        let reserve = reserve_descriptor().map_err(failed)?;
        Ok(Self {
            listener,
            address: local,
            stop: Arc::new(stop),
            stats: Arc::new(ServerStats::default()),
            admission: Arc::new(Admission::new(config.max_connections)),
            reserve,
            config,
        })
    }

    /// Where the listener is, with the port that the system chose if 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// A handle that stops the server from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper::new(Arc::clone(&self.stop))
    }

    /// The counters; they outlive the server.
    #[must_use]
    pub fn stats(&self) -> Arc<ServerStats> {
        Arc::clone(&self.stats)
    }

    /// Serves on this thread until the server is stopped and drained.
    ///
    /// A stop closes the listener first, ends connections that serve no request, and
    /// gives the others [`Deadlines::stop_grace`]. A service that is still busy after
    /// that keeps its thread; only its socket is shut.
    ///
    /// # Errors
    /// The listener itself failed; its connections are drained all the same.
    pub fn run(self, service: Arc<dyn Service>) -> Result<(), ServeError> {
        let name = self.config.name;
        let grace = self.config.deadlines.stop_grace;
        let stop = Arc::clone(&self.stop);
        let admission = Arc::clone(&self.admission);
        let outcome = AcceptLoop::new(self, service).run();
        // The listener went with the loop; from here on nobody new can come.
        stop.raise();
        let left = admission.drain(grace);
        if left > 0 {
            log::warn!(listener = name, connections = left; "stopped with requests unfinished");
        }
        outcome
    }
}

/// The first of the address's candidates that can be had. Only a missing address
/// family leads to the next one; a taken port does not.
fn listen_first(address: &ListenAddr) -> io::Result<TcpListener> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in address.candidates() {
        match sys::listen(candidate, LISTEN_BACKLOG) {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                let no_such_family = matches!(
                    error.raw_os_error(),
                    Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::EPROTONOSUPPORT)
                );
                failed = error;
                if !no_such_family {
                    break;
                }
            }
        }
    }
    Err(failed)
}

/// A descriptor to give up when there are none left. A socket, because it needs nothing
/// of a file system: the agent may run where there is no `/dev`.
pub(super) fn reserve_descriptor() -> io::Result<UnixDatagram> {
    UnixDatagram::unbound()
}

/// A listener could not be opened.
#[derive(Debug)]
pub struct BindError {
    name: &'static str,
    address: ListenAddr,
    source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the {} listener cannot listen on {}",
            self.name, self.address
        )?;
        match self.source.kind() {
            io::ErrorKind::AddrInUse => {
                f.write_str("; another process does, stop it or choose another port")
            }
            io::ErrorKind::PermissionDenied => {
                f.write_str("; ports below 1024 need CAP_NET_BIND_SERVICE, choose a higher one")
            }
            io::ErrorKind::AddrNotAvailable => {
                f.write_str("; this machine does not have that address")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The listener failed in a way that no retry mends.
#[derive(Debug)]
pub struct ServeError {
    pub(super) name: &'static str,
    pub(super) source: io::Error,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} listener failed and must be restarted", self.name)
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
