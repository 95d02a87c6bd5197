//! From a typed word to what HAProxy shows: a responder and a HAProxy of their own, and
//! `hapticctl --wait`.

use super::kit::{self, Responder};
use crate::support::haproxy::{Haproxy, Version, preamble};
use crate::support::wait;
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// Rows `s1` and `s2` of the group `canary`, and `s3` of `main`.
pub(super) fn config(base: &Path, checks: &str) -> String {
    let (host, port) = checks.rsplit_once(':').unwrap();
    let row = |name: &str, group: &str| {
        format!(
            "    server {name} 127.0.0.1:9 weight 100 agent-check agent-addr {host} agent-port {port} agent-send \"web/{name} {group}\\n\" agent-inter 100ms slowstart 4s\n"
        )
    };
    format!(
        "{}frontend front\n    bind unix@{}\n    default_backend web\nbackend web\n{}{}{}",
        preamble(base),
        base.join("front.sock").display(),
        row("s1", "canary"),
        row("s2", "canary"),
        row("s3", "main"),
    )
}

/// Status, effective weight and wanted weight.
fn status(haproxy: &Haproxy, server: &str) -> (String, u32, u32) {
    let csv = haproxy.ask("show stat web 4 -1").unwrap();
    let mut lines = csv.lines();
    let names: Vec<_> = lines
        .next()
        .unwrap()
        .trim_start_matches("# ")
        .split(',')
        .collect();
    let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
    let line = lines
        .find(|line| line.split(',').nth(1) == Some(server))
        .unwrap();
    let fields: Vec<_> = line.split(',').collect();
    let number = |name: &str| fields[at(name)].parse().unwrap();
    let status = fields[at("status")].to_owned();
    (status, number("weight"), number("uweight"))
}

#[test]
fn a_drain_is_awaited_and_comes_back_slowly() {
    std::thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || awaited_and_slowly_back(version));
        }
    });
}

fn awaited_and_slowly_back(version: Version) {
    let dir = tempfile::tempdir().unwrap();
    let (kv, base) = (dir.path().join("kv"), dir.path().join("haproxy"));
    std::fs::create_dir(&base).unwrap();
    let socket = base.join("worker.sock");
    let responder = Responder::start(&kv, &socket);
    let haproxy = Haproxy::start(version, &base, &config(&base, &responder.checks));
    let (kv, socket) = (kv.display().to_string(), socket.display().to_string());
    let run = |words: &[&str]| kit::run(&[("HAPTIC_KV_DIR", &kv)], words);
    let by_responder = [
        "--responder",
        responder.monitoring.as_str(),
        "--wait",
        "20s",
    ];
    let by_haproxy = ["--haproxy-socket", socket.as_str(), "--wait", "20s"];
    let ask = |words: &[&str], sight: &[&str]| run(&[words, sight].concat());

    // One row, seen by HAProxy itself.
    let drained = ask(&["drain", "web/s1"], &by_haproxy).good();
    assert!(drained.out.contains("shown by 1 row"), "{}", drained.out);
    assert!(status(&haproxy, "s1").0.starts_with("DRAIN"));
    assert_eq!(status(&haproxy, "s2").0, "no check");
    // Its group, seen by the responder; its own key goes first.
    let group = ask(&["maint", "canary"], &by_responder).good();
    assert!(
        group.out.contains("a key before it decides for 1 row"),
        "{}",
        group.out
    );
    assert!(group.out.contains("shown by 1 row"), "{}", group.out);
    assert!(status(&haproxy, "s1").0.starts_with("DRAIN"));
    assert_eq!(status(&haproxy, "s2").0, "MAINT");
    ask(&["ready", "canary"], &by_responder).good();
    let weighed = ask(&["weight", "canary", "50%"], &by_responder).good();
    assert!(weighed.err.is_empty(), "{}", weighed.err);
    // Wanted, while its slow start after maint still goes on.
    assert_eq!(status(&haproxy, "s2").2, 50);
    ask(&["ready", "canary"], &by_responder).good();
    // Back through maint: the weight climbs.
    wait::until("s2 has left its own ramp", PATIENCE, || {
        (status(&haproxy, "s2").1 == 100).then_some(())
    });
    let begin = Instant::now();
    let both = [&by_responder[..], &by_haproxy[..2]].concat();
    ask(&["ready", "web/s1", "--ramp", "--ramp-hold", "1s"], &both).good();
    assert!(begin.elapsed() >= Duration::from_secs(1));
    let mut climbed = Vec::new();
    wait::until("s1 has its whole weight", PATIENCE, || {
        let weight = status(&haproxy, "s1").1;
        if climbed.last() != Some(&weight) {
            climbed.push(weight);
        }
        (weight == 100).then_some(())
    });
    assert!(climbed.len() > 1 && climbed.is_sorted(), "{climbed:?}");

    // A key that nobody asks for is warned of and cannot arrive.
    let wrong = ask(
        &["drain", "cannary"],
        &["--responder", &responder.monitoring, "--wait", "1s"],
    );
    let wrong = wrong.bad("none asks for it");
    assert!(wrong.err.contains("did you mean canary?"), "{}", wrong.err);
    ask(
        &["drain", "canary"],
        &["--haproxy-socket", &socket, "--wait", "1s"],
    )
    .bad("--responder URL");
    let listed = run(&["overrides", "--responder", &responder.monitoring]);
    let listed = listed.bad("no row asks for it");
    assert!(listed.out.contains("asked for by 2 rows"), "{}", listed.out);
    // An override that was for nobody ends for nobody.
    let ended = ask(
        &["ready", "cannary"],
        &["--responder", &responder.monitoring, "--wait", "1s"],
    );
    let ended = ended.good();
    assert!(ended.out.contains("ended (was drain"), "{}", ended.out);
    assert!(
        ended
            .out
            .contains("no row asks for it, so none has to follow"),
        "{}",
        ended.out
    );
    run(&["ready", "cannary", "canary"]).good();
    // A responder that is not there.
    run(&[
        "drain",
        "web/s3",
        "--responder",
        "http://127.0.0.1:1",
        "--wait",
        "1s",
    ])
    .bad("--monitoring-addr");
}
