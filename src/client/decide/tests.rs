mod files;
mod lines;
mod records;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::client::fileset::FileSetOptions;
use crate::http::basic::base64;
use crate::wire::digest::{ContentHash, Digest};
use crate::wire::manifest::Token;
use crate::wire::state::{Degraded, Haproxy, PendingDeletes, RuntimeInventory, WorkerAnswer};

const CERT: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nKKKK\n-----END EC PRIVATE KEY-----\n";

type Files = BTreeMap<String, Vec<u8>>;

/// A site with one of everything that a worker can hold.
fn site() -> Files {
    let pem = |n: usize| format!("{}{KEY}", CERT.replace("AAAA", &format!("AAA{n}")));
    [
        ("haproxy.cfg", "global\n".to_owned()),
        ("maps/host.map", "a one\nb two\n".to_owned()),
        ("certs/a.pem", pem(1)),
        ("certs/pair.pem", pem(2)),
        ("certs/pair.pem.ocsp", "x".to_owned()),
        ("ca/clients.pem", CERT.to_owned()),
        ("ca/gone.crl", "x".to_owned()),
        ("site.crtlist", "certs/a.pem\n".to_owned()),
        ("errors/503.http", "HTTP/1.0 503 x\r\n\r\n".to_owned()),
        ("maps/blocked.acl", "10.0.0.1\n".to_owned()),
        ("maps/alias.map", "x y\n".to_owned()),
        ("twice.pem", pem(3)),
        ("maps/both.map", "a one\n".to_owned()),
        ("lists/known.acl", "10.0.0.1\n".to_owned()),
    ]
    .into_iter()
    .map(|(path, text)| (path.to_owned(), text.into_bytes()))
    .collect()
}

fn inventory() -> RuntimeInventory {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    RuntimeInventory {
        generation: 1,
        maps: names(&[
            "/etc/haproxy/maps/alias.map",
            "maps/big.map",
            "maps/both.map",
            "maps/host.map",
        ]),
        acl_files: names(&["lists/known.acl", "maps/both.map"]),
        certs: names(&["certs/a.pem", "certs/pair.pem", "twice.pem"]),
        ca_files: names(&["ca/clients.pem", "twice.pem"]),
        crl_files: names(&["ca/gone.crl"]),
        crt_lists: names(&["site.crtlist", "empty.crtlist", "based.crtlist"]),
    }
}

fn set(files: &Files) -> FileSet {
    with(files, &FileSetOptions::default())
}

fn with(files: &Files, options: &FileSetOptions) -> FileSet {
    FileSet::from_files(files.clone(), options).unwrap()
}

/// What an agent says after `set` was pushed and loaded.
fn applied(set: &FileSet, version: &str) -> State {
    let files = set.files().map(|entry| {
        let held = HeldFile {
            digest: entry.digest,
            size: entry.size,
        };
        (entry.path.clone(), held)
    });
    State {
        api_version: API_VERSION,
        agent_version: "0.1.0".into(),
        plan_schema_version: PLAN_SCHEMA_VERSION,
        agent_ops: OpKind::names().map(str::to_owned).collect(),
        features: Vec::new(),
        haproxy: Haproxy {
            version: version.into(),
            full_version: version.into(),
            worker_pid: 7,
            worker_start_time_unix_micros: 7,
        },
        worker: None,
        generation: 3,
        applied_plan_id: set.plan_id().into(),
        running_plan_id: set.plan_id().into(),
        worker_ops_plan_id: set.plan_id().into(),
        applied_token: Token::default(),
        lkg_plan_id: set.plan_id().into(),
        reserved_paths: Vec::new(),
        worker_socket: None,
        in_the_way: BTreeMap::new(),
        applied_plan_stored: true,
        files: files.collect(),
        runtime_inventory: inventory(),
        pending_deletes: PendingDeletes::default(),
        applied_plan: set.plan_blob().map(|blob| base64(&blob)),
        reload_pending_at: None,
        last_apply: None,
        invariant_violation: None,
        degraded: None,
        unsaved: None,
    }
}

/// Every batch that is decided on must be one that the agent compiles, with the files of
/// the set on its disk.
fn decided(set: &FileSet, state: &State) -> Decision {
    let decision = decide(set, state);
    assert!(!decision.reasons.is_empty());
    assert_eq!(
        decision.ops.is_empty(),
        decision.verdict != Verdict::Runtime
    );
    let most = decision.reasons.iter().map(|reason| reason.needs).max();
    assert_eq!(most, Some(decision.verdict), "{decision:#?}");
    for change in &decision.files {
        assert!(
            decision.verdict >= change.needs,
            "{} needs {:?}",
            change.path,
            change.needs
        );
    }
    #[cfg(feature = "agent")]
    compiles(set, &decision, &state.haproxy.version);
    decision
}

#[cfg(feature = "agent")]
fn compiles(set: &FileSet, decision: &Decision, version: &str) {
    use crate::haproxy::deletes::Queue;
    use crate::haproxy::ops::{Content, compile};
    struct Disk<'a>(&'a FileSet);
    impl Content for Disk<'_> {
        fn open(&self, path: &str) -> Result<Box<dyn std::io::Read + '_>, String> {
            let entry = self.0.get(path).ok_or("not there")?;
            Ok(Box::new(entry.content))
        }
    }
    if decision.ops.is_empty() {
        return;
    }
    let version = version.parse().unwrap();
    if let Err(fault) = compile(&decision.ops, &version, &Disk(set), &Queue::default()) {
        panic!("{fault}: {:#?}", decision.ops);
    }
}

/// The ops in short: `kind path` or `kind backend/server`, with key and value.
fn shown(decision: &Decision) -> Vec<String> {
    let ops = decision.ops.iter();
    ops.map(|op| {
        let words = [
            &op.path,
            &op.backend,
            &op.server,
            &op.cert,
            &op.key,
            &op.value,
        ];
        let words: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
        let options = op
            .options
            .iter()
            .map(|o| format!(" [{} {}]", o.name, o.args.join(" ")));
        let options: String = options.collect();
        let filters: String = op.sni_filters.iter().map(|f| format!(" {f}")).collect();
        format!("{} {}{options}{filters}", op.kind, words.join(" "))
    })
    .collect()
}

/// The site, then one change of it.
fn change(path: &str, content: impl AsRef<[u8]>) -> (Files, Files) {
    let before = site();
    let mut after = before.clone();
    after.insert(path.to_owned(), content.as_ref().to_vec());
    (before, after)
}

fn after(pair: &(Files, Files), version: &str) -> Decision {
    decided(&set(&pair.1), &applied(&set(&pair.0), version))
}

#[test]
fn nothing_differs() {
    let set = set(&site());
    let mut state = applied(&set, "3.0.11");
    let decision = decided(&set, &state);
    assert_eq!(decision.verdict, Verdict::Noop);
    assert_eq!(
        decision.reasons[0].text,
        "the agent holds these files and HAProxy runs them"
    );
    assert!(decision.files.is_empty() && !decision.send_all);
    assert_eq!(decision.mode(), Mode::Auto);

    // What an old or strange agent says of itself does not matter then.
    state.api_version = 9;
    state.haproxy.version = String::new();
    state.agent_ops.clear();
    assert_eq!(decided(&set, &state).verdict, Verdict::Noop);

    state.reload_pending_at = Some("2026-01-01T00:00:00.5Z".into());
    state.worker_ops_plan_id = "older".into();
    let decision = decided(&set, &state);
    assert_eq!(decision.verdict, Verdict::Noop);
    assert!(
        decision.reasons[0]
            .text
            .ends_with("HAProxy loads them at 2026-01-01T00:00:00.5Z")
    );
}

#[test]
fn the_same_files_under_another_name_are_nothing_to_do() {
    let set = set(&site());
    let mut state = applied(&set, "3.0.11");
    for id in [&mut state.applied_plan_id, &mut state.worker_ops_plan_id] {
        *id = "by-hand".into();
    }
    let decision = decided(&set, &state);
    assert_eq!(decision.verdict, Verdict::Noop);
    assert!(decision.reasons[0].text.ends_with("as plan by-hand"));
}

/// What forbids ops whatever changed: the state, and the reason's sort and words.
#[test]
fn a_state_that_is_no_baseline_is_a_full_reload() {
    type Edit = fn(&mut State);
    let table: &[(Edit, Why, &str, bool)] = &[
        (
            |s| s.applied_plan_id.clear(),
            Why::UnknownBaseline,
            "does not know what is applied",
            true,
        ),
        (
            |s| s.worker_ops_plan_id.clear(),
            Why::UnknownWorker,
            "not known to have",
            true,
        ),
        (
            |s| s.worker_ops_plan_id = "other".into(),
            Why::UnknownWorker,
            "restarted",
            true,
        ),
        (
            |s| {
                s.degraded = Some(Degraded {
                    since: "T".into(),
                    reason: "disk full".into(),
                });
            },
            Why::Degraded,
            "the agent is degraded since T, until a reload works: disk full",
            true,
        ),
        (
            |s| {
                s.worker = Some(WorkerAnswer {
                    answers: false,
                    since: "T".into(),
                    reason: Some("connection refused".into()),
                });
            },
            Why::NoAnswer,
            "HAProxy has not answered since T: connection refused",
            true,
        ),
        (
            |s| s.api_version = 2,
            Why::ApiVersion,
            "version 2 of the contract and this program 1",
            false,
        ),
        (
            |s| s.reload_pending_at = Some("T".into()),
            Why::ReloadPending,
            "due at T already, and this set joins it",
            false,
        ),
        (
            |s| s.haproxy.version = "?".into(),
            Why::Version,
            "which HAProxy",
            false,
        ),
        (
            |s| s.agent_ops.retain(|kind| kind != "map_replace"),
            Why::MissingOp,
            "(version 0.1.0) knows no op map_replace",
            false,
        ),
        (
            |s| {
                let held = s.files.get_mut("errors/503.http").unwrap();
                held.digest = Digest::Xxh64(ContentHash::of(b"HTTP/1.0 503 x\r\n\r\n").xxh64);
            },
            Why::WeakDigest,
            "another controller",
            false,
        ),
    ];
    let (before, after) = change("maps/host.map", "a three\n");
    let (old, new) = (set(&before), set(&after));
    assert_eq!(
        decided(&new, &applied(&old, "3.0.11")).verdict,
        Verdict::Runtime
    );
    for (edit, why, words, also_unchanged) in table {
        let mut state = applied(&old, "3.0.11");
        edit(&mut state);
        let decision = decided(&new, &state);
        assert_eq!(decision.verdict, Verdict::Reload, "{why:?}");
        assert_eq!(decision.mode(), Mode::Reload);
        let first = &decision.reasons[0];
        assert_eq!((first.why, &first.path), (*why, &None), "{decision:#?}");
        assert!(first.text.contains(words), "{}", first.text);
        let full = matches!(why, Why::UnknownBaseline | Why::ApiVersion);
        assert_eq!(decision.send_all, full, "{why:?}");

        let mut state = applied(&old, "3.0.11");
        edit(&mut state);
        let same = decided(&old, &state).verdict;
        assert_eq!(same == Verdict::Reload, *also_unchanged, "{why:?}");
    }
}

fn big_map(entries: usize) -> String {
    (0..entries)
        .map(|n| format!("host-{n:05}.example value-{n}\n"))
        .collect()
}

fn after_of(pair: &(Files, Files)) -> Decision {
    after(pair, "3.2.26")
}
