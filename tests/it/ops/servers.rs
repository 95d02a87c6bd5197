//! Server ops.

use super::*;
use crate::support::ports::Port;
use crate::support::traffic::{Backend, Load, get_port};
use crate::support::wait;

fn server(kind: &str, backend: &str, name: &str, more: Value) -> Value {
    let mut fields = more;
    fields["backend"] = json!(backend);
    fields["server"] = json!(name);
    op(kind, fields)
}

/// Fields of `show servers state`, by server.
fn state(bench: &Bench, backend: &str, name: &str) -> Option<Vec<String>> {
    let dump = bench.ask(&format!("show servers state {backend}"));
    dump.lines()
        .map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .find(|fields| fields.get(3).is_some_and(|f| f == name))
}

fn field(bench: &Bench, name: &str, place: usize) -> String {
    state(bench, "b", name).unwrap()[place - 1].clone()
}

#[test]
fn a_server_is_added_enabled_changed_and_disabled() {
    each(|bench| {
        let keywords = json!([{"name": "weight", "args": ["7"]}, {"name": "check"}, {"name": "inter", "args": ["1s"]}]);
        bench.good(&json!([
            server(
                "server_add",
                "b",
                "n1",
                json!({"address": "127.0.0.1", "port": 4, "keywords": keywords})
            ),
            server("server_enable", "b", "n1", json!({"health": true})),
            server(
                "server_add",
                "b",
                "n6",
                json!({"address": "::1", "port": 80})
            ),
            server(
                "server_add",
                "b",
                "un",
                json!({"address": "unix@/tmp/x.sock"})
            ),
            server("server_set_weight", "b", "s1", json!({"weight": 0})),
            server("server_set_state", "b", "s2", json!({"state": "drain"})),
        ]));
        assert_eq!(field(bench, "n1", 5), "127.0.0.1");
        assert_eq!(field(bench, "n1", 19), "4");
        assert_eq!(field(bench, "n1", 7), "0");
        assert_eq!(field(bench, "n1", 8), "7");
        assert_eq!(
            (field(bench, "n6", 5), field(bench, "n6", 19)),
            ("::1".into(), "80".into())
        );
        assert_eq!(field(bench, "n6", 7), "1");
        assert_eq!(field(bench, "s1", 8), "0");
        assert_eq!(field(bench, "s2", 7), "8");
        bench.good(&json!([
            server("server_disable", "b", "n1", json!({})),
            server("server_set_state", "b", "s2", json!({"state": "ready"})),
            server("shutdown_sessions", "b", "s1", json!({})),
            server("server_disable", "b", "s1", json!({})),
            server("wait_srv_removable", "b", "s1", json!({"timeout_ms": 1000})),
        ]));
        assert_eq!(field(bench, "n1", 7), "1");
        assert_eq!(field(bench, "s2", 7), "0");
    });
}

#[test]
fn addresses_change_and_are_seen_when_the_batch_is_over() {
    each(|bench| {
        for round in 0..20 {
            let addr = |name: &str, last: u32, port: Option<u16>| {
                server(
                    "server_set_addr",
                    "b",
                    name,
                    json!({"address": format!("127.0.1.{last}"), "port": port}),
                )
            };
            let report = bench.good(&json!([
                addr("s1", 100 + round, Some(80)),
                addr("s2", 1, None),
                addr("s1", 1, Some(81)),
                addr("s1", 200, Some(82)),
            ]));
            assert_eq!(report.results.len(), 4);
            assert_eq!(
                (field(bench, "s1", 5), field(bench, "s1", 19)),
                ("127.0.1.200".into(), "82".into())
            );
            assert_eq!(field(bench, "s2", 5), "127.0.1.1");
        }
        let report = bench.good(&json!([server(
            "server_set_addr",
            "b",
            "s2",
            json!({"address": "127.0.1.1"})
        )]));
        assert_eq!(report.results[0].outcome.as_str(), "unchanged");
    });
}

#[test]
fn refusals_carry_the_words_and_the_right_op() {
    each(|bench| {
        let v34 = bench.haproxy.version() == Version::V3_4;
        let add = |backend: &str, name: &str| {
            server(
                "server_add",
                backend,
                name,
                json!({"address": "127.0.0.1", "port": 80}),
            )
        };
        let keyword = |name: &str| {
            server(
                "server_add",
                "b",
                "kw",
                json!({"address": "127.0.0.1", "port": 80, "keywords": [{"name": name}]}),
            )
        };
        let fixed = match v34 {
            true => {
                "Backend does not support dynamic servers : backend 'fixed' uses a non dynamic load balancing method."
            }
            false => "Backend must use a dynamic load balancing to support dynamic servers.",
        };
        let table = [
            (
                add("b", "s1"),
                Outcome::NameCollision,
                "Already exists a server with the same name in backend.",
            ),
            (add("nowhere", "x"), Outcome::Rejected, "No such backend."),
            (add("fixed", "x"), Outcome::Rejected, fixed),
            (keyword("frobnicate"), Outcome::Rejected, ""),
            (
                server("server_enable", "b", "none", json!({})),
                Outcome::Rejected,
                "No such server.",
            ),
            (
                server("server_disable", "b", "none", json!({})),
                Outcome::Rejected,
                "No such server.",
            ),
            (
                server("server_enable", "b", "s1", json!({"health": true})),
                Outcome::Rejected,
                "Health check was not configured on this server, cannot enable.",
            ),
            (
                server("server_set_weight", "nowhere", "s1", json!({"weight": 1})),
                Outcome::Rejected,
                "No such backend.",
            ),
            (
                server("server_set_state", "b", "none", json!({"state": "ready"})),
                Outcome::Rejected,
                "No such server.",
            ),
            (
                server(
                    "server_set_addr",
                    "b",
                    "none",
                    json!({"address": "127.0.0.1"}),
                ),
                Outcome::Rejected,
                "No such server.",
            ),
            (
                server("server_set_weight", "fixed", "s1", json!({"weight": 7})),
                Outcome::Rejected,
                "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.",
            ),
            (
                server("shutdown_sessions", "b", "none", json!({})),
                Outcome::Rejected,
                "No such server.",
            ),
            (
                server("wait_srv_removable", "b", "s2", json!({"timeout_ms": 50})),
                Outcome::Rejected,
                "Failed.",
            ),
        ];
        for (bad, outcome, words) in table {
            let ops: Vec<Value> = (0..100)
                .map(|n| match n {
                    63 => bad.clone(),
                    n => server("server_set_weight", "b", "s1", json!({"weight": n})),
                })
                .collect();
            let (seen, said) = bench.bad(&json!(ops), 63);
            assert_eq!(seen, outcome, "{bad}: {said}");
            assert!(
                said.starts_with(words) && !said.is_empty(),
                "{bad}: {said:?}"
            );
        }
    });
}

#[test]
fn what_no_version_takes_is_refused_before_anything_is_sent() {
    each(|bench| {
        let add = |more: Value| server("server_add", "b", "x", more);
        let below = |what: bool| match what {
            true => Some(Outcome::Unsupported),
            false => None,
        };
        let old = bench.haproxy.version() == Version::V3_0;
        let keyword = |name: &str| {
            add(
                json!({"address": "127.0.0.1", "port": 80, "keywords": [{"name": name, "args": ["x"]}]}),
            )
        };
        for (bad, outcome) in [
            (
                add(json!({"address": "localhost", "port": 80})),
                Some(Outcome::Invalid),
            ),
            (add(json!({"address": "127.0.0.1"})), Some(Outcome::Invalid)),
            (
                add(json!({"address": "127.0.0.1", "port": 0})),
                Some(Outcome::Invalid),
            ),
            (
                add(json!({"address": "127.0.0.1", "port": 70000})),
                Some(Outcome::Invalid),
            ),
            (
                add(json!({"address": "/x.sock", "port": 1})),
                Some(Outcome::Invalid),
            ),
            (add(json!({"address": "abns@x"})), Some(Outcome::Invalid)),
            (keyword("enabled"), Some(Outcome::Unsupported)),
            (keyword("resolvers"), Some(Outcome::Unsupported)),
            (keyword("strict-maxconn"), below(old)),
            (
                server("server_set_weight", "b", "s1", json!({})),
                Some(Outcome::Invalid),
            ),
            (
                server("server_set_weight", "b", "s1", json!({"weight": 257})),
                Some(Outcome::Invalid),
            ),
            (
                server("server_set_state", "b", "s1", json!({"state": "up"})),
                Some(Outcome::Invalid),
            ),
            (
                server(
                    "server_set_addr",
                    "b",
                    "s1",
                    json!({"address": "1.2.3.4:80"}),
                ),
                Some(Outcome::Invalid),
            ),
            (
                server("server_enable", "b", "s 1", json!({})),
                Some(Outcome::Invalid),
            ),
            (
                server("wait_srv_removable", "b", "s1", json!({"timeout_ms": 0})),
                Some(Outcome::Invalid),
            ),
        ] {
            if let Some(outcome) = outcome {
                let refused = bench
                    .try_run(&json!([
                        server("server_set_weight", "b", "s1", json!({"weight": 9})),
                        bad.clone()
                    ]))
                    .unwrap_err();
                assert_eq!((refused.index, refused.outcome), (1, outcome), "{bad}");
            }
        }
        assert_eq!(field(bench, "s1", 8), "1");
    });
}

/// A frontend on TCP in front of backend `b`.
fn serving(base: &Path, port: &Port, first: &Backend) -> String {
    format!(
        "{}frontend f\n    bind 127.0.0.1:{}\n    default_backend b\nbackend b\n    balance roundrobin\n    option redispatch\n    retries 3\n    server s1 {}\n",
        preamble(base),
        port.number(),
        first.address()
    )
}

#[test]
fn traffic_follows_and_no_request_fails() {
    for version in Version::ALL {
        let (port, first, second) = (
            Port::reserve(),
            Backend::start("first"),
            Backend::start("second"),
        );
        let mut bench = Bench::start(version, |base| serving(base, &port, &first));
        let load = Load::start(port.number(), "x", "/");
        let to = second.address();
        bench.good(&json!([
            server("server_add", "b", "s2", json!({"address": to.ip().to_string(), "port": to.port(), "keywords": [{"name": "weight", "args": ["1"]}]})),
            server("server_enable", "b", "s2", json!({})),
        ]));
        wait::until(
            "the new server gets requests",
            Duration::from_secs(10),
            || (second.hits() > 5).then_some(()),
        );
        bench.good(&json!([server("server_disable", "b", "s1", json!({}))]));
        // What was on its way may still arrive.
        let answer = wait::until("only the second answers", Duration::from_secs(10), || {
            let before = first.hits();
            let answer = get_port(port.number(), "x", "/").ok()?;
            (first.hits() == before).then_some(answer)
        });
        assert_eq!(answer.body, "second");
        bench.good(&json!([server(
            "server_set_addr",
            "b",
            "s2",
            json!({"address": first.address().ip().to_string(), "port": first.address().port()})
        ),]));
        wait::until("the address takes effect", Duration::from_secs(10), || {
            (get_port(port.number(), "x", "/").ok()?.body == "first").then_some(())
        });
        let seen = load.stop();
        assert_eq!(seen.failed, 0, "{version}: {seen:?}");
        assert!(seen.good > 0);
    }
}
