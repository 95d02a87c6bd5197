//! The same commands for the fake HAProxy and the real ones, answers compared byte by
//! byte, minus addresses in memory, places in the configuration and times.

use super::sides::branch;
use crate::support::certs;
use crate::support::haproxy::{Haproxy, Version};
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
fn one_shot(socket: &Path, line: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).unwrap();
    String::from_utf8_lossy(&seen).into_owned()
}

/// The same where the connection stays: what comes until nothing does.
fn until_quiet(socket: &Path, line: &str) -> String {
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
fn mask(command: &str, text: &str) -> String {
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
struct Pair {
    version: Version,
    real: Haproxy,
    _fake: FakeHaproxy,
    dir: tempfile::TempDir,
}

impl Pair {
    fn start(version: Version) -> Self {
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

    fn fake_worker(&self) -> std::path::PathBuf {
        self.dir.path().join("worker.sock")
    }

    /// Runs the commands in one session and compares each answer.
    fn same(&self, commands: &[String]) {
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

fn each(commands: &[&str]) {
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

#[test]
fn sessions_and_listings() {
    each(&[
        "show cli level",
        "show version",
        "  show   version  ",
        "show version junk",
        "show map",
        "show map maps/host.map",
        "show map none",
        "show map @7 maps/host.map",
        "show ssl cert",
        "show ssl cert certs/site.pem",
        "show ssl cert certs/idle.pem",
        "show ssl cert none",
        "show ssl ca-file",
        "show ssl ca-file ca/clients.pem",
        "show ssl crl-file",
        "show ssl crt-list",
        "show ssl crt-list -n lists/a.list",
        "show ssl crt-list lists/a.list",
        "show ssl crt-list none",
        "show servers state b",
        "show servers state none",
        "show servers state",
        "show backend",
        "show proc",
        "reload",
        "frob",
        "",
        "# comment",
        "experimental-mode on",
        "show version;show cli level",
        "set map maps/host.map a x;set map maps/host.map a y",
        "show version;set map maps/host.map nokey x;add map maps/host.map <<E_O_F\np q\nE_O_F",
        "set severity-output none",
        "set map none a b",
        "set severity-output string",
        "set map none a b",
        "show cli level",
        "set severity-output frob",
        "set severity-output number",
        "echo a b",
        "wait 2ms",
        "wait",
        "wait 2ms frob",
        "prompt",
    ]);
}

#[test]
fn maps() {
    each(&[
        "add map maps/host.map c d",
        "add map maps/host.map c <<E_O_F\nx y z\nE_O_F",
        "add map maps/host.map <<E_O_F\nk1 two words\nk2   x \nk3 \nE_O_F",
        "add map maps/host.map <<E_O_F\nk4\nk5 v\nE_O_F",
        "add map maps/host.map <<E_O_F\nk6 v\nk7\nE_O_F",
        "add map maps/host.map <<\nk8 v\n\n",
        "show map maps/host.map",
        "add map none a b",
        "add map none <<E_O_F\na b\nE_O_F",
        "add map maps/host.map onlykey",
        "add map maps/host.map",
        "set map maps/host.map a uno",
        "set map maps/host.map c all",
        "set map maps/host.map nokey uno",
        "set map none a b",
        "set map maps/host.map a",
        "set map maps/host.map a\\ b c",
        "add map maps/host.map x\\;y z",
        "del map maps/host.map c",
        "show map maps/host.map",
        "del map maps/host.map c",
        "del map maps/host.map nokey",
        "del map none a",
        "prepare map maps/host.map",
        "prepare map maps/host.map",
        "add map @2 maps/host.map <<E_O_F\nn1 v1\nn2 v2\nn1 v3\nE_O_F",
        "add map @1 maps/host.map <<E_O_F\nold v1\nE_O_F",
        "show map @1 maps/host.map",
        "show map @2 maps/host.map",
        "show map maps/host.map",
        "add map @9 maps/host.map <<E_O_F\nn1 v1\nE_O_F",
        "commit map @9 maps/host.map",
        "commit map maps/host.map",
        "commit map @2 maps/host.map",
        "show map maps/host.map",
        "show map",
        "add map @1 maps/host.map <<E_O_F\nlost v1\nE_O_F",
        "show map maps/host.map",
        "commit map @1 maps/host.map",
        "commit map @2 maps/host.map",
        "prepare map none",
        "prepare map maps/other.map",
        "commit map @1 maps/other.map",
        "prepare map maps/other.map",
        "add map @2 maps/other.map <<E_O_F\npending v\nE_O_F",
        "clear map @2 maps/other.map",
        "commit map @2 maps/other.map",
        "show map maps/other.map",
        "clear map maps/host.map",
        "clear map none",
        "show map maps/host.map",
    ]);
}

#[test]
fn servers() {
    each(&[
        "add server b/n1 127.0.0.1:9 weight 3",
        "add server b/n1 127.0.0.1:9",
        "add server none/n1 127.0.0.1:9",
        "add server b/n2",
        "add server b",
        "add server b/n2 127.0.0.1:9 frob",
        "add server b/n2 127.0.0.1:9 resolvers x",
        "add server b/n2 127.0.0.1:9 enabled",
        "add server b/n2 127.0.0.1:70000",
        "add server b/n2 127.0.0.1:9 weight 300",
        "add server b/n2 [::1]:9",
        "add server b/un unix@/tmp/x.sock",
        "add server b/un2 /tmp/x.sock",
        "add server b/ck 127.0.0.1:9 check inter 1h agent-check agent-inter 1h agent-port 9",
        "add server b/n!2 127.0.0.1:9",
        "add server fixed/n1 127.0.0.1:9",
        "add server b/st 127.0.0.1:9 strict-maxconn",
        "show servers state b",
        "enable health b/n1",
        "enable agent b/n1",
        "disable agent b/n1",
        "disable agent b/none",
        "set server b/n1 agent up",
        "enable agent b/none",
        "enable agent b/ck",
        "set server b/ck agent up",
        "disable agent b/ck",
        "enable server b/n1",
        "enable server b/none",
        "enable server none/n1",
        "enable server b",
        "disable server b/n1",
        "disable server b/none",
        "set server b/n1 weight 7",
        "set server b/n1 weight 300",
        "set server b/n1 weight 7x",
        "set server fixed/s1 weight 7",
        "set server b/none weight 7",
        "set server none/x weight 7",
        "set server b/n1 state drain",
        "set server b/n1 state frob",
        "set server b/n1 state ready",
        "set server b/s2 state drain",
        "show servers state b",
        "set server b/n1 state maint",
        "set server b/n1 addr 127.0.0.2",
        "wait 5ms",
        "set server b/n1 addr 127.0.0.3 port 80",
        "wait 5ms",
        "set server b/n1 addr 127.0.0.3 port 80",
        "set server b/n1 addr 127.0.0.3 port 81",
        "wait 5ms",
        "set server b/n1 addr 127.0.0.3 port 70000",
        "wait 5ms",
        "set server b/n1 addr frob",
        "set server b/n1 addr 127.0.0.3 port x",
        "set server b/un addr 127.0.0.3",
        "set server b/n1",
        "set server b/n1 frob",
        "show servers state b",
        "del server b/s1",
        "del server b/n1",
        "del server b/n1",
        "del server none/n1",
        "del server b",
        "shutdown sessions server b/s1",
        "shutdown sessions server b/none",
        "wait 10ms srv-removable b/s1",
        "disable server b/s1",
        "wait 10ms srv-removable b/s1",
        "wait 10ms srv-removable b/none",
        "del server b/s1",
        "show servers state b",
    ]);
}

#[test]
fn backends() {
    each(&[
        "add backend n from tmpl mode http",
        "add backend n from tmpl mode http",
        "add backend front from tmpl mode http",
        "add backend tmpl from tmpl mode http",
        "add backend n2 from none mode http",
        "add backend n2 from tmpl mode udp",
        "add backend n2 from tmpl",
        "add backend n9",
        "add backend n!2 from tmpl mode http",
        "add backend n3 from tmpl mode tcp guid g1",
        "add backend n4 from tmpl mode tcp guid g1",
        "show backend",
        "publish backend n",
        "publish backend n",
        "publish backend none",
        "add server n/s 127.0.0.1:1",
        "enable server n/s",
        "show servers state n",
        "del backend n",
        "unpublish backend n",
        "unpublish backend none",
        "del backend n",
        "wait 10ms be-removable n",
        "disable server n/s",
        "del server n/s",
        "wait 10ms be-removable n",
        "wait 10ms be-removable none",
        "del backend n",
        "del backend n",
        "del backend b",
        "unpublish backend b",
        "del backend b",
        "publish backend b",
        "unpublish backend loose",
        "disable server loose/x",
        "del server loose/x",
        "del backend loose",
        "show backend",
        "show servers state n3",
    ]);
}

#[test]
fn certificates() {
    each(&[
        "new ssl cert certs/new.pem",
        "new ssl cert certs/new.pem",
        "show ssl cert",
        "show ssl cert certs/new.pem",
        "set ssl cert certs/new.pem <<E_O_F\n{P2}E_O_F",
        "show ssl cert",
        "set ssl cert certs/new.pem <<E_O_F\n{P1}E_O_F",
        "set ssl cert certs/site.pem <<E_O_F\n{P2}E_O_F",
        "commit ssl cert certs/site.pem",
        "abort ssl cert certs/site.pem",
        "del ssl cert certs/new.pem",
        "commit ssl cert certs/new.pem",
        "show ssl cert certs/new.pem",
        "commit ssl cert certs/new.pem",
        "abort ssl cert certs/new.pem",
        "set ssl cert none.pem <<E_O_F\n{P2}E_O_F",
        "set ssl cert certs/site.pem <<E_O_F\nfrob\nE_O_F",
        "set ssl cert certs/site.pem <<E_O_F\n{C2}E_O_F",
        "commit ssl cert certs/site.pem",
        "abort ssl cert certs/site.pem",
        "set ssl cert certs/site.pem <<E_O_F\n{C2}E_O_F",
        "set ssl cert certs/site.pem.key <<E_O_F\n{K2}E_O_F",
        "commit ssl cert certs/site.pem",
        "set ssl cert certs/idle.pem <<E_O_F\n{P2}E_O_F",
        "abort ssl cert certs/idle.pem",
        "set ssl cert certs/idle.pem <<E_O_F\n{P2}E_O_F",
        "commit ssl cert certs/idle.pem",
        "set ssl cert certs/site.pem",
        "set ssl cert",
        "del ssl cert certs/site.pem",
        "del ssl cert certs/new.pem",
        "del ssl cert certs/new.pem",
    ]);
}

#[test]
fn crt_lists() {
    each(&[
        "new ssl cert certs/new.pem",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem x.example\nE_O_F",
        "set ssl cert certs/new.pem <<E_O_F\n{P2}E_O_F",
        "commit ssl cert certs/new.pem",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem new.example\nE_O_F",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem [alpn h2] *.two.example !x.two.example\nE_O_F",
        "add ssl crt-list lists/a.list certs/new.pem",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/none.pem x.example\nE_O_F",
        "add ssl crt-list none <<E_O_F\ncerts/new.pem x.example\nE_O_F",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem [frob] x.example\nE_O_F",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem x.example\ncerts/new.pem y.example\nE_O_F",
        "show ssl crt-list -n lists/a.list",
        "show ssl cert certs/new.pem",
        "set ssl cert certs/new.pem <<E_O_F\n{P1}E_O_F",
        "commit ssl cert certs/new.pem",
        "del ssl crt-list lists/a.list certs/new.pem",
        "del ssl crt-list lists/a.list certs/new.pem:9",
        "del ssl crt-list lists/a.list certs/new.pem:4",
        "del ssl crt-list lists/a.list certs/new.pem:5",
        "del ssl crt-list lists/a.list certs/none.pem",
        "del ssl crt-list none certs/new.pem",
        "del ssl crt-list lists/a.list certs/site.pem:1",
        "show ssl crt-list -n lists/a.list",
        "del ssl cert certs/new.pem",
        "del ssl crt-list lists/a.list certs/new.pem",
        "del ssl crt-list lists/a.list certs/new.pem",
        "del ssl cert certs/new.pem",
    ]);
}

#[test]
fn authorities() {
    each(&[
        "new ssl ca-file ca/new.pem",
        "new ssl ca-file ca/new.pem",
        "show ssl ca-file",
        "set ssl ca-file ca/new.pem <<E_O_F\n{C1}E_O_F",
        "show ssl ca-file",
        "add ssl ca-file ca/new.pem <<E_O_F\n{C2}E_O_F",
        "set ssl ca-file ca/clients.pem <<E_O_F\n{C2}E_O_F",
        "commit ssl ca-file ca/clients.pem",
        "abort ssl ca-file ca/clients.pem",
        "commit ssl ca-file ca/new.pem",
        "show ssl ca-file",
        "commit ssl ca-file ca/new.pem",
        "abort ssl ca-file ca/new.pem",
        "set ssl ca-file none.pem <<E_O_F\n{C2}E_O_F",
        "set ssl ca-file ca/new.pem <<E_O_F\nfrob\nE_O_F",
        "set ssl ca-file ca/new.pem <<E_O_F\n{C2}E_O_F",
        "abort ssl ca-file ca/new.pem",
        "del ssl ca-file ca/clients.pem",
        "del ssl ca-file ca/new.pem",
        "del ssl ca-file ca/new.pem",
        "set ssl ca-file ca/clients.pem <<E_O_F\n{C2}E_O_F",
        "commit ssl ca-file ca/clients.pem",
        "set ssl cert certs/site.pem <<E_O_F\n{P2}E_O_F",
        "commit ssl cert certs/site.pem",
        "show ssl ca-file",
        "show ssl cert certs/site.pem",
    ]);
}

#[test]
fn lines_of_their_own() {
    for version in Version::ALL {
        let pair = Pair::start(version);
        let (fake, real) = (pair.fake_worker(), pair.real.worker_socket());
        for line in [
            "show version",
            "set severity-output number;show map maps/host.map;show version",
            "show map maps/host.map;frob;show version",
            "frob",
            "set map maps/host.map a z",
            "set map none a z;set map maps/host.map a y",
            "add map maps/host.map <<E_O_F\nq r\nE_O_F",
            "quit;show version",
            "show version;quit",
        ] {
            let (fake, real) = (one_shot(&fake, line), one_shot(&real, line));
            assert_eq!(mask(line, &fake), mask(line, &real), "{version}: {line}");
        }
        // Fields come in HAProxy's order, and the fake has no other.
        let names = |text: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.split_once(": "));
            lines.map(|(name, _)| name.to_owned()).collect()
        };
        for line in ["show info", "show info float"] {
            let (fake, real) = (one_shot(&fake, line), one_shot(&real, line));
            let mut order = names(&real).into_iter();
            for name in names(&fake) {
                assert!(
                    order.any(|real| real == name),
                    "{version}: {name} in {real}"
                );
            }
        }
    }
}

/// Digits become one sign each run, so that pids and times are the same.
fn without_numbers(text: &str) -> String {
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
fn columns(text: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    without_numbers(&text.lines().map(words).collect::<Vec<_>>().join("\n"))
}

#[test]
fn the_master() {
    for version in Version::ALL {
        let pair = Pair::start(version);
        let fake = pair.dir.path().join("master.sock");
        let real = pair.real.master_socket();
        for line in [
            "show proc",
            "show version",
            "show version;show version",
            "@1 show cli level",
            "@9 show info;show version",
        ] {
            let (fake, real) = (until_quiet(&fake, line), until_quiet(&real, line));
            assert_eq!(columns(&fake), columns(&real), "{version}: {line}");
        }
        let verdict = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| {
                // The rest depends on the moment, the user and the machine.
                ["Success=", "--", "[NOTICE] ", "[ALERT] "]
                    .iter()
                    .any(|start| line.starts_with(start))
                    && !["version is", "path to executable", "Automatically"]
                        .iter()
                        .any(|noise| line.contains(noise))
            });
            lines.map(without_numbers).collect()
        };
        let (said, wanted) = (one_shot(&fake, "reload"), one_shot(&real, "reload"));
        assert_eq!(
            verdict(&said),
            verdict(&wanted),
            "{version}: {said}{wanted}"
        );
        assert_eq!(&said[said.len() - 2..], "\n\n");
        assert_eq!(&wanted[wanted.len() - 2..], "\n\n");
        let count = |text: &str| without_numbers(text.lines().nth(1).unwrap_or_default());
        let (said, wanted) = (
            one_shot(&fake, "show proc;quit"),
            one_shot(&real, "show proc;quit"),
        );
        assert_eq!(
            columns(&count(&said)),
            columns(&count(&wanted)),
            "{version}"
        );
    }
}
