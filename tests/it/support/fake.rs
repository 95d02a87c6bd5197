//! A unix socket whose peer misbehaves in a scripted way.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// One connection as the script sees it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// How many connections came before this one.
    pub(crate) number: usize,
    stream: UnixStream,
    stop: Arc<AtomicBool>,
}

impl Peer {
    /// Reads one line; what came when the client closed or the fake ends.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !self.stop.load(Ordering::SeqCst) && line.last() != Some(&b'\n') {
            match self.stream.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Writes; false once the client is gone or the fake ends.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() && !self.stop.load(Ordering::SeqCst) {
            match self.stream.write(rest) {
                Ok(0) => return false,
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        rest.is_empty()
    }

    /// Keeps the connection open and silent until the client leaves or the fake ends.
    pub(crate) fn hang(&mut self) {
        while !self.line().is_empty() {}
    }

    /// True once the fake is being dropped.
    pub(crate) fn ending(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// A listening unix socket; every connection runs the script in a thread of its own.
#[derive(Debug)]
pub(crate) struct Fake {
    path: PathBuf,
    served: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    accept: Option<JoinHandle<()>>,
}

impl Fake {
    /// Listens on `path`, replacing what is there.
    pub(crate) fn start(path: &Path, script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (served, stop) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let script = Arc::new(script);
        let accept = {
            let (served, stop) = (Arc::clone(&served), Arc::clone(&stop));
            thread::spawn(move || {
                let mut peers = Vec::new();
                // Polled, so that the end does not depend on the path still being there.
                while !stop.load(Ordering::SeqCst) {
                    let Ok((stream, _)) = listener.accept() else {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    stream.set_nonblocking(false).unwrap();
                    let tick = Some(Duration::from_millis(20));
                    stream.set_read_timeout(tick).unwrap();
                    stream.set_write_timeout(tick).unwrap();
                    let peer = Peer {
                        number: served.fetch_add(1, Ordering::SeqCst),
                        stream,
                        stop: Arc::clone(&stop),
                    };
                    let script = Arc::clone(&script);
                    peers.push(thread::spawn(move || script(peer)));
                }
                for peer in peers {
                    let _ = peer.join();
                }
            })
        };
        Self {
            path: path.to_path_buf(),
            served,
            stop,
            accept: Some(accept),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Connections accepted so far.
    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(accept) = self.accept.take() {
            let _ = accept.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}
