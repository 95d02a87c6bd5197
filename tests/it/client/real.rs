//! The client against the agent itself: answers that come while 60 MiB are on their way.

use haptic_agent::client::{Client, ClientConfig, Credentials, Error, Part, StateRead};
use haptic_agent::wire::result::ConflictReason;

use super::classes::{manifest, path};
use crate::support::agent::{PASSWORD, Setup, USER};
use crate::support::haproxy::{Haproxy, Version, minimal};

/// Tries of each answer; a client that loses some loses every third.
const TRIES: usize = 10;

#[test]
fn no_early_answer_of_the_agent_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir(&base).unwrap();
    let _haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let agent = Setup::new(&base).start();
    let url = format!("http://{}", agent.api());
    let client = |password| {
        let credentials = Credentials::new(USER, password).unwrap();
        Client::new(ClientConfig::new(&url, credentials).unwrap())
    };
    let bytes = vec![b'x'; 60 << 20];
    let (right, wrong) = (client(PASSWORD), client("wrong"));
    let mut stale = manifest("p", &[("general/big", &bytes)]);
    stale.expected_prev_plan_id = "another".into();
    for turn in 0..TRIES {
        let part = || [Part::new(path("general/big"), bytes.as_slice())];
        match wrong.apply(&stale, &mut part(), None) {
            Err(Error::Http { status: 401, .. }) => {}
            other => panic!("turn {turn}: {other:?}"),
        }
        match right.apply(&stale, &mut part(), None) {
            Err(Error::Conflict(conflict)) => {
                assert_eq!(conflict.reason, ConflictReason::UnknownBaseline);
            }
            other => panic!("turn {turn}: {other:?}"),
        }
    }
    // Nothing arrived, and a whole one is judged as a whole.
    let state = right.state(StateRead::default()).unwrap();
    assert!(state.files.is_empty());
    let mut whole = manifest("p", &[("general/big", &bytes)]);
    whole.expected_prev_token = state.applied_token;
    let mut parts = [Part::new(path("general/big"), bytes.as_slice())];
    let result = right.apply(&whole, &mut parts, Some(b"blob")).unwrap();
    assert!(result.ok, "{result:?}");
    let state = right
        .state(StateRead {
            plan: true,
            verify: true,
        })
        .unwrap();
    assert_eq!(state.applied_plan.as_deref(), Some("YmxvYg=="));
    assert_eq!(state.files[&path("general/big")].size, 60 << 20);
}
