//! The same broken connections in front of the agent's own server and of the fake's, which
//! is another one: each is classified as the contract says, and a push gets through once
//! it is over.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use haptic_agent::client::{
    Client, ClientConfig, Credentials, Error, FileSet, FileSetOptions, Part, PushError,
    PushOptions, StateRead, Timeouts, Transport, push,
};
use haptic_agent::http::client::Error as HttpError;
use haptic_agent::testkit::FakeAgent;

use super::classes::{manifest, path};
use crate::support::agent::{Agent, PASSWORD, Setup, USER};
use crate::support::haproxy::{Haproxy, Version, minimal, preamble};
use crate::support::proxy::{Proxy, Way};

/// How a call ended, without what differs from try to try.
fn class<T>(outcome: Result<T, Error>) -> &'static str {
    match outcome {
        Ok(_) => "answer",
        Err(Error::Conflict(_)) => "conflict",
        Err(Error::Missing(_)) => "missing",
        Err(Error::Http { .. }) => "http",
        Err(Error::Refused(_)) => "limit",
        Err(Error::Source { .. }) => "source",
        Err(Error::Transport(Transport::Answer(_))) => "nonsense",
        Err(Error::Transport(Transport::Http(error))) => match error {
            HttpError::NotConnected(_) if error.is_refused() => "refused",
            HttpError::NotConnected(_) => "not connected",
            HttpError::Reset(_) => "reset",
            HttpError::Cut(_) => "cut",
            HttpError::Timeout(_) => "timeout",
            HttpError::Malformed(_) => "malformed",
            HttpError::TooLarge { .. } => "too large",
            HttpError::Cancelled => "cancelled",
            HttpError::Source(_) => "source",
            HttpError::Request(_) => "request",
        },
    }
}

fn client(address: SocketAddr, user: &str, password: &str) -> Client {
    let credentials = Credentials::new(user, password).unwrap();
    let mut config = ClientConfig::new(&format!("http://{address}"), credentials).unwrap();
    config.timeouts = Timeouts {
        state: Duration::from_secs(5),
        apply: Duration::from_secs(20),
        ..Timeouts::default()
    };
    Client::new(config)
}

/// Runs the same against both.
fn on_both(name_it: impl Fn(&str, SocketAddr, &str, &str, &str)) {
    let fake = FakeAgent::start().unwrap();
    let address = fake.url().strip_prefix("http://").unwrap().parse().unwrap();
    name_it(
        "the fake",
        address,
        fake.username(),
        fake.password(),
        "global\n",
    );

    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir(&base).unwrap();
    let _haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let agent: Agent = Setup::new(&base).start();
    let config = format!(
        "{}frontend f\n    bind unix@{}/f.sock\n    http-request return status 200\n",
        preamble(&base),
        base.display()
    );
    name_it("the agent", agent.api(), USER, PASSWORD, &config);
}

#[test]
fn broken_connections_are_told_alike_in_front_of_both_servers() {
    on_both(|who, address, user, password, _| {
        let proxy = Proxy::start(address);
        for (way, state, apply, tries) in [
            (Way::Pass, "answer", "conflict", 1),
            (Way::Close, "reset", "reset", 4),
            (Way::CutAfter(0), "reset", "reset", 4),
            (Way::ResetAfter(0), "reset", "reset", 4),
            // Somewhere in the head, and behind it.
            (Way::CutAfter(5), "cut", "cut", 1),
            (Way::CutAfter(40), "cut", "cut", 1),
            (Way::CutAfter(180), "cut", "cut", 1),
            (Way::ResetAfter(180), "cut", "cut", 1),
            (Way::Drip, "answer", "conflict", 1),
        ] {
            proxy.set(way);
            let client = client(proxy.address(), user, password);
            let before = proxy.taken();
            let seen = class(client.state(StateRead::default()));
            assert_eq!(seen, state, "{who}: {way:?}: state");
            assert_eq!(proxy.taken() - before, tries, "{who}: {way:?}: state");
            // Of a set that does not fit what is applied, with content, so that it is
            // never sent twice.
            let mut sent = manifest("p", &[("general/a", b"x")]);
            sent.expected_prev_plan_id = "another".into();
            let mut parts = [Part::new(path("general/a"), &b"x"[..])];
            let seen = class(client.apply(&sent, &mut parts, None));
            assert_eq!(seen, apply, "{who}: {way:?}: apply");
        }
        proxy.set(Way::Hang);
        let mut config = ClientConfig::new(
            &format!("http://{}", proxy.address()),
            Credentials::new(user, password).unwrap(),
        )
        .unwrap();
        config.timeouts.state = Duration::from_millis(300);
        let hung = Client::new(config).state(StateRead::default());
        assert_eq!(class(hung), "timeout", "{who}");
    });
    // Nobody there at all.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = client(free, "u", "p").state(StateRead::default());
    assert_eq!(class(nobody), "refused");
}

/// Whatever the answer of a push meets, the next look tells what became of it.
#[test]
fn a_push_behind_a_broken_connection_ends_where_the_set_is() {
    on_both(|who, address, user, password, config| {
        let direct = client(address, user, password);
        for (turn, way) in [
            Way::Close,
            Way::CutAfter(0),
            Way::ResetAfter(0),
            Way::CutAfter(60),
            Way::ResetAfter(260),
        ]
        .into_iter()
        .enumerate()
        {
            let proxy = Proxy::start(address);
            let text = format!("{config}# {turn}\n");
            let set = FileSet::from_files(
                [("haproxy.cfg", text.into_bytes())],
                &FileSetOptions::default(),
            )
            .unwrap();
            let client = client(proxy.address(), user, password);
            // Spoilt from the moment on at which content is being sent.
            let spoil = |step: &haptic_agent::client::Step<'_>| match step {
                haptic_agent::client::Step::Decided(_) => proxy.set(way),
                haptic_agent::client::Step::Lost(_) => proxy.set(Way::Pass),
                _ => {}
            };
            let options = PushOptions::default();
            let outcome = haptic_agent::client::push_watched(&client, &set, &options, &spoil);
            proxy.set(Way::Pass);
            match outcome {
                Ok(pushed) => assert!(pushed.is_converged(), "{who}: {way:?}"),
                // Three rounds met the same each.
                Err(PushError::NoEnd) => {}
                Err(other) => panic!("{who}: {way:?}: {other}"),
            }
            let again = push(&client, &set, &options).unwrap();
            assert!(again.is_converged(), "{who}: {way:?}");
            let state = direct.state(StateRead::default()).unwrap();
            assert_eq!(state.running_plan_id, set.plan_id(), "{who}: {way:?}");
        }
    });
}
