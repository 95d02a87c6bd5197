//! A server in this process with a toy service, and a client that is as rude as asked.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use haptic_agent::http::{
    BodyError, Deadlines, Multipart, MultipartError, Request, Response, ServeError, Server,
    ServerConfig, ServerStats, Status, Stopper, Waited,
};

/// How long a test waits for anything before it calls it broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What the toy service reads of a body at most.
pub(super) const BODY_LIMIT: u64 = 64 * 1024 * 1024;

/// Deadlines short enough to wait for.
pub(super) fn short() -> Deadlines {
    Deadlines {
        first_byte: Duration::from_millis(300),
        head: Duration::from_millis(600),
        body: Duration::from_millis(1500),
        body_stall: Duration::from_millis(400),
        write: Duration::from_secs(3),
        write_stall: Duration::from_millis(500),
        idle: Duration::from_millis(500),
        linger: Duration::from_secs(2),
        stop_grace: Duration::from_millis(800),
    }
}

/// A running server; stopped and joined when dropped.
pub(super) struct Toy {
    pub(super) address: SocketAddr,
    pub(super) stats: Arc<ServerStats>,
    pub(super) stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Toy {
    pub(super) fn start() -> Self {
        Self::with(64, Deadlines::default())
    }

    pub(super) fn with(max_connections: usize, deadlines: Deadlines) -> Self {
        let server = Server::bind(
            &"127.0.0.1:0".parse().unwrap(),
            ServerConfig {
                name: "toy",
                max_connections,
                deadlines,
            },
        )
        .unwrap();
        let address = server.local_addr();
        let stats = server.stats();
        let stopper = server.stopper();
        let for_service = server.stats();
        let thread = std::thread::spawn(move || {
            server.run(Arc::new(move |request: &mut Request<'_>| {
                toy(request, &for_service)
            }))
        });
        Self {
            address,
            stats,
            stopper,
            thread: Some(thread),
        }
    }

    pub(super) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Waits for the run to end after a stop.
    pub(super) fn join(&mut self) -> Result<(), ServeError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Toy {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.unwrap().unwrap();
            }
        }
    }
}

/// The toy service: a path a behaviour.
pub(super) fn toy(request: &mut Request<'_>, stats: &ServerStats) -> Response {
    match request.path() {
        "/" => Response::text(Status::Ok, "ok"),
        "/seen" => {
            let text = format!(
                "{} {} {:?} {:?} {}",
                request.method_name(),
                request.path(),
                request.query(),
                request.declared_length(),
                request.peer().ip(),
            );
            Response::text(Status::Ok, &text)
        }
        "/echo" => match request.body(BODY_LIMIT).read_all() {
            Ok(bytes) => Response::bytes(Status::Ok, "application/octet-stream", bytes),
            Err(error) => refused(&error),
        },
        "/count" => match count(&mut request.body(BODY_LIMIT)) {
            Ok(total) => Response::text(Status::Ok, &total.to_string()),
            Err(error) => refused(&error),
        },
        "/small" => match request.body(10).read_all() {
            Ok(bytes) => Response::bytes(Status::Ok, "application/octet-stream", bytes),
            Err(error) => refused(&error),
        },
        "/form" => form(request),
        "/401" => Response::text(Status::Unauthorized, "who are you\n")
            .header("WWW-Authenticate", "Basic realm=\"toy\""),
        "/409" => match request.body(BODY_LIMIT).read(&mut [0u8; 1000]) {
            Ok(_) => Response::text(Status::Conflict, "not now\n"),
            Err(error) => refused(&error),
        },
        "/413" => Response::text(Status::PayloadTooLarge, "too much\n"),
        "/panic" => panic!("as asked"),
        "/big" => Response::bytes(
            Status::Ok,
            "application/octet-stream",
            vec![b'x'; 10 * 1024 * 1024],
        ),
        "/hold" => hold(request, "held"),
        "/slow" => {
            // Busy whatever the client does, until the stop.
            let bound = Instant::now() + PATIENCE;
            while request.wait_or_gone(Duration::from_millis(20)) == Waited::Elapsed
                && Instant::now() < bound
            {}
            Response::text(Status::Ok, "slow")
        }
        "/stats" => Response::text(
            Status::Ok,
            &format!(
                "open={} accepted={} errors={} refused={} evicted={} spawn={} panics={} fds={} threads={} rss={}",
                stats.open.load(Ordering::Relaxed),
                stats.accepted.load(Ordering::Relaxed),
                stats.accept_errors.load(Ordering::Relaxed),
                stats.refused_busy.load(Ordering::Relaxed),
                stats.evicted.load(Ordering::Relaxed),
                stats.spawn_errors.load(Ordering::Relaxed),
                stats.panics.load(Ordering::Relaxed),
                std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
                std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count),
                peak_memory(),
            ),
        ),
        _ => Response::text(Status::NotFound, "no such path\n"),
    }
}

/// Peak resident memory of this process in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

pub(super) static CLIENT_GONE: AtomicU64 = AtomicU64::new(0);

fn hold(request: &Request<'_>, text: &str) -> Response {
    match request.wait_or_gone(PATIENCE) {
        Waited::Elapsed => Response::text(Status::Ok, text),
        Waited::Stopping => Response::text(Status::ServiceUnavailable, "stopping"),
        Waited::ClientGone => {
            CLIENT_GONE.fetch_add(1, Ordering::SeqCst);
            Response::text(Status::Ok, "nobody reads this")
        }
    }
}

fn count(reader: &mut impl Read) -> io::Result<u64> {
    io::copy(reader, &mut io::sink())
}

fn refused(error: &io::Error) -> Response {
    let Some(error) = BodyError::of(error) else {
        return Response::text(Status::InternalServerError, "no body error");
    };
    let status = match error {
        BodyError::TooLarge { .. } => Status::PayloadTooLarge,
        BodyError::Truncated
        | BodyError::Stalled
        | BodyError::Late
        | BodyError::BadFraming(_)
        | BodyError::Gone(_) => Status::BadRequest,
    };
    Response::text(status, &error.to_string())
}

/// Lists the parts of a form: name, filename, length.
fn form(request: &mut Request<'_>) -> Response {
    let boundary =
        haptic_agent::http::multipart::boundary_of(request.content_type().unwrap_or_default());
    let boundary = match boundary {
        Ok(boundary) => boundary,
        Err(error) => return Response::text(Status::BadRequest, &error.to_string()),
    };
    let mut text = String::new();
    let mut form = Multipart::new(request.body(BODY_LIMIT), &boundary, 100);
    let outcome = loop {
        match form.next_part() {
            Ok(Some(head)) => match io::copy(&mut form.part(), &mut io::sink()) {
                Ok(length) => {
                    text += &format!("{} {:?} {length}\n", head.name, head.filename);
                }
                Err(error) => break Err(error.into()),
            },
            Ok(None) => break form.finish(),
            Err(error) => break Err(error),
        }
    };
    match outcome {
        Ok(()) => Response::text(Status::Ok, &text),
        Err(MultipartError::Transport(error)) => refused(&error),
        Err(error) => Response::text(Status::BadRequest, &error.to_string()),
    }
}

/// A client that sends bytes and reads answers.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer as it came.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn closes(&self) -> bool {
        self.head.contains("\r\nConnection: close\r\n")
    }
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// A GET of `path`, and its answer.
    pub(super) fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
        self.answer()
    }

    /// As [`get`](Self::get), for a server that may refuse or hang up.
    pub(super) fn try_get(&mut self, path: &str) -> io::Result<Answer> {
        let text = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
        self.stream.write_all(text.as_bytes())?;
        self.try_answer(false)
    }

    pub(super) fn answer(&mut self) -> Answer {
        self.try_answer(false).unwrap()
    }

    /// An answer to HEAD, which has a length and no body.
    pub(super) fn answer_without_body(&mut self) -> Answer {
        self.try_answer(true).unwrap()
    }

    pub(super) fn try_answer(&mut self, head_only: bool) -> io::Result<Answer> {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3))
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("not an answer: {head:?}"));
        let length: usize = if status == 100 || head_only {
            0
        } else {
            head.lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .and_then(|length| length.parse().ok())
                .unwrap_or_else(|| panic!("no length: {head:?}"))
        };
        while self.unread.len() < length {
            self.more()?;
        }
        Ok(Answer {
            status,
            head,
            body: self.unread.drain(..length).collect(),
        })
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0u8; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.unread.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }

    /// Waits for the server to end the connection, and says how: `true` in order.
    pub(super) fn ended(&mut self) -> bool {
        assert_eq!(self.unread, b"", "unread answer bytes");
        match self.stream.read(&mut [0u8; 1]) {
            Ok(0) => true,
            Ok(_) => panic!("a byte instead of the end"),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no end: {error}"),
        }
    }
}

/// Polls until `condition` holds; panics with what it last said when it never does.
pub(super) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Result<T, String>) -> T {
    let bound = Instant::now() + PATIENCE;
    loop {
        match condition() {
            Ok(value) => return value,
            Err(last) if Instant::now() > bound => panic!("never {what}: last saw {last}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Waits until a counter has a value.
pub(super) fn until_equal(what: &str, counter: &AtomicU64, wanted: u64) {
    eventually(what, || match counter.load(Ordering::SeqCst) {
        value if value == wanted => Ok(()),
        value => Err(value.to_string()),
    });
}
