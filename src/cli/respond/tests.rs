//! The responder's settings, from flags, variables and the daemon.

use std::ffi::OsString;

use super::super::{Invocation, parse};
use super::*;
use crate::responder::kv::Token;

fn asked(words: &[&str], env: &[(&str, &str)]) -> Result<Respond, String> {
    let env = |name: &str| {
        let found = env.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let words = words.iter().map(OsString::from);
    match parse(
        std::iter::once(OsString::from("respond")).chain(words),
        &env,
    ) {
        Ok(Invocation::Respond(respond)) => Ok(*respond),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

/// Where Consul is, which folder, who asks.
fn consul(respond: &Respond) -> (String, String, Token) {
    match &respond.store {
        Source::Consul(consul) => (
            consul.server.origin.to_string(),
            consul.prefix.to_string(),
            consul.server.token.clone(),
        ),
        Source::Dir(dir) => panic!("{dir:?}"),
    }
}

#[test]
fn nothing_typed_means_the_documented_defaults() {
    let respond = asked(&[], &[]).unwrap();
    assert_eq!(respond.listen, "127.0.0.1:9777");
    assert_eq!(respond.monitoring.as_deref(), Some(":9778"));
    let (origin, prefix, token) = consul(&respond);
    assert_eq!(
        (origin.as_str(), prefix.as_str()),
        ("http://127.0.0.1:8500", "haptic-agent/state")
    );
    assert_eq!(token, Token::None);
    assert_eq!(respond.sync_deadline, Some(Duration::from_secs(15)));
    assert_eq!(respond.weights, Weights::Set);
    assert_eq!(respond.haproxy_socket, None);
    assert_eq!(respond.log_format, LogFormat::Json);
}

/// One row a flag: the flag with two dashes and with one, and its variable, reach the
/// settings alike.
#[test]
fn every_flag_has_three_spellings() {
    let table = [
        ("listen-addr", "HAPTIC_RESPONDER_LISTEN_ADDR", ":1"),
        ("monitoring-addr", "HAPTIC_RESPONDER_MONITORING_ADDR", "off"),
        ("consul-addr", "HAPTIC_RESPONDER_CONSUL_ADDR", "unix:///c"),
        ("kv-prefix", "HAPTIC_RESPONDER_KV_PREFIX", "old/state"),
        ("kv-dir", "HAPTIC_RESPONDER_KV_DIR", "/srv/kv"),
        ("kv-missing", "HAPTIC_RESPONDER_KV_MISSING", "make"),
        ("kv-marker", "HAPTIC_RESPONDER_KV_MARKER", "here"),
        ("kv-max-keys", "HAPTIC_RESPONDER_KV_MAX_KEYS", "100000"),
        ("sync-deadline", "HAPTIC_RESPONDER_SYNC_DEADLINE", "0"),
        ("weights", "HAPTIC_RESPONDER_WEIGHTS", "keep"),
        (
            "haproxy-socket",
            "HAPTIC_RESPONDER_HAPROXY_SOCKET",
            "/w.sock",
        ),
        ("log-format", "HAPTIC_RESPONDER_LOG_FORMAT", "text"),
    ];
    let flags = RESPOND.flags.iter().filter(|f| f.value.is_some());
    let names: Vec<&str> = flags.map(|f| f.long).collect();
    assert_eq!(names, table.map(|row| row.0), "a row for every flag");
    for (long, variable, value) in table {
        // One that only a directory has a use for.
        let beside: &[(&str, &str)] = match long {
            "kv-missing" => &[("HAPTIC_RESPONDER_KV_DIR", "/d")],
            _ => &[],
        };
        let asked = |words: &[&str], env: &[(&str, &str)]| asked(words, &[beside, env].concat());
        let two = asked(&[&format!("--{long}"), value], &[]).unwrap();
        assert_ne!(two, asked(&[], &[]).unwrap(), "{long} changes nothing");
        assert_eq!(asked(&[&format!("-{long}"), value], &[]), Ok(two.clone()));
        assert_eq!(
            asked(&[&format!("-{long}={value}")], &[]),
            Ok(two.clone()),
            "-{long}="
        );
        assert_eq!(asked(&[], &[(variable, value)]), Ok(two), "{variable}");
    }
}

#[test]
fn consuls_own_variables_come_after_ours() {
    let env = [
        ("CONSUL_HTTP_ADDR", "http://10.0.0.1:8500"),
        ("CONSUL_HTTP_TOKEN", "secret-1"),
        ("CONSUL_HTTP_TOKEN_FILE", "/run/token"),
    ];
    let respond = asked(&[], &env).unwrap();
    let (origin, _, token) = consul(&respond);
    assert_eq!(origin, "http://10.0.0.1:8500");
    assert_eq!(token, Token::File("/run/token".into()));
    let respond = asked(&[], env.get(..2).unwrap()).unwrap();
    assert_eq!(consul(&respond).2, Token::Fixed("secret-1".to_owned()));
    assert!(!format!("{respond:?}").contains("secret-1"));
    let respond = asked(&["-consul-addr", "127.0.0.1:1"], &env).unwrap();
    assert_eq!(consul(&respond).0, "http://127.0.0.1:1");
    // A directory asked for wins over what Consul's tools happen to be told.
    let respond = asked(&["-kv-dir=/d"], &env).unwrap();
    assert_eq!(respond.store, Source::Dir(DirConfig::new("/d".into())));
}

#[test]
fn refusals_name_what_was_given_and_the_way_out() {
    let long = format!("/{}", "x".repeat(120));
    let table: &[(&[&str], &str)] = &[
        (&["--consul-addr=x", "--kv-dir=/d"], "come from one store"),
        (
            &["--monitoring-addr", "127.0.0.1:9777"],
            "another address than --listen-addr",
        ),
        (&["--listen-addr", "off"], "expected an address like"),
        (&["--monitoring-addr", "none"], ", or off"),
        (&["--sync-deadline", "2h"], "expected a time from 0 to 1h"),
        (&["--weights", "no"], "expected set or keep"),
        (&["--kv-prefix="], "expected something"),
        (&["--kv-prefix=a//b"], "--kv-prefix \"a//b\" cannot be used"),
        (
            &["--consul-addr=https://127.0.0.1:8501"],
            "https, which is not built in",
        ),
        (&["--consul-addr=127.0.0.1"], "names no port"),
        (&["--kv-dir=/d", "--kv-marker=m"], "a mark of its own"),
        (&["--kv-missing=make"], "--kv-dir beside it"),
        (&["--kv-dir=/d", "--kv-missing=yes"], "refuse or make"),
        (&["--kv-max-keys=0"], "a number from 1 to 1000000"),
        (&["--kv-max-keys=+5"], "a number from 1 to 1000000"),
        (&["--kv-max-keys=1000001"], "a number from 1 to 1000000"),
        (
            &["--haproxy-socket", &long],
            "a socket address holds no more",
        ),
        (&["-listenaddr", ":1"], "did you mean --listen-addr?"),
        (&["-pprof-addr", ":1"], "there is no flag"),
        (&["x"], "expected a flag, not \"x\""),
    ];
    for (words, want) in table {
        let said = asked(words, &[]).unwrap_err();
        assert!(said.contains(want), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let said = asked(&[], &[("HAPTIC_RESPONDER_WEIGHTS", "no")]).unwrap_err();
    assert_eq!(
        said,
        "HAPTIC_RESPONDER_WEIGHTS is \"no\"; expected set or keep"
    );
}

/// Within the daemon, the daemon's own flags and the variables decide.
#[test]
fn a_responder_within_the_daemon() {
    let daemon = |words: &[&str], env: &[(&str, &str)]| {
        let env = |name: &str| match name {
            "DATAPLANE_USERNAME" | "DATAPLANE_PASSWORD" => Some("x".to_owned()),
            name => {
                let found = env.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| (*value).to_owned())
            }
        };
        match parse(words.iter().map(OsString::from), &env) {
            Ok(Invocation::Run(config)) => Ok(config.responder),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    };
    assert_eq!(daemon(&[], &[("HAPTIC_RESPONDER_WEIGHTS", "no")]), Ok(None));
    let words = [
        "--check-listen",
        ":9777",
        "--base-dir=/h",
        "--log-format=text",
    ];
    let respond = daemon(&words, &[]).unwrap().unwrap();
    assert_eq!(respond.listen, ":9777");
    assert_eq!(respond.monitoring, None, "the daemon serves the metrics");
    assert_eq!(
        respond.haproxy_socket.as_deref(),
        Some(Path::new("/h/haproxy-worker.sock"))
    );
    assert_eq!(respond.log_format, LogFormat::Text);
    let env = [
        ("HAPTIC_RESPONDER_KV_DIR", "/d"),
        ("HAPTIC_RESPONDER_MONITORING_ADDR", ":9778"),
        ("HAPTIC_RESPONDER_HAPROXY_SOCKET", "/other.sock"),
    ];
    let respond = daemon(&words, &env).unwrap().unwrap();
    assert_eq!(respond.store, Source::Dir(DirConfig::new("/d".into())));
    assert_eq!(respond.monitoring.as_deref(), Some(":9778"));
    assert_eq!(
        respond.haproxy_socket.as_deref(),
        Some(Path::new("/other.sock"))
    );
    let said = daemon(&words, &[("HAPTIC_RESPONDER_WEIGHTS", "no")]).unwrap_err();
    assert!(said.starts_with("HAPTIC_RESPONDER_WEIGHTS is"), "{said}");
    let said = daemon(&["--check-listen=:5555"], &[]).unwrap_err();
    assert!(said.contains("another address than --listen"), "{said}");
}

#[test]
fn a_verb_that_is_almost_right_is_no_flag() {
    let said = parse([OsString::from("respnd")].into_iter(), &|_| None);
    assert_eq!(
        said.unwrap_err().to_string(),
        "there is no verb \"respnd\"; did you mean respond?"
    );
}
