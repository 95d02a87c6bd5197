//! A fake HAProxy and a real one beside it, and what is left out of a comparison.

use crate::support::certs;
use crate::support::haproxy::{Haproxy, Version};
use crate::testkit::sides::branch;
use haptic_agent::testkit::fake_haproxy::{Backend, Bind, FakeHaproxy, Model, Server};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Everything that the commands touch.
const CONFIG: &str = "global
    default-path config
    stats socket unix@worker.sock mode 600 level admin expose-fd listeners
    hard-stop-after 5s
defaults
    mode http
    timeout client 5s
    timeout connect 2s
    timeout server 5s
frontend front
    bind unix@front.sock
    http-request return status 200 content-type text/plain lf-string \"%[path,map(maps/host.map,none)]|%[path,map(maps/other.map,none)]\" if { path_beg / }
    default_backend b
frontend tls
    bind unix@tls.sock ssl crt-list lists/a.list
    bind unix@mutual.sock ssl crt certs/site.pem ca-file ca/clients.pem verify optional
    http-request return status 200
backend b
    balance roundrobin
    server s1 127.0.0.1:1
    server s2 127.0.0.1:1 weight 5
backend fixed
    balance source
    server s1 127.0.0.1:1
backend loose
    balance roundrobin
    server x 127.0.0.1:1
defaults tmpl
    mode http
    balance roundrobin
    timeout connect 2s
    timeout server 5s
";

const HOST: &str = "a one\n  b\ttwo words \n# no entry\n #key\nc\n";
const LIST: &str =
    "certs/site.pem a.example\ncerts/site.pem [alpn h2] b.example\ncerts/idle.pem c.example\n";

fn model() -> Model {
    Model::new()
        .frontend("front")
        .frontend("tls")
        .defaults("tmpl")
        .backend(
            Backend::new("b")
                .referenced()
                .server(Server::new("s1", "127.0.0.1", 1))
                .server(Server::new("s2", "127.0.0.1", 1).weight(5)),
        )
        .backend(
            Backend::new("fixed")
                .fixed()
                .server(Server::new("s1", "127.0.0.1", 1)),
        )
        .backend(Backend::new("loose").server(Server::new("x", "127.0.0.1", 1)))
        .map("maps/host.map", HOST)
        .map("maps/other.map", "")
        .cert("certs/site.pem", &certs::first().pem())
        .cert("certs/idle.pem", &certs::first().pem())
        .ca("ca/clients.pem", 1)
        .crt_list("lists/a.list", LIST)
        .bind(Bind::new().crt_list("lists/a.list"))
        .bind(Bind::new().crt("certs/site.pem").ca_file("ca/clients.pem"))
}

fn write_site(base: &Path) {
    for dir in ["maps", "certs", "ca", "lists"] {
        fs::create_dir_all(base.join(dir)).unwrap();
    }
    for (path, text) in [
        ("maps/host.map", HOST.to_owned()),
        ("maps/other.map", String::new()),
        ("certs/site.pem", certs::first().pem()),
        ("certs/idle.pem", certs::first().pem()),
        ("ca/clients.pem", certs::first().cert.clone()),
        ("lists/a.list", LIST.to_owned()),
    ] {
        fs::write(base.join(path), text).unwrap();
    }
}

/// A session of one side.
struct Talk {
    stream: UnixStream,
}

impl Talk {
    fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut talk = Self { stream };
        assert_eq!(talk.ask("prompt"), "\n> ");
        assert_eq!(talk.ask("set severity-output number"), "\n> ");
        talk
    }

    /// The answer up to the prompt, or to the end of the connection.
    fn ask(&mut self, command: &str) -> String {
        self.stream
            .write_all(format!("{command}\n").as_bytes())
            .unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !seen.ends_with(b"\n> ") {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    seen.extend_from_slice(b"<end>");
                    break;
                }
                Ok(count) => seen.extend_from_slice(&buffer[..count]),
                Err(error) => panic!("{command:?}: {error}, after {seen:?}"),
            }
        }
        // `;` on 3.0 prompts after each command: what follows at once belongs to it.
        self.stream
            .set_read_timeout(Some(Duration::from_millis(15)))
            .unwrap();
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => seen.extend_from_slice(&buffer[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(error) => panic!("{command:?}: {error}"),
            }
        }
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        String::from_utf8_lossy(&seen).into_owned()
    }
}

/// A connection of its own for one line, read to its end.
pub(super) fn one_shot(socket: &Path, line: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).unwrap();
    String::from_utf8_lossy(&seen).into_owned()
}

/// The same where the connection stays: what comes until nothing does.
pub(super) fn until_quiet(socket: &Path, line: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..count]);
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// Takes out what no fake can know.
pub(super) fn mask(command: &str, text: &str) -> String {
    let word = |n: usize| command.split(' ').nth(n).unwrap_or_default();
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for line in &mut lines {
        if line.starts_with("0x") {
            let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
            *line = format!("0x… {rest}");
        }
        if let Some((before, after)) = line.split_once(" at file '") {
            let counts = after.split_once(". ").map_or("", |(_, counts)| counts);
            *line = format!("{before}. {counts}");
        }
        if line.starts_with("\t- ") {
            *line = "\t- …".to_owned();
        }
    }
    let first = lines.first().cloned().unwrap_or_default();
    if text.contains("Unknown command: ") {
        // Which commands come close is each branch's own guess.
        lines.retain(|line| !line.starts_with("  "));
    }
    for line in &mut lines {
        if let Some((before, _)) = line.split_once("'; did you mean ") {
            *line = format!("{before}'.");
        }
    }
    match (word(0), word(1), word(2)) {
        ("show", "servers", _) => lines = lines.iter().map(|row| without_times(row)).collect(),
        ("show", "ssl", "ca-file") if first.starts_with("Filename: ") => lines.truncate(2),
        ("show", "ssl", "cert") if first.starts_with("Filename: ") => {
            let told = |line: &String| {
                [
                    "Filename: ",
                    "Crt filename: ",
                    "Status: ",
                    "Option: ",
                    "Serial: ",
                ]
                .iter()
                .any(|start| line.starts_with(start))
            };
            lines.retain(told);
        }
        ("del", "backend", _) if text.contains("Backend deleted.") => {
            let last = lines
                .iter()
                .position(|line| line.ends_with("Backend deleted."));
            lines = lines.split_off(last.unwrap());
            lines[0] = "… Backend deleted.".to_owned();
        }
        (_, _, _) => {}
    }
    lines.join("\n")
}

/// A row of `show servers state`: how long ago and what checks have seen is left out.
fn without_times(row: &str) -> String {
    let fields: Vec<&str> = row.split(' ').collect();
    match fields.len() {
        25 => {
            let (before, rest) = fields.split_at(9);
            format!("{} … {}", before.join(" "), rest[5..].join(" "))
        }
        _ => row.to_owned(),
    }
}

/// Both sides of one branch.
pub(super) struct Pair {
    version: Version,
    pub(super) real: Haproxy,
    _fake: FakeHaproxy,
    pub(super) dir: tempfile::TempDir,
}

impl Pair {
    pub(super) fn start(version: Version) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        fs::create_dir(&base).unwrap();
        write_site(&base);
        let real = Haproxy::start(version, &base, CONFIG);
        let fake = FakeHaproxy::builder(branch(version))
            .model(model())
            .on_reload(|_| Ok(model()))
            .start(
                &dir.path().join("master.sock"),
                &dir.path().join("worker.sock"),
            )
            .unwrap();
        Self {
            version,
            real,
            _fake: fake,
            dir,
        }
    }

    pub(super) fn fake_worker(&self) -> std::path::PathBuf {
        self.dir.path().join("worker.sock")
    }

    /// Runs the commands in one session and compares each answer.
    pub(super) fn same(&self, commands: &[String]) {
        let mut fake = Talk::open(&self.fake_worker());
        let mut real = Talk::open(&self.real.worker_socket());
        let mut differences = String::new();
        for command in commands {
            let (fake, real) = (fake.ask(command), real.ask(command));
            let (fake, real) = (mask(command, &fake), mask(command, &real));
            if fake != real {
                let shown: String = command.chars().take(100).collect();
                differences.push_str(&format!("{shown}\n  fake {fake:?}\n  real {real:?}\n"));
            }
        }
        assert!(differences.is_empty(), "{}\n{differences}", self.version);
    }
}

pub(super) fn each(commands: &[&str]) {
    let (first, second) = (certs::first(), certs::second());
    let commands: Vec<String> = commands
        .iter()
        .map(|text| {
            text.replace("{P1}", &first.pem())
                .replace("{P2}", &second.pem())
                .replace("{C1}", &first.cert)
                .replace("{C2}", &second.cert)
                .replace("{K2}", &second.key)
        })
        .collect();
    for version in Version::ALL {
        Pair::start(version).same(&commands);
    }
}

pub(super) fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('9') => {}
            true => out.push('9'),
            false => out.push(c),
        }
    }
    out
}

/// Columns are padded; how far depends on the numbers.
pub(super) fn columns(text: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    without_numbers(&text.lines().map(words).collect::<Vec<_>>().join("\n"))
}
