//! Several agents: one down, one on an older HAProxy.

use super::kit::{Pod, Site, command, lines_of, run};
use crate::support::agent::tree;
use crate::support::haproxy::Version;

#[test]
fn every_outcome_is_shown_and_one_bad_one_is_exit_1() {
    let (old, new, mut down) = (
        Pod::start(Version::V3_0),
        Pod::start(Version::V3_4),
        Pod::start(Version::V3_4),
    );
    down.agent.kill();
    let urls = [old.url(), down.url(), new.url()];
    let agents = [
        "--agent", &urls[0], "--agent", &urls[1], "--agent", &urls[2],
    ];
    // 3.0 has no such action.
    let site = Site::of(&new);
    site.write(
        "haproxy.cfg",
        &new.config("    http-request pause 1 if FALSE\n"),
    );
    let out = run(command(&[&["push", site.path()][..], &agents].concat()));
    out.ends(1).says("2 of 3 agents are not good");
    let of_old = lines_of(&out, &urls[0]).join("\n");
    assert!(
        of_old.contains("refused at stage reload") && of_old.contains("pause"),
        "{out}"
    );
    let of_down = lines_of(&out, &urls[1]).join("\n");
    assert!(
        of_down.contains("Connection refused") && of_down.contains("next: "),
        "{out}"
    );
    let of_new = lines_of(&out, &urls[2]).join("\n");
    assert!(of_new.contains("applied with a reload"), "{out}");
    assert_eq!(tree(&new.base), site.tree());
    assert_ne!(tree(&old.base), site.tree());
    assert_eq!(
        old.get("x"),
        "",
        "the bootstrap configuration still answers"
    );

    let json = run(command(&[&["state", "-o", "json"][..], &agents].concat()));
    let document = json.ends(1).json();
    let good: Vec<bool> = document["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| agent["good"].as_bool().unwrap())
        .collect();
    assert_eq!(good, [false, false, true], "{document:#}");
    assert_eq!(document["good"], false);
    assert_eq!(document["agents"][1]["error"]["kind"], "transport");
    assert_eq!(document["agents"][0]["agent"], urls[0].as_str());
}

#[test]
fn a_list_in_a_file_serves_as_well() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let list = site.dir.path().join(".agents");
    std::fs::write(&list, format!("# ours\n\n  {}/  \n", pod.url())).unwrap();
    let list = list.to_str().unwrap();
    run(command(&["push", site.path(), "--agents", list])).ends(0);
    run(command(&["state", "--agents", list]))
        .ends(0)
        .says("good: plan");
    let twice = run(command(&["state", "--agents", list, "--agent", &pod.url()]));
    twice.ends(2);
    assert!(twice.stderr.contains("is named twice"), "{twice}");
}
