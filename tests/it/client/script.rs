//! Peers that do exactly what a test says, over raw sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use haptic_agent::http::client::{Connection, Error, Origin, Request, Until};

/// How long a test waits for anything before it calls it broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A listener whose connections are served one after the other by a script; joined when
/// dropped.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// Serves `count` connections.
    pub(super) fn serving(
        count: usize,
        mut script: impl FnMut(usize, TcpStream) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            for turn in 0..count {
                let (stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                script(turn, stream);
            }
        });
        Self {
            address,
            thread: Some(thread),
        }
    }

    /// Serves one connection.
    pub(super) fn once(mut script: impl FnMut(TcpStream) + Send + 'static) -> Self {
        Self::serving(1, move |_, stream| script(stream))
    }

    /// Answers each of `count` requests of one connection with these bytes, then waits
    /// for the client to hang up.
    pub(super) fn answering(answers: Vec<Vec<u8>>) -> Self {
        Self::once(move |mut stream| {
            for answer in &answers {
                request_head(&mut stream);
                stream.write_all(answer).unwrap();
            }
            drain(&mut stream);
        })
    }

    pub(super) fn origin(&self) -> Origin {
        Origin::parse(&format!("http://{}", self.address)).unwrap()
    }

    pub(super) fn open(&self) -> Connection {
        Connection::open(
            &self.origin(),
            std::time::Instant::now() + PATIENCE,
            &haptic_agent::http::client::Cancel::new(),
        )
        .unwrap()
    }

    /// GETs `/` over a connection of its own: status and body.
    pub(super) fn get(&self) -> Result<(u16, Vec<u8>), Error> {
        get(&mut self.open())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let outcome = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            outcome.unwrap();
        }
    }
}

pub(super) fn get(connection: &mut Connection) -> Result<(u16, Vec<u8>), Error> {
    let answer = connection.send(Request::get("/"), Until::within(PATIENCE))?;
    let status = answer.status();
    Ok((status, answer.collect(1 << 20)?))
}

/// Reads one request head, byte by byte so that nothing of a body is taken.
pub(super) fn request_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Reads until the client hangs up, however it does.
pub(super) fn drain(stream: &mut TcpStream) {
    let mut buffer = [0; 64 * 1024];
    while matches!(stream.read(&mut buffer), Ok(count) if count > 0) {}
}

/// Closes with a reset instead of an end: bytes that nobody read do that.
pub(super) fn reset_on_close(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

/// A deadline that a test waits for.
pub(super) fn soon() -> Duration {
    Duration::from_millis(200)
}

/// A 200 with that body.
pub(super) fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
