//! Push, plan, state, verify, revert and wait on one agent, by its HAProxy's version.

use super::kit::{Pod, Site, ctl};
use crate::support::agent::tree;
use crate::support::haproxy::{Haproxy, Version};

const VERSIONS: [Version; 2] = [Version::V3_0, Version::V3_4];

#[test]
fn a_first_push_a_changed_map_and_nothing_to_do() {
    for version in VERSIONS {
        let pod = Pod::start(version);
        let site = Site::of(&pod);
        let url = &pod.url();
        ctl(url, &["state"])
            .ends(0)
            .says("empty: nothing has been pushed here yet");
        ctl(url, &["plan", site.path()])
            .ends(0)
            .says("2 files to write, and a reload");
        assert!(
            !tree(&pod.base).contains_key("maps/host.map"),
            "plan wrote something"
        );
        ctl(url, &["push", site.path()])
            .ends(0)
            .says("applied with a reload");
        assert_eq!(tree(&pod.base), site.tree(), "{version}");
        assert_eq!(pod.get("a.example"), "one", "{version}");

        let worker = pod.haproxy.worker_pid();
        site.write("maps/host.map", "a.example two\n");
        ctl(url, &["plan", site.path()])
            .ends(0)
            .says("no reload")
            .says("map_replace maps/host.map");
        ctl(url, &["push", site.path()])
            .ends(0)
            .says("applied without a reload, 1 command");
        assert_eq!(pod.haproxy.worker_pid(), worker, "{version}");
        assert_eq!(pod.get("a.example"), "two", "{version}");
        assert_eq!(tree(&pod.base), site.tree(), "{version}");

        let again = ctl(url, &["push", site.path(), "-o", "json"]);
        let agents = &again.ends(0).json()["agents"];
        assert_eq!(agents[0]["outcome"], "unchanged");
        assert_eq!(agents[0]["sent_bytes"], 0);
        ctl(url, &["plan", site.path()])
            .ends(0)
            .says("nothing to do");
        let state = ctl(url, &["state"]);
        state
            .ends(0)
            .says("good: plan")
            .says("by commands")
            .says(&format!("worker {worker}"));
    }
}

#[test]
fn a_refused_push_keeps_serving_says_why_and_is_repaired() {
    for version in VERSIONS {
        let pod = Pod::start(version);
        let site = Site::of(&pod);
        let url = &pod.url();
        ctl(url, &["push", site.path()]).ends(0);
        let worker = pod.haproxy.worker_pid();
        site.write("haproxy.cfg", &pod.config("    frobnicate on\n"));
        site.write("maps/host.map", "a.example wrong\n");
        for turn in ["first", "repeated"] {
            let refused = ctl(url, &["push", site.path()]);
            refused
                .ends(1)
                .says("unknown keyword 'frobnicate'")
                .says("next: ");
            assert_eq!(
                refused.stdout.contains("was not asked again"),
                turn == "repeated",
                "{refused}"
            );
            assert_eq!(pod.get("a.example"), "one", "{version}");
            assert_eq!(pod.haproxy.worker_pid(), worker, "{version}");
        }
        let state = ctl(url, &["state"]);
        state
            .ends(1)
            .says("DEGRADED: the last push was refused, plan")
            .says("since")
            .says("REFUSED")
            .says("unknown keyword 'frobnicate'")
            .says("hapticctl revert");
        let json = ctl(url, &["state", "-o", "json"]);
        assert_eq!(json.ends(1).json()["agents"][0]["standing"], "degraded");
        // Waiting mends nothing, so it does not wait.
        let begun = std::time::Instant::now();
        ctl(url, &["wait", "--timeout", "60s"]).ends(1);
        assert!(begun.elapsed() < std::time::Duration::from_secs(30));

        site.write("haproxy.cfg", &pod.config("# repaired\n"));
        site.write("maps/host.map", "a.example three\n");
        ctl(url, &["push", site.path()])
            .ends(0)
            .says("applied with a reload");
        assert_eq!(pod.get("a.example"), "three", "{version}");
        ctl(url, &["state"]).ends(0).says("good: plan");
    }
}

/// What HAProxy itself loaded last goes back on disk, and that is not what a worker has
/// that commands have brought on since.
#[test]
fn a_worker_that_commands_brought_on_is_told_from_the_set_that_went_back() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    let loaded = tree(&pod.base);
    site.write("maps/host.map", "a.example two\n");
    let pushed = ctl(url, &["push", site.path(), "-o", "json"]);
    let plan = pushed.ends(0).json()["plan_id"].as_str().unwrap()[..12].to_owned();
    site.write("haproxy.cfg", &pod.config("    frobnicate on\n"));
    let keep = "To keep it until this set is mended, push its directory again";
    // Asked, and remembered: nothing goes back a second time.
    for (said, more) in [
        (
            "the worker serves what commands have brought since, plan",
            keep,
        ),
        (
            "nothing was touched for this answer, and the worker goes on with plan",
            "was not asked again",
        ),
    ] {
        ctl(url, &["push", site.path()])
            .ends(1)
            .says(&format!("{said} {plan}"))
            .says(more);
        assert_eq!(tree(&pod.base), loaded);
        assert_eq!(pod.get("a.example"), "two");
    }
    ctl(url, &["state"])
        .ends(1)
        .says(&format!("plan {plan} serves"))
        .says("the last good set was put back on disk, not on the worker")
        .says(keep)
        .says("instead, and drops what commands brought since");
    // The advice, followed.
    site.write("haproxy.cfg", &pod.config(""));
    ctl(url, &["push", site.path()]).ends(0);
    assert_eq!(tree(&pod.base), site.tree());
    assert_eq!(pod.get("a.example"), "two");
}

/// Nobody serves anything, so the same words would be wrong.
#[test]
fn what_commands_brought_is_not_said_to_be_served_by_a_haproxy_that_is_gone() {
    let mut pod = Pod::with(Version::V3_4, &[("--reload-timeout", "4s")]);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    site.write("maps/host.map", "a.example two\n");
    ctl(url, &["push", site.path()])
        .ends(0)
        .says("without a reload");
    pod.haproxy.kill();
    let pushed = ctl(url, &["push", site.path()]);
    pushed
        .ends(1)
        .says("HAProxy is not running: the set is on disk")
        .says("next: start HAProxy, then push again");
    assert!(!pushed.stdout.contains("serves"), "{pushed}");
    ctl(url, &["plan", site.path()])
        .ends(0)
        .says("reload: HAProxy has not answered since");
    let text = std::fs::read_to_string(pod.base.join("haproxy.cfg")).unwrap();
    pod.haproxy = Haproxy::start(Version::V3_4, &pod.base, &text);
    ctl(url, &["push", site.path()]).ends(0);
    assert_eq!(pod.get("a.example"), "two");
    let state = ctl(url, &["state"]);
    assert!(!state.stdout.contains("disk is back"), "{state}");
}

#[test]
fn a_revert_goes_back_to_the_last_good_set() {
    for version in VERSIONS {
        let pod = Pod::start(version);
        let site = Site::of(&pod);
        let url = &pod.url();
        ctl(url, &["revert"])
            .ends(1)
            .says("no last known good set")
            .says("hapticctl push DIR");
        ctl(url, &["push", site.path()]).ends(0);
        let good = site.tree();
        let worker = pod.haproxy.worker_pid();
        for output in ["text", "json"] {
            let already = ctl(url, &["revert", "-o", output]);
            already.ends(0);
            match output {
                "text" => drop(already.says("applied and runs already: nothing was done")),
                _ => assert_eq!(already.json()["agents"][0]["outcome"], "already"),
            }
        }
        assert_eq!(pod.haproxy.worker_pid(), worker, "{version}");
        // At runtime, so that it is applied and not yet the last good one.
        site.write("maps/host.map", "a.example two\n");
        ctl(url, &["push", site.path()]).ends(0);
        assert_eq!(pod.get("a.example"), "two");
        ctl(url, &["revert"]).ends(0).says("is back and reloaded");
        assert_eq!(pod.get("a.example"), "one", "{version}");
        assert_eq!(tree(&pod.base), good, "{version}");
        ctl(url, &["push", site.path()]).ends(0);
        assert_eq!(pod.get("a.example"), "two", "{version}");
    }
}

#[test]
fn a_reload_that_is_put_off_is_seen_and_waited_for() {
    let pod = Pod::with(Version::V3_4, &[("--reload-interval-min", "4s")]);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    site.write("haproxy.cfg", &pod.config("# two\n"));
    ctl(url, &["push", "--no-wait", site.path()])
        .ends(1)
        .says("the reload is put off to")
        .says("hapticctl wait");
    ctl(url, &["state"])
        .ends(1)
        .says("PENDING")
        .says("reload due");
    ctl(url, &["wait", "--timeout", "0"])
        .ends(1)
        .says("PENDING");
    ctl(url, &["wait"])
        .ends(0)
        .says("good: plan")
        .says("waited");
    site.write("haproxy.cfg", &pod.config("# three\n"));
    let waited = ctl(url, &["push", site.path()]);
    waited.ends(0).says("applied with a reload");
    assert!(waited.stderr.contains("waiting for its reload"), "{waited}");
    assert_eq!(tree(&pod.base), site.tree());

    // The one that is waited for is refused.
    site.write("haproxy.cfg", &pod.config("    frobnicate on\n"));
    ctl(url, &["push", site.path()]).ends(1).says("frobnicate");
    assert_eq!(pod.get("a.example"), "one");
}

#[test]
fn a_reload_can_be_asked_for_and_files_go_with_the_set() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    site.write("general/old.txt", "x\n");
    site.write(".git/HEAD", "ref\n");
    let url = &pod.url();
    ctl(url, &["push", site.path()])
        .ends(0)
        .says("left out, since their names start with a dot: .git");
    site.write("maps/host.map", "a.example two\n");
    std::fs::remove_file(site.dir.path().join("general/old.txt")).unwrap();
    let worker = pod.haproxy.worker_pid();
    ctl(url, &["push", "--reload", site.path()])
        .ends(0)
        .says("applied with a reload")
        .says("reload: a reload was asked for (--reload)");
    assert_ne!(pod.haproxy.worker_pid(), worker);
    assert!(!pod.base.join("general/old.txt").exists());
    assert_eq!(pod.get("a.example"), "two");
}

/// What is on disk is not the agent's before the first push, even if it is the very same.
#[test]
fn a_first_push_of_what_is_there_says_why_it_reloads() {
    let pod = Pod::start(Version::V3_4);
    let text = std::fs::read_to_string(pod.base.join("haproxy.cfg")).unwrap();
    let site = Site::new(&[("haproxy.cfg", &text)]);
    let url = &pod.url();
    for verb in ["plan", "push"] {
        let out = ctl(url, &[verb, site.path()]);
        out.ends(0)
            .says("reload: the agent does not know what is applied")
            .says("haproxy.cfg: the agent has not put it there");
        assert!(!out.stdout.contains("the configuration changed"), "{out}");
    }
    ctl(url, &["plan", site.path()])
        .ends(0)
        .says("nothing to do");
}

/// Nobody judged the files, so "mend them" would be the wrong advice.
#[test]
fn a_haproxy_that_is_gone_is_told_from_one_that_refuses() {
    let mut pod = Pod::with(Version::V3_4, &[("--reload-timeout", "4s")]);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    pod.haproxy.kill();
    site.write("haproxy.cfg", &pod.config("# two\n"));
    let next = "next: start HAProxy, then push again, which confirms it";
    ctl(url, &["push", site.path()])
        .ends(1)
        .says("HAProxy is not running: the set is on disk")
        .says(next);
    let state = ctl(url, &["state"]);
    state.ends(1).says("DOWN").says(next);
    assert!(!state.stdout.contains("REFUSED"), "{state}");
    let text = std::fs::read_to_string(pod.base.join("haproxy.cfg")).unwrap();
    pod.haproxy = Haproxy::start(Version::V3_4, &pod.base, &text);
    ctl(url, &["push", site.path()]).ends(0);
    assert_eq!(pod.get("a.example"), "one");
    assert_eq!(tree(&pod.base), site.tree());
}
