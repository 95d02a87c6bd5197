//! A proxy between a client and a server that spoils what the server says, byte by
//! byte: refuses, hangs, cuts, resets, drips.

use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to connections that are opened from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Everything passes.
    Pass,
    /// Closed as soon as they are there.
    Close,
    /// Taken, and nothing is ever answered.
    Hang,
    /// Closed in order after so many bytes of the server's.
    CutAfter(usize),
    /// Reset after so many bytes of the server's.
    ResetAfter(usize),
    /// The first so many bytes pass; the next one only after this time.
    LateAfter(usize, Duration),
    /// One byte at a time.
    Drip,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    way: Mutex<Way>,
    taken: AtomicUsize,
    open: Mutex<Vec<(usize, TcpStream)>>,
    stopping: AtomicBool,
}

/// A running proxy; its connections end when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port and passes everything on to `upstream`.
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            way: Mutex::new(Way::Pass),
            taken: AtomicUsize::new(0),
            open: Mutex::new(Vec::new()),
            stopping: AtomicBool::new(false),
        });
        let theirs = shared.clone();
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if theirs.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                let id = theirs.taken.fetch_add(1, Ordering::SeqCst);
                let shared = theirs.clone();
                thread::spawn(move || serve(&shared, id, client));
            }
        });
        Self {
            address,
            shared,
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Treats connections so from now on, and ends those that are open.
    pub(crate) fn set(&self, way: Way) {
        *self.shared.way.lock().unwrap() = way;
        self.cut();
    }

    /// How many connections were taken.
    pub(crate) fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::SeqCst)
    }

    /// Ends the open connections.
    pub(crate) fn cut(&self) {
        for (_, stream) in self.shared.open.lock().unwrap().drain(..) {
            let _ended_before = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.cut();
        let _wakes_the_accept = TcpStream::connect(self.address);
        let _ended = self.thread.take().unwrap().join();
        self.cut();
    }
}

fn serve(shared: &Shared, id: usize, mut client: TcpStream) {
    let way = *shared.way.lock().unwrap();
    let keep = |stream: &TcpStream| {
        let clone = stream.try_clone().unwrap();
        shared.open.lock().unwrap().push((id, clone));
    };
    keep(&client);
    match way {
        Way::Close => {
            let _ended_before = client.shutdown(Shutdown::Both);
            return;
        }
        Way::Hang => {
            let mut buffer = [0; 4096];
            while matches!(client.read(&mut buffer), Ok(count) if count > 0) {}
            return;
        }
        Way::Pass | Way::CutAfter(_) | Way::ResetAfter(_) | Way::LateAfter(..) | Way::Drip => {}
    }
    let upstream = *shared.upstream.lock().unwrap();
    let Ok(mut server) = TcpStream::connect(upstream) else {
        return;
    };
    client.set_nodelay(true).unwrap();
    keep(&server);
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let up = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from_client.read(&mut buffer) {
            if to_server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ended_before = to_server.shutdown(Shutdown::Both);
    });
    let mut passed = 0;
    let mut buffer = [0; 4096];
    'all: while let Ok(count @ 1..) = server.read(&mut buffer) {
        let mut bytes = &buffer[..count];
        while !bytes.is_empty() {
            let most = match way {
                Way::Pass | Way::Close | Way::Hang => bytes.len(),
                Way::Drip => 1,
                Way::CutAfter(limit) | Way::ResetAfter(limit) if passed == limit => break 'all,
                Way::LateAfter(limit, time) if passed == limit => {
                    thread::sleep(time);
                    bytes.len()
                }
                Way::CutAfter(limit) | Way::ResetAfter(limit) | Way::LateAfter(limit, _) => {
                    bytes.len().min(limit.saturating_sub(passed).max(1))
                }
            };
            if client.write_all(&bytes[..most]).is_err() {
                break 'all;
            }
            passed += most;
            bytes = &bytes[most..];
        }
    }
    let _ended_before = server.shutdown(Shutdown::Both);
    if matches!(way, Way::ResetAfter(_)) {
        // A reset is what the last close of the socket makes, so the other holders of it
        // have to go first.
        let _ended_before = client.shutdown(Shutdown::Read);
        let _ended = up.join();
        shared.open.lock().unwrap().retain(|(open, _)| *open != id);
        let _ended_before = set_socket_linger(&client, Some(Duration::ZERO));
    } else {
        let _ended_before = client.shutdown(Shutdown::Both);
        let _ended = up.join();
    }
}
