//! After a reload the worker is what the files say, whatever was set before it.

use super::kit::{BOTH, Site, preamble};
use crate::support::wait;
use serde_json::json;
use std::time::Duration;

/// Addresses live in the configuration alone: there is no file of server states, so no
/// reload can bring back half of what was set at runtime, a new address with an old port
/// or the other way round.
#[test]
fn the_address_of_a_server_is_what_the_configuration_says() {
    for version in BOTH {
        let config = format!(
            "{}frontend front\n    bind unix@@BASE@/front.sock\n    default_backend hand\nbackend hand\n    server h1 127.0.0.1:1001\n    server h2 127.0.0.1:1002 disabled\ndefaults web\n    mode http\n    timeout connect 2s\n    timeout server 5s\n# haptic: backends\n",
            preamble()
        );
        let records = |port: u16, spare: &serde_json::Value| {
            json!({
                "version": 1,
                "profiles": {"web": {"mode": "http"}},
                "backends": {"be": {"profile": "web", "servers": [
                    {"name": "s1", "address": "127.0.0.1", "port": port}, spare,
                ]}},
            })
            .to_string()
        };
        let spare = json!({"name": "s2"});
        let used = json!({"name": "s2", "address": "127.0.0.7", "port": 1007});
        let files = [
            ("haproxy.cfg", config),
            ("backends.json", records(1001, &spare)),
        ];
        let mut site = Site::start(version, &files);
        // By the agent, and by somebody's hand.
        site.write("backends.json", &records(1005, &used));
        site.runtime();
        for line in [
            "set server be/s1 addr 127.0.0.3 port 3003",
            "set server be/s2 addr 127.0.0.4 port 4004",
            "set server hand/h1 addr 127.0.0.5",
            "set server hand/h1 weight 5",
            "set server hand/h2 addr 127.0.0.6 port 6006",
            "set server hand/h2 state ready",
        ] {
            site.ask(line);
        }
        site.write("backends.json", &records(1006, &spare));
        site.replace(
            "haproxy.cfg",
            "timeout server 5s\n# haptic",
            "timeout server 6s\n# haptic",
        );
        site.reload("outside of the declared backends");
        let servers = site.servers();
        for (name, place, admin, weight) in [
            ("be/s1", "127.0.0.1:1006", "admin 0", "weight 1"),
            ("be/s2", "192.0.2.1:1", "admin 1", "weight 1"),
            ("hand/h1", "127.0.0.1:1001", "admin 0", "weight 1"),
            ("hand/h2", "127.0.0.1:1002", "admin 1", "weight 1"),
        ] {
            assert_eq!(
                servers[name][..3],
                [place, admin, weight],
                "{version} {name}"
            );
        }
        site.agrees_in_the_end();
    }
}

/// A worker that somebody restarted has lost what was set at runtime; the next push sees
/// that and does not build on it.
#[test]
fn what_a_foreign_reload_took_away_is_brought_back() {
    for version in BOTH {
        let config = format!(
            "{}frontend front\n    bind unix@@BASE@/front.sock\n    http-request return status 200 content-type text/plain lf-string %[path,map(maps/a.map)]\n",
            preamble()
        );
        let files = [
            ("haproxy.cfg", config),
            ("maps/a.map", "/a one\n".to_owned()),
        ];
        let mut site = Site::start(version, &files);
        site.write("maps/a.map", "/a two\n");
        site.runtime();
        site.ask("set map maps/a.map /a three");
        // A master that is busy with itself gives no answer, and has not reloaded.
        wait::until("somebody else's reload", Duration::from_secs(30), || {
            let answer = site.haproxy.ask_master("reload").ok()?;
            answer.contains("Success=1").then_some(())
        });
        site.write("maps/a.map", "/a four\n");
        let pushed = site.push();
        assert!(pushed.is_converged(), "{version} {pushed:#?}");
        assert_eq!(site.map("maps/a.map"), ["/a four"], "{version}");
        site.agrees_in_the_end();
    }
}
