//! What an agent's disk holds, as `verify` and `plan` tell it.

use super::kit::{Pod, Site, ctl};
use crate::support::agent::tree;
use crate::support::haproxy::Version;

#[test]
fn files_that_somebody_changed_are_listed_and_put_right() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    site.write("general/a.txt", "a\n");
    site.write("general/b.txt", "b\n");
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    ctl(url, &["verify"])
        .ends(0)
        .says("4 files on disk, all as in the agent's records");
    ctl(url, &["verify", site.path()])
        .ends(0)
        .says("all as in the directory");
    std::fs::write(pod.base.join("general/a.txt"), "edited\n").unwrap();
    std::fs::remove_file(pod.base.join("general/b.txt")).unwrap();
    let found = ctl(url, &["verify"]);
    found
        .ends(1)
        .says("changed  general/a.txt")
        .says("missing  general/b.txt");
    // What was found is not found again, but it is not forgotten.
    ctl(url, &["verify"])
        .ends(1)
        .says("does not know what is applied");
    let against = ctl(url, &["verify", site.path()]);
    against
        .ends(1)
        .says("changed  general/a.txt")
        .says("missing  general/b.txt");
    ctl(url, &["state"]).ends(1).says("UNKNOWN");
    ctl(url, &["push", site.path()])
        .ends(0)
        .says("applied with a reload");
    assert_eq!(tree(&pod.base), site.tree());
    ctl(url, &["verify"]).ends(0);
}

/// What somebody's hand has changed on the agent's disk, a plan sees too.
#[test]
fn a_plan_is_made_after_a_look_at_the_disk() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    std::fs::write(pod.base.join("maps/host.map"), "a.example edited\n").unwrap();
    ctl(url, &["plan", site.path()])
        .ends(0)
        .says("1 file to write, and a reload")
        .says("~ maps/host.map")
        .says("hapticctl push with the same flags does it");
    let json = ctl(url, &["plan", "-o", "json", site.path()]);
    assert_eq!(json.json()["agents"][0]["hashed"], true);
    ctl(url, &["push", site.path()]).ends(0);
    ctl(url, &["plan", site.path()])
        .ends(0)
        .says("nothing to do");
}

/// A directory that is a link is followed by nobody, and what `verify` says of it is no other
/// story than what the push says.
#[test]
fn a_directory_that_is_a_link_is_thought_of() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    let (maps, elsewhere) = (pod.base.join("maps"), tempfile::tempdir().unwrap());
    let there = elsewhere.path().join("maps");
    std::fs::create_dir(&there).unwrap();
    std::fs::copy(maps.join("host.map"), there.join("host.map")).unwrap();
    std::fs::remove_dir_all(&maps).unwrap();
    std::os::unix::fs::symlink(&there, &maps).unwrap();
    let hint = "below maps: if the files are there all the same, it or a directory on the way is a symbolic link";
    ctl(url, &["verify"])
        .ends(1)
        .says("maps/host.map")
        .says(hint);
    ctl(url, &["verify", site.path()])
        .ends(1)
        .says(hint)
        .says("make it a directory, or a push is refused");
    ctl(url, &["push", site.path()])
        .ends(1)
        .says("maps is a symbolic link");
    std::fs::remove_file(&maps).unwrap();
    ctl(url, &["push", site.path()]).ends(0);
    let well = ctl(url, &["verify", site.path()]);
    assert!(!well.ends(0).stdout.contains("symbolic"), "{well}");
}

#[test]
fn what_stands_in_a_file_s_place_is_named() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    site.write("general/a.txt", "a\n");
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    let place = pod.base.join("general/a.txt");
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("x"), "x").unwrap();
    let away = "next: move away what stands in a file's place";
    let words = "blocked  general/a.txt, which is a directory";
    ctl(url, &["verify"]).ends(1).says(words).says(away);
    ctl(url, &["verify"])
        .ends(1)
        .says("no file in its place: general/a.txt is a directory")
        .says(away);
    let against = ctl(url, &["verify", site.path()]);
    against.ends(1).says(words).says(away);
    assert!(!against.stdout.contains("missing"), "{against}");
    let json = ctl(url, &["verify", "-o", "json", site.path()]);
    let found = &json.json()["agents"][0]["differences"][0];
    assert_eq!(found["difference"], "blocked");
    assert_eq!(found["by"], "a directory");
    ctl(url, &["plan", site.path()])
        .ends(0)
        .says("general/a.txt: on the agent's disk a directory stands in its place")
        .says(away);
    ctl(url, &["push", site.path()])
        .ends(1)
        .says("general/a.txt is a directory, and the agent replaces only regular files");
    let plan = ctl(url, &["plan", site.path()]);
    assert!(!plan.stdout.contains("something is wrong"), "{plan}");
    std::fs::remove_dir_all(&place).unwrap();
    ctl(url, &["push", site.path()]).ends(0);
    ctl(url, &["verify", site.path()]).ends(0);
    assert!(pod.agent.state().get("in_the_way").is_none());
}
