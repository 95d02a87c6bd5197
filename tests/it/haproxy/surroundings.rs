//! What is missing beside the set is no verdict on the set, in HAProxy's own words.

use super::*;
use crate::support::certs;
use haptic_agent::clock::SystemClock;
use haptic_agent::haproxy::{ReloadOutcome, reload};

/// Whether a reload of this file is refused for what the files say, and HAProxy's words.
fn refusal(haproxy: &Haproxy, config: &str) -> (bool, String) {
    haproxy.write_config(config);
    let before = info_of(haproxy).identity;
    let outcome = reload(
        &master_of(haproxy),
        &worker_of(haproxy),
        Some(before),
        Duration::from_secs(20),
        &SystemClock,
    );
    match outcome {
        ReloadOutcome::Refused {
            log,
            verdict_on_files,
            ..
        } => (verdict_on_files, log.text().to_owned()),
        other => panic!("not refused: {other:?}\n{config}"),
    }
}

/// Lines behind the smallest configuration that ask for something that is not there, and
/// a part of what HAProxy says about each; `BASE` is the directory of the set.
const MISSING: [(&str, &str); 27] = [
    (
        "    bind unix@BASE/t.sock ssl crt BASE/a.pem tls-ticket-keys /none/x\n",
        "unable to load ssl tickets keys",
    ),
    ("    bind unix@BASE/t.sock ssl crt /none/x\n", "/none/x"),
    (
        "    bind unix@BASE/t.sock ssl crt BASE/cert.pem\n",
        "No Private Key found",
    ),
    (
        "    bind unix@BASE/t.sock ssl crt-list /none/x\n",
        "/none/x",
    ),
    (
        "    bind unix@BASE/t.sock ssl crt BASE/a.pem verify required ca-file /none/x\n",
        "/none/x",
    ),
    (
        "    bind unix@BASE/t.sock ssl crt BASE/a.pem verify required ca-file BASE/cert.pem crl-file /none/x\n",
        "/none/x",
    ),
    (
        "    bind unix@BASE/t.sock user no-such-one\n",
        "unknown user name",
    ),
    (
        "    bind unix@BASE/t.sock group no-such-one\n",
        "unknown group name",
    ),
    ("    bind fd@999\n", "ad file descriptor"),
    ("    errorfile 503 /none/x\n", "/none/x"),
    ("    errorfile 503 BASE/dir\n", "BASE/dir"),
    (
        "    http-request deny if { path,map(/none/x) -m found }\n",
        "/none/x",
    ),
    ("    http-request deny if { path -f /none/x }\n", "/none/x"),
    (
        "    http-request return status 200 content-type a/b lf-file /none/x\n",
        "/none/x",
    ),
    ("    filter spoe engine x config /none/x\n", "/none/x"),
    ("global\n    lua-load /none/x\n", "/none/x"),
    (
        "global\n    lua-load BASE/needs.lua\n",
        "module 'none' not found",
    ),
    (
        "global\n    lua-load-per-thread BASE/needs.lua\n",
        "module 'none' not found",
    ),
    (
        "global\n    lua-load BASE/reads.lua\n",
        "attempt to index a nil value",
    ),
    (
        "global\n    lua-load BASE/later.lua\n",
        "module 'none' not found",
    ),
    ("global\n    ssl-dh-param-file /none/x\n", "/none/x"),
    ("global\n    ssl-provider no-such-one\n", "unknown provider"),
    (
        "global\n    issuers-chain-path BASE/a.pem\n",
        "not a directory",
    ),
    ("global\n    user no-such-one\n", "cannot find user id"),
    ("global\n    group no-such-one\n", "cannot find group id"),
    (
        "global\n    stats socket BASE/t.sock user no-such-one\n",
        "unknown user name",
    ),
    (
        "backend b\n    server s no-such-one.invalid:80\n",
        "could not resolve address",
    ),
];

/// The same of what the set itself says.
const SAID: [(&str, &str); 4] = [
    (
        "    bind unix@BASE/t.sock ssl crt BASE/a.pem tls-ticket-keys BASE/cert.pem\n",
        "unable to decode base64 key",
    ),
    (
        "    bind unix@BASE/t.sock ssl crt BASE/needs.lua\n",
        "needs.lua",
    ),
    ("global\n    lua-load BASE/cert.pem\n", "error in Lua file"),
    ("backend b\n    server\n", "'server' expects"),
];

#[test]
fn what_is_missing_beside_the_set_is_no_verdict_on_it() {
    on_each(|version, haproxy| {
        let base = haproxy.base().to_owned();
        let material = certs::first();
        std::fs::write(base.join("a.pem"), material.pem()).unwrap();
        std::fs::write(base.join("cert.pem"), &material.cert).unwrap();
        std::fs::create_dir(base.join("dir")).unwrap();
        for (name, text) in [
            ("needs.lua", "require(\"none\")\n"),
            (
                "reads.lua",
                "local f = io.open(\"/none/x\")\nlocal x = f:read()\n",
            ),
            (
                "later.lua",
                "core.register_init(function() require(\"none\") end)\n",
            ),
        ] {
            std::fs::write(base.join(name), text).unwrap();
        }
        let in_place = |text: &str| text.replace("BASE", &base.display().to_string());
        for (of_the_set, lines) in [(false, &MISSING[..]), (true, &SAID[..])] {
            for (line, words) in lines {
                let config = format!("{}{}", minimal(&base), in_place(line));
                let (verdict, said) = refusal(haproxy, &config);
                let words = in_place(words).to_lowercase();
                assert!(
                    said.to_lowercase().contains(&words),
                    "{version}: {line}: {said}"
                );
                assert_eq!(verdict, of_the_set, "{version}: {line}: {said}");
            }
        }
        // Before its listeners are bound, so 3.0 ends of it.
        if version != Version::V3_0 {
            let config = format!("{}global\n    chroot /none/x\n", minimal(&base));
            let (verdict, said) = refusal(haproxy, &config);
            assert!(!verdict && said.contains("/none/x"), "{version}: {said}");
        }
    });
}
