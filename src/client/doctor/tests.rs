use std::collections::BTreeMap;

use super::*;
use crate::client::fileset::FileSetOptions;
use crate::wire::manifest::{FileKind, Token};
use crate::wire::state::{Haproxy, HeldFile, PendingDeletes, RuntimeInventory};

const CERT: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nKKKK\n-----END EC PRIVATE KEY-----\n";

fn set(files: &[(&str, &str)]) -> FileSet {
    let mut all: BTreeMap<&str, &str> = BTreeMap::from([("haproxy.cfg", "global\n")]);
    all.extend(files.iter().copied());
    let files = all
        .into_iter()
        .map(|(path, text)| (path, text.as_bytes().to_vec()));
    FileSet::from_files(files, &FileSetOptions::default()).unwrap()
}

/// An agent that holds `held`, whose HAProxy has these names.
fn state(held: &FileSet, inventory: RuntimeInventory) -> State {
    let files = held.files().map(|entry| {
        let held = HeldFile {
            digest: entry.digest,
            size: entry.size,
        };
        (entry.path.clone(), held)
    });
    State {
        api_version: 1,
        agent_version: "0.1.0".into(),
        plan_schema_version: 1,
        agent_ops: Vec::new(),
        features: Vec::new(),
        haproxy: Haproxy {
            version: "3.0.11".into(),
            ..Haproxy::default()
        },
        worker: None,
        generation: 1,
        applied_plan_id: "p".into(),
        running_plan_id: "p".into(),
        worker_ops_plan_id: "p".into(),
        applied_token: Token::default(),
        lkg_plan_id: "p".into(),
        reserved_paths: Vec::new(),
        applied_plan_stored: false,
        files: files.collect(),
        runtime_inventory: inventory,
        pending_deletes: PendingDeletes::default(),
        applied_plan: None,
        reload_pending_at: None,
        last_apply: None,
        invariant_violation: None,
        degraded: None,
        unsaved: None,
    }
}

/// `severity code path:line` for each finding; every one says what to do next.
fn shown(set: &FileSet, state: &State) -> Vec<String> {
    let findings = doctor(set, state);
    assert!(
        findings
            .iter()
            .all(|f| !f.next.is_empty() && !f.text.ends_with('.'))
    );
    let order: Vec<Severity> = findings.iter().map(|f| f.severity).collect();
    assert!(order.is_sorted());
    findings
        .iter()
        .map(|f| {
            let severity = match f.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            let path = f.path.as_ref().map_or("", ManifestPath::as_str);
            let line = f.line.map_or(String::new(), |line| format!(":{line}"));
            format!("{severity} {} {path}{line}", f.code)
        })
        .collect()
}

/// Only what a content says: the names are all known.
fn of_content(path: &str, text: &str) -> Vec<String> {
    let set = set(&[(path, text), ("certs/known.pem", "x")]);
    let all = |kinds: &[FileKind]| {
        let named = set.files().filter(|entry| kinds.contains(&entry.kind));
        named.map(|entry| entry.path.to_string()).collect()
    };
    let inventory = RuntimeInventory {
        generation: 1,
        maps: all(&[FileKind::Map]),
        certs: all(&[FileKind::Cert]),
        ca_files: Vec::new(),
        acl_files: Vec::new(),
        crl_files: Vec::new(),
        crt_lists: all(&[FileKind::Crtlist]),
    };
    let mut state = state(&set, inventory);
    state.haproxy.version = "3.4.7".into();
    shown(&set, &state)
}

#[test]
fn contents_that_are_not_what_they_look_like() {
    let whole = format!("{CERT}{KEY}");
    let long = format!("k {}\n", "x".repeat(13_000));
    let glued = format!("{}{KEY}", CERT.trim_end());
    let table: &[(&str, &str, &[&str])] = &[
        ("haproxy.cfg", " \n", &["error empty_config haproxy.cfg"]),
        (
            "haproxy.cfg",
            "global",
            &["error open_last_line haproxy.cfg"],
        ),
        ("haproxy.cfg", "a\nb\0\n", &["error nul haproxy.cfg:2"]),
        ("maps/a.map", "# c\n\nk v\r\n", &[]),
        ("maps/a.map", "k v\n\tk2 v\n", &[]),
        ("maps/a.map", "k\0 v\n", &["warning nul maps/a.map:1"]),
        ("maps/a.map", &long, &["warning long_line maps/a.map:1"]),
        ("maps/a.map", "\u{feff}k v\n", &["warning bom maps/a.map:1"]),
        (
            "maps/a.map",
            "k v\rx\n# c\rd\n",
            &["warning carriage_return maps/a.map:1"],
        ),
        (
            "maps/a.map",
            "k v\n # c\n",
            &["warning indented_comment maps/a.map:2"],
        ),
        ("maps/a.map", "k\n", &["note no_value maps/a.map:1"]),
        ("maps/a.map", "k \"v\"\n", &["note quotes maps/a.map:1"]),
        ("maps/a.map", "k v\nk w\n", &["note same_key maps/a.map:2"]),
        (
            "maps/a.map",
            &"k\n".repeat(50),
            &["note no_value maps/a.map:1"],
        ),
        ("certs/a.pem", &whole, &[]),
        ("certs/a.pem", &glued, &["error broken_pem certs/a.pem"]),
        ("certs/a.pem", KEY, &["warning lone_key certs/a.pem"]),
        (
            "certs/a.pem",
            &format!("{whole}{KEY}"),
            &["note several_keys certs/a.pem"],
        ),
        (
            "site.crtlist",
            "certs/known.pem\nknown.pem x\n/abs.pem\n",
            &[],
        ),
        (
            "site.crtlist",
            "certs/gone.pem\n",
            &["warning no_such_file site.crtlist:1"],
        ),
        (
            "site.crtlist",
            "certs/known.pem x [alpn h2]\n",
            &["warning dropped_filter site.crtlist:1"],
        ),
        (
            "site.crtlist",
            "certs/known.pem [\ncerts/known.pem",
            &[
                "error bad_line site.crtlist:2",
                "warning unclosed_bracket site.crtlist:1",
            ],
        ),
    ];
    for (path, text, wanted) in table {
        let seen = of_content(path, text);
        // Lines of one sort are cut off after a few.
        let first: Vec<&str> = seen.iter().map(String::as_str).take(wanted.len()).collect();
        assert_eq!(first, *wanted, "{text:?}");
        let cut = text.len() == 100;
        assert!(
            seen.len() == if cut { 10 } else { wanted.len() },
            "{text:?} {seen:?}"
        );
    }
}

#[test]
fn certificates_without_their_keys() {
    let seen = |files: &[(&str, &str)], kinds: &[(&str, FileKind)]| {
        let options = FileSetOptions {
            kinds: kinds
                .iter()
                .map(|(path, kind)| ((*path).to_owned(), *kind))
                .collect(),
            ..FileSetOptions::default()
        };
        let mut all: BTreeMap<&str, &str> = BTreeMap::from([("haproxy.cfg", "global\n")]);
        all.extend(files.iter().copied());
        let files = all
            .into_iter()
            .map(|(path, text)| (path, text.as_bytes().to_vec()));
        let set = FileSet::from_files(files, &options).unwrap();
        let mut state = state(&set, RuntimeInventory::default());
        state.applied_plan_id.clear();
        state.haproxy.version = "3.4.7".into();
        shown(&set, &state)
    };
    assert_eq!(
        seen(&[("a.pem", CERT), ("a.pem.key", KEY)], &[]),
        ["note key_beside a.pem"]
    );
    assert_eq!(
        seen(
            &[("a.pem", CERT), ("a.key", KEY)],
            &[("a.pem", FileKind::Cert)]
        ),
        ["warning lone_key a.key", "warning no_key a.pem"]
    );
    assert_eq!(
        seen(&[("a.pem", "x")], &[("a.pem", FileKind::Cert)]),
        ["warning no_certificate a.pem"]
    );
    assert!(seen(&[("ca.pem", CERT)], &[]).is_empty());
}

#[test]
fn names_that_the_running_configuration_spells_otherwise() {
    let set = set(&[
        ("maps/good.map", "k v\n"),
        ("maps/abs.map", "k v\n"),
        ("maps/odd name.map", "k v\n"),
        ("maps/unused.map", "k v\n"),
        ("maps/memory.map", "k v\n"),
        ("maps/new.map", "k v\n"),
        ("certs/based.pem", &format!("{CERT}{KEY}")),
        ("maps/good.map~", "k v\n"),
    ]);
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    let inventory = RuntimeInventory {
        generation: 1,
        maps: names(&[
            "/etc/haproxy/maps/abs.map",
            "maps/good.map",
            "maps/odd name.map",
            "maps/gone.map",
            "virt@maps/memory.map",
        ]),
        certs: names(&["/etc/haproxy/certs/based.pem"]),
        ca_files: Vec::new(),
        acl_files: Vec::new(),
        crl_files: Vec::new(),
        crt_lists: Vec::new(),
    };
    let mut state = state(&set, inventory);
    state.files.remove("maps/new.map");
    let gone = HeldFile {
        digest: set.get("maps/good.map").unwrap().digest,
        size: 4,
    };
    state
        .files
        .insert(ManifestPath::parse("maps/gone.map").unwrap(), gone);
    assert_eq!(
        shown(&set, &state),
        [
            "warning other_spelling certs/based.pem",
            "warning other_spelling maps/abs.map",
            "warning missing maps/gone.map",
            "warning left_over maps/good.map~",
            "warning other_spelling maps/memory.map",
            "note name_for_no_command maps/odd name.map",
            "note not_loaded maps/unused.map",
        ]
    );
    let spelling = &doctor(&set, &state)[1];
    assert!(
        spelling
            .text
            .contains("calls the map /etc/haproxy/maps/abs.map")
    );
    assert!(
        spelling
            .next
            .starts_with("write maps/abs.map there, with `default-path origin")
    );

    // Before the first push nobody knows what the running names mean.
    state.applied_plan_id.clear();
    let seen = shown(&set, &state);
    assert!(
        !seen
            .iter()
            .any(|text| text.contains("spelling") || text.contains("not_loaded"))
    );
}

/// Each of them costs a reload that another name would save.
#[test]
fn files_that_have_another_use() {
    let config = "frontend f\n  http-request return file maps/page.map\n  use_backend %[path,map(maps/page.map)]\n";
    let set = set(&[
        ("haproxy.cfg", config),
        ("maps/page.map", "k v\n"),
        ("maps/plain.map", "k v\n"),
        ("maps/both.map", "k v\n"),
        ("lists/a.acl", "k\n"),
    ]);
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    let inventory = RuntimeInventory {
        maps: names(&["maps/both.map", "maps/page.map", "maps/plain.map"]),
        acl_files: names(&["lists/a.acl", "maps/both.map"]),
        ..RuntimeInventory::default()
    };
    let state = state(&set, inventory);
    assert_eq!(
        shown(&set, &state),
        [
            "note acl_file lists/a.acl",
            "note used_otherwise maps/both.map",
            "note used_otherwise maps/page.map",
        ]
    );
    let found = doctor(&set, &state);
    assert!(
        found[1].text.contains("as map and as ACL file"),
        "{found:#?}"
    );
    assert!(
        found[2].text.contains("line 2 of haproxy.cfg"),
        "{found:#?}"
    );
}

#[test]
fn what_this_haproxy_cannot_do_at_runtime() {
    let declared = r#"{"version": 1, "profiles": {"web": {"mode": "http", "balance": "source"}, "none": {"mode": "http"}}, "backends": {
        "a": {"profile": "web", "servers": [{"name": "s", "address": "1.2.3.4", "port": 1}]},
        "b": {"profile": "none", "servers": [{"name": "s", "address": "localhost", "port": 1}]}}}"#;
    let set = set(&[
        (
            "haproxy.cfg",
            "global\ndefaults web from x\n# haptic: backends\n",
        ),
        ("backends.json", declared),
        ("ca.pem", CERT),
    ]);
    let mut state = state(&set, RuntimeInventory::default());
    state.runtime_inventory.ca_files.push("ca.pem".into());
    assert_eq!(
        shown(&set, &state),
        [
            "error no_profile haproxy.cfg",
            "note version ",
            "note version ",
            "note servers_by_reload haproxy.cfg",
            "note servers_by_reload haproxy.cfg",
        ]
    );
    state.haproxy.version = "3.4.7".into();
    assert_eq!(shown(&set, &state).len(), 3);
}

#[test]
fn skipped_names_and_certificates_that_fit_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let big = format!(
        "{}{KEY}",
        CERT.replace("AAAA\n", &format!("{}\n", "A".repeat(64)).repeat(300))
    );
    for (path, text) in [
        ("haproxy.cfg", "global\n"),
        (".x", ""),
        (".y", ""),
        ("a.pem", &big),
    ] {
        std::fs::write(dir.path().join(path), text).unwrap();
    }
    let set = FileSet::from_dir(dir.path(), &FileSetOptions::default()).unwrap();
    let mut state = state(&set, RuntimeInventory::default());
    state.runtime_inventory.certs.push("a.pem".into());
    assert_eq!(shown(&set, &state), ["note skipped ", "note too_big a.pem"]);
    assert!(
        doctor(&set, &state)[0]
            .text
            .starts_with("2 name(s) that start with a dot are not pushed: .x, …")
    );
}
