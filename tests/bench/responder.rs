//! The agent-check responder: answers a second against a bare loop, a fleet at 100 ms, and
//! what a large store costs.

use crate::VERSION;
use crate::measure::{Times, kib, ms};
use crate::support::consul::{Consul, Mode};
use crate::support::haproxy::{Haproxy, preamble};
use crate::support::wait;
use haptic_agent::clock;
use haptic_agent::responder::copy::{Copy, CopyCell, Entry};
use haptic_agent::responder::coverage::Coverage;
use haptic_agent::responder::kv::Weights;
use haptic_agent::responder::limits::{
    BACKLOG, MAX_WAITING_TRANSITIONS, THREAD_STACK_BYTES, THREADS,
};
use haptic_agent::responder::metrics::Metrics;
use haptic_agent::responder::serve::{Answering, CheckListener, Serving};
use haptic_agent::responder::value::Value;
use haptic_agent::sys;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// Clients that ask one question after the other.
const CLIENTS: usize = 8;
/// How long each side is loaded in a round.
const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 7;

/// The rows of a large fleet.
const ROWS: usize = 919;

/// Answers a second, the responder's and a bare loop's in turn: the same threads,
/// backlog and answer, but nothing read, looked up, counted or waited for.
pub(crate) fn answers() {
    let responder = Own::start();
    let bare = bare_loop();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(load(responder.address));
        theirs.push(load(bare));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "  {ours:.0} ÷ {theirs:.0} answers a second = {:.3}  (medians of {ROUNDS} rounds, {CLIENTS} clients)",
        ours / theirs
    );
    println!(
        "  inside the responder: 99 of 100 within {}",
        bound(&responder.metrics, 0.99)
    );
}

/// The responder's sockets in this process.
struct Own {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    _serving: Serving,
    _notes: Receiver<haptic_agent::responder::serve::Note>,
}

impl Own {
    fn start() -> Self {
        let listener = CheckListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr();
        let cell = Arc::new(CopyCell::new());
        cell.swap(Arc::new(copy(ROWS)));
        let metrics = Arc::new(Metrics::default());
        let clock = clock::system();
        let (sender, notes) = sync_channel(MAX_WAITING_TRANSITIONS);
        let serving = listener
            .serve(Answering {
                cell,
                weights: Weights::Set,
                metrics: Arc::clone(&metrics),
                coverage: Arc::new(Coverage::new(clock.now())),
                notes: sender,
                clock,
            })
            .unwrap();
        Self {
            address,
            metrics,
            _serving: serving,
            _notes: notes,
        }
    }
}

/// Threads that accept, write and close, for as long as the bench runs.
fn bare_loop() -> SocketAddr {
    let listener = sys::listen("127.0.0.1:0".parse().unwrap(), BACKLOG).unwrap();
    listener.set_nonblocking(false).unwrap();
    let listener = Arc::new(listener);
    for _ in 0..THREADS {
        let listener = Arc::clone(&listener);
        thread::Builder::new()
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || {
                while let Ok((stream, _)) = sys::accept(&listener) {
                    let _gone = (&stream).write(b"ready 100%\n");
                }
            })
            .unwrap();
    }
    listener.local_addr().unwrap()
}

/// Answers a second that [`CLIENTS`] get in a [`ROUND`].
fn load(address: SocketAddr) -> f64 {
    let start = Instant::now();
    let count: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| scope.spawn(move || client(address, at, start)))
            .collect();
        clients.into_iter().map(|c| c.join().unwrap()).sum()
    });
    count as f64 / start.elapsed().as_secs_f64()
}

/// Asks as HAProxy does: connect, line, answer, reset.
fn client(address: SocketAddr, at: usize, start: Instant) -> u64 {
    let request = format!("web/s{at} canary\n");
    let mut count = 0;
    let mut answer = [0u8; 64];
    while start.elapsed() < ROUND {
        let mut stream = TcpStream::connect(address).unwrap();
        // A bare loop may have closed already.
        let _gone = stream.write_all(request.as_bytes());
        if stream.read(&mut answer).is_ok_and(|got| got > 0) {
            count += 1;
        }
        sys::reset_on_close(&stream);
    }
    count
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn copy(keys: usize) -> Copy {
    let entry = |at: usize| {
        let key = format!("backend-{}/server-{at:06}", at % 97);
        (key.into_boxed_str(), Entry::new(Ok(Value::Drain), None))
    };
    Copy::new((0..keys).map(entry).collect(), 1, clock::system().wall())
}

/// The bucket bound that a share of the replies does not exceed.
fn bound(metrics: &Metrics, share: f64) -> String {
    let counts: Vec<(f64, u64)> = metrics.reply_seconds.bounds();
    let total = counts.last().map_or(0, |(_, count)| *count);
    let within = counts
        .iter()
        .find(|(_, count)| *count as f64 >= total as f64 * share);
    match within {
        Some((bound, _)) => format!("{} µs", (bound * 1e6).round()),
        None => "?".to_owned(),
    }
}

/// One HAProxy with 919 rows at 100 ms, the responder as a process beside it.
pub(crate) fn fleet() {
    for inter in [100, 2000] {
        let dir = tempfile::tempdir().unwrap();
        let mut responder = Process::on_directory(dir.path());
        let mut config = preamble(dir.path());
        config.push_str("backend web\n    balance roundrobin\n");
        for at in 0..ROWS {
            let (ip, port) = (responder.checks.ip(), responder.checks.port());
            let _ = writeln!(
                config,
                "    server s{at} 127.0.0.1:9 weight 100 agent-check agent-addr {ip} agent-port {port} agent-inter {inter}ms agent-send \"web/s{at} canary\\n\""
            );
        }
        let haproxy = Haproxy::start(VERSION, dir.path(), &config);
        thread::sleep(Duration::from_millis(2 * inter + 500));
        let worker = haproxy.worker_pid();
        let before = (
            responder.replies(),
            cpu(responder.pid()),
            cpu(worker),
            buckets(&responder.metrics()),
        );
        let start = Instant::now();
        thread::sleep(Duration::from_secs(10));
        let seconds = start.elapsed().as_secs_f64();
        let text = responder.metrics();
        let answers = (responder.replies() - before.0) as f64 / seconds;
        let share = |now: f64, then: f64| 100.0 * (now - then) / seconds;
        let (own, theirs) = (
            share(cpu(responder.pid()), before.1),
            share(cpu(worker), before.2),
        );
        let late = haproxy.ask("show stat -1 4 -1").unwrap();
        let late = late.lines().filter(|line| line.contains("TOUT")).count();
        println!(
            "  agent-inter {inter} ms, {ROWS} rows: {answers:.0} answers a second of {:.0} asked; 99 of 100 within {}, 999 of 1000 within {}; CPU {own:.1} % (HAProxy {theirs:.1} %); memory {} KiB, of its own {} KiB; rows with a timeout {late}",
            ROWS as f64 * 1000.0 / inter as f64,
            quantile(&before.3, &buckets(&text), 0.99),
            quantile(&before.3, &buckets(&text), 0.999),
            kib(responder.pid(), "VmRSS"),
            kib(responder.pid(), "RssAnon"),
        );
        drop(haproxy);
        responder.stop();
    }
}

/// Cumulative counts by bound, in µs.
fn buckets(metrics: &str) -> Vec<(f64, u64)> {
    let prefix = "haptic_responder_reply_seconds_bucket{le=\"";
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(prefix));
    lines
        .filter_map(|line| {
            let (bound, count) = line.split_once("\"} ")?;
            let bound = if bound == "+Inf" {
                f64::INFINITY
            } else {
                bound.parse().ok()?
            };
            Some((bound * 1e6, count.parse().ok()?))
        })
        .collect()
}

fn quantile(before: &[(f64, u64)], after: &[(f64, u64)], share: f64) -> String {
    let counts: Vec<(f64, u64)> = before
        .iter()
        .zip(after)
        .map(|((bound, then), (_, now))| (*bound, now - then))
        .collect();
    let total = counts.last().map_or(0, |(_, count)| *count) as f64;
    let within = counts
        .iter()
        .find(|(_, count)| *count as f64 >= total * share);
    within.map_or("?".to_owned(), |(bound, _)| format!("{} µs", bound.round()))
}

/// CPU seconds of a process so far.
fn cpu(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let ticks = |at: usize| rest.split(' ').nth(at).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// `haptic-agent respond`.
struct Process {
    child: Child,
    checks: SocketAddr,
    monitoring: SocketAddr,
}

impl Process {
    fn on_directory(dir: &Path) -> Self {
        let kv = dir.join("kv");
        Self::start(dir, &["-kv-dir", kv.to_str().unwrap(), "-kv-missing=make"])
    }

    fn on_consul(dir: &Path, consul: &Consul) -> Self {
        Self::start(dir, &["-consul-addr", &consul.address().to_string()])
    }

    fn start(dir: &Path, flags: &[&str]) -> Self {
        let log = dir.join("responder.log");
        let file = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_haptic-agent"))
            .args(["respond", "-listen-addr", "127.0.0.1:0"])
            .args(["-monitoring-addr", "127.0.0.1:0", "-haproxy-socket"])
            .arg(dir.join("worker.sock"))
            .args(flags)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(file)
            .spawn()
            .unwrap();
        let (checks, monitoring) = wait::until("the responder listens", PATIENCE, || {
            let text = fs::read_to_string(&log).ok()?;
            let of = |name: &str| {
                let record = text
                    .lines()
                    .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
                    .find(|r| r["msg"] == "listening" && r["listener"] == name)?;
                record["address"].as_str()?.parse().ok()
            };
            Some((of("checks")?, of("monitoring")?))
        });
        Self {
            child,
            checks,
            monitoring,
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn metrics(&self) -> String {
        crate::support::agent::get(self.monitoring, "/-/metrics", None).text()
    }

    fn replies(&self) -> u64 {
        let text = self.metrics();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("haptic_responder_replies_total{"));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    fn stop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a copy of that many keys costs: memory, building it, putting it in place, and
/// an answer beside it.
pub(crate) fn store() {
    for keys in [0, 919, 16_384, 100_000] {
        let before = kib(std::process::id(), "RssAnon");
        let mut built = Times::default();
        let cell = CopyCell::new();
        let first = built.of(|| Arc::new(copy(keys)));
        cell.swap(first);
        let memory = kib(std::process::id(), "RssAnon").saturating_sub(before);
        let (mut swapped, mut looked) = (Times::default(), Times::default());
        for _ in 0..20 {
            let next = built.of(|| Arc::new(copy(keys)));
            let old = swapped.of(|| cell.swap(next));
            drop(old);
            looked.of(|| {
                cell.load()
                    .map(|copy| copy.get("backend-1/server-000098").is_some())
            });
        }
        println!(
            "  {keys} keys: {memory} KiB; built from text in {}, put in place in {} ns, looked up in {} ns",
            ms(built.median()),
            swapped.median().as_nanos(),
            looked.median().as_nanos(),
        );
    }
}

/// From the answer of Consul to a write until HAProxy shows the state, one HAProxy beside
/// one responder.
pub(crate) fn follow() {
    for (inter, rounds) in [(100u64, 40), (2000, 20)] {
        let dir = tempfile::tempdir().unwrap();
        let consul = Consul::start(Mode::Open);
        let responder = Process::on_consul(dir.path(), &consul);
        let (ip, port) = (responder.checks.ip(), responder.checks.port());
        let config = format!(
            "{}backend web\n    server s1 127.0.0.1:9 weight 100 agent-check agent-addr {ip} agent-port {port} agent-inter {inter}ms agent-send \"web/s1 canary\\n\"\n",
            preamble(dir.path())
        );
        let haproxy = Haproxy::start(VERSION, dir.path(), &config);
        let admin = || {
            let dump = haproxy.ask("show servers state web").unwrap();
            let row = dump.lines().nth(2).unwrap();
            row.split(' ').nth(6).unwrap().to_owned()
        };
        let mut times = Times::default();
        for round in 0..rounds {
            let want = match round % 2 {
                0 => {
                    consul.put("haptic-agent/state/canary", "drain");
                    "8"
                }
                _ => {
                    consul.delete("haptic-agent/state/canary");
                    "0"
                }
            };
            let written = Instant::now();
            while admin() != want {
                assert!(written.elapsed() < PATIENCE, "never followed");
                thread::sleep(Duration::from_millis(1));
            }
            times.take(written.elapsed());
            // What is seen is in step with the checks; the next write comes at every point
            // of an interval.
            thread::sleep(Duration::from_millis(inter * (7 * round % 20) / 20));
        }
        println!(
            "  agent-inter {inter} ms: median {}, nine of ten within {}, slowest {}  ({rounds} writes)",
            ms(times.median()),
            ms(times.quantile(0.9)),
            ms(times.quantile(1.0)),
        );
    }
}
