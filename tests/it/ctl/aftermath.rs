//! After a push that was not taken: what is said of disk and worker holds, as both are looked
//! at.

use std::time::{Duration, Instant};

use haptic_agent::testkit::FakeAgent;
use haptic_agent::testkit::fake_agent::ReloadFault;

use super::kit::{Out, Pod, Site, command, ctl, run};
use crate::support::agent::tree;
use crate::support::haproxy::{Haproxy, Version};

fn plan_of(pushed: &Out) -> String {
    let json = pushed.json();
    json["plan_id"].as_str().unwrap()[..12].to_owned()
}

/// The refusal is older than what is there now, and was answered without touching any of it.
#[test]
fn an_answer_from_memory_says_that_nothing_was_touched() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    site.write("haproxy.cfg", &pod.config("    frobnicate on\n"));
    ctl(url, &["push", site.path()]).ends(1).says("frobnicate");
    // Good again, and brought on by commands.
    site.write("haproxy.cfg", &pod.config(""));
    ctl(url, &["push", site.path()]).ends(0);
    site.write("maps/host.map", "a.example two\n");
    let pushed = ctl(url, &["push", site.path(), "-o", "json"]);
    let serving = plan_of(pushed.ends(0));
    let (good, worker) = (tree(&pod.base), pod.haproxy.worker_pid());
    // The very set from before.
    site.write("haproxy.cfg", &pod.config("    frobnicate on\n"));
    site.write("maps/host.map", "a.example one\n");
    let refused = ctl(url, &["push", site.path()]);
    refused.ends(1).says("was not asked again").says(&format!(
        "nothing was touched for this answer, and the worker goes on with plan {serving}"
    ));
    for wrong in ["disk is back", "a restart would", "put back"] {
        assert!(!refused.stdout.contains(wrong), "{wrong}: {refused}");
    }
    assert_eq!(tree(&pod.base), good);
    assert_eq!(pod.haproxy.worker_pid(), worker);
    assert_eq!(pod.get("a.example"), "two");
}

/// `hapticctl` with one agent that is a fake.
fn fake(agent: &FakeAgent, words: &[&str]) -> Out {
    let url = agent.url();
    let mut command = command(&[words, &["--agent", &url]].concat());
    command
        .env("HAPTIC_USERNAME", agent.username())
        .env("HAPTIC_PASSWORD", agent.password());
    run(command)
}

/// One command went through, another did not, and the reload that was to help was refused:
/// the worker is given what went back on disk, and what it served before is gone.
#[test]
fn a_worker_that_was_reloaded_with_the_set_from_before_is_told_as_that() {
    let agent = FakeAgent::start().unwrap();
    let site = Site::new(&[
        (
            "haproxy.cfg",
            "global\nfrontend f\n    use_backend %[path,map(maps/a.map)]\n    use_backend %[path,map(maps/b.map)]\n",
        ),
        ("maps/a.map", "k one\n"),
        ("maps/b.map", "k one\n"),
    ]);
    let loaded = plan_of(fake(&agent, &["push", site.path(), "-o", "json"]).ends(0));
    site.write("maps/a.map", "k two\n");
    let pushed = fake(&agent, &["push", site.path(), "-o", "json"]);
    let brought = plan_of(pushed.ends(0));
    let result = &pushed.json()["agents"][0]["result"];
    assert_eq!(result["mode"], "runtime", "{pushed}");
    // Two new certificates would do as well: something of this reaches the worker.
    site.write("maps/a.map", "k three\n");
    site.write("maps/b.map", "k three\n");
    agent.reject_op("map_replace", "[3]: no");
    agent.next_reload(ReloadFault::Refused("[ALERT] : no".into()));
    let refused = fake(&agent, &["push", site.path()]);
    let rollback = agent.state().last_apply.unwrap().rollback.unwrap();
    assert!(rollback.performed && rollback.reloaded, "{rollback:?}");
    refused
        .ends(1)
        .says(&format!("the worker now serves plan {loaded}"))
        .says(&format!(
            "Plan {brought}, which was applied, serves no more"
        ))
        .says("next: mend what is named above");
    assert_eq!(agent.state().running_plan_id[..12], *loaded);
    fake(&agent, &["state"])
        .ends(1)
        .says(&format!(
            "DEGRADED: the last push was refused, plan {loaded} serves"
        ))
        .says("since commands had reached the worker; what they had brought serves no more");
}

/// What goes back on disk over somebody's edit is no set that was ever good.
#[test]
fn files_that_go_back_edited_are_not_called_the_last_good_set() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let url = &pod.url();
    let good = plan_of(ctl(url, &["push", site.path(), "-o", "json"]).ends(0));
    let edited = b"a.example edited\n";
    std::fs::write(pod.base.join("maps/host.map"), edited).unwrap();
    site.write("haproxy.cfg", &pod.config("    frobnicate on\n"));
    let next = "next: mend what is named above, then push the directory again";
    let refused = ctl(url, &["push", site.path()]);
    refused
        .ends(1)
        .says(&format!(
            "the files that stood there before are back, and they are not plan {good}, which HAProxy loaded last, because something other than the agent had changed them"
        ))
        .says("a restart of HAProxy would load them")
        .says(next);
    assert!(!refused.stdout.contains("disk is back"), "{refused}");
    assert_eq!(tree(&pod.base)["maps/host.map"], edited);
    let state = ctl(url, &["state"]);
    state
        .ends(1)
        .says("no set that the agent has seen HAProxy load")
        .says(next);
    for wrong in ["last good set was put back", "revert"] {
        assert!(!state.stdout.contains(wrong), "{wrong}: {state}");
    }
    // The advice, followed.
    site.write("haproxy.cfg", &pod.config(""));
    ctl(url, &["push", site.path()]).ends(0);
    assert_eq!(tree(&pod.base), site.tree());
    ctl(url, &["state"]).ends(0).says("good: plan");
}

/// What a reload did is told of the reload alone.
#[test]
fn a_push_that_reloads_names_no_command() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    site.write("maps/host.map", "a.example two\n");
    let pushed = ctl(url, &["push", "--reload", site.path()]);
    pushed
        .ends(0)
        .says("applied with a reload")
        .says("reload: a reload was asked for (--reload)");
    assert!(!pushed.stdout.contains("runtime"), "{pushed}");
    site.write("maps/host.map", "a.example three\n");
    site.write("haproxy.cfg", &pod.config("# three\n"));
    let pushed = ctl(url, &["push", site.path()]);
    pushed.ends(0).says("reload: haproxy.cfg");
    assert!(!pushed.stdout.contains("runtime"), "{pushed}");
    site.write("maps/host.map", "a.example four\n");
    ctl(url, &["push", site.path()])
        .ends(0)
        .says("applied without a reload")
        .says("runtime: maps/host.map");
}

/// Somebody listens and never answers, as an agent that waits for HAProxy.
#[test]
fn a_wait_ends_when_its_time_is_over_whatever_the_agent_does() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", mute.local_addr().unwrap());
    for time in ["0", "1s"] {
        let begun = Instant::now();
        let waited = ctl(&url, &["wait", "--timeout", time]);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(6), "{took:?}: {waited}");
        waited.ends(1).says("a longer --timeout waits for it");
        assert!(!waited.stdout.contains("hapticctl wait"), "{waited}");
    }
}

/// HAProxy was started anew by somebody, with exactly the files that are applied: the agent
/// cannot know that, reloads by itself, and a wait has patience for it.
#[test]
fn a_worker_that_somebody_else_started_is_waited_for() {
    let mut pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    pod.haproxy.kill();
    let text = std::fs::read_to_string(pod.base.join("haproxy.cfg")).unwrap();
    pod.haproxy = Haproxy::start(Version::V3_4, &pod.base, &text);
    ctl(url, &["verify"]);
    let state = ctl(url, &["state"]);
    assert!(!state.stdout.contains("does not run"), "{state}");
    ctl(url, &["wait", "--timeout", "60s"])
        .ends(0)
        .says("good: plan");
}

/// What to do next is not asked of somebody who has nothing to do, and a plan that needs
/// HAProxy says so where it is gone.
#[test]
fn a_plan_ends_with_what_is_left_to_do() {
    let mut pod = Pod::with(Version::V3_4, &[("--reload-timeout", "2s")]);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    let plan = ctl(url, &["plan", site.path()]);
    plan.ends(0).says("nothing to do");
    assert!(!plan.stdout.contains("next:"), "{plan}");
    pod.haproxy.kill();
    ctl(url, &["plan", site.path()])
        .ends(0)
        .says("a reload, once HAProxy answers")
        .says("next: is HAProxy running");
}
