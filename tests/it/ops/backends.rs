//! Backends at runtime, on 3.4.

use super::*;
use crate::support::ports::Port;
use crate::support::traffic::{Backend, Load, get_port};
use crate::support::wait;
use haptic_agent::haproxy::deletes::{DeleteOutcome, ObjectKind, Policy, pass};

fn backend(kind: &str, name: &str) -> Value {
    let fields = match kind {
        "backend_add" => json!({"backend": name, "profile": "tmpl", "mode": "http"}),
        "wait_be_removable" => json!({"backend": name, "timeout_ms": 1000}),
        _ => json!({"backend": name}),
    };
    op(kind, fields)
}

fn server(kind: &str, in_backend: &str, to: &Backend) -> Value {
    let mut fields = json!({"backend": in_backend, "server": "s1"});
    if kind == "server_add" {
        fields["address"] = json!(to.address().ip().to_string());
        fields["port"] = json!(to.address().port());
    }
    op(kind, fields)
}

fn routed(base: &Path, port: &Port) -> String {
    fs::create_dir_all(base.join("maps")).unwrap();
    fs::write(base.join("maps/host.map"), "").unwrap();
    format!(
        "{}frontend f\n    bind 127.0.0.1:{}\n    use_backend %[req.hdr(host),map(maps/host.map,fallback)]\nbackend fallback\n    http-request return status 418\ndefaults tmpl\n    mode http\n    balance roundrobin\n    timeout connect 2s\n    timeout server 5s\n",
        preamble(base),
        port.number()
    )
}

fn drained(bench: &mut Bench) -> Vec<(String, DeleteOutcome)> {
    let mut events = Vec::new();
    wait::until("the queue is empty", Duration::from_secs(20), || {
        let worker = bench.worker();
        let policy = Policy::default();
        let pass = pass(&mut bench.queue, &worker, policy, &SystemClock);
        assert_eq!(pass.error, None);
        events.extend(
            bench
                .queue
                .take_events()
                .into_iter()
                .map(|e| (e.key.to_string(), e.outcome)),
        );
        bench.queue.is_empty().then_some(())
    });
    events
}

#[test]
fn a_backend_comes_serves_and_goes_while_others_serve() {
    let (port, one, two) = (
        Port::reserve(),
        Backend::start("one"),
        Backend::start("two"),
    );
    let mut bench = Bench::start(Version::V3_4, |base| routed(base, &port));
    let route = |key: &str| {
        op(
            "map_add",
            json!({"path": "maps/host.map", "key": key, "value": key}),
        )
    };
    let whole = |name: &str, to: &Backend| {
        json!([
            backend("backend_add", name),
            server("server_add", name, to),
            server("server_enable", name, to),
            backend("backend_publish", name),
            route(name),
        ])
    };
    bench.good(&whole("one", &one));
    let load = Load::start(port.number(), "one", "/");
    for _ in 0..5 {
        bench.good(&whole("two", &two));
        assert_eq!(get_port(port.number(), "two", "/").unwrap().body, "two");
        let report = bench.good(&json!([
            op("map_del", json!({"path": "maps/host.map", "key": "two"})),
            backend("backend_unpublish", "two"),
            server("server_disable", "two", &two),
            op(
                "wait_srv_removable",
                json!({"backend": "two", "server": "s1", "timeout_ms": 5000})
            ),
            server("server_del", "two", &two),
            backend("wait_be_removable", "two"),
            backend("backend_del", "two"),
        ]));
        assert_eq!(report.deletes.len(), 2);
        assert_eq!(get_port(port.number(), "two", "/").unwrap().status, 418);
        let events = drained(&mut bench);
        let wanted = [
            ("two/s1".to_owned(), DeleteOutcome::Done),
            ("two".to_owned(), DeleteOutcome::Done),
        ];
        assert_eq!(events, wanted);
        assert!(!bench.ask("show backend").contains("two"));
    }
    let seen = load.stop();
    assert_eq!(seen.failed, 0);
    assert!(seen.good > 0);
    assert_eq!(bench.haproxy.worker_pid(), bench.before.identity.pid);
}

#[test]
fn a_backend_whose_name_comes_again_makes_way() {
    let (port, one, two) = (
        Port::reserve(),
        Backend::start("one"),
        Backend::start("two"),
    );
    let mut bench = Bench::start(Version::V3_4, |base| routed(base, &port));
    let add = |to: &Backend| {
        vec![
            backend("backend_add", "x"),
            server("server_add", "x", to),
            server("server_enable", "x", to),
            backend("backend_publish", "x"),
        ]
    };
    let remove = vec![server("server_del", "x", &one), backend("backend_del", "x")];
    bench.good(&json!(add(&one)));
    bench.good(&json!([op(
        "map_add",
        json!({"path": "maps/host.map", "key": "x", "value": "x"})
    )]));
    assert_eq!(get_port(port.number(), "x", "/").unwrap().body, "one");
    // In one batch, then over two.
    bench.good(&json!([remove.clone(), add(&two)].concat()));
    assert_eq!(get_port(port.number(), "x", "/").unwrap().body, "two");
    bench.good(&json!(remove));
    assert_eq!(bench.queue.count(ObjectKind::Server), 1);
    bench.good(&json!(add(&one)));
    assert!(bench.queue.is_empty());
    assert_eq!(bench.queue.take_events().len(), 2);
    assert_eq!(get_port(port.number(), "x", "/").unwrap().body, "one");
    // Published again: nothing is deleted.
    bench.good(&json!([
        backend("backend_unpublish", "x"),
        backend("backend_del", "x")
    ]));
    bench.good(&json!([backend("backend_publish", "x")]));
    assert!(bench.queue.is_empty());
    assert_eq!(get_port(port.number(), "x", "/").unwrap().body, "one");
}

#[test]
fn refusals_of_backends() {
    let port = Port::reserve();
    let mut bench = Bench::start(Version::V3_4, |base| routed(base, &port));
    let other = |field: &str, value: &str| {
        let mut fields = backend("backend_add", "new");
        fields[field] = json!(value);
        fields
    };
    bench.good(&json!([backend("backend_add", "old"), {"kind": "backend_add", "backend": "g", "profile": "tmpl", "mode": "http", "guid": "g1"}]));
    for (bad, outcome, words) in [
        (
            backend("backend_add", "old"),
            Outcome::NameCollision,
            "Error during backend creation : name is already used by other proxy 'backend old'.",
        ),
        (
            backend("backend_add", "f"),
            Outcome::NameCollision,
            "Error during backend creation : name is already used by other proxy 'frontend f'.",
        ),
        (
            other("profile", "none"),
            Outcome::Rejected,
            "Cannot find default proxy 'none'.",
        ),
        (
            other("guid", "g1"),
            Outcome::Rejected,
            "Error during backend creation : GUID insertion : duplicate entry with backend g.",
        ),
        (
            backend("backend_publish", "none"),
            Outcome::Rejected,
            "No such backend.",
        ),
        (
            backend("backend_unpublish", "none"),
            Outcome::Rejected,
            "No such backend.",
        ),
    ] {
        let mut ops: Vec<Value> = (0..100)
            .map(|_| backend("backend_unpublish", "old"))
            .collect();
        ops[31] = bad.clone();
        assert_eq!(
            bench.bad(&json!(ops), 31),
            (outcome, words.to_owned()),
            "{bad}"
        );
    }
    // A backend with servers that nobody deletes is given up.
    let to = Backend::start("x");
    bench.good(&json!([server("server_add", "old", &to)]));
    bench.good(&json!([
        backend("backend_del", "old"),
        backend("backend_del", "none")
    ]));
    let events = drained(&mut bench);
    assert_eq!(
        events.last().unwrap().1,
        DeleteOutcome::Abandoned,
        "{events:?}"
    );
}

#[test]
fn before_3_4_backends_are_not_executable() {
    for version in [Version::V3_0, Version::V3_2] {
        let mut bench = Bench::start(version, routing);
        for kind in [
            "backend_add",
            "backend_publish",
            "backend_unpublish",
            "backend_del",
            "wait_be_removable",
        ] {
            let refused = bench.try_run(&json!([backend(kind, "x")])).unwrap_err();
            assert_eq!((refused.index, refused.outcome), (0, Outcome::Unsupported));
        }
    }
}
