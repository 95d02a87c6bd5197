//! An agent that dies between push and answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::kit::{Moment, Pass, Pod, Relay, Site, ctl};
use crate::support::agent::tree;
use crate::support::haproxy::Version;

/// Where it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// Before it has seen a byte of the push.
    Before,
    /// So long after its first bytes.
    Within(Duration),
    /// When the answer is on its way.
    Answered,
}

#[test]
fn a_push_survives_the_agent_s_death_wherever_it_comes() {
    for version in [Version::V3_0, Version::V3_4] {
        for death in [
            Death::Before,
            Death::Within(Duration::from_millis(5)),
            Death::Within(Duration::from_millis(60)),
            Death::Within(Duration::from_millis(200)),
            Death::Answered,
        ] {
            survives(version, death);
        }
    }
}

fn survives(version: Version, death: Death) {
    let mut pod = Pod::start(version);
    let site = Site::of(&pod);
    ctl(&pod.url(), &["push", site.path()]).ends(0);
    site.write("haproxy.cfg", &pod.config("# two\n"));
    site.write("maps/host.map", "a.example two\n");
    site.write("general/big.bin", &"x".repeat(300_000));

    let (kill, killed) = std::sync::mpsc::channel();
    let kill = Arc::new(Mutex::new(Some(kill)));
    let relay = Relay::new(
        pod.agent.api(),
        Box::new(move |moment| {
            let wanted = match death {
                Death::Before | Death::Within(_) => Moment::Begun,
                Death::Answered => Moment::Answered,
            };
            match kill.lock().unwrap().take_if(|_| moment == wanted) {
                None => Pass::On,
                Some(kill) => {
                    kill.send(()).unwrap();
                    match death {
                        Death::Within(_) => Pass::On,
                        Death::Before | Death::Answered => Pass::Cut,
                    }
                }
            }
        }),
    );
    let target = relay.target();
    let url = relay.url();
    let out = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| ctl(&url, &["push", site.path()]));
        killed.recv_timeout(Duration::from_secs(60)).unwrap();
        if let Death::Within(time) = death {
            // Where in the apply that is does not matter; every place is right.
            std::thread::sleep(time);
        }
        pod.agent.kill();
        pod.agent = pod.setup.start();
        *target.lock().unwrap() = pod.agent.api();
        pushing.join().unwrap()
    });
    assert_eq!(out.code, 0, "{version}, {death:?}: {out}");
    assert_eq!(tree(&pod.base), site.tree(), "{version}, {death:?}");
    assert_eq!(pod.get("a.example"), "two", "{version}, {death:?}");
    ctl(&pod.url(), &["state"]).ends(0).says("good: plan");
}

#[test]
fn an_agent_that_stays_dead_is_told_with_what_to_do() {
    let mut pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    pod.agent.kill();
    let out = ctl(&pod.url(), &["push", site.path()]);
    out.ends(1)
        .says("Connection refused")
        .says("next: is the agent running");
    pod.agent = pod.setup.start();
    ctl(&pod.url(), &["push", site.path()]).ends(0);
}
