//! Two people at once, and a leader with a higher epoch.

use super::kit::{Moment, Pass, Pod, Relay, Site, command, ctl, run};
use crate::support::agent::{Apply, tree};
use crate::support::haproxy::Version;

#[test]
fn of_two_pushes_at_once_one_is_told_who_won_and_nothing_is_lost() {
    for version in [Version::V3_0, Version::V3_4] {
        let pod = Pod::start(version);
        let (mine, theirs) = (Site::of(&pod), Site::of(&pod));
        let direct = pod.url();
        ctl(&direct, &["push", mine.path()]).ends(0);
        mine.write("maps/host.map", "a.example mine\n");
        theirs.write("maps/host.map", "a.example theirs\n");
        theirs.write("general/note.txt", "theirs\n");
        // Theirs is pushed between my look and my push.
        let their_path = theirs.path().to_owned();
        let url = direct.clone();
        let mut pushed = false;
        let relay = Relay::new(
            pod.agent.api(),
            Box::new(move |moment| {
                if moment == Moment::Begun && !pushed {
                    pushed = true;
                    let mut theirs = command(&["push", &their_path, "--agent", &url]);
                    theirs.env("USER", "berta");
                    run(theirs).ends(0);
                }
                Pass::On
            }),
        );
        let told = ctl(&relay.url(), &["push", mine.path()]);
        let their_plan = pod.agent.state()["applied_plan_id"]
            .as_str()
            .unwrap()
            .to_owned();
        told.ends(1)
            .says("berta@")
            .says("has pushed meanwhile")
            .says(&format!("plan {} is applied now", &their_plan[..12]))
            .says("--overwrite");
        assert_eq!(pod.get("a.example"), "theirs", "{version}");
        assert_eq!(tree(&pod.base), theirs.tree(), "{version}");
        ctl(&direct, &["state"]).ends(0).says("pushed by berta@");
        let waited = ctl(&direct, &["wait", "-o", "json"]);
        let by = &waited.ends(0).json()["agents"][0]["pushed_by"];
        assert!(by.as_str().unwrap().starts_with("berta@"), "{waited}");
        // A look, then again: that is on purpose now.
        ctl(&direct, &["plan", mine.path()])
            .ends(0)
            .says("- general/note.txt");
        ctl(&direct, &["push", mine.path()]).ends(0);
        assert_eq!(pod.get("a.example"), "mine", "{version}");
        assert_eq!(tree(&pod.base), mine.tree(), "{version}");
    }
}

/// Two people who push what a colleague has merged are both right.
#[test]
fn the_same_set_pushed_twice_at_once_is_what_both_wanted() {
    let pod = Pod::with(Version::V3_4, &[("--reload-interval-min", "2s")]);
    let (mine, theirs) = (Site::of(&pod), Site::of(&pod));
    let direct = pod.url();
    for (round, flags) in [vec![], vec!["--no-wait"], vec!["--reload"]]
        .iter()
        .enumerate()
    {
        for site in [&mine, &theirs] {
            site.write("haproxy.cfg", &pod.config(&format!("# {round}\n")));
        }
        let their_path = theirs.path().to_owned();
        let (url, flags) = (direct.clone(), flags.clone());
        let mut pushed = false;
        let their_flags = flags.clone();
        let relay = Relay::new(
            pod.agent.api(),
            Box::new(move |moment| {
                if moment == Moment::Begun && !pushed {
                    pushed = true;
                    let words = [&["push", &their_path, "--agent", &url], &*their_flags].concat();
                    let mut theirs = command(&words);
                    theirs.env("USER", "berta");
                    run(theirs);
                }
                Pass::On
            }),
        );
        let told = ctl(&relay.url(), &[&["push", mine.path()], &*flags].concat());
        match flags.as_slice() {
            [] => drop(
                told.ends(0)
                    .says("applied by somebody else at the same time")
                    .says("berta@"),
            ),
            ["--no-wait"] => drop(told.ends(1).says("the reload is put off to")),
            // Theirs may have done without, so a round more sees to it.
            _ => drop(told.ends(0).says("applied with a reload")),
        }
        ctl(&direct, &["wait"]).ends(0);
        assert_eq!(tree(&pod.base), mine.tree());
    }
}

#[test]
fn who_insists_pushes_over_the_other() {
    let pod = Pod::start(Version::V3_4);
    let (mine, theirs) = (Site::of(&pod), Site::of(&pod));
    mine.write("maps/host.map", "a.example mine\n");
    let (url, their_path) = (pod.url(), theirs.path().to_owned());
    let mut pushed = false;
    let relay = Relay::new(
        pod.agent.api(),
        Box::new(move |moment| {
            if moment == Moment::Begun && !pushed {
                pushed = true;
                ctl(&url, &["push", &their_path]).ends(0);
            }
            Pass::On
        }),
    );
    let out = ctl(&relay.url(), &["push", "--overwrite", mine.path()]);
    out.ends(0);
    assert!(out.stderr.contains("trying again"), "{out}");
    assert_eq!(pod.get("a.example"), "mine");
}

#[test]
fn pushes_at_the_same_time_end_in_one_of_the_sets() {
    let pod = Pod::start(Version::V3_4);
    let sites: Vec<Site> = (0..4)
        .map(|at| {
            let site = Site::of(&pod);
            site.write("maps/host.map", &format!("a.example {at}\n"));
            site
        })
        .collect();
    let url = pod.url();
    let outs: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = sites
            .iter()
            .map(|site| scope.spawn(|| ctl(&url, &["push", site.path()])))
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(outs.iter().any(|out| out.code == 0));
    for out in &outs {
        if out.code != 0 {
            out.ends(1).says("has pushed meanwhile");
        }
    }
    let winner = sites.iter().position(|site| site.tree() == tree(&pod.base));
    let winner = winner.expect("a mixture of sets");
    assert_eq!(outs[winner].code, 0, "{}", outs[winner]);
    assert_eq!(pod.get("a.example"), winner.to_string());
    ctl(&url, &["state"]).ends(0);
}

#[test]
fn a_newer_leader_is_left_alone_unless_taken_over() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let url = pod.url();
    ctl(&url, &["push", site.path()]).ends(0);
    // A leader of epoch 5 whose set HAProxy refuses: what is applied stays.
    Apply::new("leader's", 5, 1)
        .on(&pod.agent.state())
        .file("haproxy.cfg", b"nonsense\n")
        .fail(&pod.agent, "reload");
    site.write("maps/host.map", "a.example two\n");
    ctl(&url, &["push", site.path()])
        .ends(1)
        .says("a newer leader has spoken")
        .says("epoch 1 is too low, 5 was the highest")
        .says("--take-over");
    let stale = ctl(&url, &["push", site.path(), "-o", "json"]);
    let agent = &stale.ends(1).json()["agents"][0];
    assert_eq!(agent["error"]["kind"], "stale_epoch");
    assert_eq!(agent["highest_epoch"], 5);
    ctl(&url, &["revert"]).ends(1).says("--take-over");
    ctl(&url, &["push", "--take-over", site.path()]).ends(0);
    assert_eq!(pod.get("a.example"), "two");
    // One above it: nothing is guessed.
    assert_eq!(pod.agent.state()["applied_token"]["leader_epoch"], 6);
    ctl(&url, &["revert"]).ends(0);
}
