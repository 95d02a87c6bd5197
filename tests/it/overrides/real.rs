//! Overrides in the real Consul.

use super::kit::{self, Ended};
use crate::kv::kit::{PREFIX, Watched, full};
use crate::support::consul::{Consul, Mode, ROOT};
use haptic_agent::responder::kv::{ConsulConfig, Source, Token};
use haptic_agent::responder::value::Value;

const TOKEN: &str = "abcdefab-1234-5678-9abc-def012345678";

#[test]
fn every_verb_with_the_rights_that_it_needs() {
    let consul = Consul::start(Mode::DenyByDefault);
    let address = consul.address().to_string();
    let run = |token: &str, words: &[&str]| -> Ended {
        let env = [
            ("CONSUL_HTTP_ADDR", address.as_str()),
            ("CONSUL_HTTP_TOKEN", token),
            ("HAPTIC_KV_PREFIX", PREFIX),
        ];
        kit::run(&env, words)
    };
    let config = crate::kv::kit::consul(consul.address());
    let mut server = config.server.clone();
    server.token = Token::Fixed(ROOT.to_owned());
    let watched = Watched::start(Source::Consul(ConsulConfig { server, ..config })).synced();
    run(
        ROOT,
        &[
            "drain",
            "web/s1",
            "canary",
            "--for",
            "1h",
            "--why",
            "Umbau: Zürich",
        ],
    )
    .good();
    watched.until_value("web/s1", Some(Value::Drain));
    watched.until_value("canary", Some(Value::Drain));
    assert!(watched.copy().get("canary").unwrap().until().is_some());
    let listed = run(ROOT, &["overrides"]).good();
    assert!(
        listed.out.contains("by alice: Umbau: Zürich"),
        "{}",
        listed.out
    );
    assert!(listed.out.contains("from now"), "{}", listed.out);
    let set = run(ROOT, &["weight", "web/s1", "50%"]).good();
    assert!(set.out.contains("was drain until"), "{}", set.out);
    watched.until_value("web/s1", Some(Value::Weight(50)));
    assert_eq!(watched.copy().get("web/s1").unwrap().until(), None);
    // Somebody else drains while a ramp is under way: that drain stays.
    let words = ["ready", "canary", "--ramp", "--ramp-hold", "2s"];
    let race = std::thread::scope(|scope| {
        let ramp = scope.spawn(|| run(ROOT, &words));
        watched.until_value("canary", Some(Value::Maint));
        consul.put(&full("canary"), "drain");
        ramp.join().unwrap()
    });
    race.bad("somebody else changed it");
    watched.until_value("canary", Some(Value::Drain));
    run(ROOT, &["ready", "canary", "--ramp", "--ramp-hold", "1s"]).good();
    watched.until_keys(&["web/s1"]);
    run(ROOT, &["ready", "web/s1"]).good();
    watched.until_keys(&[]);
    assert!(
        run(ROOT, &["overrides"])
            .good()
            .out
            .contains("no overrides")
    );
    // Rights for values alone, and none.
    consul.give(
        TOKEN,
        &format!("key_prefix \"{PREFIX}/\" {{ policy = \"write\" }}"),
    );
    run(TOKEN, &["drain", "a", "--why", "x"]).bad(".notes/state");
    run(TOKEN, &["drain", "a"]).good();
    run(TOKEN, &["ready", "a"]).good();
    consul.give(
        TOKEN,
        &format!("key_prefix \"{PREFIX}/\" {{ policy = \"read\" }}"),
    );
    run(TOKEN, &["drain", "a"]).bad("key_prefix \"fleet/state/\" write");
    run("00000000-0000-0000-0000-000000000001", &["drain", "a"]).bad("ACL not found");
    watched.until_keys(&[]);
    // To a token without rights a list is empty, and to one with some it is short: neither
    // is the truth.
    run(ROOT, &["drain", "web/s1", "canary"]).good();
    run("", &["overrides"]).bad("key_prefix");
    consul.give(
        TOKEN,
        &format!("key_prefix \"{PREFIX}/web/\" {{ policy = \"read\" }}"),
    );
    run(TOKEN, &["overrides"]).bad("key_prefix");
}
