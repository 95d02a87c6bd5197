//! A server whose answers come when the test wants them.

use super::traffic::{Answer, get_port};
use super::wait;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a request waits at most.
const LONGEST: Duration = Duration::from_secs(20);
/// How long one may be on its way here.
const SOON: Duration = Duration::from_secs(10);

/// Answers each request only when it is let go.
#[derive(Debug)]
pub(crate) struct Slow {
    address: SocketAddr,
    go: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Slow {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (go, asked) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (going, asking) = (Arc::clone(&go), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (go, asked) = (Arc::clone(&going), Arc::clone(&asking));
                thread::spawn(move || serve(&stream, &go, &asked));
            }
        });
        Self { address, go, asked }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that arrived so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// From here on every request is answered, those that wait too.
    pub(crate) fn let_go(&self) {
        self.go.store(true, Ordering::SeqCst);
    }

    /// Requests wait again.
    pub(crate) fn hold(&self) {
        self.go.store(false, Ordering::SeqCst);
    }

    /// A request that is in flight when this returns.
    pub(crate) fn request(&self, port: u16, host: &str) -> JoinHandle<io::Result<Answer>> {
        let before = self.asked();
        let host = host.to_owned();
        let request = thread::spawn(move || get_port(port, &host, "/"));
        wait::until("the request arrives", SOON, || {
            (self.asked() > before).then_some(())
        });
        request
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn serve(stream: &TcpStream, go: &AtomicBool, asked: &AtomicUsize) {
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    while line.trim_end() != "" || line.is_empty() {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
    }
    asked.fetch_add(1, Ordering::SeqCst);
    let end = Instant::now() + LONGEST;
    while !go.load(Ordering::SeqCst) && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
    let mut writer = stream;
    let _ =
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nslow");
}
