//! One process for both: what `--check-listen` answers is what the responder alone answers,
//! also while the same process reloads HAProxy under it.

use super::kit::{PATIENCE, Store, ask, asks};
use super::ops::checks;
use crate::support::agent::{Agent, Apply, Setup};
use crate::support::haproxy::{Haproxy, Version, minimal};
use crate::support::wait;
use serde_json::json;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The interval of the rows' checks.
const INTER: Duration = Duration::from_millis(300);

/// A HAProxy, the daemon beside it, and a store.
struct Site {
    haproxy: Haproxy,
    agent: Agent,
    checks: SocketAddr,
    store: Store,
    base: PathBuf,
    _dir: tempfile::TempDir,
    pushed: u64,
}

/// What a row is: in drain, in maintenance, or in service with a weight.
type State = (&'static str, u32);

impl Site {
    fn start(version: Version, environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("h");
        std::fs::create_dir(&base).unwrap();
        let store = Store::new();
        let haproxy = Haproxy::start(version, &base, &minimal(&base));
        let mut setup = Setup::new(&base).with("--check-listen", "127.0.0.1:0");
        let kv = store.path().display().to_string();
        let ours = [("HAPTIC_RESPONDER_KV_DIR", kv.as_str())];
        for (name, value) in ours.iter().chain(environment) {
            let variable = ((*name).to_owned(), (*value).to_owned());
            setup.environment.push(variable);
        }
        let agent = setup.start();
        let mut site = Self {
            haproxy,
            checks: checks(&agent),
            agent,
            store,
            base,
            _dir: dir,
            pushed: 0,
        };
        site.push();
        site
    }

    fn config(&self) -> String {
        let mut text = minimal(&self.base);
        let _ = writeln!(
            text,
            "# push {}\nbackend web\n    balance roundrobin",
            self.pushed
        );
        for name in ["s0", "s1", "s2", "s3"] {
            let asks = asks(self.checks, &format!("web/{name} canary"), INTER);
            let _ = writeln!(text, "    server {name} 127.0.0.1:9 weight 100 {asks}");
        }
        text
    }

    /// Another configuration, by reload.
    fn push(&mut self) {
        self.pushed += 1;
        let config = self.config();
        let mut apply = Apply::new(&format!("p{}", self.pushed), 1, self.pushed);
        if self.pushed > 1 {
            apply = apply.on(&self.agent.state());
        }
        let apply = apply.file("haproxy.cfg", config.as_bytes());
        apply.succeed(&self.agent, "reload");
    }

    fn states(&self) -> Vec<State> {
        let dump = self.haproxy.ask("show servers state web").unwrap();
        let rows = dump.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let rows = rows.filter(|row| row.get(1) == Some(&"web"));
        rows.map(|row| {
            let state = match row[6] {
                "0" => "ready",
                "1" => "maint",
                "8" => "drain",
                other => panic!("admin state {other}"),
            };
            (state, row[7].parse().unwrap())
        })
        .collect()
    }

    /// Waits until every row is as wanted, whatever the weight of one that is out.
    fn until(&self, what: &str, wanted: [State; 4]) {
        let met = |states: &[State]| {
            let pairs = states.iter().zip(wanted);
            states.len() == 4
                && pairs
                    .into_iter()
                    .all(|(is, want)| is.0 == want.0 && (want.0 != "ready" || is.1 == want.1))
        };
        wait::until_ok(what, PATIENCE, || {
            let states = self.states();
            let version = self.haproxy.version();
            met(&states)
                .then_some(())
                .ok_or(format!("{version}: {states:?}"))
        });
    }
}

const READY: State = ("ready", 100);
const HALF: State = ("ready", 50);
const DRAIN: State = ("drain", 0);
const MAINT: State = ("maint", 0);

/// Every value and the way back from it; a reload by the agent itself in the middle of each;
/// and the states are there again within an interval of it.
#[test]
fn the_daemon_answers_every_value_and_reloads_under_it() {
    for version in Version::ALL {
        let mut site = Site::start(version, &[]);
        site.until("startup", [READY; 4]);
        site.store.set("web/s0", "drain");
        site.store.set("web/s1", "maint");
        site.store.set("web/s2", "50%");
        site.until("three keys", [DRAIN, MAINT, HALF, READY]);
        for round in 0..2 {
            site.push();
            let reloaded = Instant::now();
            site.until("after the agent's reload", [DRAIN, MAINT, HALF, READY]);
            let took = reloaded.elapsed();
            println!("{version}, reload {round}: all states after {took:?}");
            assert!(
                took < INTER + Duration::from_millis(1500),
                "{version}: {took:?}"
            );
        }
        // Written while the agent reloads.
        site.store.set("canary", "drain");
        site.push();
        site.until("the group too", [DRAIN, MAINT, HALF, DRAIN]);
        site.store.set("web/s0", "50%");
        site.store.set("web/s1", "drain");
        site.store.set("web/s2", "maint");
        site.until("every key another", [HALF, DRAIN, MAINT, DRAIN]);
        for key in ["web/s0", "web/s1", "web/s2", "canary"] {
            site.store.unset(key);
        }
        site.until("no key", [READY; 4]);
    }
}

/// The daemon's metrics listener is a `--responder` for whoever waits, and it looks at its own
/// worker without being told where that is.
#[test]
fn a_writer_can_wait_for_the_daemons_rows() {
    std::thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || {
                let site = Site::start(version, &[]);
                site.until("startup", [READY; 4]);
                let run = |words: &[&str]| {
                    let url = format!("http://{}", site.agent.metrics_address());
                    let output = Command::new(env!("CARGO_BIN_EXE_hapticctl"))
                        .args(words)
                        .args(["--responder", &url, "--wait", "30s"])
                        .env_clear()
                        .env("HAPTIC_KV_DIR", site.store.path())
                        .output()
                        .unwrap();
                    let said = String::from_utf8_lossy(&output.stdout).into_owned();
                    assert_eq!(output.status.code(), Some(0), "{version}: {said}{output:?}");
                    said
                };
                let said = run(&["drain", "canary"]);
                assert!(said.contains("shown by 4 rows"), "{version}: {said}");
                assert!(site.states().iter().all(|state| state.0 == "drain"));
                run(&["ready", "canary"]);
                site.until("back", [READY; 4]);
            });
        }
    });
}

/// A daemon that is stopped and started again changes no state, and goes on from the store.
#[test]
fn a_daemon_that_goes_leaves_every_state() {
    for version in Version::ALL {
        let mut site = Site::start(version, &[]);
        site.store.set("web/s0", "drain");
        site.store.set("web/s2", "50%");
        site.until("two keys", [DRAIN, READY, HALF, READY]);
        assert_eq!(site.agent.terminate().code(), Some(0));
        std::thread::sleep(INTER * 3);
        site.until("nobody answers", [DRAIN, READY, HALF, READY]);
    }
}

/// Within the daemon, too, weights may belong to others: those that a runtime op set stay
/// through checks, drains and maintenance.
#[test]
fn a_weight_of_a_runtime_op_stays_where_weights_are_kept() {
    for version in Version::ALL {
        for (weights, left) in [("keep", 30), ("set", 100)] {
            let site = Site::start(version, &[("HAPTIC_RESPONDER_WEIGHTS", weights)]);
            site.until("startup", [READY; 4]);
            let ops = json!([
                {"kind": "server_set_weight", "backend": "web", "server": "s0", "weight": 30},
            ]);
            let config = site.config();
            let reply = Apply::new("weight", 1, 2)
                .on(&site.agent.state())
                .held("haproxy.cfg", config.as_bytes())
                .mode("auto")
                .edit(|manifest| manifest["ops"] = ops)
                .send(&site.agent);
            let answer = reply.json();
            assert_eq!(answer["ok"], true, "{version}: {answer:#}");
            println!("{version}, {weights}: {}", answer["mode"]);
            let kept = ("ready", left);
            site.until(
                "the op's weight, or the store's",
                [kept, READY, READY, READY],
            );
            for (value, state) in [("drain", DRAIN), ("maint", MAINT)] {
                site.store.set("web/s0", value);
                site.until(value, [state, READY, READY, READY]);
                site.store.unset("web/s0");
                site.until("back", [kept, READY, READY, READY]);
            }
            let told = match weights {
                "keep" => "ready\n",
                _ => "ready 100%\n",
            };
            assert_eq!(ask(site.checks, "web/s9\n"), told);
        }
    }
}
