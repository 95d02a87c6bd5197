//! A store, a responder on it, a HAProxy that asks it, and raw questions.

use crate::support::haproxy::{Haproxy, Version, preamble};
use crate::support::wait;
use haptic_agent::clock;
use haptic_agent::http::Method;
use haptic_agent::responder::copy::{Copy, CopyCell, Entry};
use haptic_agent::responder::coverage::Coverage;
use haptic_agent::responder::kv::{self, DirConfig, DirPace, Source, SyncWait, Weights};
use haptic_agent::responder::limits::MAX_WAITING_TRANSITIONS;
use haptic_agent::responder::metrics::Metrics;
use haptic_agent::responder::serve::{Answering, CheckListener, Note, Serving};
use haptic_agent::responder::value::Value;
use haptic_agent::responder::{Responder, Settings};
use haptic_agent::sys;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// How long anything may take on a loaded machine before a test gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The interval of checks where a test does not care.
pub(super) const INTER: Duration = Duration::from_millis(100);

/// A directory of keys, empty.
#[derive(Debug)]
pub(super) struct Store {
    dir: tempfile::TempDir,
}

impl Store {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Self { dir };
        kv::dir::store::Store::make(&store.path()).unwrap();
        store
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("kv")
    }

    fn file(&self, key: &str) -> PathBuf {
        self.path().join(key.replace('/', "%2F"))
    }

    /// Writes a key as every writer has to: whole, by rename.
    pub(super) fn set(&self, key: &str, value: &str) {
        let beside = self.path().join(".tmp-test");
        fs::write(&beside, format!("{value}\n")).unwrap();
        fs::rename(beside, self.file(key)).unwrap();
    }

    /// Deletes a key, if it is there.
    pub(super) fn unset(&self, key: &str) {
        let _was_not_there = fs::remove_file(self.file(key));
    }
}

/// A responder in this process on a directory, looking at it every 10 ms.
#[derive(Debug)]
pub(super) struct Checks {
    responder: Responder,
}

impl Checks {
    pub(super) fn start(store: &Store) -> Self {
        Self::start_with(store, Weights::Set, None)
    }

    pub(super) fn start_with(store: &Store, weights: Weights, haproxy: Option<PathBuf>) -> Self {
        let checks = Self::start_at("127.0.0.1:0", &store.path(), weights, haproxy);
        let synced = checks.responder.wait_synced(Some(PATIENCE));
        assert_eq!(synced, SyncWait::Synced);
        checks
    }

    /// One that may never be synced.
    pub(super) fn start_at(
        address: &str,
        dir: &Path,
        weights: Weights,
        haproxy: Option<PathBuf>,
    ) -> Self {
        let pace = DirPace {
            every: Duration::from_millis(10),
            ..DirPace::default()
        };
        let responder = Responder::start(Settings {
            listen: address.parse().unwrap(),
            source: Source::Dir(DirConfig {
                pace,
                ..DirConfig::new(dir.to_path_buf())
            }),
            weights,
            haproxy_socket: haproxy,
            look_every: Duration::from_millis(300),
            clock: clock::system(),
        });
        Self {
            responder: responder.unwrap(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.responder.local_addr()
    }

    /// Ends it, so that HAProxy is refused from now on; the address it had.
    pub(super) fn stop(mut self) -> SocketAddr {
        self.responder.stop();
        self.address()
    }

    /// What `/-/coverage` shows.
    pub(super) fn coverage(&self, query: Option<&str>) -> serde_json::Value {
        let monitor = self.responder.monitor();
        let answer = monitor.answer(&Method::Get, "/-/coverage", query);
        assert_eq!(answer.status().code(), 200);
        serde_json::from_slice(answer.body()).unwrap()
    }

    /// The value of one sample.
    pub(super) fn sample(&self, name: &str) -> f64 {
        let text = self.responder.monitor().exposition(false);
        let line = text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.strip_prefix(' ')
        });
        let line = line.unwrap_or_else(|| panic!("no sample {name} in\n{text}"));
        line.parse().unwrap()
    }
}

/// Only the sockets of a responder, over a cell that the test fills itself.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) address: SocketAddr,
    pub(super) cell: Arc<CopyCell>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) coverage: Arc<Coverage>,
    pub(super) notes: Receiver<Note>,
    pub(super) serving: Serving,
}

impl Sockets {
    /// With these keys in the copy.
    pub(super) fn with(entries: &[(&str, Value)]) -> Self {
        let sockets = Self::unsynced();
        sockets.cell.swap(Arc::new(copy(entries)));
        sockets
    }

    /// Without a copy.
    pub(super) fn unsynced() -> Self {
        let listener = CheckListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr();
        let cell = Arc::new(CopyCell::new());
        let metrics = Arc::new(Metrics::default());
        let clock = clock::system();
        let coverage = Arc::new(Coverage::new(clock.now()));
        let (sender, notes) = sync_channel(MAX_WAITING_TRANSITIONS);
        let serving = listener
            .serve(Answering {
                cell: Arc::clone(&cell),
                weights: Weights::Set,
                metrics: Arc::clone(&metrics),
                coverage: Arc::clone(&coverage),
                notes: sender,
                clock,
            })
            .unwrap();
        Self {
            address,
            cell,
            metrics,
            coverage,
            notes,
            serving,
        }
    }
}

/// A copy with these keys.
pub(super) fn copy(entries: &[(&str, Value)]) -> Copy {
    let entries = entries
        .iter()
        .map(|(key, value)| (Box::from(*key), Entry::new(Ok(*value), None)));
    Copy::new(entries.collect(), 1, clock::system().wall())
}

/// A connection that waits for nothing longer than the patience of a test.
pub(super) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// What is answered until the responder closes; a reset ends it, too.
pub(super) fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut buffer = [0u8; 256];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&answer)),
        }
    }
    String::from_utf8(answer).unwrap()
}

/// One question as HAProxy asks it: a line, the answer up to its line feed, a reset.
pub(super) fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut byte = [0u8; 1];
    while !answer.ends_with(b"\n") {
        match stream.read(&mut byte) {
            Ok(1) => answer.push(byte[0]),
            Ok(_) => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&answer)),
        }
    }
    sys::reset_on_close(&stream);
    String::from_utf8(answer).unwrap()
}

/// The words of a server line that make it ask.
pub(super) fn asks(address: SocketAddr, request: &str, inter: Duration) -> String {
    format!(
        "agent-check agent-addr {} agent-port {} agent-send \"{request}\\n\" agent-inter {}ms",
        address.ip(),
        address.port(),
        inter.as_millis()
    )
}

/// A HAProxy in a directory of its own.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) haproxy: Haproxy,
    dir: tempfile::TempDir,
}

impl Asker {
    /// With these backends behind a preamble.
    pub(super) fn start(version: Version, backends: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Self::config(dir.path(), backends);
        Self {
            haproxy: Haproxy::start(version, dir.path(), &config),
            dir,
        }
    }

    fn config(base: &Path, backends: &str) -> String {
        let socket = base.join("front.sock");
        format!(
            "{}frontend front\n    bind unix@{}\n    http-request return status 200\n{backends}",
            preamble(base),
            socket.display()
        )
    }

    /// Reloads, with other backends if given, and waits for the new worker.
    pub(super) fn reload(&self, backends: Option<&str>) {
        if let Some(backends) = backends {
            let config = Self::config(self.dir.path(), backends);
            self.haproxy.write_config(&config);
        }
        let before = self.haproxy.worker_pid();
        let said = self.haproxy.ask_master("reload").unwrap();
        assert!(said.starts_with("Success=1"), "{said}");
        wait::until("a new worker answers", PATIENCE, || {
            let info = self.haproxy.ask("show info").ok()?;
            let pid = info.lines().find_map(|line| line.strip_prefix("Pid: "))?;
            (pid.trim().parse() != Ok(before)).then_some(())
        });
    }

    /// Ends master and workers and starts them anew.
    pub(super) fn restart(&mut self) {
        let version = self.haproxy.version();
        let config = fs::read_to_string(self.haproxy.config_file()).unwrap();
        self.haproxy.kill();
        self.haproxy = Haproxy::start(version, self.dir.path(), &config);
    }

    /// All rows of a backend.
    pub(super) fn rows(&self, backend: &str) -> Vec<Row> {
        let dump = self.haproxy.ask(&format!("show servers state {backend}"));
        let dump = dump.unwrap();
        dump.lines().filter_map(Row::parse).collect()
    }

    /// One row.
    pub(super) fn row(&self, backend: &str, server: &str) -> Row {
        let mut rows = self.rows(backend).into_iter();
        let row = rows.find(|row| row.name == server);
        row.unwrap_or_else(|| panic!("no row {backend}/{server}"))
    }

    /// A column of `show stat`.
    pub(super) fn stat(&self, backend: &str, server: &str, column: &str) -> String {
        let dump = self.haproxy.ask("show stat -1 4 -1").unwrap();
        let mut lines = dump.lines().map(|line| line.split(','));
        let header = lines.next().unwrap();
        let place = header
            .map(|name| name.trim_start_matches("# "))
            .position(|name| name == column)
            .unwrap();
        let row = lines
            .map(Iterator::collect::<Vec<_>>)
            .find(|row| row.first() == Some(&backend) && row.get(1) == Some(&server));
        row.unwrap()[place].to_owned()
    }

    /// Waits until a row is as wanted.
    pub(super) fn await_row(&self, what: &str, backend: &str, server: &str, want: Wanted) {
        wait::until_ok(what, PATIENCE, || {
            let row = self.row(backend, server);
            if want.is_met_by(&row) {
                Ok(())
            } else {
                Err(format!("{}: {row:?}", self.haproxy.version()))
            }
        });
    }
}

/// A row of `show servers state`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// 0 stopped, 1 starting, 2 running, 3 stopping.
    pub(super) operational: u32,
    pub(super) admin: u32,
    pub(super) weight: u32,
    pub(super) agent: u32,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| fields.get(place - 1)?.parse().ok();
        Some(Self {
            operational: number(6)?,
            admin: number(7)?,
            weight: number(8)?,
            agent: number(15)?,
            name: (*fields.get(3)?).to_owned(),
        })
    }
}

/// What a row shall become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Drain,
    Maint,
    /// In service with this weight.
    Weight(u32),
}

impl Wanted {
    pub(super) fn is_met_by(self, row: &Row) -> bool {
        match self {
            Self::Drain => row.admin == 8,
            Self::Maint => row.admin == 1,
            Self::Weight(weight) => row.admin == 0 && row.weight == weight,
        }
    }
}

/// A backend `web` whose rows `s0`, `s1` … of weight 100 each ask for themselves and for
/// the group `canary`.
pub(super) fn web(address: SocketAddr, rows: usize, inter: Duration, more: &str) -> String {
    let mut text = String::from("backend web\n    balance roundrobin\n");
    for at in 0..rows {
        let asks = asks(address, &format!("web/s{at} canary"), inter);
        let _ = writeln!(
            text,
            "    server s{at} 127.0.0.1:9 weight 100 {asks} {more}"
        );
    }
    text
}
