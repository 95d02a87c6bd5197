//! A little traffic: a backend that answers with its name, a client, and a
//! background load that counts what failed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long one side of an exchange may keep the other waiting.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer the client takes.
const MAX_ANSWER: u64 = 1024 * 1024;

/// An HTTP server on a port of its own whose every answer is its name.
#[derive(Debug)]
pub(crate) struct Backend {
    address: SocketAddr,
    hits: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    /// Starts one.
    pub(crate) fn start(name: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (hits, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let thread = {
            let (name, hits, stop) = (name.to_owned(), Arc::clone(&hits), Arc::clone(&stop));
            thread::spawn(move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let (name, hits) = (name.clone(), Arc::clone(&hits));
                    if let Ok(stream) = stream {
                        thread::spawn(move || {
                            let _ = answer_all(&stream, &name, &hits);
                        });
                    }
                }
            })
        };
        Self {
            address,
            hits,
            stop,
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests answered so far.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept; the listener closes with its thread.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer_all(stream: &TcpStream, name: &str, hits: &AtomicU64) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim_end().is_empty() {
                break;
            }
        }
        hits.fetch_add(1, Ordering::SeqCst);
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}",
            name.len()
        );
        writer.write_all(answer.as_bytes())?;
    }
}

/// Status and body of one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// One GET over a connection of its own, with the given `Host`.
pub(crate) fn get(address: SocketAddr, host: &str, path: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // In one write: pieces would wait for the other side's delayed acknowledgement.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut text)?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(Answer {
        status: status.ok_or_else(malformed)?,
        body: body.to_owned(),
    })
}

/// Like [`get`] on a port of the loopback interface.
pub(crate) fn get_port(port: u16, host: &str, path: &str) -> io::Result<Answer> {
    get(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), host, path)
}

/// What a load saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) good: u64,
    pub(crate) failed: u64,
}

/// GETs in the background, one after the other, each on a connection of its own;
/// anything but a 200 counts as failed.
#[derive(Debug)]
pub(crate) struct Load {
    good: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts it.
    pub(crate) fn start(port: u16, host: &str, path: &str) -> Self {
        let (good, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (host, path) = (host.to_owned(), path.to_owned());
            let (good, failed, stop) = (Arc::clone(&good), Arc::clone(&failed), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let answer = get_port(port, &host, &path);
                    match answer {
                        Ok(answer) if answer.status == 200 => &good,
                        other => {
                            // What failed matters more than how often; a failing test shows it.
                            eprintln!("a request of the load failed: {other:?}");
                            &failed
                        }
                    }
                    .fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        Self {
            good,
            failed,
            stop,
            thread: Some(thread),
        }
    }

    /// The counts so far.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            good: self.good.load(Ordering::SeqCst),
            failed: self.failed.load(Ordering::SeqCst),
        }
    }

    /// Ends it; the final counts.
    pub(crate) fn stop(mut self) -> Seen {
        self.end();
        self.seen()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}
