//! The plan blob, and the declared backends in it.

use super::*;

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
