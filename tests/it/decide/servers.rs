//! Declared servers and backends.

use super::kit::{BOTH, Site, preamble};
use crate::support::haproxy::Version;
use haptic_agent::client::decide::Why;
use serde_json::{Value, json};

/// A frontend that routes by a map, and the declared backends behind it.
fn template() -> String {
    format!(
        "{}frontend front\n    bind unix@@BASE@/front.sock\n    use_backend %[path,map(maps/path.map,none)]\ndefaults web\n    mode http\n    balance roundrobin\n    timeout connect 2s\n    timeout server 5s\ndefaults fixed from web\n    balance source\n# haptic: backends\n",
        preamble()
    )
}

fn records(backends: &Value) -> String {
    json!({
        "version": 1,
        "profiles": {
            "web": {"mode": "http", "balance": "roundrobin", "default_server": ["check", "inter 2s", "weight 7"]},
            "fixed": {"mode": "http", "balance": "source", "default_server": []},
        },
        "backends": backends,
    })
    .to_string()
}

fn start(version: Version, backends: &Value) -> Site {
    let files = [
        ("haproxy.cfg", template()),
        ("backends.json", records(backends)),
        ("maps/path.map", "/ be\n".to_owned()),
    ];
    Site::start(version, &files)
}

fn server(name: &str, port: u16) -> Value {
    json!({"name": name, "address": "127.0.0.1", "port": port})
}

fn be(servers: Value) -> Value {
    json!({"be": {"profile": "web", "servers": servers}})
}

impl Site {
    fn declare(&mut self, backends: &Value) {
        self.write("backends.json", &records(backends));
    }
}

#[test]
fn servers_change_come_and_go_without_a_reload() {
    let with = |mut server: Value, key: &str, value: Value| {
        server[key] = value;
        server
    };
    let (a, b) = (server("a", 1001), server("b", 1002));
    let steps = [
        // Address, port, weight.
        json!([with(a.clone(), "address", json!("127.0.0.2")), b]),
        json!([
            with(a.clone(), "port", json!(1003)),
            with(b.clone(), "weight", json!(0))
        ]),
        json!([a, with(b.clone(), "weight", json!(256))]),
        // Two servers change places.
        json!([server("a", 1002), server("b", 1001)]),
        json!([with(a.clone(), "address", json!("::1")), b]),
        // Maintenance, with and without another address.
        json!([with(a.clone(), "state", json!("maint")), b]),
        json!([
            with(with(a.clone(), "state", json!("maint")), "port", json!(9)),
            with(b.clone(), "state", json!("maint"))
        ]),
        json!([a, b]),
        // In at the end, in the middle, not in traffic; with keywords of their own.
        json!([
            a,
            with(
                server("c", 1004),
                "keywords",
                json!(["inter 9s", "maxconn 5", "backup"])
            ),
            b,
            with(server("d", 1005), "keywords", json!(["no-check"]))
        ]),
        json!([a, b, with(server("e", 1006), "state", json!("maint")), {"name": "spare"}, with(server("six", 1), "address", json!("::1"))]),
        // A spare slot takes over from a server that leaves.
        json!([b, server("spare", 1001)]),
        json!([b, {"name": "spare"}]),
        json!([{"name": "u", "address": "/run/nobody.sock"}]),
        json!([]),
        json!([a]),
    ];
    for version in BOTH {
        let mut site = start(version, &be(json!([a, b])));
        for servers in &steps {
            site.declare(&be(servers.clone()));
            site.runtime();
            site.agrees();
        }
    }
}

/// The runtime state builds up over several pushes, and only then comes a reload.
#[test]
fn many_changes_in_a_row_are_what_the_files_say() {
    for version in BOTH {
        let mut site = start(version, &be(json!([])));
        let names = ["a", "b", "c", "d", "e"];
        for round in 0..12_usize {
            let servers: Vec<Value> = (0..names.len())
                .filter(|n| (n + round) % 3 != 0)
                .map(|n| {
                    let port = u16::try_from(2000 + n * 10 + round / 2).unwrap();
                    let mut server = server(names[n], port);
                    server["weight"] = ((n * round) % 50).into();
                    server
                })
                .collect();
            site.declare(&be(servers.into()));
            site.write("maps/path.map", &format!("/ be\n/{round} be\n"));
            site.runtime();
        }
        site.agrees();
    }
}

#[test]
fn whole_backends_come_and_go_where_haproxy_can() {
    for version in BOTH {
        let mut site = start(version, &be(json!([server("a", 1001)])));
        let both = json!({
            "be": {"profile": "web", "servers": [server("a", 1001)]},
            "new": {"profile": "web", "guid": "g-new", "servers": [server("x", 1002), {"name": "spare"}]},
            "bare": {"profile": "web", "mode": "http"},
        });
        site.declare(&both);
        site.write("maps/path.map", "/ be\n/new new\n");
        match version {
            Version::V3_0 | Version::V3_2 => site.reload("from 3.4 on, and this is 3.0"),
            Version::V3_4 => site.runtime(),
        };
        site.agrees();
        site.declare(&be(json!([server("a", 1001)])));
        site.write("maps/path.map", "/ be\n");
        match version {
            Version::V3_0 | Version::V3_2 => site.reload("from 3.4 on"),
            Version::V3_4 => site.runtime(),
        };
        site.agrees();
        if version == Version::V3_4 {
            assert!(!site.ask("show backend").contains("new"));
            site.declare(&both);
            site.runtime();
            site.declare(&json!({"new": both["new"]}));
            site.runtime();
            site.agrees();
        }
    }
}

/// Spare slots are how a backend whose balancing takes no servers at runtime changes them
/// all the same.
#[test]
fn slots_of_a_static_backend_change_their_address() {
    let fixed = |servers: Value| json!({"be": {"profile": "fixed", "servers": servers}});
    for version in BOTH {
        let mut site = start(version, &fixed(json!([server("a", 1001), {"name": "s2"}])));
        site.declare(&fixed(json!([{"name": "a"}, server("s2", 1002)])));
        site.runtime();
        site.agrees();
        site.declare(&fixed(json!([
            server("a", 1003),
            server("s2", 1002),
            server("s3", 1004)
        ])));
        site.reload("balances by `source`");
        site.agrees();
        let mut heavy = server("a", 1003);
        heavy["weight"] = 9.into();
        site.declare(&fixed(json!([
            heavy,
            server("s2", 1002),
            server("s3", 1004)
        ])));
        site.reload("static balancing takes it only from a file");
        site.agrees();
    }
}

#[test]
fn what_no_command_can_bring_about_is_reloaded() {
    let with = |keyword: &str| {
        let mut added = server("new", 1005);
        added["keywords"] = json!([keyword]);
        be(json!([server("a", 1001), added]))
    };
    for version in BOTH {
        let mut site = start(version, &be(json!([server("a", 1001)])));
        for (backends, words) in [
            (
                be(json!([server("a", 1001), {"name": "n", "address": "localhost", "port": 80}])),
                "no address literal",
            ),
            (with("pool-max-conn 7"), "not known to mean the same"),
            (with("init-addr none"), "takes no server keyword init-addr"),
            (
                be(
                    json!([{"name": "a", "address": "127.0.0.1", "port": 1001, "keywords": ["maxconn 3"]}]),
                ),
                "has other keywords",
            ),
            (
                json!({"be": {"profile": "web", "lines": ["timeout server 9s"], "servers": [server("a", 1001)]}}),
                "another profile, mode",
            ),
        ] {
            // Each from the same start.
            site.declare(&be(json!([server("a", 1001)])));
            site.push();
            site.declare(&backends);
            let pushed = site.reload(words);
            assert_eq!(pushed.decision.reasons[0].why, Why::Backends);
            site.agrees();
        }
        site.replace("haproxy.cfg", "timeout server 5s\n", "timeout server 6s\n");
        site.reload("outside of the declared backends");
        site.agrees();
    }
}

/// Every keyword that is said to mean the same at runtime as in a file does.
#[test]
fn verified_keywords_mean_the_same_at_runtime() {
    let certificates = crate::support::certs::first();
    for version in Version::ALL {
        let mut site = start(
            version,
            &json!({"be": {"profile": "fixed", "balance": "roundrobin", "servers": []}}),
        );
        site.write("ca.pem", &certificates.cert);
        site.write("client.pem", &certificates.pem());
        site.write("gone.crl", &certificates.crl);
        site.replace(
            "haproxy.cfg",
            "defaults fixed",
            "backend holds\n    server s 127.0.0.1:1 ssl crt client.pem ca-file ca.pem crl-file gone.crl\ndefaults fixed",
        );
        site.push();
        let sets = [
            json!([
                "check",
                "inter 3s",
                "fastinter 1s",
                "downinter 9s",
                "rise 3",
                "fall 4",
                "port 81",
                "addr 127.0.0.9"
            ]),
            json!([
                "maxconn 5",
                "minconn 2",
                "maxqueue 3",
                "cookie c1",
                "guid g1",
                "backup",
                "slowstart 3s"
            ]),
            json!([
                "check",
                "ssl",
                "verify none",
                "sni str(x.example)",
                "alpn h2",
                "ciphers ECDHE+AESGCM",
                "ciphersuites TLS_AES_128_GCM_SHA256",
                "ssl-min-ver TLSv1.2",
                "ssl-max-ver TLSv1.3"
            ]),
            json!([
                "ssl",
                "verify required",
                "ca-file ca.pem",
                "crt client.pem",
                "crl-file gone.crl",
                "verifyhost x.example"
            ]),
            json!([
                "proto h2",
                "send-proxy",
                "on-marked-down shutdown-sessions",
                "check",
                "observe layer4"
            ]),
            json!(["send-proxy-v2"]),
            json!([
                "agent-check",
                "agent-addr 127.0.0.1",
                "agent-port 9",
                "agent-inter 4s",
                "agent-send be/s"
            ]),
            json!(["check", "init-state down"]),
        ];
        let mut servers = Vec::new();
        for (n, keywords) in sets.iter().enumerate() {
            if version == Version::V3_0 && keywords[1] == "init-state down" {
                continue;
            }
            let mut server = server(&format!("s{n}"), 1001);
            server["keywords"] = keywords.clone();
            servers.push(server);
        }
        site.declare(
            &json!({"be": {"profile": "fixed", "balance": "roundrobin", "servers": servers}}),
        );
        site.runtime();
        site.agrees();
    }
}

#[test]
fn more_changes_than_one_apply_holds_are_one_reload() {
    let servers = |port: u16| {
        let servers = (0..1001).map(|n| server(&format!("s{n}"), port));
        be(servers.collect())
    };
    let mut site = start(Version::V3_4, &servers(1001));
    site.declare(&servers(1002));
    site.reload("1001 runtime commands");
    site.agrees();
}

/// A server that is added is checked as its backend says, and takes traffic.
#[test]
fn a_server_added_at_runtime_is_checked_like_the_others() {
    for version in BOTH {
        let reserved = crate::support::ports::Port::reserve();
        let port = reserved.number();
        let text = template()
            .replace(
                "defaults web\n",
                &format!("frontend origin\n    bind 127.0.0.1:{port}\n    http-request return status 204 if {{ path /health }}\n    http-request return status 200\ndefaults web\n    option httpchk GET /health\n    http-check expect status 204\n"),
            );
        let files = [
            ("haproxy.cfg", text),
            ("backends.json", records(&be(json!([])))),
            ("maps/path.map", "/ be\n".to_owned()),
        ];
        let mut site = Site::start(version, &files);
        site.declare(&be(json!([server("a", port)])));
        site.runtime();
        let up = |site: &Site| {
            let what = format!("{version}: the check has passed");
            crate::support::wait::until(&what, std::time::Duration::from_secs(10), || {
                let rows = site.statistics();
                let row = rows.iter().find(|row| row["svname"] == "a").unwrap();
                (row["status"] == "UP" && row["check_status"] == "L7OK").then_some(())
            });
        };
        up(&site);
        site.agrees();
        up(&site);
    }
}
