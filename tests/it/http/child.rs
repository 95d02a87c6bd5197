//! The toy server in a process of its own: this test binary again, with an environment
//! variable, so that limits and injected faults meet nobody else.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use haptic_agent::http::{Deadlines, Request, Server, ServerConfig};

use super::kit::{Client, eventually, toy};

const VARIABLE: &str = "HAPTIC_TEST_HTTP_CONNECTIONS";
const PORT_MARK: &str = "child-address=";

/// What a child process runs: serves until its input ends.
#[test]
#[ignore = "the entry point of child processes"]
fn serve() {
    let Some(connections) = std::env::var_os(VARIABLE) else {
        return;
    };
    let server = Server::bind(
        &"127.0.0.1:0".parse().unwrap(),
        ServerConfig {
            name: "child",
            max_connections: connections.to_str().unwrap().parse().unwrap(),
            deadlines: Deadlines {
                first_byte: Duration::from_secs(60),
                ..Deadlines::default()
            },
        },
    )
    .unwrap();
    println!("{PORT_MARK}{}", server.local_addr());
    let stopper = server.stopper();
    std::thread::spawn(move || {
        let _ended = std::io::stdin().read(&mut [0u8; 1]);
        stopper.stop();
    });
    let stats = server.stats();
    server
        .run(Arc::new(move |request: &mut Request<'_>| {
            toy(request, &stats)
        }))
        .unwrap();
}

/// A running child process.
pub(super) struct Process {
    pub(super) address: SocketAddr,
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    /// Runs the toy server behind `wrapper`, which gets its command line appended.
    pub(super) fn start(wrapper: &[&str], connections: usize) -> Self {
        let program = std::env::current_exe().unwrap();
        let arguments = [
            "--exact",
            "http::child::serve",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ];
        let mut command = match wrapper {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        let mut child = command
            .args(arguments)
            .env(VARIABLE, connections.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the child ended");
            if let Some((_, address)) = line.split_once(PORT_MARK) {
                break address.trim().parse().unwrap();
            }
        };
        // Its later output must not block it.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self {
            address,
            child,
            input,
        }
    }

    pub(super) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// The numbers of `/stats`, which a connection of its own asks for.
    pub(super) fn stats(&self) -> HashMap<String, u64> {
        let text = eventually("told its numbers", || {
            match self.connect().try_get("/stats") {
                Ok(answer) if answer.status == 200 => Ok(answer.text()),
                other => Err(format!("{other:?}")),
            }
        });
        let pairs = text.split(' ').map(|pair| pair.split_once('=').unwrap());
        pairs
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    /// Waits for the child to end by itself.
    pub(super) fn wait(&mut self) -> ExitStatus {
        eventually("ended", || match self.child.try_wait().unwrap() {
            Some(status) => Ok(status),
            None => Err("still running".to_owned()),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        if std::thread::panicking() {
            let _ended_already = self.child.kill();
            let _reaped = self.child.wait();
        } else {
            self.wait();
        }
    }
}
