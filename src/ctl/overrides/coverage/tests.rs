use super::shape::ServerView;
use super::*;
use crate::responder::value::Value;

fn row(request: &[&str], decided_by: Option<&str>, answer: &str, state: Option<&str>) -> RowView {
    RowView {
        row: request[0].to_owned(),
        state: state.map(str::to_owned),
        request: request.iter().map(|key| (*key).to_owned()).collect(),
        answer: Some(answer.to_owned()),
        decided_by: decided_by.map(str::to_owned),
        last_asked: Some("2026-01-02T03:04:05.000000006Z".to_owned()),
        interval_seconds: Some(2.0),
        ..RowView::default()
    }
}

fn coverage(rows: Vec<RowView>) -> Coverage {
    let store = StoreView {
        synced: true,
        ..StoreView::default()
    };
    Coverage {
        store,
        rows,
        ..Coverage::default()
    }
}

const S1: &[&str] = &["w/s1", "canary"];
const DRAIN: Wanted = Wanted::Value(Value::Drain);

#[test]
fn rows_follow_a_group_unless_their_own_key_decides() {
    let table = [
        (row(S1, Some("canary"), "drain", None), 0, 0),
        (row(S1, Some("canary"), "drain", Some("following")), 0, 0),
        (row(S1, Some("canary"), "drain", Some("pending")), 0, 1),
        (row(S1, Some("canary"), "drain", Some("diverged")), 0, 1),
        (row(S1, Some("canary"), "maint", None), 0, 1),
        (row(S1, None, "ready", None), 0, 1),
        (row(S1, Some("w/s1"), "ready", Some("following")), 1, 0),
        (row(S1, Some("w/s1"), "drain", Some("pending")), 1, 0),
    ];
    for (row, elsewhere, waiting) in table {
        let text = format!("{row:?}");
        let shown = coverage(vec![row]).judge("canary", DRAIN);
        assert_eq!(shown.asked, 1);
        assert_eq!(shown.elsewhere, elsewhere, "{text}");
        assert_eq!(shown.waiting.len(), waiting, "{text}");
    }
}

#[test]
fn a_key_that_is_gone_decides_nothing() {
    let gone = Wanted::Gone { weighed: false };
    let waiting = |row| coverage(vec![row]).judge("canary", gone).waiting.len();
    assert_eq!(waiting(row(S1, Some("canary"), "drain", None)), 1);
    assert_eq!(waiting(row(S1, None, "ready", None)), 0);
    assert_eq!(waiting(row(S1, None, "ready", Some("pending"))), 1);
    assert_eq!(
        waiting(row(S1, Some("w/s1"), "drain", Some("following"))),
        0
    );
}

#[test]
fn rows_that_left_do_not_count() {
    let mut old = row(&["w/s2", "canary"], None, "ready", None);
    old.last_asked = Some("2026-01-02T03:03:05Z".to_owned());
    let mut slow = row(&["w/s3", "canary"], Some("canary"), "drain", None);
    slow.last_asked = Some("2026-01-02T03:03:05Z".to_owned());
    slow.interval_seconds = Some(60.0);
    let new = row(S1, Some("canary"), "drain", None);
    let coverage = coverage(vec![old, slow, new]);
    let shown = coverage.judge("canary", DRAIN);
    assert_eq!((shown.asked, shown.waiting.len()), (2, 0));
    // One that asked before is said to, for want of anything better.
    assert_eq!(shown.gone, ["w/s2"]);
    assert!(!coverage.asked_keys().any(|key| key == "w/s2"));
}

/// A row that HAProxy does not ask about cannot follow, whatever was heard before.
#[test]
fn rows_that_do_not_ask_are_named_with_the_reason() {
    let unheard = |name: &str, state: &str| RowView {
        row: name.to_owned(),
        state: Some(state.to_owned()),
        ..RowView::default()
    };
    let off = || row(S1, None, "ready", Some("agent_off"));
    let mut gone = off();
    gone.last_asked = Some("2026-01-02T03:03:05Z".to_owned());
    type Case<'a> = (RowView, &'a str, &'a [&'a str], usize);
    let table: [Case<'_>; 11] = [
        (off(), "canary", &["w/s1 does not ask", "enable agent"], 0),
        (off(), "w/s1", &["w/s1 does not ask"], 0),
        (gone, "canary", &["w/s1 does not ask"], 0),
        (off(), "other", &[], 0),
        (unheard("w/s4", "agent_off"), "w/s4", &["switched off"], 0),
        (unheard("w/s4", "not_asking"), "w/s4", &["not arrive"], 0),
        (unheard("w/s4", "not_enrolled"), "w/s4", &["no agent"], 0),
        (unheard("w/s4", "by_group"), "w/s4", &["of its own"], 0),
        // Whether they would ask for a group is not known, unless they never will.
        (unheard("w/s4", "agent_off"), "canary", &[], 1),
        (unheard("w/s4", "not_enrolled"), "canary", &[], 0),
        (unheard("w/s4", "agent_off"), "w/s5", &[], 0),
    ];
    for (row, key, says, unknown) in table {
        let text = format!("{key}: {row:?}");
        let other = self::row(&["w/s9", "nothing"], None, "ready", None);
        let coverage = coverage(vec![row, other]);
        let shown = coverage.judge(key, DRAIN);
        assert_eq!(shown.mute, coverage.mute(key), "{text}");
        assert_eq!(shown.asked, 0, "{text}");
        assert_eq!(shown.unknown.len(), unknown, "{text}");
        assert_eq!(shown.mute.is_empty(), says.is_empty(), "{text}");
        let said = shown.mute.join("; ");
        assert!(
            says.iter().all(|part| said.contains(part)),
            "{text}: {said}"
        );
    }
}

#[test]
fn the_key_that_decides_in_anothers_place_is_found() {
    let rows = || {
        coverage(vec![
            row(&["w/s1", "canary", "zone"], Some("w/s1"), "drain", None),
            row(&["w/s2", "canary"], None, "ready", None),
        ])
    };
    let ended = |keys: &[&'static str]| keys.iter().copied().collect::<BTreeSet<_>>();
    let says =
        |stored: &'static [&'static str]| move |key: &str| stored.contains(&key).then_some(());
    let coverage = rows();
    let found = coverage.others("w/s1", &ended(&["w/s1"]), says(&["canary", "zone", "w/s1"]));
    let [other] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(
        (other.row, other.key, other.behind),
        ("w/s1", "canary", true)
    );
    let found = coverage.others("canary", &ended(&["canary"]), says(&["w/s1", "zone"]));
    let [other] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!((other.key, other.behind), ("w/s1", false));
    let both = ended(&["w/s1", "canary"]);
    let found = coverage.others("w/s1", &both, says(&["w/s1", "canary"]));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_share_that_is_cut_to_nothing_is_found() {
    let with = |base_weight| {
        let mut row = row(S1, None, "ready", Some("following"));
        row.haproxy = Some(ServerView {
            base_weight,
            ..ServerView::default()
        });
        coverage(vec![row])
    };
    assert_eq!(with(1).starved("canary", 99), ["w/s1 (weight 1)"]);
    assert_eq!(with(1).starved("w/s1", 50).len(), 1);
    for (base, percent) in [(1, 100), (1, 0), (2, 50), (100, 1), (0, 50)] {
        assert!(
            with(base).starved("canary", percent).is_empty(),
            "{base} {percent}"
        );
    }
    assert!(with(1).starved("other", 50).is_empty());
}
