//! Random batches against a model: after each one the worker, the file and the look
//! afterwards agree with it. A failing seed is in the message.

use super::*;
use crate::support::dice::Dice;
use haptic_agent::haproxy::deletes::{Policy, pass};
use haptic_agent::haproxy::readback::{Verdict, read_back};
use std::collections::BTreeMap;

const MAP: &str = "maps/host.map";
const SEQUENCES: u64 = 10;
const SOAK_SEQUENCES: u64 = 170;
const BATCHES: usize = 6;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    address: String,
    port: i64,
    weight: i64,
    admin: &'static str,
}

#[derive(Debug, Clone)]
struct Model {
    map: Vec<(String, String)>,
    rows: BTreeMap<String, Row>,
}

const VALUES: [&str; 8] = [
    "v",
    "",
    "two words",
    "a;b \\ c",
    "\"q\"",
    "ü 漢",
    "# x",
    "<<E_O_F",
];

impl Model {
    fn new() -> Self {
        let row = |weight| Row {
            address: "127.0.0.1".to_owned(),
            port: 1,
            weight,
            admin: "0",
        };
        Self {
            map: vec![("a".into(), "one".into()), ("b".into(), "two".into())],
            rows: BTreeMap::from([("s1".to_owned(), row(1)), ("s2".to_owned(), row(5))]),
        }
    }

    fn file(&self) -> String {
        self.map.iter().map(|(k, v)| format!("{k} {v}\n")).collect()
    }

    /// One op that succeeds, and its effect. `busy` are names that may not come again in
    /// this batch.
    fn op(&mut self, dice: &mut Dice) -> Value {
        let key = format!("k{}", dice.roll(12));
        let name = format!("n{}", dice.roll(6));
        let known: Vec<String> = self.rows.keys().cloned().collect();
        let server = |kind: &str, name: &str, more: Value| {
            let mut fields = more;
            fields["backend"] = json!("b");
            fields["server"] = json!(name);
            op(kind, fields)
        };
        match dice.roll(10) {
            0 | 1 => {
                let value = (*dice.pick(&VALUES)).to_owned();
                self.map.push((key.clone(), value.clone()));
                op("map_add", json!({"path": MAP, "key": key, "value": value}))
            }
            2 if self.map.iter().any(|(k, _)| *k == key) => {
                let value = format!("set{}", dice.roll(100));
                for (k, v) in &mut self.map {
                    if *k == key {
                        v.clone_from(&value);
                    }
                }
                op("map_set", json!({"path": MAP, "key": key, "value": value}))
            }
            2 | 3 => {
                self.map.retain(|(k, _)| *k != key);
                op("map_del", json!({"path": MAP, "key": key}))
            }
            4 | 5 if !self.rows.contains_key(&name) => {
                let port = 1 + dice.roll(60_000) as i64;
                let weight = dice.roll(257) as i64;
                let address = (*dice.pick(&["127.0.0.1", "::1", "10.1.2.3"])).to_owned();
                self.rows.insert(
                    name.clone(),
                    Row {
                        address: address.clone(),
                        port,
                        weight,
                        admin: "1",
                    },
                );
                let keywords = json!([{"name": "weight", "args": [weight.to_string()]}]);
                server(
                    "server_add",
                    &name,
                    json!({"address": address, "port": port, "keywords": keywords}),
                )
            }
            4 if !known.is_empty() => {
                let name = dice.pick(&known).clone();
                self.rows.remove(&name);
                server("server_del", &name, json!({}))
            }
            _ if known.is_empty() => op("map_del", json!({"path": MAP, "key": "nowhere"})),
            7 => {
                let name = dice.pick(&known).clone();
                let row = self.rows.get_mut(&name).unwrap();
                row.weight = dice.roll(257) as i64;
                server("server_set_weight", &name, json!({"weight": row.weight}))
            }
            8 => {
                let name = dice.pick(&known).clone();
                let row = self.rows.get_mut(&name).unwrap();
                // The family of an address may change as well.
                row.address = format!("127.0.{}.{}", dice.roll(250), 1 + dice.roll(250));
                row.port = 1 + dice.roll(60_000) as i64;
                server(
                    "server_set_addr",
                    &name,
                    json!({"address": row.address, "port": row.port}),
                )
            }
            _ => {
                let name = dice.pick(&known).clone();
                let (kind, more, admin) = match dice.roll(5) {
                    0 => ("server_enable", json!({}), "0"),
                    1 => ("server_disable", json!({}), "1"),
                    2 => ("server_set_state", json!({"state": "ready"}), "0"),
                    3 => ("server_set_state", json!({"state": "maint"}), "1"),
                    _ => ("server_set_state", json!({"state": "drain"}), "8"),
                };
                self.rows.get_mut(&name).unwrap().admin = admin;
                server(kind, &name, more)
            }
        }
    }
}

fn rows(bench: &Bench) -> BTreeMap<String, Row> {
    let state = bench.ask("show servers state b");
    let lines = state.lines().skip(2).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let f: Vec<&str> = line.split(' ').collect();
            let admin = f[6].parse::<u32>().unwrap() & 9;
            let row = Row {
                address: f[4].to_owned(),
                port: f[18].parse().unwrap(),
                weight: f[7].parse().unwrap(),
                admin: ["0", "1", "", "", "", "", "", "", "8", "9"][admin as usize],
            };
            (f[3].to_owned(), row)
        })
        .collect()
}

fn entries(bench: &Bench) -> Vec<(String, String)> {
    let dump = bench
        .worker()
        .dump(&format!("show map {MAP}"), soon())
        .unwrap();
    let text = String::from_utf8(dump).unwrap();
    let rows = text.lines().map(|row| {
        row.splitn(3, ' ')
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    rows.map(|mut words| {
        let value = if words.len() > 1 {
            words.remove(1)
        } else {
            String::new()
        };
        (words.remove(0), value)
    })
    .collect()
}

fn sequence(bench: &mut Bench, seed: u64) {
    let mut dice = Dice::new(seed);
    let mut model = Model::new();
    bench.write(MAP, model.file());
    for number in 0..BATCHES {
        let count = 1 + dice.roll(25);
        let mut ops: Vec<Value> = (0..count).map(|_| model.op(&mut dice)).collect();
        bench.write(MAP, model.file());
        if dice.roll(3) == 0 {
            ops.push(op("map_replace", json!({"path": MAP})));
        }
        let ops = json!(ops);
        let case = format!(
            "{}, seed {seed}, batch {number}: {ops}",
            bench.haproxy.version()
        );
        let typed: Vec<Op> = serde_json::from_value(ops.clone()).unwrap();
        let content = Tree(bench.path().to_path_buf());
        let batch = compile(&typed, &bench.before.version, &content, &bench.queue).unwrap();
        let worker = bench.worker();
        let report = batch.run(
            &worker,
            bench.before.identity,
            &mut bench.queue,
            &SystemClock,
        );
        assert!(
            matches!(report.ended, Ended::Complete { .. }),
            "{case}: {report:#?}"
        );
        let found = read_back(
            &worker,
            bench.before.identity,
            batch.touched(),
            &content,
            &bench.queue,
            &SystemClock,
        )
        .unwrap();
        assert!(
            found.iter().all(|(_, verdict)| *verdict == Verdict::Agrees),
            "{case}: {found:?}"
        );
        while !bench.queue.is_empty() {
            let pass = pass(&mut bench.queue, &worker, Policy::default(), &SystemClock);
            assert_eq!(pass.error, None, "{case}");
        }
        assert_eq!(entries(bench), model.map, "{case}");
        assert_eq!(rows(bench), model.rows, "{case}");
    }
    // A reload of the same files: what they hold is the same.
    bench.before = bench.reload();
    assert_eq!(entries(bench), model.map, "seed {seed}");
    bench.write(MAP, Model::new().file());
    bench.before = bench.reload();
}

#[test]
fn random_batches_leave_what_the_model_says() {
    each(|bench| {
        for seed in 1..=SEQUENCES {
            sequence(bench, seed);
        }
    });
}

#[test]
#[ignore = "long; make soak runs it"]
fn hundreds_of_random_sequences() {
    each(|bench| {
        for seed in 1000..1000 + SOAK_SEQUENCES {
            sequence(bench, seed);
        }
    });
}
