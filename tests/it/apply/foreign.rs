//! What somebody else writes into a set so large that its files are looked at while the
//! manifest is still coming in.

use super::kit::Rig;
use crate::support::agent::{Apply, read_reply, tree};
use crate::support::haproxy::Version;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

/// More than are looked at without a thread.
const FILES: usize = 700;

/// Longer than a look may stand for the one under the apply lock.
const STALE: Duration = Duration::from_millis(300);

/// Enough for a look beside a manifest to be over, if the machine is quiet.
const LOOKED: Duration = Duration::from_millis(50);

fn name(n: usize) -> String {
    format!("general/{}/{n}", n % 3)
}

/// The set on top of `state`: all files, the first one with that content.
fn set(rig: &Rig, plan: &str, first: &[u8], state: &Value) -> Apply {
    let config = rig.config("one");
    let mut apply = Apply::new(plan, 1, 1)
        .file("haproxy.cfg", config.as_bytes())
        .file(&name(0), first);
    for n in 1..FILES {
        apply = apply.file(&name(n), b"same\n");
    }
    apply.on(state)
}

/// When the file changes, seen from the request.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Before,
    /// The look beside the manifest is over by then, or it is not: found it must be.
    WithinTheManifest,
}

#[test]
fn a_foreign_write_is_found_before_anything_is_built_on_it() {
    let rig = Rig::new(Version::V3_2);
    let first = set(&rig, "p1", b"one\n", &rig.agent.state());
    first.succeed(&rig.agent, "reload");
    for (round, moment) in [Moment::Before, Moment::WithinTheManifest]
        .repeat(3)
        .into_iter()
        .enumerate()
    {
        let state = rig.agent.state_with("?plan=0");
        assert_ne!(state["applied_plan_id"], "");
        let content = format!("round {round}\n");
        let request = set(&rig, "next", content.as_bytes(), &state)
            .mode("auto")
            .request();
        let (victim, foreign) = (rig.base.join(name(300 + round)), b"SAME\n");
        let (begin, rest) = request.split_at(20_000);
        let mut client = TcpStream::connect(rig.agent.api()).unwrap();
        if let Moment::WithinTheManifest = moment {
            client.write_all(begin).unwrap();
            sleep(LOOKED);
            fs::write(&victim, foreign).unwrap();
            sleep(STALE);
        } else {
            fs::write(&victim, foreign).unwrap();
            client.write_all(begin).unwrap();
        }
        // It may be answered before its parts are read.
        let _ = client.write_all(rest);
        let reply = read_reply(&mut client);
        assert_eq!(reply.status, 409, "{moment:?}: {}", reply.text());
        assert_eq!(reply.json()["reason"], "unknown_baseline", "{moment:?}");
        let after = rig.agent.state();
        assert_eq!(after["applied_plan_id"], "", "{moment:?}");
        assert_eq!(
            fs::read(&victim).unwrap(),
            foreign,
            "nothing is overwritten"
        );
        let now = set(&rig, &format!("p{round}"), content.as_bytes(), &after);
        now.succeed(&rig.agent, "reload");
        let held = tree(&rig.base);
        assert_eq!(held[&name(0)], content.as_bytes());
        assert_eq!(held[&name(300 + round)], b"same\n");
    }
}
