//! Whether the look at the worker afterwards sees what is there.

use super::*;
use crate::support::{certs, wait};
use haptic_agent::haproxy::readback::{Verdict, Void, read_back};

const MAP: &str = "maps/host.map";

fn config(base: &Path) -> String {
    for dir in ["certs", "ca", "lists"] {
        fs::create_dir_all(base.join(dir)).unwrap();
    }
    fs::write(base.join("certs/site.pem"), certs::first().pem()).unwrap();
    fs::write(base.join("lists/a.list"), "certs/site.pem a.example\n").unwrap();
    routing(base).replace(
        "backend fixed",
        &format!("frontend tls\n    bind unix@{}/tls.sock ssl crt-list lists/a.list\n    http-request return status 200\nbackend fixed", base.display()),
    )
}

impl Bench {
    /// Runs the ops and looks.
    fn look_after(&mut self, ops: &Value) -> Vec<(String, Verdict)> {
        self.good(ops);
        self.look(ops).unwrap()
    }

    /// Looks as after these ops.
    fn look(&self, ops: &Value) -> Result<Vec<(String, Verdict)>, Void> {
        let typed: Vec<Op> = serde_json::from_value(ops.clone()).unwrap();
        let content = Tree(self.path().to_path_buf());
        let queue = Queue::default();
        let batch = compile(&typed, &self.before.version, &content, &queue).unwrap();
        let found = read_back(
            &self.worker(),
            self.before.identity,
            batch.touched(),
            &content,
            &self.queue,
            &SystemClock,
        )?;
        Ok(found
            .into_iter()
            .map(|(object, verdict)| (object.to_string(), verdict))
            .collect())
    }
}

fn agrees(found: &[(String, Verdict)], count: usize) {
    assert_eq!(found.len(), count, "{found:?}");
    assert!(
        found.iter().all(|(_, verdict)| *verdict == Verdict::Agrees),
        "{found:?}"
    );
}

fn differs(found: &[(String, Verdict)], object: &str, words: &str) {
    let (_, verdict) = found.iter().find(|(name, _)| name == object).unwrap();
    assert!(
        matches!(verdict, Verdict::Differs { what } if what.contains(words)),
        "{found:?}"
    );
}

fn map(kind: &str, key: &str, value: &str) -> Value {
    op(kind, json!({"path": MAP, "key": key, "value": value}))
}

fn server(kind: &str, name: &str, more: Value) -> Value {
    let mut fields = more;
    fields["backend"] = json!("b");
    fields["server"] = json!(name);
    op(kind, fields)
}

#[test]
fn maps_are_compared_with_their_files() {
    for version in Version::ALL {
        let mut bench = Bench::start(version, config);
        let singles = json!([
            map("map_add", "c", "x y"),
            map("map_set", "a", "1"),
            map("map_del", "b", "")
        ]);
        bench.write(MAP, "c x y\na 1\n");
        agrees(&bench.look_after(&singles), 1);
        let whole = json!([op("map_replace", json!({"path": MAP}))]);
        differs(
            &bench.look(&whole).unwrap(),
            "map maps/host.map",
            "entry 1 differs",
        );
        agrees(&bench.look_after(&whole), 1);
        bench.ask("add map maps/host.map c z");
        differs(
            &bench.look(&singles).unwrap(),
            "map maps/host.map",
            "the worker's entry 3 is not in the file",
        );
        differs(
            &bench.look(&whole).unwrap(),
            "map maps/host.map",
            "the file has 2 entries and the worker 3",
        );
        fs::remove_file(bench.path().join(MAP)).unwrap();
        assert!(matches!(
            bench.look(&singles).unwrap()[0].1,
            Verdict::Unverified { .. }
        ));
    }
}

#[test]
fn servers_are_compared_with_the_ops() {
    for version in Version::ALL {
        let mut bench = Bench::start(version, config);
        let ops = json!([
            server("server_add", "n1", json!({"address": "::1", "port": 8080})),
            server("server_enable", "n1", json!({})),
            server("server_add", "n2", json!({"address": "/tmp/x.sock"})),
            server(
                "server_set_addr",
                "s1",
                json!({"address": "127.0.0.9", "port": 99})
            ),
            server("server_set_weight", "s1", json!({"weight": 3})),
            server("server_set_state", "s1", json!({"state": "drain"})),
            server("server_del", "s2", json!({})),
        ]);
        agrees(&bench.look_after(&ops), 1);
        for (tamper, undo, words) in [
            (
                "set server b/s1 weight 9",
                "set server b/s1 weight 3",
                "server s1 has the weight 9",
            ),
            (
                "set server b/n1 state maint",
                "set server b/n1 state ready",
                "server n1 has the admin state 1",
            ),
            (
                "set server b/s1 addr 127.0.0.8",
                "set server b/s1 addr 127.0.0.9",
                "server s1 has the address 127.0.0.8:99",
            ),
            ("del server b/n2", "", "server n2 is missing"),
        ] {
            bench.ask(tamper);
            // HAProxy answers before an address is in place.
            wait::until(words, Duration::from_secs(10), || {
                let found = bench.look(&ops).unwrap();
                found
                    .iter()
                    .any(|(name, verdict)| {
                        name == "backend b"
                            && matches!(verdict, Verdict::Differs { what } if what.contains(words))
                    })
                    .then_some(())
            });
            bench.ask(undo);
        }
        // The delete waits: not a difference. Without its entry it is one.
        bench.ask("add server b/n2 /tmp/x.sock");
        agrees(&bench.look(&ops).unwrap(), 1);
        bench.queue = Queue::default();
        differs(
            &bench.look(&ops).unwrap(),
            "backend b",
            "server s2 is still there",
        );
    }
}

#[test]
fn backends_are_there_or_not() {
    let mut bench = Bench::start(Version::V3_4, config);
    let add = json!([op(
        "backend_add",
        json!({"backend": "x", "profile": "tmpl", "mode": "http"})
    )]);
    agrees(&bench.look_after(&add), 1);
    let del = json!([op("backend_del", json!({"backend": "x"}))]);
    differs(&bench.look(&del).unwrap(), "backend x", "still there");
    agrees(&bench.look_after(&del), 1);
    bench.ask("del backend x");
    bench.queue = Queue::default();
    differs(&bench.look(&add).unwrap(), "backend x", "missing");
    agrees(&bench.look(&del).unwrap(), 1);
}

#[test]
fn certificates_are_compared_by_serial_and_chain() {
    for version in Version::ALL {
        let mut bench = Bench::start(version, config);
        bench.write(
            "certs/new.pem",
            format!("{}{}", certs::second().pem(), certs::first().cert),
        );
        bench.write("ca/new.pem", &certs::first().cert);
        bench.write("certs/site.pem", certs::second().pem());
        let row = |kind: &str, cert: &str| op(kind, json!({"path": "lists/a.list", "cert": cert}));
        let ops = json!([
            op("cert_new", json!({"path": "certs/new.pem"})),
            op("cert_set", json!({"path": "certs/site.pem"})),
            op("ca_new", json!({"path": "ca/new.pem"})),
            row("crtlist_add", "certs/new.pem"),
            row("crtlist_del", "certs/absent.pem"),
        ]);
        agrees(&bench.look_after(&ops), 5);
        let reversed = json!([
            row("crtlist_del", "certs/new.pem"),
            row("crtlist_add", "certs/absent.pem")
        ]);
        let found = bench.look(&reversed).unwrap();
        differs(
            &found,
            "certs/new.pem in crt-list lists/a.list",
            "still there",
        );
        differs(
            &found,
            "certs/absent.pem in crt-list lists/a.list",
            "missing",
        );
        bench.write(
            "certs/new.pem",
            format!(
                "{}{}{}",
                certs::second().pem(),
                certs::first().cert,
                certs::first().cert
            ),
        );
        bench.ask(&format!(
            "set ssl cert certs/site.pem <<\n{}",
            certs::first().pem()
        ));
        let found = bench.look(&ops).unwrap();
        differs(&found, "certificate certs/new.pem", "chain");
        differs(
            &found,
            "certificate certs/site.pem",
            "a transaction is open",
        );
        bench.ask("commit ssl cert certs/site.pem");
        differs(
            &bench.look(&ops).unwrap(),
            "certificate certs/site.pem",
            "serial",
        );
        bench.ask("new ssl cert certs/other.pem");
        bench.write("certs/other.pem", certs::first().pem());
        let other = json!([op("cert_set", json!({"path": "certs/other.pem"}))]);
        differs(
            &bench.look(&other).unwrap(),
            "certificate certs/other.pem",
            "empty",
        );
    }
}

#[test]
fn another_worker_makes_the_look_void() {
    let bench = Bench::start(Version::V3_4, config);
    let ops = json!([map("map_set", "a", "1")]);
    assert!(bench.look(&ops).is_ok());
    bench.reload();
    assert!(bench.look(&ops).is_err());
}
