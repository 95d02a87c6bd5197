//! A relay between the controller and the HTTP server, so that connections can break.
//!
//! The server under the fake owns its sockets and always answers; a test wants requests
//! that are never answered, and answers that end in the middle. Every connection of a
//! controller is accepted here and copied byte by byte to one of the server's. Cutting
//! either copy is all this module does: it understands nothing of what it carries.
//!
//! Two threads a connection, at most [`MAX_CONNECTIONS`] of them; more are closed at once.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Connections at one time.
const MAX_CONNECTIONS: usize = 256;

/// One copy step.
const BUFFER_BYTES: usize = 16 * 1024;

/// No limit on what still passes to the controller.
const ALL: u64 = u64::MAX;

/// The listener that controllers connect to.
#[derive(Debug)]
pub(super) struct Relay {
    address: SocketAddr,
    lines: Lines,
    accept: Option<JoinHandle<()>>,
}

/// The open connections, for whoever wants to cut one.
#[derive(Debug, Clone)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    stop: AtomicBool,
    /// Connections still to be closed as soon as they are made.
    turned_away: AtomicUsize,
    /// By the address that the server sees.
    open: Mutex<BTreeMap<SocketAddr, Arc<Line>>>,
}

#[derive(Debug)]
struct Line {
    controller: TcpStream,
    server: TcpStream,
    /// Bytes that still pass to the controller.
    passes: AtomicU64,
}

impl Relay {
    /// Listens on `listen` and copies to `server`.
    pub(super) fn start(listen: SocketAddr, server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let lines = Lines(Arc::new(Shared {
            server,
            stop: AtomicBool::new(false),
            turned_away: AtomicUsize::new(0),
            open: Mutex::default(),
        }));
        let accept = {
            let lines = lines.clone();
            thread::Builder::new()
                .name("fake-agent-relay".to_owned())
                .spawn(move || lines.accept(&listener))?
        };
        Ok(Self {
            address,
            lines,
            accept: Some(accept),
        })
    }

    /// Where controllers connect.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.lines.0.stop.store(true, Ordering::SeqCst);
        // Wakes the accept call; an address that does not answer has no accept call to wake.
        let _ = TcpStream::connect(reachable(self.address));
        if let Some(accept) = self.accept.take() {
            let _ = accept.join();
        }
        for line in self.lines.open().values() {
            line.cut();
        }
    }
}

/// A wildcard address is not one to connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address
}

impl Lines {
    /// Ends the connection that the server knows by that address, both ways.
    pub(super) fn cut(&self, seen_by_server: SocketAddr) {
        if let Some(line) = self.open().get(&seen_by_server) {
            line.cut();
        }
    }

    /// Lets only so many bytes of what follows pass to the controller, then cuts.
    pub(super) fn cut_after(&self, seen_by_server: SocketAddr, bytes: u64) {
        if let Some(line) = self.open().get(&seen_by_server) {
            line.passes.store(bytes, Ordering::SeqCst);
        }
    }

    /// Writes to the controller past the server, then cuts.
    pub(super) fn last_words(&self, seen_by_server: SocketAddr, bytes: &[u8]) {
        let line = self.open().get(&seen_by_server).cloned();
        if let Some(line) = line {
            let _ = (&line.controller).write_all(bytes);
            line.cut();
        }
    }

    /// Closes the next `count` connections as soon as they are made.
    pub(super) fn turn_away(&self, count: usize) {
        self.0.turned_away.store(count, Ordering::SeqCst);
    }

    /// Ends every open connection.
    pub(super) fn cut_all(&self) {
        for line in self.open().values() {
            line.cut();
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<SocketAddr, Arc<Line>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, listener: &TcpListener) {
        while !self.0.stop.load(Ordering::SeqCst) {
            let Ok((controller, _)) = listener.accept() else {
                thread::yield_now();
                continue;
            };
            let turned_away = self
                .0
                .turned_away
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
            if turned_away || self.open().len() >= MAX_CONNECTIONS {
                continue;
            }
            // A connection that cannot be set up ends here; the controller sees it closed.
            let _ = self.carry(controller);
        }
    }

    fn carry(&self, controller: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.0.server)?;
        controller.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let seen = server.local_addr()?;
        let line = Arc::new(Line {
            controller,
            server,
            passes: AtomicU64::new(ALL),
        });
        self.open().insert(seen, Arc::clone(&line));
        let up = {
            let line = Arc::clone(&line);
            thread::Builder::new()
                .name("fake-agent-up".to_owned())
                .spawn(move || line.up())
        };
        let down = {
            let (line, lines) = (Arc::clone(&line), self.clone());
            thread::Builder::new()
                .name("fake-agent-down".to_owned())
                .spawn(move || {
                    line.down();
                    lines.open().remove(&seen);
                })
        };
        if let Err(error) = up.and(down) {
            line.cut();
            self.open().remove(&seen);
            return Err(error);
        }
        Ok(())
    }
}

impl Line {
    fn cut(&self) {
        // A side that is closed already needs no more.
        let _ = self.controller.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// From the controller to the server. Its end is passed on as an end, because a
    /// controller may close its side and still wait for the answer.
    fn up(&self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match (&self.controller).read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    let taken = buffer.get(..count).unwrap_or_default();
                    if (&self.server).write_all(taken).is_err() {
                        break;
                    }
                }
            }
        }
        let _ = self.server.shutdown(Shutdown::Write);
    }

    /// From the server to the controller; its end ends both.
    fn down(&self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(count @ 1..) = (&self.server).read(&mut buffer) {
            let passes = self.passes.load(Ordering::SeqCst);
            let most = usize::try_from(passes).unwrap_or(usize::MAX).min(count);
            let taken = buffer.get(..most).unwrap_or_default();
            if (&self.controller).write_all(taken).is_err() || most < count {
                break;
            }
            if passes != ALL {
                self.passes
                    .store(passes.saturating_sub(most as u64), Ordering::SeqCst);
            }
        }
        self.cut();
    }
}
