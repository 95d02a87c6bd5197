//! The password is in no argument, no output and no log.

use std::time::Duration;

use super::kit::{Moment, Pass, Pod, Relay, Site, command, ctl, holding, run};
use crate::support::agent::{PASSWORD, USER};
use crate::support::haproxy::Version;

/// `controller:s3cret` as the header has it.
const ENCODED: &str = "Y29udHJvbGxlcjpzM2NyZXQ=";

#[test]
fn nobody_else_sees_the_password() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let (held, hold) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let relay = Relay::new(
        pod.agent.api(),
        Box::new(move |moment| {
            if moment == Moment::Begun {
                held.send(()).unwrap();
                let _ = wait.recv_timeout(Duration::from_secs(30));
            }
            Pass::On
        }),
    );
    let url = relay.url();
    let mut child = command(&["push", site.path(), "-o", "json", "--agent", &url]);
    let child = child
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = child.spawn().unwrap();
    hold.recv_timeout(Duration::from_secs(60)).unwrap();
    let line = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    let line = String::from_utf8_lossy(&line).into_owned();
    go.send(()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{printed}");
    let log = pod.agent.log();
    for (what, text) in [("arguments", &line), ("output", &printed), ("log", &log)] {
        assert!(
            !text.contains(PASSWORD) && !text.contains(ENCODED),
            "{what}: {text}"
        );
    }
    assert!(holding(&pod.base, &[PASSWORD, ENCODED]).is_empty());
    assert!(holding(site.dir.path(), &[PASSWORD, ENCODED]).is_empty());
}

#[test]
fn a_wrong_password_is_told_without_repeating_it() {
    let pod = Pod::start(Version::V3_4);
    let mut wrong = command(&["state", "--agent", &pod.url()]);
    wrong.env("HAPTIC_PASSWORD", "geheim");
    let out = run(wrong);
    out.ends(1)
        .says("does not take these credentials")
        .says("set HAPTIC_USERNAME and HAPTIC_PASSWORD");
    assert!(!format!("{out}").contains("geheim"), "{out}");
}

#[test]
fn credentials_come_from_a_file_or_the_agent_s_own_variables() {
    let pod = Pod::start(Version::V3_4);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pass");
    std::fs::write(&file, format!("{USER}:{PASSWORD}\n")).unwrap();
    let url = pod.url();
    let words = [
        "state",
        "--agent",
        &url,
        "--credentials-file",
        file.to_str().unwrap(),
    ];
    let mut with_file = command(&words);
    with_file.env("HAPTIC_PASSWORD", "wrong");
    run(with_file).ends(0);
    let mut own = command(&["state", "--agent", &url]);
    own.env_remove("HAPTIC_USERNAME")
        .env_remove("HAPTIC_PASSWORD")
        .env("DATAPLANE_USERNAME", USER)
        .env("DATAPLANE_PASSWORD", PASSWORD);
    run(own).ends(0);
    std::fs::write(&file, "no colon geheim\n").unwrap();
    let bad = run(command(&words));
    bad.ends(2);
    assert!(
        bad.stderr.contains("user:password") && !bad.stderr.contains("geheim"),
        "{bad}"
    );
    ctl(&url, &["state"]).ends(0);
}
