//! A worker that shows something else after a batch than the ops and files say: seen twice
//! it is counted, and one reload repairs it; seen once, it was on its way.

use super::modelled::{CA, CERT, LIST, MAP, Site};
use super::world::op;
use crate::support::haproxy::{Version, ask};
use crate::support::{certs, wait};
use haptic_agent::testkit::fake_haproxy::Fault;
use serde_json::{Value, json};
use std::time::Duration;

const DIVERGENCE: &str = "haptic_runtime_map_divergence_total";
const SOON: Duration = Duration::from_secs(20);

/// What is looked at after an op, and how it is made to look otherwise.
struct Case {
    op: Value,
    look: &'static str,
    other: fn(&str) -> String,
    words: &'static str,
}

/// Another field in the row of `s1`.
fn in_row(state: &str, change: fn(&mut Vec<String>)) -> String {
    let rows = state.lines().map(|line| {
        let mut fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if fields.get(3).is_some_and(|name| name == "s1") {
            change(&mut fields);
        }
        fields.join(" ") + "\n"
    });
    rows.collect()
}

fn without(text: &str, what: &str) -> String {
    let rows = text.lines().filter(|line| !line.starts_with(what));
    rows.map(|row| format!("{row}\n")).collect()
}

fn cases() -> Vec<Case> {
    let server = |kind: &str, more: Value| {
        let mut fields = more;
        fields["backend"] = json!("b");
        fields["server"] = json!("s1");
        op(kind, fields)
    };
    let map = |kind: &str| op(kind, json!({"path": MAP, "key": "/a", "value": "one"}));
    vec![
        Case {
            op: map("map_set"),
            look: "show map maps/path.map",
            other: |rows| rows.replace(" one", " two"),
            words: "the values of \"/a\" differ",
        },
        Case {
            op: op("map_replace", json!({"path": MAP})),
            look: "show map maps/path.map",
            other: |rows| format!("{rows}\n0xff /b two\n"),
            words: "the file has 1 entries and the worker 2",
        },
        Case {
            op: server("server_set_weight", json!({"weight": 7})),
            look: "show servers state b",
            other: |state| in_row(state, |row| row[7] = "9".to_owned()),
            words: "server s1 has the weight 9",
        },
        Case {
            op: server("server_set_state", json!({"state": "drain"})),
            look: "show servers state b",
            other: |state| in_row(state, |row| row[6] = "0".to_owned()),
            words: "server s1 has the admin state 0",
        },
        Case {
            op: server("server_disable", json!({})),
            look: "show servers state b",
            other: |state| in_row(state, |row| row[6] = "0".to_owned()),
            words: "server s1 has the admin state 0",
        },
        Case {
            op: server("server_enable", json!({})),
            look: "show servers state b",
            other: |state| in_row(state, |row| row[3] = "another".to_owned()),
            words: "server s1 is missing",
        },
        Case {
            op: op("cert_set", json!({"path": CERT})),
            look: "show ssl cert certs/site.pem",
            other: |text| text.replace("Serial: ", "Serial: 00FF"),
            words: "the worker has serial",
        },
        Case {
            op: op("ca_set", json!({"path": CA})),
            look: "show ssl ca-file",
            other: |text| without(text, CA),
            words: "it is missing",
        },
        Case {
            op: op(
                "crtlist_add",
                json!({"path": LIST, "cert": CERT, "sni_filters": ["x.example"]}),
            ),
            look: "show ssl crt-list -n lists/site.list",
            other: |text| without(text, CERT),
            words: "the row is missing",
        },
    ]
}

impl Site {
    /// What the worker answers now.
    fn shows(&self, look: &str) -> String {
        let answer = ask(&self.base.join("worker.sock"), look).unwrap();
        let text = answer.strip_suffix("\n\n").unwrap_or(&answer);
        text.trim_end_matches('\n').to_owned()
    }

    fn looks(&self) -> usize {
        let log = self.agent.log();
        log.matches("\"looked at what the batch changed\"").count()
    }

    /// The op, after which `look` shows something else so many times.
    fn after(&mut self, case: &Case, times: usize, told: &str) {
        let looks = self.looks();
        let answer = (case.other)(&self.shows(case.look));
        let answer = answer.trim_end().to_owned();
        for _ in 0..times {
            self.haproxy
                .inject(case.look, Fault::Answer(answer.clone()));
        }
        let ops = std::slice::from_ref(&case.op);
        let apply = self.apply("auto", ops);
        let answer = apply.succeed(&self.agent, "runtime");
        assert_eq!(answer["op_results"][0]["ok"], true, "{told}");
        wait::until(told, SOON, || (self.looks() > looks).then_some(()));
    }
}

#[test]
fn a_difference_that_stays_is_counted_and_repaired() {
    for version in [Version::V3_2, Version::V3_4] {
        let mut site = Site::start(version);
        for case in cases() {
            let told = format!("{version}, {}", case.op);
            site.files.insert(CERT, certs::first().pem().into_bytes());
            let (before, reloads) = (site.agent.sample(DIVERGENCE), site.haproxy.reloads());
            site.after(&case, 1, &told);
            assert!(site.agent.sample(DIVERGENCE) - before < 0.5, "once: {told}");
            assert_eq!(site.haproxy.reloads(), reloads, "once: {told}");
            site.haproxy.clear_faults();
            site.apply("reload", &[]).succeed(&site.agent, "reload");

            let reloads = site.haproxy.reloads();
            site.after(&case, 2, &told);
            let state = wait::until(&told, SOON, || {
                let state = site.agent.state_with("?plan=0");
                let known = state["worker_ops_plan_id"] == state["applied_plan_id"];
                (site.haproxy.reloads() == reloads + 1 && known).then_some(state)
            });
            assert_eq!(state["running_plan_id"], state["applied_plan_id"], "{told}");
            let counted = site.agent.sample(DIVERGENCE) - before;
            assert!((counted - 1.0).abs() < 0.5, "{told}: {counted}");
            let records = site.agent.records();
            let found = records
                .iter()
                .rfind(|record| record["msg"] == "the worker is out of step with the files");
            let what = found.unwrap()["what"].to_string();
            assert!(
                what.replace("\\\"", "\"").contains(case.words),
                "{told}: {what}"
            );
            site.haproxy.clear_faults();
        }
    }
}
