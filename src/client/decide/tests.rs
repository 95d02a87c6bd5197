use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::client::fileset::FileSetOptions;
use crate::http::basic::base64;
use crate::wire::digest::{ContentHash, Digest};
use crate::wire::manifest::Token;
use crate::wire::state::{Degraded, Haproxy, PendingDeletes, RuntimeInventory};

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
            "maps/host.map",
        ]),
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
        generation: 3,
        applied_plan_id: set.plan_id().into(),
        running_plan_id: set.plan_id().into(),
        worker_ops_plan_id: set.plan_id().into(),
        applied_token: Token::default(),
        lkg_plan_id: set.plan_id().into(),
        applied_plan_stored: true,
        files: files.collect(),
        runtime_inventory: inventory(),
        pending_deletes: PendingDeletes::default(),
        applied_plan: set.plan_blob().map(|blob| base64(&blob)),
        reload_pending_at: None,
        last_apply: None,
        invariant_violation: None,
        degraded: None,
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
            "since T something is wrong that a reload ends: disk full",
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

/// Each row: a change, the versions, what it needs, the sort of its reason, a piece of its
/// words, and the ops.
#[test]
fn each_sort_of_file_has_its_op_or_its_reason() {
    use Verdict::{FileOnly, Reload, Runtime};
    const OLD: &[&str] = &["3.0.11", "3.1.17"];
    const NEW: &[&str] = &["3.2.26", "3.4.7"];
    const ALL: &[&str] = &["3.0.11", "3.2.26", "3.4.7"];
    let other = format!("{}{KEY}", CERT.replace("AAAA", "BBBB"));
    let big = format!(
        "{}{KEY}",
        CERT.replace("AAAA\n", &"A".repeat(64).add_lines(200))
    );
    let huge = CERT.replace("AAAA\n", &"A".repeat(64).add_lines(2000));
    let long = format!("a {}\n", "x".repeat(13_000));
    type Row<'a> = (
        (Files, Files),
        &'a [&'a str],
        Verdict,
        Why,
        &'a str,
        &'a [&'a str],
    );
    let table: Vec<Row<'_>> = vec![
        // Maps.
        (
            change("maps/host.map", "a one\nb three\n"),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 2 entries",
            &["map_replace maps/host.map"],
        ),
        (
            change("maps/host.map", "a 1\na 2\n # odd\n\n"),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 3 entries",
            &["map_replace maps/host.map"],
        ),
        (
            change("maps/host.map", ""),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 0 entries",
            &["map_replace maps/host.map"],
        ),
        (
            change("maps/host.map", "# new\na  one \r\nb two"),
            ALL,
            FileOnly,
            Why::Meaningless,
            "comments, blanks",
            &[],
        ),
        (
            change("maps/host.map", "a\0b\n"),
            ALL,
            Reload,
            Why::Content,
            "NUL byte, so HAProxy",
            &[],
        ),
        (
            change("maps/host.map", &long),
            ALL,
            Reload,
            Why::Content,
            "line 1 of the map file is longer than",
            &[],
        ),
        (
            change("maps/host.map", format!("{} v\n", "k".repeat(12_250))),
            ALL,
            Reload,
            Why::TooBig,
            "a map entry has 12253 bytes",
            &[],
        ),
        (
            change("maps/host.map", "k v\n".repeat(262_145)),
            ALL,
            Reload,
            Why::TooBig,
            "262145 entries",
            &[],
        ),
        (
            change("maps/blocked.acl", "10.0.0.2\n"),
            ALL,
            Reload,
            Why::NotInInventory,
            "such as an ACL's",
            &[],
        ),
        (
            change("maps/alias.map", "x z\n"),
            ALL,
            Reload,
            Why::NotInInventory,
            "the map /etc/haproxy/maps/alias.map, which may be this file",
            &[],
        ),
        (
            change("maps/big.map", "x z\n"),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 1",
            &["map_replace maps/big.map"],
        ),
        (
            change("maps/new.map", "x z\n"),
            ALL,
            Reload,
            Why::Added,
            "new file",
            &[],
        ),
        // Certificates.
        (
            change("certs/a.pem", &other),
            ALL,
            Runtime,
            Why::Ops,
            "replaced at runtime",
            &["cert_set certs/a.pem"],
        ),
        (
            change("certs/a.pem", &big),
            OLD,
            Reload,
            Why::TooBig,
            "fit into one command",
            &[],
        ),
        (
            change("certs/a.pem", &big),
            &["3.4.7"],
            Runtime,
            Why::Ops,
            "replaced",
            &["cert_set certs/a.pem"],
        ),
        (
            change("certs/a.pem", CERT),
            ALL,
            Reload,
            Why::Content,
            "certificate and its private key",
            &[],
        ),
        (
            change("certs/a.pem", format!("{}{KEY}", CERT.trim_end())),
            ALL,
            Reload,
            Why::Content,
            "of the PEM file",
            &[],
        ),
        (
            change(
                "certs/a.pem",
                format!("note\n\n{}\n{KEY}", CERT.replace("AAAA", "AAA1")),
            ),
            ALL,
            FileOnly,
            Why::Meaningless,
            "comments, blanks",
            &[],
        ),
        (
            change("certs/pair.pem", &other),
            ALL,
            Runtime,
            Why::Ops,
            "replaced",
            &["cert_set certs/pair.pem"],
        ),
        (
            change("certs/pair.pem.ocsp", "y"),
            ALL,
            Reload,
            Why::Companion,
            "it belongs to certs/pair.pem",
            &[],
        ),
        (
            change("certs/a.pem.key", KEY),
            ALL,
            Reload,
            Why::Companion,
            "it belongs to certs/a.pem",
            &[],
        ),
        (
            change("twice.pem", &other),
            ALL,
            Reload,
            Why::SeveralUses,
            "as certificate and as CA file",
            &[],
        ),
        (
            change("certs/new.pem", &other),
            ALL,
            Reload,
            Why::Added,
            "no line at the end of a loaded crt-list names it",
            &[],
        ),
        // CA files.
        (
            change("ca/clients.pem", CERT.replace("AAAA", "CCCC")),
            NEW,
            Runtime,
            Why::Ops,
            "in 1 command(s)",
            &["ca_set ca/clients.pem"],
        ),
        (
            change(
                "ca/clients.pem",
                CERT.replace("AAAA\n", &"A".repeat(64).add_lines(100))
                    .repeat(5),
            ),
            NEW,
            Runtime,
            Why::Ops,
            "in 5 command(s)",
            &["ca_set ca/clients.pem"],
        ),
        (
            change("ca/clients.pem", CERT.replace("AAAA", "CCCC")),
            OLD,
            Reload,
            Why::Version,
            "from 3.2 on, and this is 3.",
            &[],
        ),
        (
            change("ca/clients.pem", format!("# x\n{CERT}")),
            ALL,
            FileOnly,
            Why::Meaningless,
            "comments",
            &[],
        ),
        (
            change("ca/clients.pem", CERT.replace("CERTIFICATE", "X509 CRL")),
            NEW,
            Reload,
            Why::Content,
            "more than certificates",
            &[],
        ),
        (
            change("ca/clients.pem", format!("{CERT}{KEY}")),
            NEW,
            Reload,
            Why::Content,
            "more than certificates",
            &[],
        ),
        (
            change("ca/clients.pem", huge),
            NEW,
            Reload,
            Why::TooBig,
            "fit into one command",
            &[],
        ),
        (
            change("ca/clients.pem", ""),
            NEW,
            Reload,
            Why::Content,
            "no certificate",
            &[],
        ),
        // All else.
        (
            change("ca/gone.crl", "y"),
            ALL,
            Reload,
            Why::Crl,
            "revocation list",
            &[],
        ),
        (
            change("errors/503.http", "y"),
            ALL,
            Reload,
            Why::OnlyAtStart,
            "error pages",
            &[],
        ),
        (
            change("lua/x.lua", "y"),
            ALL,
            Reload,
            Why::Added,
            "new file",
            &[],
        ),
        (
            change("haproxy.cfg", "global \n"),
            ALL,
            Reload,
            Why::Configuration,
            "the configuration changed",
            &[],
        ),
    ];
    for (pair, versions, verdict, why, words, ops) in &table {
        for version in *versions {
            let decision = after(pair, version);
            let reason = &decision.reasons[0];
            assert_eq!(
                (decision.verdict, reason.why),
                (*verdict, *why),
                "{decision:#?}"
            );
            assert!(
                reason.text.contains(words),
                "wanted {words:?} in {:?}",
                reason.text
            );
            assert_eq!(shown(&decision), *ops);
            assert_eq!(decision.files.len(), 1);
            assert_eq!(reason.path.as_ref(), Some(&decision.files[0].path));
        }
    }
}

trait AddLines {
    fn add_lines(&self, count: usize) -> String;
}

impl AddLines for String {
    fn add_lines(&self, count: usize) -> String {
        format!("{self}\n").repeat(count)
    }
}

#[test]
fn a_removed_file_is_a_reload() {
    for path in site().keys().filter(|path| *path != "haproxy.cfg") {
        let before = site();
        let mut after = before.clone();
        after.remove(path);
        let decision = decided(&set(&after), &applied(&set(&before), "3.4.7"));
        assert_eq!(decision.verdict, Verdict::Reload);
        assert_eq!(decision.reasons[0].why, Why::Removed);
        assert_eq!(decision.files[0].change, Change::Removed);
    }
}

#[test]
fn a_name_that_no_command_can_say_is_a_reload() {
    let mut before = site();
    before.insert("maps/a b.map".into(), b"x y\n".to_vec());
    let mut after = before.clone();
    after.insert("maps/a b.map".into(), b"x z\n".to_vec());
    let mut state = applied(&set(&before), "3.4.7");
    state.runtime_inventory.maps.push("maps/a b.map".into());
    let decision = decided(&set(&after), &state);
    assert_eq!(decision.reasons[0].why, Why::Content);
    assert!(
        decision.reasons[0]
            .text
            .contains("no runtime command can name it")
    );
}

#[test]
fn one_file_that_needs_a_reload_reloads_them_all() {
    let before = site();
    let mut after = before.clone();
    after.insert("maps/host.map".into(), b"c d\n".to_vec());
    after.insert("errors/503.http".into(), b"x".to_vec());
    let decision = decided(&set(&after), &applied(&set(&before), "3.4.7"));
    assert_eq!(decision.verdict, Verdict::Reload);
    let needs: Vec<_> = decision
        .files
        .iter()
        .map(|f| (f.path.as_str(), f.needs))
        .collect();
    assert_eq!(
        needs,
        [
            ("errors/503.http", Verdict::Reload),
            ("maps/host.map", Verdict::Runtime)
        ]
    );
    assert_eq!(decision.reasons.len(), 2);
    assert_eq!(
        decision.reasons[0].path.as_ref().unwrap().as_str(),
        "errors/503.http"
    );

    // A companion that changed with its certificate is both files' reason.
    let mut after = before.clone();
    after.insert("certs/pair.pem".into(), format!("{CERT}{KEY}").into_bytes());
    after.insert("certs/pair.pem.ocsp".into(), b"y".to_vec());
    let decision = decided(&set(&after), &applied(&set(&before), "3.4.7"));
    assert!(
        decision
            .reasons
            .iter()
            .all(|reason| reason.why == Why::Companion)
    );
}

fn big_map(entries: usize) -> String {
    (0..entries)
        .map(|n| format!("host-{n:05}.example value-{n}\n"))
        .collect()
}

#[test]
fn lines_at_the_end_of_a_big_map_are_added_one_by_one() {
    let big = big_map(2000);
    let before = change("maps/big.map", &big).1;
    let state = applied(&set(&before), "3.0.11");
    let grown = |more: &str| {
        let mut after = before.clone();
        after.insert("maps/big.map".into(), format!("{big}{more}").into_bytes());
        shown(&decided(&set(&after), &state))
    };
    assert_eq!(
        grown("# c\nx a b; c\n y\n"),
        ["map_add maps/big.map x a b; c", "map_add maps/big.map y "]
    );
    assert_eq!(grown(&big_map(64)).len(), 64);
    for whole in [
        big_map(65),
        "a;b c\n".into(),
        "#\n # x\n".into(),
        "é\u{1} x\n".into(),
    ] {
        let ops = grown(&whole);
        assert_eq!(ops, ["map_replace maps/big.map"], "{whole:?}");
    }
    let mut after = before.clone();
    after.insert(
        "maps/big.map".into(),
        format!("{big}# only this\n").into_bytes(),
    );
    let decision = decided(&set(&after), &state);
    assert_eq!(decision.verdict, Verdict::FileOnly);

    // The last line grew: that is no new line.
    let open = big.trim_end();
    let before = change("maps/big.map", open).1;
    let state = applied(&set(&before), "3.0.11");
    for (more, wanted) in [
        ("0\n", "map_replace maps/big.map"),
        ("\nx y\n", "map_add maps/big.map x y"),
    ] {
        let mut after = before.clone();
        after.insert("maps/big.map".into(), format!("{open}{more}").into_bytes());
        assert_eq!(shown(&decided(&set(&after), &state)), [wanted]);
    }
    // A map of one command is simply replaced.
    let pair = change("maps/host.map", "a one\nb two\nc three\n");
    assert_eq!(shown(&after_of(&pair)), ["map_replace maps/host.map"]);
}

fn after_of(pair: &(Files, Files)) -> Decision {
    after(pair, "3.2.26")
}

#[test]
fn entries_of_an_unordered_map_change_one_by_one() {
    let options = FileSetOptions {
        unordered_maps: BTreeSet::from(["maps/big.map".to_owned()]),
        ..FileSetOptions::default()
    };
    let big = format!("{}dup 1\ndup 2\n", big_map(2000));
    let before = change("maps/big.map", &big).1;
    let state = applied(&with(&before, &options), "3.4.7");
    let edited = |options: &FileSetOptions, edit: &dyn Fn(String) -> String| {
        let mut after = before.clone();
        after.insert("maps/big.map".into(), edit(big.clone()).into_bytes());
        shown(&decided(&with(&after, options), &state))
    };
    let some = |text: String| {
        text.replace("host-00007.example value-7\n", "host-00007.example new\n")
            .replace("host-00009.example value-9\n", "")
            .replace("host-00100", "host-new")
    };
    assert_eq!(
        edited(&options, &some),
        [
            "map_set maps/big.map host-00007.example new",
            "map_add maps/big.map host-new.example value-100",
            "map_del maps/big.map host-00009.example",
            "map_del maps/big.map host-00100.example",
        ]
    );
    // Order alone is no change then.
    let turned = |text: String| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.swap(3, 900);
        lines.join("\n")
    };
    assert_eq!(
        edited(&options, &turned),
        Vec::<String>::new(),
        "nothing to do"
    );
    type Edit = fn(String) -> String;
    let whole: [Edit; 4] = [
        |text| text.replace("value-7\n", "two words\n"),
        |text| text.replace("dup 2\n", "dup 3\n"),
        |text| text.replace("value-1", "new-1"),
        |text| text.replace("dup 1\ndup 2\n", "dup 2\ndup 1\n"),
    ];
    for edit in whole {
        assert_eq!(edited(&options, &edit), ["map_replace maps/big.map"]);
    }
    let plain = FileSetOptions::default();
    assert_eq!(edited(&plain, &some), ["map_replace maps/big.map"]);
}

/// Each row: the list before and after, further files, and the ops or the reason.
#[test]
fn rows_at_the_end_of_a_crt_list_are_added() {
    let new = format!("{}{KEY}", CERT.replace("AAAA", "NNNN"));
    let with_new: &[(&str, &str)] = &[("certs/n.pem", &new)];
    let two: &[(&str, &str)] = &[("certs/n.pem", &new), ("certs/m.pem", &new)];
    let lonely: &[(&str, &str)] = &[("certs/n.pem", CERT)];
    type Row<'a> = (
        &'a str,
        &'a str,
        &'a [(&'a str, &'a str)],
        Result<&'a [&'a str], &'a str>,
    );
    let table: &[Row<'_>] = &[
        (
            "certs/a.pem\n",
            "certs/n.pem\n",
            with_new,
            Ok(&[
                "cert_new certs/n.pem",
                "crtlist_add site.crtlist certs/n.pem",
            ]),
        ),
        (
            "certs/a.pem\n",
            "# new\ncerts/n.pem [alpn h2,http/1.1 no-ca-names] *.x !y.x\n\n",
            with_new,
            Ok(&[
                "cert_new certs/n.pem",
                "crtlist_add site.crtlist certs/n.pem [alpn h2,http/1.1] [no-ca-names ] *.x !y.x",
            ]),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem a.x\ncerts/m.pem\ncerts/n.pem b.x\ncerts/pair.pem\n",
            two,
            Ok(&[
                "cert_new certs/n.pem",
                "cert_new certs/m.pem",
                "crtlist_add site.crtlist certs/n.pem a.x",
                "crtlist_add site.crtlist certs/m.pem",
                "crtlist_add site.crtlist certs/n.pem b.x",
                "crtlist_add site.crtlist certs/pair.pem",
            ]),
        ),
        (
            "certs/a.pem\n",
            "certs/pair.pem z\n",
            &[],
            Ok(&["crtlist_add site.crtlist certs/pair.pem z"]),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem",
            with_new,
            Err("line 2 of the crt-list is the last one and has no line end"),
        ),
        (
            "certs/a.pem\n",
            "certs/gone.pem\n",
            &[],
            Err("line 2 names certs/gone.pem, which is neither"),
        ),
        (
            "certs/a.pem\n",
            "ca/clients.pem\n",
            &[],
            Err("does not hold under that name"),
        ),
        (
            "certs/a.pem\n",
            "\ncerts/n.pem\n",
            lonely,
            Err("line 3 names certs/n.pem: the file must hold a certificate and its private key"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem f [alpn h2]\n",
            with_new,
            Err("line 2 has words before its bracket"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem [ocsp-update on]\n",
            with_new,
            Err("option ocsp-update"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem [alpn]\n",
            with_new,
            Err("alpn without its argument"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem a;b\n",
            with_new,
            Err("must not hold any of"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem [x\n",
            with_new,
            Err("a bracket that is not closed"),
        ),
        (
            "# none\n",
            "certs/n.pem\n",
            with_new,
            Err("default certificate"),
        ),
        ("a.pem\n", "n.pem\n", &[("n.pem", &new)], Err("crt-base?")),
    ];
    for (old, more, further, wanted) in table {
        let mut before = site();
        before.insert("site.crtlist".into(), old.as_bytes().to_vec());
        let mut after = before.clone();
        after.insert("site.crtlist".into(), format!("{old}{more}").into_bytes());
        for (path, text) in *further {
            after.insert((*path).to_owned(), text.as_bytes().to_vec());
        }
        let decision = decided(&set(&after), &applied(&set(&before), "3.0.11"));
        match wanted {
            Ok(ops) => assert_eq!(shown(&decision), *ops, "{decision:#?}"),
            Err(words) => {
                assert_eq!(decision.verdict, Verdict::Reload);
                let told = decision
                    .reasons
                    .iter()
                    .any(|reason| reason.text.contains(words));
                assert!(told, "wanted {words:?} in {:#?}", decision.reasons);
            }
        }
    }
    for other in ["certs/a.pem x\n", "", "certs/pair.pem\ncerts/a.pem\n"] {
        let pair = change("site.crtlist", other);
        let decision = after_of(&pair);
        assert_eq!(decision.reasons[0].why, Why::CrtList, "{other:?}");
        assert!(
            decision.reasons[0]
                .text
                .contains("only new lines at the end")
        );
    }
    for same in ["# c\ncerts/a.pem\r\n", "certs/a.pem\n# c\n"] {
        let decision = after_of(&change("site.crtlist", same));
        assert_eq!(decision.verdict, Verdict::FileOnly, "{same:?}");
    }
}

const TEMPLATE: &str = "global\n# haptic: backends\ndefaults z\n";

fn declared(template: &str, count: usize, port: u16) -> Files {
    let servers: Vec<String> = (0..count)
        .map(|n| {
            format!(
                r#"{{"name": "s{n}", "address": "10.0.{}.{}", "port": {port}}}"#,
                n / 250,
                n % 250
            )
        })
        .collect();
    let json = format!(
        r#"{{"version": 1, "profiles": {{"p": {{"mode": "http"}}}}, "backends": {{"be": {{"profile": "p", "servers": [{}]}}}}}}"#,
        servers.join(",")
    );
    let mut files = site();
    files.insert("haproxy.cfg".into(), template.as_bytes().to_vec());
    files.insert("backends.json".into(), json.into_bytes());
    files
}

#[test]
fn declared_servers_become_ops_and_nothing_else_of_the_configuration_does() {
    let old = set(&declared(TEMPLATE, 2, 80));
    assert!(old.get("backends.json").is_none());
    let state = applied(&old, "3.0.11");
    let changed = |files: &Files| decided(&set(files), &state);

    assert_eq!(changed(&declared(TEMPLATE, 2, 80)).verdict, Verdict::Noop);
    assert_eq!(
        shown(&changed(&declared(TEMPLATE, 2, 81))),
        ["server_set_addr be s0", "server_set_addr be s1"]
    );
    let mut with_map = declared(TEMPLATE, 3, 80);
    with_map.insert("maps/host.map".into(), b"n new\n".to_vec());
    let decision = changed(&with_map);
    assert_eq!(
        shown(&decision),
        [
            "server_add be s2",
            "server_enable be s2",
            "map_replace maps/host.map"
        ]
    );
    let config = decision.reasons.iter().find(|reason| {
        reason
            .path
            .as_ref()
            .is_some_and(|path| path.as_str() == "haproxy.cfg")
    });
    assert_eq!(config.unwrap().text, "server be/s2 is added");
    let mut fewer = declared(TEMPLATE, 1, 80);
    fewer.insert("maps/host.map".into(), b"n new\n".to_vec());
    assert_eq!(
        shown(&changed(&fewer)),
        [
            "map_replace maps/host.map",
            "server_disable be s1",
            "wait_srv_removable be s1",
            "server_del be s1"
        ]
    );
    for template in [
        "global \n# haptic: backends\ndefaults z\n",
        "global\n# haptic: backends\ndefaults z\n\n",
        "# haptic: backends\nglobal\ndefaults z\n",
    ] {
        let decision = changed(&declared(template, 3, 80));
        assert_eq!(decision.reasons[0].why, Why::Configuration);
        assert!(
            decision.reasons[0]
                .text
                .ends_with("outside of the declared backends")
        );
    }
    let mut json = declared(TEMPLATE, 2, 80);
    let text = String::from_utf8(json["backends.json"].clone()).unwrap();
    json.insert(
        "backends.json".into(),
        text.replace(r#""port": 80}"#, r#""port": 80, "weight": 1}"#)
            .into_bytes(),
    );
    assert_eq!(changed(&json).verdict, Verdict::FileOnly);
    let mut mode = declared(TEMPLATE, 2, 80);
    mode.insert(
        "backends.json".into(),
        text.replace("http", "tcp").into_bytes(),
    );
    assert_eq!(changed(&mode).reasons[0].why, Why::Backends);
}

#[test]
fn records_are_believed_only_when_they_give_the_bytes_on_disk() {
    let old = set(&declared(TEMPLATE, 2, 80));
    let new = set(&declared(TEMPLATE, 3, 80));
    let good = applied(&old, "3.4.7");
    assert_eq!(decided(&new, &good).verdict, Verdict::Runtime);
    let blob = |edit: &dyn Fn(&mut serde_json::Value)| {
        let mut json = serde_json::from_slice(&old.plan_blob().unwrap()).unwrap();
        edit(&mut json);
        Some(base64(json.to_string().as_bytes()))
    };
    let server =
        |json: &mut serde_json::Value| json["backends"]["be"]["servers"][0]["port"] = 79.into();
    for (applied_plan, words) in [
        (None, "was read without its plan"),
        (Some("!".into()), "carries no record"),
        (Some(base64(b"other")), "carries no record"),
        (
            blob(&|json| json["version"] = 2.into()),
            "carries no record",
        ),
        (
            blob(&|json| json["format"] = "x".into()),
            "carries no record",
        ),
        (
            blob(&|json| json["plan_id"] = "x".into()),
            "carries no record",
        ),
        (
            blob(&|json| json["backends"] = serde_json::Value::Null),
            "carries no record",
        ),
        (blob(&server), "was not made from the records"),
        (blob(&|json| json["skeleton"] = "x".into()), ""),
    ] {
        let state = State {
            applied_plan,
            ..good.clone()
        };
        let decision = decided(&new, &state);
        match words {
            // It only chooses between two sentences.
            "" => assert_eq!(decision.verdict, Verdict::Runtime),
            words => {
                assert_eq!(decision.verdict, Verdict::Reload);
                assert!(
                    decision.reasons[0].text.contains(words),
                    "{:#?}",
                    decision.reasons
                );
            }
        }
    }
    let mut other_bytes = good.clone();
    let held = other_bytes.files.get_mut("haproxy.cfg").unwrap();
    held.digest = Digest::Sha256([7; 32]);
    assert_eq!(decided(&new, &other_bytes).verdict, Verdict::Reload);
    let plain = set(&change("haproxy.cfg", "x\n").1);
    assert_eq!(
        decided(&plain, &good).reasons[0].text,
        "the configuration changed"
    );
}

#[test]
fn a_meaning_counts_only_for_the_bytes_it_was_made_of() {
    let old = set(&site());
    let commented = set(&change("maps/host.map", "# c\na one\nb two\n").1);
    let mut state = applied(&old, "3.0.11");
    assert_eq!(decided(&commented, &state).verdict, Verdict::FileOnly);
    let held = state.files.get_mut("maps/host.map").unwrap();
    held.digest = Digest::Sha256([7; 32]);
    assert_eq!(decided(&commented, &state).verdict, Verdict::Runtime);
    state.applied_plan = None;
    assert_eq!(decided(&commented, &state).verdict, Verdict::Runtime);
}

#[test]
fn more_ops_than_one_apply_holds_are_one_reload() {
    let of = |count, port| set(&declared(TEMPLATE, count, port));
    let most = decided(&of(1000, 81), &applied(&of(1000, 80), "3.4.7"));
    assert_eq!((most.verdict, most.ops.len()), (Verdict::Runtime, 1000));
    let over = decided(&of(1001, 81), &applied(&of(1001, 80), "3.4.7"));
    assert_eq!(over.verdict, Verdict::Reload);
    assert_eq!(over.reasons[0].why, Why::TooManyOps);
    assert!(over.reasons[0].text.contains("1001 runtime commands"));

    let mut state = applied(&of(3, 80), "3.4.7");
    let waiting = |count: usize| (0..count).map(|n| format!("x/{n}")).collect();
    state.pending_deletes.servers = waiting(998);
    assert_eq!(decided(&of(1, 80), &state).verdict, Verdict::Runtime);
    state.pending_deletes.servers = waiting(999);
    let full = decided(&of(1, 80), &state);
    assert_eq!(full.reasons[0].why, Why::TooManyOps);
    assert!(full.reasons[0].text.contains("2 deletes and 999 that wait"));
    assert_eq!(decided(&of(4, 80), &state).verdict, Verdict::Runtime);
}

#[test]
fn what_a_program_reads_has_stable_words() {
    let decision = after_of(&change("maps/host.map", "a one\nb three\n"));
    let json = serde_json::to_value(&decision).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "verdict": "runtime",
            "ops": [{"kind": "map_replace", "path": "maps/host.map"}],
            "files": [{"path": "maps/host.map", "change": "changed", "kind": "map", "needs": "runtime"}],
            "reasons": [{
                "path": "maps/host.map", "needs": "runtime", "why": "ops",
                "text": "all of its 2 entries can be replaced at runtime",
            }],
            "send_all": false,
        })
    );
}

#[test]
fn a_blob_that_would_be_too_large_leaves_the_dearest_out() {
    let options = FileSetOptions {
        unordered_maps: BTreeSet::from(["maps/big.map".to_owned()]),
        ..FileSetOptions::default()
    };
    let mut files = site();
    files.insert("maps/big.map".into(), big_map(10).into_bytes());
    let blob = |files: &Files| {
        let blob = with(files, &options).plan_blob().unwrap();
        serde_json::from_slice::<serde_json::Value>(&blob).unwrap()
    };
    assert!(blob(&files)["maps"]["maps/big.map"].is_string());
    files.insert("maps/big.map".into(), big_map(300_000).into_bytes());
    let small = blob(&files);
    assert!(small["maps"].is_null() && small["files"]["maps/big.map"].is_object());
}
