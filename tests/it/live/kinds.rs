//! Every kind of op by itself: its effect in the worker's listings, on disk and for
//! clients, on the same worker; then a reload of the same set, after which everything
//! looks the same. What a version lacks is one reload, and nothing is sent before it.

use super::rig::{Live, SOON};
use super::world::{
    Admin, CLIENTS, DEFAULT, HOSTS, PATHS, Row, STEADY, Server, Servers, World, op,
};
use crate::support::haproxy::Version;
use crate::support::slow::Slow;
use crate::support::traffic::get_port;
use crate::support::wait;
use haptic_agent::wire::op::OpKind;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MAPS: &[&str] = &["map_add", "map_set", "map_del", "map_replace"];
const SERVERS: &[&str] = &[
    "server_add",
    "server_enable",
    "server_disable",
    "server_set_addr",
    "server_set_weight",
    "server_set_state",
    "wait_srv_removable",
    "server_del",
];
const SESSIONS: &[&str] = &["shutdown_sessions"];
const BACKENDS: &[&str] = &[
    "backend_add",
    "backend_publish",
    "backend_unpublish",
    "wait_be_removable",
    "backend_del",
];
const CERTIFICATES: &[&str] = &[
    "cert_set",
    "cert_new",
    "ca_set",
    "ca_new",
    "crtlist_add",
    "crtlist_del",
];

const RELOADS: &str = "haptic_agent_reloads_total{result=\"ok\"}";

/// How the ops of a step are to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Runtime,
    /// The version lacks the kind of this op.
    Lacking(usize),
}

impl Live {
    /// One change by ops, then a reload of the same set.
    fn step(
        &mut self,
        what: &str,
        tls: bool,
        way: Way,
        change: impl FnOnce(&mut Live) -> Vec<Value>,
    ) {
        let case = format!("{}, {what}", self.haproxy.version());
        let (before, reloads) = (self.identity(), self.agent.sample(RELOADS));
        let looks = self.looks();
        let ops = change(self);
        let apply = self.apply("auto", &ops);
        let reply = apply.send(&self.agent);
        let answer = reply.json();
        let results = answer["op_results"].as_array().unwrap();
        assert_eq!(results.len(), ops.len(), "{case}: {answer:#}");
        assert_eq!(answer["ok"], true, "{case}: {answer:#}");
        let reloaded = self.agent.sample(RELOADS) - reloads;
        match way {
            Way::Runtime => {
                assert_eq!(answer["mode"], "runtime", "{case}: {answer:#}");
                assert!(
                    results.iter().all(|r| r["ok"] == true),
                    "{case}: {answer:#}"
                );
                assert!(reloaded < 0.5, "{case}");
                wait::until("the worker was looked at", SOON, || {
                    (self.looks() > looks).then_some(())
                });
                assert_eq!(self.identity(), before, "{case}");
            }
            Way::Lacking(at) => {
                assert_eq!(answer["mode"], "reload", "{case}: {answer:#}");
                for (place, result) in results.iter().enumerate() {
                    let output = result["output"].as_str().unwrap();
                    assert_eq!(result["ok"], false, "{case}");
                    let start = if place == at {
                        "unsupported: "
                    } else {
                        "not sent: "
                    };
                    assert!(output.starts_with(start), "{case}: {answer:#}");
                }
                assert!((reloaded - 1.0).abs() < 0.5, "{case}: {reloaded} reloads");
                assert_ne!(self.identity(), before, "{case}");
                self.world.reloaded();
            }
        }
        self.agrees(what);
        self.serves(what, tls);
        let (before, what) = (self.identity(), format!("{what}, reloaded"));
        self.apply("reload", &[]).succeed(&self.agent, "reload");
        self.world.reloaded();
        assert_ne!(self.identity(), before, "{case}");
        self.agrees(&what);
        self.serves(&what, tls);
        if way == Way::Runtime {
            let kinds = ops.iter().map(|op| op["kind"].as_str().unwrap().to_owned());
            self.shown.extend(kinds);
        }
    }

    fn looks(&self) -> usize {
        let log = self.agent.log();
        log.matches("\"looked at what the batch changed\"").count()
    }
}

/// What a version does not have.
fn lacks(version: Version, kind: &str) -> bool {
    match version {
        Version::V3_0 => BACKENDS.contains(&kind) || kind == "ca_set",
        Version::V3_2 => BACKENDS.contains(&kind),
        Version::V3_4 => false,
    }
}

/// On every version, with requests of the steady host all the time. Each shows the effect
/// of all the kinds that it has.
fn each(kinds: &[&str], test: impl Fn(&mut Live)) {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let load = live.load();
        test(&mut live);
        let mut forgotten: Vec<&&str> = kinds.iter().collect();
        forgotten.retain(|kind| !live.shown.contains(**kind) && !lacks(version, kind));
        assert!(forgotten.is_empty(), "{version}: {forgotten:?}");
        let seen = load.stop();
        assert_eq!(seen.failed, 0, "{version}: {seen:?}");
        assert!(seen.good > 0);
    }
}

#[test]
fn ops_on_maps() {
    each(MAPS, |live| {
        let step = |live: &mut Live, what: &str, change: &dyn Fn(&mut World) -> Vec<Value>| {
            live.step(what, false, Way::Runtime, |live| change(&mut live.world));
        };
        step(live, "map_add", &|world| {
            vec![
                world.map_add(PATHS, "/map/b", "two words; and \\ \"more\""),
                world.map_add(HOSTS, "alias", "b"),
            ]
        });
        step(live, "map_set", &|world| {
            vec![
                world.map_set(PATHS, "/map/a", "uno"),
                world.map_set(HOSTS, "alias", STEADY),
            ]
        });
        step(live, "map_del", &|world| {
            vec![world.map_del(PATHS, "/map/b")]
        });
        step(live, "map_replace", &|world| {
            let rows = (0..300).map(|n| (format!("/map/{n}"), format!("value {n}")));
            vec![world.map_replace(PATHS, rows.collect())]
        });
        step(live, "map_replace with nothing", &|world| {
            vec![world.map_replace(PATHS, Vec::new())]
        });
    });
}

#[test]
fn ops_on_servers() {
    each(SERVERS, |live| {
        let (one, two, three) = (live.upstream(1), live.upstream(2), live.upstream(3));
        let step = |live: &mut Live, what: &str, change: &dyn Fn(&mut World) -> Vec<Value>| {
            live.step(what, false, Way::Runtime, |live| change(&mut live.world));
        };
        step(live, "server_add and server_enable", &|world| {
            let checked = Server {
                check: true,
                weight: 2,
                ..Server::to(one)
            };
            let mut ops = Vec::new();
            for backend in ["b", STEADY] {
                ops.push(world.server_add(backend, "n1", checked.clone()));
                ops.push(world.server_enable(backend, "n1"));
                ops.push(world.server_add(backend, "n2", Server::to(two)));
            }
            ops
        });
        step(live, "server_enable", &|world| {
            vec![
                world.server_enable("b", "n2"),
                world.server_enable(STEADY, "n2"),
            ]
        });
        step(live, "server_disable", &|world| {
            vec![
                world.server_disable("b", "s1"),
                world.server_disable(STEADY, "n2"),
            ]
        });
        step(live, "server_set_addr", &|world| {
            vec![
                world.server_set_addr("b", "n1", three),
                world.server_set_addr(STEADY, "n1", three),
            ]
        });
        for (weight, least) in [(1_u16, 1.5), (10, 7.0)] {
            step(live, "server_set_weight", &|world| {
                vec![
                    world.server_set_weight("b", "n1", weight * 2),
                    world.server_set_weight("b", "n2", 1),
                ]
            });
            let mut hits = [0.0, 0.0];
            for _ in 0..66 {
                let name = get_port(live.world.http, "b", "/").unwrap().body;
                hits[usize::from(name == "u3")] += 1.0;
            }
            assert!(hits[1] / hits[0] > least, "weight {weight}: {hits:?}");
        }
        step(live, "weight 0", &|world| {
            vec![world.server_set_weight("b", "n1", 0)]
        });
        step(live, "weight again", &|world| {
            vec![world.server_set_weight("b", "n1", 3)]
        });
        for admin in [Admin::Drain, Admin::Maint, Admin::Ready] {
            step(live, "server_set_state", &|world| {
                // A reload says a drain by a weight of 0.
                let weight = world.server_set_weight("b", "n2", 1);
                vec![weight, world.server_set_state("b", "n2", admin)]
            });
        }
        step(live, "server_del", &|world| {
            vec![
                world.server_disable("b", "n2"),
                world.wait_server("b", "n2"),
                world.server_del("b", "n2"),
                world.server_del(STEADY, "n1"),
            ]
        });
        step(live, "wait_srv_removable", &|world| {
            vec![
                world.server_disable("b", "n1"),
                world.wait_server("b", "n1"),
            ]
        });
        step(live, "a server of the same name", &|world| {
            let del = world.server_del("b", "n1");
            let add = world.server_add("b", "n1", Server::to(two));
            vec![del, add, world.server_enable("b", "n1")]
        });
    });
}

#[test]
fn sessions_are_cut() {
    each(SESSIONS, |live| {
        let slow = Slow::start();
        live.step("a slow server", false, Way::Runtime, |live| {
            let add = live
                .world
                .server_add("b", "slow", Server::to(slow.address()));
            vec![add]
        });
        // Into its only request by itself: everything else of the backend rests.
        live.haproxy.ask("disable server b/s1").unwrap();
        live.haproxy.ask("enable server b/slow").unwrap();
        let request = slow.request(live.world.http, "b");
        live.haproxy.ask("enable server b/s1").unwrap();
        live.step("shutdown_sessions", false, Way::Runtime, |live| {
            vec![
                live.world.server_disable("b", "slow"),
                live.world.shutdown("b", "slow"),
            ]
        });
        let cut = request.join().unwrap();
        let cut = cut.map(|answer| answer.status);
        assert!(!matches!(cut, Ok(200)), "{cut:?}");
    });
}

#[test]
fn ops_on_backends() {
    each(BACKENDS, |live| {
        let lacking = live.haproxy.version() != Version::V3_4;
        let way = |at| match lacking {
            true => Way::Lacking(at),
            false => Way::Runtime,
        };
        let some = Servers::from([
            ("one".to_owned(), live.to(1).ready()),
            ("two".to_owned(), live.to(2).ready()),
        ]);
        live.step("backend_add and backend_publish", false, way(0), |live| {
            live.world.backend_comes("x", &some)
        });
        live.step("backend_unpublish and backend_del", false, way(1), |live| {
            live.world.backend_goes("x")
        });
        // In one batch it goes and comes back another.
        live.step("backend_add again", false, way(0), |live| {
            live.world.backend_comes("x", &some)
        });
        let one = Servers::from([("one".to_owned(), live.to(3).ready())]);
        live.step("a backend of the same name", false, way(1), |live| {
            let mut ops = live.world.backend_goes("x");
            ops.extend(live.world.backend_comes("x", &one));
            ops
        });
        if !lacking {
            gate(live);
        }
    });
}

/// Traffic ends and begins where a backend is not published and is, and one without
/// servers can be waited for. A reload publishes what the files have.
fn gate(live: &mut Live) {
    let of = |kind: &str| op(kind, json!({"backend": "x"}));
    let status = |live: &Live| get_port(live.world.http, "x", "/").unwrap().status;
    let shown = |live: &Live| {
        let stats = live.haproxy.ask("show stat").unwrap();
        let row = stats.lines().find(|row| row.starts_with("x,BACKEND,"));
        row.is_some_and(|row| row.contains("UNPUB"))
    };
    let before = live.identity();
    for (kind, wanted) in [
        ("backend_unpublish", 503),
        ("backend_unpublish", 503),
        ("backend_publish", 200),
        ("backend_publish", 200),
    ] {
        let apply = live.apply("auto", &[of(kind)]);
        apply.succeed(&live.agent, "runtime");
        assert_eq!(
            (status(live), shown(live)),
            (wanted, wanted == 503),
            "{kind}"
        );
        live.agrees(kind);
    }
    let servers: Vec<String> = live.world.backends["x"].keys().cloned().collect();
    let mut ops: Vec<Value> = servers
        .iter()
        .map(|server| live.world.server_del("x", server))
        .collect();
    live.apply("auto", &ops).succeed(&live.agent, "runtime");
    live.agrees("an empty backend");
    let mut wait = of("wait_be_removable");
    wait["timeout_ms"] = json!(2000);
    ops = vec![of("backend_unpublish"), wait];
    let apply = live.apply("auto", &ops);
    apply.succeed(&live.agent, "runtime");
    assert_eq!(status(live), 503);
    assert_eq!(live.identity(), before);
    live.apply("reload", &[]).succeed(&live.agent, "reload");
    assert!(!shown(live));
    live.agrees("reloaded");
}

#[test]
fn ops_on_certificates() {
    each(CERTIFICATES, |live| {
        let old = live.haproxy.version() == Version::V3_0;
        let row = |cert: &str, alpn, filter: &str| Row {
            cert: cert.to_owned(),
            alpn,
            filter: filter.to_owned(),
        };
        let step = |live: &mut Live, what: &str, change: &dyn Fn(&mut World) -> Vec<Value>| {
            live.step(what, true, Way::Runtime, |live| change(&mut live.world));
        };
        step(live, "cert_set", &|world| vec![world.cert_set(DEFAULT, 2)]);
        step(live, "cert_new and crtlist_add", &|world| {
            vec![
                world.cert_new("certs/x.pem", 1),
                world.row_add(row("certs/x.pem", true, "x.example")),
            ]
        });
        step(live, "cert_set of a row", &|world| {
            vec![world.cert_set("certs/x.pem", 3)]
        });
        step(live, "crtlist_del", &|world| {
            vec![world.row_del("certs/x.pem")]
        });
        // Something speaks TLS to us and trusts the new CA only.
        let us = live.world.tls_address();
        let default = live.world.certs[DEFAULT];
        step(live, "ca_new", &|world| {
            let secure = Server {
                ca: Some((default, "ca/new.pem")),
                ..Server::to(us)
            };
            let make = world.ca_new("ca/new.pem", vec![default]);
            let add = world.server_add("b", "secure", secure);
            vec![make, add, world.server_enable("b", "secure")]
        });
        let way = if old { Way::Lacking(1) } else { Way::Runtime };
        live.step("ca_set", true, way, |live| {
            let name = live.world.map_add(PATHS, "/map/ca", "x");
            let set = live.world.ca_set(CLIENTS, vec![1, 2]);
            vec![name, set]
        });
        live.step(
            "ca_set to fewer",
            true,
            if old { Way::Lacking(0) } else { Way::Runtime },
            |live| vec![live.world.ca_set(CLIENTS, vec![2])],
        );
        // Where the CA went before, certificates still change.
        step(live, "certificates behind CA files", &|world| {
            vec![
                world.cert_new("certs/y.pem", 3),
                world.row_add(row("certs/y.pem", false, "y.example")),
                world.cert_set("certs/y.pem", 1),
            ]
        });
    });
}

/// Within the pacing window the worker of before stays and can be looked at: of a batch
/// with one op that the version lacks nothing was sent.
#[test]
fn nothing_is_sent_where_one_op_is_lacking() {
    for version in [Version::V3_0, Version::V3_2] {
        let mut live = Live::with(version, |setup| setup.with("--reload-interval-min", "60s"));
        let lacking = [
            op(
                "backend_add",
                json!({"backend": "x", "profile": "dynamic", "mode": "http"}),
            ),
            op("backend_publish", json!({"backend": "b"})),
            op("backend_unpublish", json!({"backend": "b"})),
            op("backend_del", json!({"backend": "b"})),
            op(
                "wait_be_removable",
                json!({"backend": "b", "timeout_ms": 100}),
            ),
            op("ca_set", json!({"path": CLIENTS})),
        ];
        let known = usize::from(version == Version::V3_2);
        for (n, bad) in lacking.iter().take(6 - known).enumerate() {
            let before = live.world.seen(&live.haproxy);
            let first = live.world.map_add(PATHS, &format!("/map/{n}"), "x");
            let second = live.world.server_disable("b", "s1");
            let answer = live
                .apply("auto", &[first, bad.clone(), second])
                .succeed(&live.agent, "scheduled");
            let output = answer["op_results"][1]["output"].as_str().unwrap();
            assert!(
                output.starts_with("unsupported: "),
                "{version} {bad}: {output}"
            );
            assert_eq!(
                live.world.seen(&live.haproxy)["server b/s1"],
                before["server b/s1"]
            );
            assert_eq!(
                live.world.seen(&live.haproxy)[&format!("map {PATHS}")],
                before[&format!("map {PATHS}")]
            );
            // The next one meets no pending reload.
            live = Live::with(version, |setup| setup.with("--reload-interval-min", "60s"));
        }
    }
}

/// The lists of the tests above leave no kind out.
#[test]
fn every_kind_is_shown() {
    let shown = [MAPS, SERVERS, SESSIONS, BACKENDS, CERTIFICATES].concat();
    let shown: BTreeSet<&str> = shown.into_iter().collect();
    let all: BTreeSet<&str> = OpKind::ALL.iter().map(|(_, name)| *name).collect();
    assert_eq!(shown, all);
}
