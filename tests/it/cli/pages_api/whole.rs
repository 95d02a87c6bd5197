//! Every key that travels, and every word of a closed set, against the sections that
//! explain them.

use super::{all_named, page, section};
use haptic_agent::haproxy::ops::Outcome;
use haptic_agent::wire::digest::Digest;
use haptic_agent::wire::limits;
use haptic_agent::wire::manifest::{File, FileKind, Manifest, Mode, Token};
use haptic_agent::wire::op::{Keyword, Op};
use haptic_agent::wire::path::ManifestPath;
use haptic_agent::wire::result::{
    ApplyResult, Conflict, ConflictReason, Failure, Missing, OpResult, Reload, ResultMode,
    Rollback, Stage, Timing,
};
use haptic_agent::wire::state::{
    Degraded, Haproxy, HeldFile, PendingDeletes, RuntimeInventory, State, WorkerAnswer,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn path(text: &str) -> ManifestPath {
    ManifestPath::parse(text).unwrap()
}

fn digest(text: &str) -> Digest {
    Digest::parse(text).unwrap()
}

fn some() -> String {
    "x".to_owned()
}

/// With everything in it; a field that is new does not compile before it stands here.
pub(super) fn whole_op() -> Op {
    let keyword = || Keyword {
        name: some(),
        args: vec![some()],
    };
    Op {
        kind: "map_add".to_owned(),
        backend: Some("other".to_owned()),
        server: Some("other".to_owned()),
        profile: Some("other".to_owned()),
        mode: Some("tcp".to_owned()),
        guid: Some("other".to_owned()),
        address: Some("10.9.9.9".to_owned()),
        port: Some(99),
        weight: Some(99),
        state: Some("drain".to_owned()),
        health: Some(true),
        keywords: vec![keyword()],
        timeout_ms: Some(99),
        path: Some("other".to_owned()),
        key: Some("other".to_owned()),
        value: Some("other".to_owned()),
        cert: Some("other".to_owned()),
        options: vec![keyword()],
        sni_filters: vec![some()],
    }
}

fn whole_manifest() -> Manifest {
    Manifest {
        plan_id: some(),
        plan_schema_version: 1,
        token: Token::default(),
        expected_prev_plan_id: some(),
        expected_prev_token: Token::default(),
        expected_worker_ops_plan_id: Some(some()),
        worker_ops_plan_id: Some(some()),
        validated_plan_id: Some(some()),
        files: vec![File {
            path: path("a"),
            digest: digest("ef46db3751d8e999"),
            size: 0,
            kind: FileKind::General,
            reload_on_change: false,
        }],
        ops: vec![Op::default()],
        in_place_ops: vec![Op::default()],
        mode: Mode::Auto,
    }
}

/// A manifest that passes, without what needs other fields beside it, and its file.
pub(super) fn manifest_and_file() -> (Value, Value) {
    let mut manifest = serde_json::to_value(whole_manifest()).unwrap();
    manifest.as_object_mut().unwrap().remove("in_place_ops");
    let file = manifest["files"][0].clone();
    (manifest, file)
}

fn inventory() -> RuntimeInventory {
    RuntimeInventory {
        generation: 1,
        maps: Vec::new(),
        acl_files: Vec::new(),
        certs: Vec::new(),
        ca_files: Vec::new(),
        crl_files: Vec::new(),
        crt_lists: Vec::new(),
    }
}

fn haproxy() -> Haproxy {
    Haproxy {
        version: some(),
        full_version: some(),
        worker_pid: 1,
        worker_start_time_unix_micros: 1,
    }
}

fn whole_answer() -> ApplyResult {
    ApplyResult {
        plan_id: some(),
        ok: true,
        mode: ResultMode::Reload,
        applied_plan_id: some(),
        running_plan_id: some(),
        worker_ops_plan_id: some(),
        applied_token: Token::default(),
        lkg_plan_id: some(),
        haproxy: haproxy(),
        at: some(),
        timing: Timing {
            stage_ms: 0,
            admit_ms: 0,
            write_ms: 0,
            ops_ms: 0,
            finish_ms: 0,
            total_ms: 0,
        },
        op_results: vec![OpResult {
            kind: some(),
            ok: true,
            output: Some(some()),
        }],
        reload: Some(Reload {
            performed: true,
            ok: true,
            worker_pid: Some(1),
            took_ms: Some(1),
            output: Some(some()),
            scheduled_at: Some(some()),
        }),
        rollback: Some(Rollback {
            performed: true,
            reloaded: true,
        }),
        error: Some(Failure {
            stage: Stage::Reload,
            message: some(),
        }),
        unsaved: Some(some()),
        runtime_inventory: Some(inventory()),
    }
}

fn whole_state() -> State {
    let since = || Degraded {
        since: some(),
        reason: some(),
    };
    State {
        api_version: limits::API_VERSION,
        agent_version: some(),
        plan_schema_version: 1,
        agent_ops: Vec::new(),
        features: Vec::new(),
        haproxy: haproxy(),
        worker: Some(WorkerAnswer {
            answers: false,
            since: some(),
            reason: Some(some()),
        }),
        generation: 1,
        applied_plan_id: some(),
        running_plan_id: some(),
        worker_ops_plan_id: some(),
        applied_token: Token::default(),
        lkg_plan_id: some(),
        reserved_paths: Vec::new(),
        worker_socket: Some(some()),
        applied_plan_stored: true,
        files: BTreeMap::from([(
            path("a"),
            HeldFile {
                digest: digest("ef46db3751d8e999"),
                size: 0,
            },
        )]),
        in_the_way: BTreeMap::from([(path("a"), some())]),
        runtime_inventory: inventory(),
        pending_deletes: PendingDeletes {
            servers: Vec::new(),
            backends: Vec::new(),
        },
        applied_plan: Some(some()),
        reload_pending_at: Some(some()),
        last_apply: Some(whole_answer()),
        invariant_violation: Some(some()),
        degraded: Some(since()),
        unsaved: Some(since()),
    }
}

/// Every key at every level; those of [`STANDS_ELSEWHERE`] without what is in them, and a
/// path is no key.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    const STANDS_ELSEWHERE: [&str; 2] = ["last_apply", "haproxy"];
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key != "a" {
                    found.insert(key.clone());
                }
                if !STANDS_ELSEWHERE.contains(&key.as_str()) {
                    keys(value, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn keys_of(value: &impl Serialize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    keys(&serde_json::to_value(value).unwrap(), &mut found);
    found
}

#[test]
fn every_key_stands_where_it_is_explained() {
    let page = page();
    let answer = section(&page, "THE ANSWER");
    // Explained with the manifest.
    let of_token = keys_of(&Token::default());
    all_named(&section(&page, "THE MANIFEST"), &keys_of(&whole_manifest()));
    let mut told = keys_of(&whole_answer());
    told.retain(|key| !keys_of(&inventory()).contains(key));
    told.retain(|key| !of_token.contains(key));
    told.extend(keys_of(&haproxy()));
    all_named(&answer, &told);
    let mut held = keys_of(&whole_state());
    held.retain(|key| !of_token.contains(key));
    all_named(&section(&page, "THE STATE"), &held);
    all_named(&section(&page, "OPERATIONS"), &keys_of(&whole_op()));
    let conflict = Conflict {
        reason: ConflictReason::PrevMismatch,
        applied_plan_id: some(),
        applied_token: Token::default(),
        running_plan_id: some(),
        worker_ops_plan_id: some(),
        lkg_plan_id: some(),
        highest_epoch: Some(1),
    };
    let mut told = keys_of(&conflict);
    told.retain(|key| !of_token.contains(key));
    all_named(&section(&page, "THE FENCE"), &told);
    let missing = Missing {
        missing: Vec::new(),
    };
    all_named(&section(&page, "ENDPOINTS"), &keys_of(&missing));
}

/// The wire names of all values: serde lists them when it is given another one.
fn words_of<T: DeserializeOwned>() -> BTreeSet<String> {
    let error = serde_json::from_str::<T>("\"?\"")
        .err()
        .unwrap()
        .to_string();
    let (_, expected) = error.split_once("expected").unwrap();
    let words = expected.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

#[test]
fn every_word_of_a_closed_set_is_explained() {
    let page = page();
    let answer = section(&page, "THE ANSWER");
    let fence = section(&page, "THE FENCE");
    let manifest = section(&page, "THE MANIFEST");
    let stages = words_of::<Stage>();
    assert!(stages.contains("in_place") && stages.contains("startup"));
    for (text, words, least) in [
        (&manifest, words_of::<Mode>(), 3),
        (&manifest, words_of::<FileKind>(), 6),
        (&answer, words_of::<ResultMode>(), 6),
        (&fence, words_of::<ConflictReason>(), 4),
        (&(section(&page, "ENDPOINTS") + &answer), stages, 12),
    ] {
        assert!(words.len() >= least, "{words:?}");
        all_named(text, &words);
    }
    let outcomes = [
        Outcome::Invalid,
        Outcome::Unsupported,
        Outcome::TooBig,
        Outcome::QueueFull,
        Outcome::NotRun,
        Outcome::Unknown,
        Outcome::WorkerChanged,
    ];
    let outcomes = outcomes.map(|outcome| outcome.as_str().to_owned());
    all_named(&section(&page, "OPERATIONS"), &BTreeSet::from(outcomes));
}
