//! Whole command lines, in and out.

use std::time::Duration;

use super::*;

fn env(name: &str) -> Option<String> {
    match name {
        table::USERNAME => Some("admin".into()),
        table::PASSWORD => Some("secret".into()),
        _ => None,
    }
}

fn run(words: &[&str]) -> Result<Invocation, UsageError> {
    parse(words.iter().map(OsString::from), &env)
}

fn config(words: &[&str]) -> Config {
    match run(words) {
        Ok(Invocation::Run(config)) => *config,
        other => panic!("{words:?} gave {other:?}"),
    }
}

fn refusal(words: &[&str]) -> String {
    match run(words) {
        Err(error) => error.to_string(),
        other => panic!("{words:?} gave {other:?}"),
    }
}

#[test]
fn nothing_typed_means_the_documented_defaults() {
    let config = config(&[]);
    assert_eq!(config.base_dir.to_str(), Some("/etc/haproxy"));
    assert_eq!(config.config.as_str(), "haproxy.cfg");
    assert_eq!(
        config.master_socket.to_str(),
        Some("/etc/haproxy/haproxy-master.sock")
    );
    assert_eq!(
        config.worker_socket.to_str(),
        Some("/etc/haproxy/haproxy-worker.sock")
    );
    assert_eq!(config.listen, ":5555");
    assert_eq!(config.metrics_listen, ":9101");
    assert_eq!(config.state_file, ".haptic-agent.json");
    assert_eq!(config.reload_interval_min, Duration::from_secs(5));
    assert_eq!(config.reload_timeout, Duration::from_secs(60));
    assert_eq!(config.durability, Durability::Full);
    assert_eq!(config.file_mode.bits(), 0o644);
    assert_eq!(config.secret_mode.bits(), 0o640);
    assert_eq!(config.log_format, LogFormat::Json);
    assert_eq!(config.log_level, log::LevelFilter::Info);
    assert_eq!(config.credentials.username, "admin");
    assert_eq!(config.credentials.password, "secret");
}

/// One row a flag with a value: another value than the default reaches the
/// configuration, both spellings mean the same, and the last one wins.
#[test]
fn every_flag_with_a_value_counts() {
    let table = [
        ("base-dir", "/srv/h", "/srv/x"),
        ("config", "main.cfg", "conf/h.cfg"),
        ("master-socket", "m.sock", "/run/m.sock"),
        ("worker-socket", "w.sock", "/run/w.sock"),
        ("listen", "127.0.0.1:1", "[::1]:0"),
        ("metrics-listen", "127.0.0.1:2", ":0"),
        ("check-listen", "127.0.0.1:3", ":9777"),
        ("state-file", ".a", ".b.json"),
        ("reload-interval-min", "0", "500ms"),
        ("reload-timeout", "1s", "30s"),
        ("delete-grace", "0", "5m"),
        ("delete-cut", "yes", "no"),
        ("durability", "full", "process"),
        ("file-mode", "0600", "0640"),
        ("secret-mode", "0600", "0400"),
        ("log-format", "json", "text"),
    ];
    let with_value: Vec<&str> = table::DAEMON
        .flags
        .iter()
        .filter(|f| f.value.is_some())
        .map(|f| f.long)
        .collect();
    assert_eq!(with_value, table.map(|row| row.0), "a row for every flag");
    for (long, first, last) in table {
        let flag = format!("--{long}");
        let apart = config(&[&flag, last]);
        assert_ne!(apart, config(&[]), "{flag} changes nothing");
        assert_eq!(apart, config(&[&format!("{flag}={last}")]), "{flag}=");
        assert_eq!(apart, config(&[&flag, first, &flag, last]), "last wins");
    }
}

#[test]
fn relative_sockets_lie_below_the_base_and_absolute_ones_do_not() {
    let config = config(&["--base-dir=/srv/h", "--master-socket=/run/m.sock"]);
    assert_eq!(config.master_socket.to_str(), Some("/run/m.sock"));
    assert_eq!(
        config.worker_socket.to_str(),
        Some("/srv/h/haproxy-worker.sock")
    );
    assert_eq!(config.reserved_paths(), ["haproxy-worker.sock"]);
}

#[test]
fn refusals_name_what_was_given_and_the_way_out() {
    let long = format!("/{}", "x".repeat(120));
    let table: &[(&[&str], &str)] = &[
        (
            &["--basedir", "/x"],
            "there is no flag \"--basedir\"; did you mean --base-dir?",
        ),
        (
            &["-base-dir=/x"],
            "there is no flag \"-base-dir=/x\"; did you mean --base-dir?",
        ),
        (
            &["--zzz"],
            "there is no flag \"--zzz\"; --help lists the flags",
        ),
        (&["-x"], "there is no flag \"-x\"; --help lists the flags"),
        (
            &["start"],
            "expected a flag, not \"start\"; --help lists the flags",
        ),
        (&["--listen"], "--listen needs a value: --listen ADDR"),
        (
            &["--base-dir", "--listen", ":1"],
            "--base-dir needs a value: --base-dir DIR",
        ),
        (&["--help=x"], "--help takes no value, but was given \"x\""),
        (
            &["--base-dir="],
            "--base-dir was given \"\"; expected a path",
        ),
        (
            &["--listen", "localhost:1"],
            "--listen was given \"localhost:1\"; expected an address like",
        ),
        (
            &["--config", "../h.cfg"],
            "no component of a path may start with a dot",
        ),
        (
            &["--state-file", "state.json"],
            "expected a file name that starts with one dot",
        ),
        (
            &["--reload-interval-min", "61s"],
            "expected a time from 0 to 60s",
        ),
        (&["--reload-timeout", "0"], "expected a time from 1s to 60s"),
        (&["--delete-grace", "2h"], "expected a time from 0 to 1h"),
        (&["--delete-cut", "maybe"], "expected yes or no"),
        (&["--durability", "none"], "expected full or process"),
        (&["--file-mode", "9"], "expected octal permission bits"),
        (
            &["--secret-mode", "01777"],
            "expected octal permission bits",
        ),
        (&["--log-format", "xml"], "expected json or text"),
        (
            &["--worker-socket", &long],
            "a socket address holds no more",
        ),
        (
            &["--worker-socket", "haproxy-master.sock"],
            "--worker-socket was given \"/etc/haproxy/haproxy-master.sock\"; expected another socket than --master-socket",
        ),
        (
            &["--master-socket", "haproxy-worker.sock"],
            "--master-socket was given \"/etc/haproxy/haproxy-worker.sock\"; expected another socket than --worker-socket",
        ),
        (
            &["--config", "haproxy-worker.sock"],
            "this is the path of a socket",
        ),
        (
            &["--listen", ":9101"],
            "--metrics-listen was given \":9101\"; expected another address than --listen",
        ),
    ];
    for (words, want) in table {
        let text = refusal(words);
        assert!(text.contains(want), "{words:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn a_free_port_may_be_asked_for_twice() {
    assert_eq!(
        config(&["--listen", ":0", "--metrics-listen", ":0"]).listen,
        ":0"
    );
}

#[test]
fn help_and_version_need_no_credentials() {
    let none = |_: &str| None;
    let table = [
        ("--help", "--durability"),
        ("-h", "--help lists every flag"),
        ("--version", env!("CARGO_PKG_VERSION")),
        ("-V", "haptic-agent "),
    ];
    for (word, want) in table {
        match parse([OsString::from(word)].into_iter(), &none) {
            Ok(Invocation::Help(text) | Invocation::Version(text)) => {
                assert!(text.contains(want), "{word}: {text}");
                assert!(text.ends_with('\n'));
            }
            other => panic!("{word} gave {other:?}"),
        }
    }
}

#[test]
fn credentials_are_both_needed() {
    for (user, password, want) in [
        (None, Some("p"), "DATAPLANE_USERNAME is not set"),
        (Some(""), Some("p"), "DATAPLANE_USERNAME is empty"),
        (Some("u"), None, "DATAPLANE_PASSWORD is not set"),
        (Some("u"), Some(""), "DATAPLANE_PASSWORD is empty"),
        (
            Some("u"),
            Some("p\u{fffd}"),
            "DATAPLANE_PASSWORD is not UTF-8",
        ),
    ] {
        let env = |name: &str| match name {
            table::USERNAME => user.map(str::to_owned),
            table::PASSWORD => password.map(str::to_owned),
            _ => None,
        };
        let error = parse(std::iter::empty(), &env).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
        assert!(error.contains("set DATAPLANE_USERNAME and DATAPLANE_PASSWORD"));
        assert!(!error.contains('\u{fffd}'), "a secret in {error}");
    }
}

#[test]
fn a_password_may_hold_anything_and_is_never_printed() {
    let env = |name: &str| match name {
        table::USERNAME => Some("a:b".to_owned()),
        table::PASSWORD => Some("ü \n:".to_owned()),
        table::LOG_LEVEL => Some(String::new()),
        _ => None,
    };
    match parse(std::iter::empty(), &env) {
        Ok(Invocation::Run(config)) => {
            assert_eq!(config.credentials.password, "ü \n:");
            let printed = format!("{config:?}");
            assert!(
                !printed.contains('ü') && !printed.contains("a:b"),
                "{printed}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_log_level_comes_from_the_environment() {
    for (text, want) in [
        ("error", Some(log::LevelFilter::Error)),
        ("DEBUG", Some(log::LevelFilter::Debug)),
        ("trace", Some(log::LevelFilter::Trace)),
        ("loud", None),
    ] {
        let env = |name: &str| match name {
            table::LOG_LEVEL => Some(text.to_owned()),
            other => super::tests::env(other),
        };
        match (parse(std::iter::empty(), &env), want) {
            (Ok(Invocation::Run(config)), Some(level)) => assert_eq!(config.log_level, level),
            (Err(error), None) => assert_eq!(
                error.to_string(),
                "LOG_LEVEL is \"loud\"; expected error, warn, info, debug or trace"
            ),
            (other, _) => panic!("{text} gave {other:?}"),
        }
    }
}

#[cfg(unix)]
#[test]
fn bytes_that_are_no_utf_8_are_a_path_and_nothing_else() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"/srv/\xff".to_vec());
    let words = |flag: &str| [OsString::from(flag), odd.clone()].into_iter();
    match parse(words("--base-dir"), &env) {
        Ok(Invocation::Run(config)) => assert_eq!(config.base_dir.as_os_str(), odd),
        other => panic!("{other:?}"),
    }
    for flag in ["--listen", "--config", "--state-file", "--durability"] {
        assert!(parse(words(flag), &env).is_err(), "{flag}");
    }
}
