//! Whatever comes of a push, the line that says what to do next is right: each row brings
//! an agent into trouble, reads the advice, follows it, and is out of trouble.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::kit::{Out, Pod, Site, ctl};
use crate::support::agent::tree;
use crate::support::haproxy::{Haproxy, Version};
use crate::support::wait;

const AWAY: &str = "next: is HAProxy running, as a master (-W)";

/// What is said of a set for a HAProxy that does not run.
const WAITS_ON_DISK: &str = "HAProxy is not running: the set is on disk";
const START: &str = "next: start HAProxy, then push again, which confirms it";

impl Pod {
    /// With a good set pushed.
    fn pushed(version: Version, flags: &[(&str, &str)]) -> (Self, Site) {
        let pod = Self::with(version, flags);
        let site = Site::of(&pod);
        ctl(&pod.url(), &["push", site.path()]).ends(0);
        (pod, site)
    }

    fn push(&self, site: &Site) -> Out {
        ctl(&self.url(), &["push", site.path()])
    }

    fn standing(&self) -> String {
        let json = ctl(&self.url(), &["state", "-o", "json"]).json();
        json["agents"][0]["standing"].as_str().unwrap().to_owned()
    }

    /// The push went through, and all is well.
    fn is_well(&self, site: &Site, pushed: &Out) {
        pushed.ends(0);
        assert_eq!(tree(&self.base), site.tree());
        ctl(&self.url(), &["state"]).ends(0).says("good: plan");
    }

    /// HAProxy again, from what is on disk.
    fn start_haproxy(&mut self) {
        let text = fs::read_to_string(self.base.join("haproxy.cfg")).unwrap();
        self.haproxy = Haproxy::start(self.haproxy.version(), &self.base, &text);
    }
}

/// The sort of a refusal, for programs.
fn refusal(pod: &Pod, site: &Site) -> String {
    let out = ctl(&pod.url(), &["push", site.path(), "-o", "json"]);
    let agent = &out.ends(1).json()["agents"][0];
    let refusal = agent["refusal"].as_str().unwrap();
    let kind = match refusal {
        "kept" => "not_running",
        _ => "rejected",
    };
    assert_eq!(agent["error"]["kind"], kind, "{out}");
    refusal.to_owned()
}

/// HAProxy died, the agent lives, and nobody has pushed anything since.
#[test]
fn a_haproxy_that_died_is_told_by_every_verb_and_waited_for() {
    for version in [Version::V3_0, Version::V3_4] {
        let (mut pod, site) = Pod::pushed(version, &[("--reload-timeout", "4s")]);
        let url = &pod.url();
        pod.haproxy.kill();
        // Before the agent has noticed by itself.
        ctl(url, &["wait", "--timeout", "1s"]).ends(1).says("DOWN");
        wait::until("the agent notices", Duration::from_secs(30), || {
            (pod.standing() == "down").then_some(())
        });
        let state = ctl(url, &["state", "-o", "json"]);
        let worker = &state.ends(1).json()["agents"][0]["state"]["worker"];
        assert_eq!(worker["answers"], false, "{state}");
        ctl(url, &["state"])
            .ends(1)
            .says("DOWN: HAProxy does not answer")
            .says("because")
            .says(AWAY);
        ctl(url, &["verify"])
            .ends(1)
            .says("HAProxy has not answered since")
            .says(AWAY);
        ctl(url, &["doctor", site.path()])
            .ends(1)
            .says("error: HAProxy has not answered since");
        ctl(url, &["plan", site.path()])
            .ends(0)
            .says("reload: HAProxy has not answered since");
        pod.start_haproxy();
        ctl(url, &["wait", "--timeout", "60s"])
            .ends(0)
            .says("good: plan");
        pod.is_well(&site, &pod.push(&site));
    }
}

/// The agent's state is some seconds old; "unchanged" has to be true all the same.
#[test]
fn unchanged_is_said_of_what_was_looked_at() {
    let (mut pod, site) = Pod::pushed(Version::V3_4, &[("--reload-timeout", "4s")]);
    pod.push(&site)
        .ends(0)
        .says("unchanged: it runs this set already");
    fs::write(pod.base.join("maps/host.map"), "a.example edited\n").unwrap();
    pod.push(&site).ends(0).says("applied with a reload");
    assert_eq!(pod.get("a.example"), "one");
    fs::remove_file(pod.base.join("maps/host.map")).unwrap();
    let pushed = pod.push(&site);
    pushed.says("applied with a reload");
    pod.is_well(&site, &pushed);
    pod.haproxy.kill();
    pod.push(&site).ends(1).says(WAITS_ON_DISK).says(START);
    pod.start_haproxy();
    pod.is_well(&site, &pod.push(&site));
}

#[test]
fn what_haproxy_judged_is_to_be_mended_also_where_the_agent_saw_it_first() {
    for (version, line, words) in [
        (Version::V3_0, "    frobnicate on\n", "frobnicate"),
        (Version::V3_4, "    frobnicate on\n", "frobnicate"),
        // 3.4's master would not survive it, so it is not asked.
        (
            Version::V3_4,
            "    http-request deny if \"x\n",
            "no reload was sent",
        ),
    ] {
        let (pod, site) = Pod::pushed(version, &[]);
        site.write("haproxy.cfg", &pod.config(line));
        for _ in 0..2 {
            pod.push(&site)
                .ends(1)
                .says(words)
                .says("next: mend what is named above, then push again");
        }
        assert_eq!(refusal(&pod, &site), "files");
        ctl(&pod.url(), &["state"])
            .ends(1)
            .says("next: push a set that HAProxy accepts: hapticctl push DIR; hapticctl revert settles for plan");
        // Either of the two is a way out.
        ctl(&pod.url(), &["revert"]).ends(0);
        ctl(&pod.url(), &["state"]).ends(0);
        pod.push(&site).ends(1);
        site.write("haproxy.cfg", &pod.config("# mended\n"));
        pod.is_well(&site, &pod.push(&site));
    }
}

#[test]
fn a_master_that_hangs_has_judged_nothing() {
    let (pod, site) = Pod::pushed(Version::V3_4, &[("--reload-timeout", "4s")]);
    let master = i32::try_from(pod.haproxy.master_pid()).unwrap();
    let master = Pid::from_raw(master).unwrap();
    kill_process(master, Signal::STOP).unwrap();
    site.write("haproxy.cfg", &pod.config("# two\n"));
    let next = "next: HAProxy's log says what its master is doing; once it answers, push again";
    let hung = pod.push(&site);
    let state = ctl(&pod.url(), &["state"]);
    kill_process(master, Signal::CONT).unwrap();
    hung.ends(1).says(next);
    state.ends(1).says("DEGRADED").says(next);
    assert!(!state.stdout.contains("revert"), "{state}");
    let pushed = wait::until("the master answers", Duration::from_secs(30), || {
        let out = pod.push(&site);
        (out.code == 0).then_some(out)
    });
    pod.is_well(&site, &pushed);
}

/// A worker that is killed takes its master along: nobody is there to judge anything.
#[test]
fn a_worker_that_was_killed_is_a_haproxy_to_start() {
    for version in [Version::V3_0, Version::V3_4] {
        let (mut pod, site) = Pod::pushed(version, &[("--reload-timeout", "4s")]);
        let worker = i32::try_from(pod.haproxy.worker_pid()).unwrap();
        kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
        wait::until("the agent notices", Duration::from_secs(30), || {
            (pod.standing() == "down").then_some(())
        });
        wait::until("the master goes too", Duration::from_secs(30), || {
            pod.haproxy.exited().map(drop)
        });
        site.write("haproxy.cfg", &pod.config("# two\n"));
        pod.push(&site)
            .ends(1)
            .says(WAITS_ON_DISK)
            .says("that is what it starts with; nothing has confirmed it")
            .says(START)
            .says("to go back to plan");
        assert_eq!(refusal(&pod, &site), "kept");
        ctl(&pod.url(), &["state"])
            .ends(1)
            .says("DOWN")
            .says("written, with no HAProxy there to load it")
            .says(START);
        assert_eq!(tree(&pod.base), site.tree(), "{version}");
        pod.start_haproxy();
        let back = "next: HAProxy answers again: push again, hapticctl push DIR";
        ctl(&pod.url(), &["wait", "--timeout", "60s"])
            .ends(1)
            .says(back);
        ctl(&pod.url(), &["state"]).ends(1).says(back);
        pod.is_well(&site, &pod.push(&site));
    }
}

/// HAProxy takes the set, and the agent loses sight of it: the line is named before and after.
#[test]
fn a_configuration_without_the_agent_s_socket_is_told_by_the_line() {
    for version in [Version::V3_0, Version::V3_4] {
        let (pod, site) = Pod::pushed(version, &[("--reload-timeout", "4s")]);
        let url = &pod.url();
        let good = pod.config("");
        let socket = pod.base.join("worker.sock");
        let line = format!(
            "stats socket unix@{} mode 600 level admin",
            socket.display()
        );
        let without: String = good
            .lines()
            .filter(|line| !line.trim().starts_with("stats socket"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_ne!(without, good, "{good}");
        site.write("haproxy.cfg", &without);
        for verb in ["plan", "doctor"] {
            ctl(url, &[verb, site.path()])
                .ends(0)
                .says("warning: haproxy.cfg: no `stats socket` line opens")
                .says(&line);
        }
        let pushed = pod.push(&site);
        pushed
            .ends(1)
            .says("no new worker showed up in time")
            .says(&format!("next: HAProxy has loaded the set, but the agent does not find its worker: see that the global section has the line `{line}`"));
        assert!(
            pushed
                .stderr
                .contains("warning: haproxy.cfg: no `stats socket`")
                && pushed.stderr.contains(&line),
            "{pushed}"
        );
        let json = ctl(url, &["push", "-o", "json", site.path()]);
        let agent = &json.ends(1).json()["agents"][0];
        assert_eq!(agent["refusal"], "no_worker", "{json}");
        assert!(
            agent["warnings"][0].as_str().unwrap().contains(&line),
            "{json}"
        );
        ctl(url, &["state"]).ends(1).says(&line);
        // The line, as it is named.
        site.write(
            "haproxy.cfg",
            &without.replace("global\n", &format!("global\n    {line}\n")),
        );
        let pushed = pod.push(&site);
        assert!(!pushed.stderr.contains("stats socket"), "{pushed}");
        pod.is_well(&site, &pushed);
    }
}

#[test]
fn a_disk_that_does_not_let_it_is_named_and_put_right() {
    let (pod, site) = Pod::pushed(Version::V3_4, &[]);
    site.write("maps/more.map", "a b\n");
    let in_the_way = pod.base.join("maps/more.map");
    fs::create_dir(&in_the_way).unwrap();
    fs::write(in_the_way.join("x"), "x").unwrap();
    pod.push(&site)
        .ends(1)
        .says("maps/more.map")
        .says("next: make possible on the agent's machine what is named above, then push again");
    assert_eq!(refusal(&pod, &site), "disk");
    ctl(&pod.url(), &["state"])
        .ends(1)
        .says("next: make possible on the agent's machine what is named above");
    fs::remove_dir_all(&in_the_way).unwrap();
    pod.is_well(&site, &pod.push(&site));
}

/// No advice leads back to a way that has just been refused.
#[test]
fn a_way_back_that_is_refused_is_not_advised_again() {
    let (pod, site) = Pod::pushed(Version::V3_4, &[]);
    let url = &pod.url();
    // What was good needs a file that is not of the set, and that goes.
    let outside = tempfile::NamedTempFile::new().unwrap();
    let config = pod.config("").replace(
        "global\n",
        &format!(
            "global\n    tune.lua.bool-sample-conversion normal\n    lua-load {}\n",
            outside.path().display()
        ),
    );
    site.write("haproxy.cfg", &config);
    pod.push(&site).ends(0);
    site.write("maps/host.map", "a.example two\n");
    pod.push(&site).ends(0).says("without a reload");
    drop(outside);
    let advice = "next: what was good once is so no more: push a set that HAProxy accepts";
    ctl(url, &["revert"])
        .ends(1)
        .says("stage revert_reload")
        .says(advice);
    let state = ctl(url, &["state"]);
    state.ends(1).says("push a set that HAProxy accepts");
    assert!(!state.stdout.contains("hapticctl revert"), "{state}");
    site.write("haproxy.cfg", &pod.config(""));
    pod.is_well(&site, &pod.push(&site));

    // The last good files are not whole any more.
    fs::write(pod.base.join("maps/host.map"), "a.example edited\n").unwrap();
    ctl(url, &["revert"])
        .ends(1)
        .says("next: only a whole set helps: hapticctl push DIR");
    let state = ctl(url, &["state"]);
    state.ends(1).says("next: only a whole set helps");
    pod.is_well(&site, &pod.push(&site));
}

/// Nothing of the advice for an agent that does not know what it holds is a dead end.
#[test]
fn files_changed_by_hand_are_compared_and_pushed() {
    let (pod, site) = Pod::pushed(Version::V3_4, &[]);
    let url = &pod.url();
    fs::write(pod.base.join("maps/host.map"), "a.example edited\n").unwrap();
    ctl(url, &["verify"]).ends(1).says("changed  maps/host.map");
    ctl(url, &["state"])
        .ends(1)
        .says("UNKNOWN")
        .says("next: hapticctl verify DIR lists what differs; hapticctl push DIR puts it right");
    ctl(url, &["verify", site.path()])
        .ends(1)
        .says("changed  maps/host.map");
    pod.is_well(&site, &pod.push(&site));
}

/// A reload that was put off and can be asked of nobody any more.
#[test]
fn a_put_off_reload_that_cannot_be_asked_for_is_named() {
    let flags = [("--reload-interval-min", "4s"), ("--reload-timeout", "2s")];
    let pod = Pod::with(Version::V3_4, &flags);
    let (mut pod, site) = {
        let site = Site::of(&pod);
        wait::until("a first push", Duration::from_secs(40), || {
            (ctl(&pod.url(), &["push", site.path()]).code == 0).then_some(())
        });
        (pod, site)
    };
    let url = &pod.url();
    site.write("haproxy.cfg", &pod.config("# two\n"));
    ctl(url, &["push", "--no-wait", site.path()])
        .ends(1)
        .says("the reload is put off to")
        .says("next: hapticctl wait");
    pod.haproxy.kill();
    let held = "the agent asks again by itself, and hapticctl wait waits for it";
    // Long before the time that a push has: nobody but the reader can mend that.
    let begun = std::time::Instant::now();
    let out = ctl(url, &["push", site.path()]);
    assert!(begun.elapsed() < Duration::from_secs(60), "{out}");
    out.ends(1)
        .says("has not run yet: the reload could not be asked for: nobody listens")
        .says(held);
    assert!(
        out.stderr
            .contains("its reload waits: the reload could not"),
        "{out}"
    );
    let told = ctl(url, &["push", "--no-wait", site.path()]);
    told.ends(1)
        .says("the reload could not be asked for")
        .says(held);
    assert!(
        told.stderr
            .contains("HAProxy's worker has not answered its agent since")
            && told
                .stderr
                .contains("nothing runs the set before it is started"),
        "{told}"
    );
    ctl(url, &["state"]).ends(1).says("DOWN").says(held);
    pod.start_haproxy();
    ctl(url, &["wait", "--timeout", "60s"]).ends(0);
    pod.is_well(&site, &pod.push(&site));
}

/// The main file is gone by hand when a reload comes due.
#[test]
fn a_file_that_was_removed_before_its_reload_is_written_again() {
    let (pod, site) = Pod::pushed(Version::V3_4, &[("--reload-interval-min", "5s")]);
    let url = &pod.url();
    site.write("haproxy.cfg", &pod.config("# two\n"));
    ctl(url, &["push", "--no-wait", site.path()]).ends(1);
    fs::remove_file(pod.base.join("haproxy.cfg")).unwrap();
    wait::until("the reload comes due", Duration::from_secs(30), || {
        (pod.standing() == "degraded").then_some(())
    });
    ctl(url, &["state"])
        .ends(1)
        .says("haproxy.cfg cannot be read")
        .says("next: hapticctl push DIR writes it again");
    pod.is_well(&site, &pod.push(&site));
}

#[test]
fn a_name_that_the_agent_keeps_for_itself_is_told_by_the_plan() {
    let (pod, site) = Pod::pushed(Version::V3_4, &[]);
    site.write("worker.sock", "not a socket\n");
    for verb in ["plan", "push"] {
        ctl(&pod.url(), &[verb, site.path()])
            .ends(1)
            .says("worker.sock is a name that the agent keeps for itself")
            .says("next: give the file another name");
    }
    fs::rename(
        site.dir.path().join("worker.sock"),
        site.dir.path().join("note"),
    )
    .unwrap();
    pod.is_well(&site, &pod.push(&site));
}
