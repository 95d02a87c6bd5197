//! Runtime ops.

use super::*;
use crate::support::certs;
use crate::testkit::kit::{self, Site, map_op, path_op, server_op};

fn first() -> Step {
    apply("first", |state| Site::new().push("p1", state))
}

#[test]
fn maps_change_at_runtime() {
    plain(&[
        first(),
        apply("every way", |state| {
            let ops = [
                map_op("map_add", kit::MAP, "c", Some("two words")),
                map_op("map_set", kit::MAP, "a", Some("uno")),
                map_op("map_del", kit::MAP, "b", None),
                map_op("map_del", kit::MAP, "never there", None),
            ];
            let ops = &ops[..3];
            Site::new()
                .map("a uno\nc two words\n")
                .auto("p2", state, ops)
        }),
        apply("a key that is gone", |state| {
            let ops = [map_op("map_del", kit::MAP, "b", None)];
            Site::new()
                .map("a uno\nc two words\n")
                .auto("p3", state, &ops)
        }),
        apply("whole", |state| {
            let ops = [
                path_op("map_replace", kit::MAP),
                path_op("map_replace", kit::OTHER),
            ];
            Site::new()
                .map("new one\nnew two\n")
                .with(kit::OTHER, "map", "")
                .auto("p4", state, &ops)
        }),
    ]);
}

#[test]
fn an_op_that_the_worker_refuses_ends_in_a_reload() {
    plain(&[
        first(),
        apply("the second of three", |state| {
            let ops = [
                map_op("map_add", kit::MAP, "c", Some("d")),
                map_op("map_set", kit::MAP, "none", Some("x")),
                map_op("map_add", kit::MAP, "e", Some("f")),
            ];
            Site::new().map("a one\nc d\n").auto("p2", state, &ops)
        }),
        apply("a map that is not loaded", |state| {
            let ops = [map_op("map_add", "maps/none.map", "c", Some("d"))];
            Site::new().auto("p3", state, &ops)
        }),
        apply("refused, and so is the reload", |state| {
            let ops = [
                map_op("map_add", kit::MAP, "z", Some("z")),
                map_op("map_set", kit::MAP, "none", Some("x")),
            ];
            Site::new().bad("4").auto("p4", state, &ops)
        }),
        apply("the same set again", |state| {
            Site::new().bad("4").push("p5", state)
        }),
    ]);
}

#[test]
fn what_cannot_be_run_is_reloaded() {
    let bad_ops = [
        (
            "no path",
            json!({"kind": "map_add", "key": "a", "value": "b"}),
        ),
        (
            "a blank in a key",
            map_op("map_add", kit::MAP, "a b", Some("c")),
        ),
        ("a semicolon", map_op("map_set", kit::MAP, "a", Some("c;d"))),
        (
            "weight 257",
            server_op("server_set_weight", "s1", json!({"weight": 257})),
        ),
        ("no weight", server_op("server_set_weight", "s1", json!({}))),
        (
            "a state",
            server_op("server_set_state", "s1", json!({"state": "up"})),
        ),
        (
            "port 0",
            server_op(
                "server_add",
                "n",
                json!({"address": "127.0.0.1", "port": 0}),
            ),
        ),
        (
            "no port",
            server_op("server_add", "n", json!({"address": "127.0.0.1"})),
        ),
        (
            "a host name",
            server_op(
                "server_add",
                "n",
                json!({"address": "localhost", "port": 1}),
            ),
        ),
        (
            "a socket with a port",
            server_op("server_add", "n", json!({"address": "/x", "port": 1})),
        ),
        (
            "a keyword",
            server_op(
                "server_add",
                "n",
                json!({"address": "::1", "port": 1, "keywords": [{"name": "resolvers"}]}),
            ),
        ),
        ("a bad name", server_op("server_disable", "s 1", json!({}))),
        (
            "a zone",
            server_op("server_set_addr", "s1", json!({"address": "fe80::1%eth0"})),
        ),
        (
            "a timeout",
            server_op("wait_srv_removable", "s1", json!({"timeout_ms": 0})),
        ),
        ("no such file", path_op("map_replace", "maps/none.map")),
        ("no certificate", path_op("cert_set", kit::MAP)),
        ("no CA", path_op("ca_set", kit::MAP)),
        (
            "a bracket",
            json!({"kind": "crtlist_add", "path": kit::LIST, "cert": kit::CERT, "sni_filters": ["a]"]}),
        ),
        (
            "a mode",
            json!({"kind": "backend_add", "backend": "n", "profile": "tmpl", "mode": "udp"}),
        ),
        (
            "a guid",
            json!({"kind": "backend_add", "backend": "n", "profile": "tmpl", "mode": "tcp", "guid": "a b"}),
        ),
        (
            "health without check",
            json!({"kind": "server_enable", "backend": "b", "server": "n", "health": true}),
        ),
        (
            "unknown",
            json!({"kind": "server_rename", "backend": "b", "server": "s1"}),
        ),
    ];
    let mut steps = vec![first()];
    for (at, (what, op)) in bad_ops.into_iter().enumerate() {
        steps.push(apply(what, move |state| {
            let mut ops = vec![map_op("map_add", kit::MAP, "k", Some("v"))];
            if op["health"] == true {
                ops.push(server_op(
                    "server_add",
                    "n",
                    json!({"address": "127.0.0.1", "port": 1}),
                ));
            }
            ops.push(op.clone());
            let map = format!("a one\nk{at} v\n");
            Site::new().map(&map).auto(&format!("q{at}"), state, &ops)
        }));
    }
    plain(&steps);
}

#[test]
fn servers_come_change_and_go() {
    plain(&[
        first(),
        apply("a new one", |state| {
            let ops = [
                server_op(
                    "server_add",
                    "n1",
                    json!({"address": "127.0.0.1", "port": 1, "keywords": [{"name": "check"}, {"name": "weight", "args": ["3"]}]}),
                ),
                server_op("server_enable", "n1", json!({"health": true})),
            ];
            Site::new().auto("p2", state, &ops)
        }),
        apply("changed", |state| {
            let ops = [
                server_op(
                    "server_set_addr",
                    "n1",
                    json!({"address": "127.0.0.2", "port": 2}),
                ),
                server_op("server_set_weight", "n1", json!({"weight": 0})),
                server_op("server_set_state", "s1", json!({"state": "drain"})),
                server_op("server_disable", "s2", json!({})),
                server_op("server_enable", "s2", json!({})),
            ];
            Site::new().auto("p3", state, &ops)
        }),
        apply("gone", |state| {
            let ops = [
                server_op("server_disable", "n1", json!({})),
                server_op("wait_srv_removable", "n1", json!({})),
                server_op("server_del", "n1", json!({})),
            ];
            Site::new().auto("p4", state, &ops)
        }),
        apply("gone and back in one batch", |state| {
            let ops = [
                server_op("server_del", "s2", json!({})),
                server_op(
                    "server_add",
                    "s2",
                    json!({"address": "127.0.0.1", "port": 9}),
                ),
                server_op("server_enable", "s2", json!({})),
            ];
            Site::new().auto("p5", state, &ops)
        }),
        apply("a name that is taken", |state| {
            let add = || server_op("server_add", "n2", json!({"address": "::1", "port": 9}));
            Site::new().auto("p6", state, &[add(), add()])
        }),
    ]);
}

#[test]
fn backends_come_and_go() {
    let backend = |kind: &str| json!({"kind": kind, "backend": "n"});
    plain(&[
        first(),
        apply("a new one", move |state| {
            let ops = [
                json!({"kind": "backend_add", "backend": "n", "profile": "tmpl", "mode": "http"}),
                json!({"kind": "server_add", "backend": "n", "server": "s", "address": "127.0.0.1", "port": 1}),
                json!({"kind": "server_enable", "backend": "n", "server": "s"}),
                backend("backend_publish"),
            ];
            Site::new().auto("p2", state, &ops)
        }),
        apply("gone", move |state| {
            let ops = [
                backend("backend_unpublish"),
                json!({"kind": "server_del", "backend": "n", "server": "s"}),
                backend("backend_del"),
            ];
            Site::new().auto("p3", state, &ops)
        }),
    ]);
}

#[test]
fn certificates_change_at_runtime() {
    plain(&[
        first(),
        apply("new bytes", |state| {
            let site = Site::new().with(kit::CERT, "cert", &certs::second().pem());
            site.auto("p2", state, &[path_op("cert_set", kit::CERT)])
        }),
        apply("a new one in the list", |state| {
            let list = format!("{} a.example\n{} b.example\n", kit::CERT, kit::SPARE);
            let site = Site::new()
                .with(kit::CERT, "cert", &certs::second().pem())
                .with(kit::SPARE, "cert", &certs::first().pem())
                .with(kit::LIST, "crtlist", &list);
            let ops = [
                path_op("cert_new", kit::SPARE),
                json!({"kind": "crtlist_add", "path": kit::LIST, "cert": kit::SPARE, "sni_filters": ["b.example"]}),
            ];
            site.auto("p3", state, &ops)
        }),
        apply("nothing: the inventory was told", |state| {
            let state = &without(state, kit::MAP);
            with_spare().auto("p4", state, &[])
        }),
        apply("out of the list", |state| {
            let ops = [json!({"kind": "crtlist_del", "path": kit::LIST, "cert": kit::SPARE})];
            let list = format!("{} a.example\n", kit::CERT);
            with_spare()
                .with(kit::LIST, "crtlist", &list)
                .auto("p5", state, &ops)
        }),
        apply("a new CA", |state| {
            let site = with_spare()
                .with(kit::LIST, "crtlist", &format!("{} a.example\n", kit::CERT))
                .with("ca/more.pem", "ca", &certs::second().cert);
            site.auto("p6", state, &[path_op("ca_new", "ca/more.pem")])
        }),
        apply("new bytes of a CA", |state| {
            let site = with_spare()
                .with(kit::LIST, "crtlist", &format!("{} a.example\n", kit::CERT))
                .with("ca/more.pem", "ca", &certs::second().cert)
                .with(kit::CA, "ca", &certs::second().cert);
            site.auto("p7", state, &[path_op("ca_set", kit::CA)])
        }),
        apply("one that is there already", |state| {
            let site = Site::new().with(kit::CERT, "cert", &certs::second().pem());
            site.auto("p8", state, &[path_op("cert_new", kit::CERT)])
        }),
        apply("one that nobody names", |state| {
            let site = Site::new()
                .with(kit::CERT, "cert", &certs::second().pem())
                .with(kit::SPARE, "general", &certs::first().pem());
            site.auto("p9", state, &[path_op("cert_set", kit::SPARE)])
        }),
    ]);
}

fn with_spare() -> Site {
    let list = format!("{} a.example\n{} b.example\n", kit::CERT, kit::SPARE);
    Site::new()
        .with(kit::CERT, "cert", &certs::second().pem())
        .with(kit::SPARE, "cert", &certs::first().pem())
        .with(kit::LIST, "crtlist", &list)
}

/// So that a controller sends this one although it is held.
fn without(state: &Value, path: &str) -> Value {
    let mut state = state.clone();
    state["files"].as_object_mut().unwrap().remove(path);
    state
}

#[test]
fn older_branches_take_fewer_ops() {
    for version in [Version::V3_0, Version::V3_2] {
        let steps = [
            first(),
            apply("a backend", |state| {
                let ops = [json!({"kind": "backend_publish", "backend": "b"})];
                Site::new().auto("p2", state, &ops)
            }),
            apply("a CA", |state| {
                let site = Site::new().with(kit::CA, "ca", &certs::second().cert);
                site.auto("p3", state, &[path_op("ca_set", kit::CA)])
            }),
            apply("a keyword", |state| {
                let keywords = json!([{"name": "strict-maxconn"}]);
                let ops = [server_op(
                    "server_add",
                    "n",
                    json!({"address": "127.0.0.1", "port": 1, "keywords": keywords}),
                )];
                let site = Site::new().with(kit::CA, "ca", &certs::second().cert);
                site.auto("p4", state, &ops)
            }),
        ];
        same(version, None, &steps);
    }
}

#[test]
fn as_many_ops_as_there_may_be() {
    let ops = |count: usize| {
        let op = |n: usize| map_op("map_add", kit::MAP, &format!("k{n}"), Some("v"));
        (0..count).map(op).collect::<Vec<_>>()
    };
    plain(&[
        first(),
        apply("1000", move |state| {
            let rows: String = (0..1000).map(|n| format!("k{n} v\n")).collect();
            let map = format!("a one\nb two\n{rows}");
            Site::new().map(&map).auto("p2", state, &ops(1000))
        }),
        apply("1001", move |state| {
            Site::new().auto("p3", state, &ops(1001))
        }),
    ]);
}
