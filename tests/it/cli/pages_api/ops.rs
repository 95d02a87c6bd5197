//! The entries of OPERATIONS: their examples are compiled with and without each field,
//! for each branch of HAProxy, and run on a modelled one.

use super::whole::whole_op;
use super::{page, prose, section};
use crate::support::certs;
use haptic_agent::clock::SystemClock;
use haptic_agent::format::{HaproxyVersion, field};
use haptic_agent::haproxy::deletes::Queue;
use haptic_agent::haproxy::ops::{Content, NotExecutable, Outcome, compile};
use haptic_agent::haproxy::{Deadline, WorkerSocket};
use haptic_agent::testkit::fake_haproxy::{Backend, Bind, FakeHaproxy, Model, Server, Version};
use haptic_agent::wire::op::{Op, OpKind};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// One entry of OPERATIONS.
#[derive(Debug)]
struct Entry {
    kind: String,
    /// The first branch of HAProxy that has it, if not all have.
    since: Option<(u32, u32)>,
    needs: BTreeSet<String>,
    takes: BTreeSet<String>,
    example: Map<String, Value>,
    commands: Vec<String>,
}

fn entries(page: &str) -> Vec<Entry> {
    let text = section(page, "OPERATIONS");
    let text = text.split("\n.Ss Servers and backends\n").nth(1).unwrap();
    text.split("\n.It Li ").skip(1).map(entry).collect()
}

fn entry(text: &str) -> Entry {
    let (head, rest) = text.split_once('\n').unwrap();
    let (kind, branch) = head.split_once(' ').unwrap_or((head, ""));
    let since = branch.strip_prefix("No (HAProxy ").map(|branch| {
        let (major, minor) = branch.strip_suffix(')').unwrap().split_once('.').unwrap();
        (major.parse().unwrap(), minor.parse().unwrap())
    });
    let (says, literal) = rest.split_once("\n.Bd -literal\n").unwrap();
    let (literal, _) = literal.split_once("\n.Ed").unwrap();
    let fields = |word: &str| -> BTreeSet<String> {
        let mut lines = says.lines().skip_while(|line| *line != word).skip(1);
        let line = lines.next().and_then(|line| line.strip_prefix(".Li "));
        let names = line.unwrap_or_default().split([' ', ',', '.']);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let is_command = |line: &&str| line.starts_with("    ");
    let json: String = literal.lines().filter(|line| !is_command(line)).collect();
    let commands = literal.lines().filter(is_command);
    Entry {
        kind: kind.to_owned(),
        since,
        needs: fields("Needs"),
        takes: fields("takes"),
        example: serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error} in {json}")),
        commands: commands
            .map(|line| line.trim().split(" <<").next().unwrap().to_owned())
            .collect(),
    }
}

/// The files of the page's examples.
struct Site(tempfile::TempDir);

impl Site {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pem = certs::first().pem();
        for (name, content) in [
            ("maps/host.map", "shop.example shop\n"),
            ("certs/shop.pem", &pem),
            ("certs/news.pem", &pem),
            ("ca/clients.pem", &certs::first().cert),
            ("ca/partners.pem", &certs::second().cert),
            ("lists/site.list", "certs/shop.pem shop.example\n"),
        ] {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Content for Site {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String> {
        match fs::File::open(self.path().join(path)) {
            Ok(file) => Ok(Box::new(file)),
            // What a probe names is a file as well, with all that any op may want of one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Box::new(io::Cursor::new(certs::first().pem())))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What the op becomes for that branch, whole.
fn compiled(op: &Map<String, Value>, branch: &str, site: &Site) -> Result<String, NotExecutable> {
    let op: Op = serde_json::from_value(Value::Object(op.clone())).unwrap();
    let version: HaproxyVersion = format!("{branch}.1").parse().unwrap();
    let batch = compile(&[op], &version, site, &Queue::default())?;
    Ok(format!("{batch:?}"))
}

#[test]
fn every_kind_has_its_entry_in_the_order_of_the_contract() {
    let kinds: Vec<String> = entries(&page())
        .into_iter()
        .map(|entry| entry.kind)
        .collect();
    let known: Vec<&str> = OpKind::names().collect();
    assert_eq!(kinds, known, "the entries of OPERATIONS");
}

#[test]
fn each_kind_needs_and_takes_what_its_entry_says() {
    let site = Site::make();
    let whole = serde_json::to_value(whole_op()).unwrap();
    for entry in entries(&page()) {
        let Entry {
            kind,
            needs,
            takes,
            example,
            ..
        } = &entry;
        assert_eq!(example["kind"], json!(kind), "the example of {kind}");
        let plain = compiled(example, "3.4", &site).unwrap();
        for (field, probe) in whole.as_object().unwrap() {
            let mut op = example.clone();
            if field == "kind" {
                continue;
            }
            let is_there = op.remove(field).is_some();
            if needs.contains(field) {
                assert!(is_there, "the example of {kind} lacks {field}");
                let error = compiled(&op, "3.4", &site).unwrap_err();
                assert_eq!(error.outcome, Outcome::Invalid, "{kind} without {field}");
                assert_eq!(error.words, format!("{field} is missing"), "{kind}");
            } else if takes.contains(field) {
                if !is_there {
                    op.insert(field.clone(), probe.clone());
                }
                let other = compiled(&op, "3.4", &site).unwrap();
                assert_ne!(plain, other, "{kind} does nothing with {field}");
            } else {
                assert!(!is_there, "the example of {kind} has {field}");
                op.insert(field.clone(), probe.clone());
                let same = compiled(&op, "3.4", &site).unwrap();
                assert_eq!(plain, same, "{kind} takes {field}");
            }
        }
        let fields: BTreeSet<&String> = needs.union(takes).collect();
        for field in fields {
            assert!(whole.get(field).is_some(), "{kind}: no op has {field}");
        }
    }
}

#[test]
fn each_kind_is_there_from_the_branch_that_its_entry_names() {
    let site = Site::make();
    for entry in entries(&page()) {
        for branch in ["3.0", "3.1", "3.2", "3.3", "3.4"] {
            let version: HaproxyVersion = format!("{branch}.1").parse().unwrap();
            let there = entry
                .since
                .is_none_or(|(major, minor)| version.at_least(major, minor));
            match compiled(&entry.example, branch, &site) {
                Ok(_) => assert!(there, "{} runs on {branch}", entry.kind),
                Err(error) => {
                    assert!(!there, "{} on {branch}: {error}", entry.kind);
                    assert_eq!(error.outcome, Outcome::Unsupported);
                }
            }
        }
    }
}

/// The examples one after the other on a modelled HAProxy, and what it was sent.
#[test]
fn each_example_becomes_the_commands_that_stand_behind_it() {
    let site = Site::make();
    let socket = site.path().join("worker.sock");
    let backend = Backend::new("shop").server(Server::new("s1", "127.0.0.1", 80));
    let model = Model::new()
        .defaults("web")
        .backend(backend)
        .map("maps/host.map", "shop.example shop\n")
        .cert("certs/shop.pem", &certs::first().pem())
        .ca("ca/clients.pem", 1)
        .bind(Bind::new().crt("certs/shop.pem").ca_file("ca/clients.pem"))
        .crt_list("lists/site.list", "certs/shop.pem shop.example\n");
    let haproxy = FakeHaproxy::builder(Version::V3_4)
        .model(model)
        .start(&site.path().join("master.sock"), &socket)
        .unwrap();
    let worker = WorkerSocket::new(socket);
    let info = worker
        .info(Deadline::after(Duration::from_secs(10)))
        .unwrap();
    for entry in entries(&page()) {
        haproxy.clear_commands();
        let op: Op = serde_json::from_value(Value::Object(entry.example)).unwrap();
        let mut queue = Queue::default();
        let batch = compile(&[op], &info.version, &site, &queue).unwrap();
        let report = batch.run(&worker, info.identity, &mut queue, &SystemClock);
        assert!(report.results[0].outcome.is_ok(), "{report:#?}");
        let looks = ["prompt", "set severity-output", "show ", "quit"];
        let sent: Vec<String> = haproxy
            .commands()
            .into_iter()
            .filter(|command| !looks.iter().any(|look| command.starts_with(look)))
            .map(|command| command.split(" <<").next().unwrap().to_owned())
            .collect();
        assert_eq!(sent, entry.commands, "{}", entry.kind);
    }
}

#[test]
fn a_field_of_another_type_is_no_op_and_every_field_has_its_rule() {
    let whole = serde_json::to_value(whole_op()).unwrap();
    let text = section(&page(), "OPERATIONS");
    let fields = text.split("\n.Ss Fields\n").nth(1).unwrap();
    let fields = fields.split("\n.Ss ").next().unwrap();
    let items: BTreeSet<&str> = fields
        .lines()
        .filter_map(|line| line.strip_prefix(".It Li "))
        .flat_map(|line| line.split(" , "))
        .collect();
    let known: BTreeSet<&str> = whole
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(items, known);
    for (field, value) in whole.as_object().unwrap() {
        let mut op = whole.clone();
        op[field] = match value {
            Value::String(_) => json!(7),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => json!("x"),
        };
        assert!(serde_json::from_value::<Op>(op.clone()).is_err(), "{op}");
        op[field] = Value::Null;
        let read = serde_json::from_value::<Op>(op);
        assert_eq!(read.is_ok(), field != "kind", "{field}");
    }
    let read = prose(fields);
    for (phrase, good, bad) in [
        (
            "port Integer, 1 to 65535",
            field::port(65535).is_ok(),
            field::port(65536).is_ok(),
        ),
        (
            "weight Integer, 0 to 256",
            field::weight(256).is_ok(),
            field::weight(257).is_ok(),
        ),
        (
            "timeout_ms Integer, 1 to 30000",
            field::timeout(30_000).is_ok(),
            field::timeout(30_001).is_ok(),
        ),
    ] {
        assert!(read.contains(phrase), "{phrase}");
        assert!(good && !bad, "{phrase}");
    }
}
