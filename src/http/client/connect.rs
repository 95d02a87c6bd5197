//! Connecting within a bound.
//!
//! A numeric address connects in this thread. A name has to be resolved and a unix
//! socket's queue may be full, and std bounds neither: those run in a thread of their
//! own, which is left behind if it takes too long. At most [`MAX_LEFT_BEHIND`] are.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::cancel::Cancel;
use super::error::{Error, Phase};
use super::origin::Origin;
use super::stream::Stream;

/// Connects under way in threads of their own, of the whole process. Each ends when its
/// resolver or its peer does.
const MAX_LEFT_BEHIND: usize = 64;

/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// How often a connect in another thread looks for a cancel.
const LOOK: Duration = Duration::from_millis(20);

static LEFT_BEHIND: AtomicUsize = AtomicUsize::new(0);

pub(super) fn connect(origin: &Origin, until: Instant, cancel: &Cancel) -> Result<Stream, Error> {
    let stream = match origin {
        Origin::Tcp { host, port } => match host.parse::<IpAddr>() {
            Ok(ip) => tcp(SocketAddr::new(ip, *port), until)?,
            Err(_) => elsewhere(origin, until, cancel)?,
        },
        Origin::Unix(_) => elsewhere(origin, until, cancel)?,
    };
    stream.prepared().map_err(Error::NotConnected)
}

fn tcp(address: SocketAddr, until: Instant) -> Result<Stream, Error> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Error::Timeout(Phase::Connect));
    }
    match TcpStream::connect_timeout(&address, left) {
        Ok(stream) => Ok(Stream::Tcp(stream)),
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(Error::Timeout(Phase::Connect)),
        Err(error) => Err(Error::NotConnected(error)),
    }
}

/// Counts one thread for as long as it lives.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        LEFT_BEHIND
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
                (taken < MAX_LEFT_BEHIND).then_some(taken + 1)
            })
            .ok()
            .map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        LEFT_BEHIND.fetch_sub(1, Ordering::SeqCst);
    }
}

fn elsewhere(origin: &Origin, until: Instant, cancel: &Cancel) -> Result<Stream, Error> {
    let place = Place::take().ok_or_else(|| {
        Error::NotConnected(io::Error::other(
            "too many earlier connects still hang in the resolver or at a full socket",
        ))
    })?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let origin = origin.clone();
    std::thread::Builder::new()
        .name("connect".into())
        .spawn(move || {
            let _place = place;
            // Nobody receives if the time was over; the stream is closed then.
            let _unwanted = sender.send(any_address(&origin, until));
        })
        .map_err(Error::NotConnected)?;
    loop {
        cancel.check()?;
        let left = until.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.min(LOOK)) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                return Err(Error::Timeout(Phase::Connect));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::NotConnected(ErrorKind::BrokenPipe.into()));
            }
        }
    }
}

/// The first address that answers; the last one's error if none does.
fn any_address(origin: &Origin, until: Instant) -> Result<Stream, Error> {
    match origin {
        Origin::Unix(path) => UnixStream::connect(path)
            .map(Stream::Unix)
            .map_err(Error::NotConnected),
        Origin::Tcp { host, port } => {
            let addresses = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(Error::NotConnected)?;
            let mut last = Error::NotConnected(io::Error::new(
                ErrorKind::AddrNotAvailable,
                "the name has no address",
            ));
            for address in addresses.take(MAX_ADDRESSES) {
                match tcp(address, until) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}
