use std::collections::BTreeMap;

use super::*;
use crate::client::fileset::FileSetOptions;
use crate::wire::manifest::{FileKind, Token};
use crate::wire::state::{Haproxy, HeldFile, PendingDeletes, RuntimeInventory, WorkerAnswer};

const SOCKET: &str = "global\n    stats socket unix@/run/worker.sock level admin\n";
const CERT: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nKKKK\n-----END EC PRIVATE KEY-----\n";

/// 2026-01-11.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_768_089_600)
}

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
        worker: Some(WorkerAnswer {
            answers: true,
            since: "2026-01-01T00:00:00Z".into(),
            reason: None,
        }),
        generation: 1,
        applied_plan_id: "p".into(),
        running_plan_id: "p".into(),
        worker_ops_plan_id: "p".into(),
        applied_token: Token::default(),
        lkg_plan_id: "p".into(),
        reserved_paths: Vec::new(),
        worker_socket: None,
        in_the_way: BTreeMap::new(),
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
    let findings = doctor(set, state, now());
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
    let known = format!("{CERT}{KEY}");
    let set = set(&[(path, text), ("certs/known.pem", &known)]);
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
        let files = [("haproxy.cfg", SOCKET)].iter().chain(files);
        let files: BTreeMap<&str, Vec<u8>> = files
            .map(|(path, text)| (*path, text.as_bytes().to_vec()))
            .collect();
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
    // By the rules it is an authority's, and the configuration says what it is for.
    let without: &[&str] = &["error no_key certs/a.pem"];
    for (line, wanted) in [
        ("bind :443 ssl crt certs/a.pem", without),
        ("bind :443 ssl crt /etc/haproxy/certs/a.pem", without),
        ("bind :443 ssl crt a.pem", without),
        ("bind :443 ssl default-crt certs/a.pem", without),
        ("bind :443 ssl crt certs/", without),
        ("bind :443 ssl crt /etc/haproxy/certs", without),
        ("server s 10.0.0.1:443 ssl crt certs/a.pem", without),
        ("load crt certs/a.pem key keys/elsewhere.pem", &[]),
        ("bind :443 ssl crt \"$DIR\"", &[]),
        ("bind :443 ssl ca-file certs/a.pem", &[]),
        ("# bind :443 ssl crt certs/a.pem", &[]),
    ] {
        let config = format!("{SOCKET}frontend f\n    {line}\n");
        let files = [("haproxy.cfg", config.as_str()), ("certs/a.pem", CERT)];
        assert_eq!(seen(&files, &[]), wanted, "{line}");
    }
    let list = ("site.crtlist", "certs/a.pem [alpn h2] a.example\n");
    assert_eq!(seen(&[list, ("certs/a.pem", CERT)], &[]), without);
    // What lies beside a certificate in a directory of them is none.
    let whole = format!("{CERT}{KEY}");
    let directory = format!("{SOCKET}frontend f\n    bind :443 ssl crt certs/\n");
    let files = [
        ("haproxy.cfg", directory.as_str()),
        ("certs/a.pem", &whole),
        ("certs/a.pem.issuer", CERT),
    ];
    assert!(seen(&files, &[]).is_empty());
    // Another rule for where the key is.
    let dropping = format!(
        "{SOCKET}    ssl-load-extra-del-ext\nfrontend f\n    bind :443 ssl crt certs/a.pem\n"
    );
    let files = [
        ("haproxy.cfg", dropping.as_str()),
        ("certs/a.pem", CERT),
        ("certs/a.key", KEY),
    ];
    assert_eq!(seen(&files, &[]), ["note key_beside certs/a.pem"]);
}

/// A certificate's bytes, as far as they are read: version, serial, algorithm, issuer, and the
/// two ends of its life.
fn certificate_until(tag: u8, until: &[u8]) -> String {
    let element = |tag: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        [&[tag, length], content].concat()
    };
    let validity = [element(0x17, b"200101000000Z"), element(tag, until)].concat();
    let signed = [
        element(0xa0, &element(2, &[2])),
        element(2, &[7]),
        element(0x30, &[]),
        element(0x30, &[]),
        element(0x30, &validity),
    ]
    .concat();
    let der = element(0x30, &element(0x30, &signed));
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n{KEY}",
        crate::http::basic::base64(&der)
    )
}

#[test]
fn certificates_that_are_none_or_have_run_out() {
    let seen = |line: &str, content: &str| {
        let config = format!("{SOCKET}frontend f\n    {line}\n");
        let set = set(&[("haproxy.cfg", &config), ("certs/a.pem", content)]);
        let mut state = state(&set, RuntimeInventory::default());
        state.applied_plan_id.clear();
        state.haproxy.version = "3.4.7".into();
        shown(&set, &state)
    };
    let used = "bind :443 ssl crt certs/a.pem";
    let none: &[&str] = &["error no_certificate certs/a.pem"];
    let over: &[&str] = &["warning expired certs/a.pem"];
    let utc = |until: &[u8]| certificate_until(0x17, until);
    for (line, content, wanted) in [
        (used, String::new(), none),
        (used, "not pem\n".to_owned(), none),
        ("bind :443 ssl crt certs/", String::new(), none),
        ("load crt certs/a.pem key keys/a.pem", String::new(), none),
        ("bind :443 ssl", String::new(), &[]),
        // It is the 11th.
        (used, utc(b"260110235959Z"), over),
        (used, utc(b"260112000000Z"), &[]),
        (used, utc(b"500101000000Z"), over),
        (used, utc(b"491231235959Z"), &[]),
        (used, certificate_until(0x18, b"20260110235959Z"), over),
        (used, certificate_until(0x18, b"20500101000000Z"), &[]),
        // What is not understood is not judged.
        (used, utc(b"2601102359Z"), &[]),
        (used, utc(b"2601xx235959Z"), &[]),
        ("bind :443 ssl", utc(b"260110235959Z"), &[]),
    ] {
        assert_eq!(seen(line, &content), wanted, "{line} {content}");
    }
}

#[test]
fn answers_that_have_run_out_or_belong_to_nothing() {
    let whole = format!("{CERT}{CERT}{KEY}");
    let seen = |files: &[(&str, &[u8])]| {
        let own: [(&str, &[u8]); 2] = [
            ("haproxy.cfg", SOCKET.as_bytes()),
            ("a.pem", whole.as_bytes()),
        ];
        let files = own.iter().chain(files);
        let files: BTreeMap<&str, Vec<u8>> =
            files.map(|(path, bytes)| (*path, bytes.to_vec())).collect();
        let set = FileSet::from_files(files, &FileSetOptions::default()).unwrap();
        let mut state = state(&set, RuntimeInventory::default());
        state.applied_plan_id.clear();
        state.haproxy.version = "3.4.7".into();
        shown(&set, &state)
    };
    let response = |until: &[u8]| {
        let mut bytes = vec![0x30, 22, 0x0A, 1, 0, 0xA0, 0x11, 0x18, 0x0F];
        bytes.extend(until);
        bytes
    };
    assert!(seen(&[("a.pem.ocsp", &response(b"20260112000000Z"))]).is_empty());
    assert_eq!(
        seen(&[("a.pem.ocsp", &response(b"20260110000000Z"))]),
        ["warning stale_ocsp a.pem.ocsp"]
    );
    let alone = format!("{CERT}{KEY}");
    let fresh = response(b"20260112000000Z");
    let alone = ("a.pem", alone.as_bytes());
    assert_eq!(
        seen(&[alone, ("a.pem.ocsp", &fresh)]),
        ["error no_issuer a.pem.ocsp"]
    );
    let issuer = ("a.pem.issuer", CERT.as_bytes());
    assert!(seen(&[alone, issuer, ("a.pem.ocsp", &fresh)]).is_empty());
    assert_eq!(
        seen(&[("a.pem.ocsp", b"-----BEGIN")]),
        ["warning bad_ocsp a.pem.ocsp"]
    );
    assert_eq!(
        seen(&[
            ("b.pem.ocsp", &response(b"20260112000000Z")),
            ("c.pem.sctl", b"x")
        ]),
        [
            "warning lone_companion b.pem.ocsp",
            "warning lone_companion c.pem.sctl"
        ]
    );
}

/// The one line that the agent needs, before HAProxy loads a set without it.
#[test]
fn a_configuration_that_opens_no_socket_for_the_agent() {
    let seen = |config: &str, edit: &dyn Fn(&mut State)| {
        let set = set(&[("haproxy.cfg", config)]);
        let mut state = state(&set, RuntimeInventory::default());
        state.haproxy.version = "3.4.7".into();
        state.worker_socket = Some("/etc/haproxy/haproxy-worker.sock".into());
        state.applied_plan_id.clear();
        edit(&mut state);
        let found = doctor(&set, &state, now());
        let about = found.into_iter().find(|f| f.code == "no_stats_socket");
        about.map(|f| (f.line, f.text, f.next))
    };
    let fresh = |_: &mut State| ();
    let wanted = "stats socket unix@/etc/haproxy/haproxy-worker.sock mode 600 level admin";
    for (config, line, words) in [
        ("global\n", None, "no `stats socket` line opens"),
        (
            "global\n# stats socket /etc/haproxy/haproxy-worker.sock level admin\n",
            None,
            "no `stats",
        ),
        (
            "global\n stats socket /run/x.sock level admin\n",
            Some(2),
            "this one neither",
        ),
        (
            "global\n stats socket :9999 level admin\n",
            Some(2),
            "this one neither",
        ),
        (
            "global\n stats socket :9999\n stats socket /etc/haproxy/haproxy-worker.sock\n",
            Some(3),
            "without `level admin`",
        ),
    ] {
        let (at, text, next) = seen(config, &fresh).unwrap_or_else(|| panic!("{config}"));
        assert_eq!(at, line, "{config}");
        assert!(text.contains(words), "{config}: {text}");
        assert!(next.ends_with(wanted), "{config}: {next}");
    }
    for config in [
        "global\n stats socket unix@/etc/haproxy/haproxy-worker.sock mode 600 level admin\n",
        "global\n stats socket /var/lib/haproxy/haproxy-worker.sock level admin # bind mount\n",
        "global\n stats socket \"$SOCKET\" level admin\n",
        "global\n stats socket :1\n stats socket unix@haproxy-worker.sock level \"$L\"\n",
    ] {
        assert_eq!(seen(config, &fresh), None, "{config}");
    }
    // The running worker was started from it and answers: the line is somewhere else.
    let runs = |state: &mut State| state.applied_plan_id = "p".into();
    assert_eq!(seen("global\n", &runs), None);
    // An agent that does not tell where it looks.
    let old = |state: &mut State| state.worker_socket = None;
    assert!(
        seen("global\n", &old)
            .unwrap()
            .2
            .contains("--worker-socket")
    );
    assert_eq!(seen("global\n stats socket /any level admin\n", &old), None);
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
    let spelling = &doctor(&set, &state, now())[1];
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
    let found = doctor(&set, &state, now());
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
        doctor(&set, &state, now())[0]
            .text
            .starts_with("2 name(s) that start with a dot are not pushed: .x, …")
    );
}
