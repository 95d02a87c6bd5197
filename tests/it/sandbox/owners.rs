//! Owner, group and mode of files, as far as root may set them.

use super::scene::{mode, skip};
use crate::support::agent::{Apply, Setup};
use crate::support::haproxy::{Haproxy, Version, minimal};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

#[test]
fn a_replaced_file_keeps_what_it_had_and_a_new_one_takes_its_directory_s_group() {
    if !rustix::process::geteuid().is_root() {
        let _ = skip("only root can give files away");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    for sub in ["maps", "shared", "certs"] {
        fs::create_dir_all(base.join(sub)).unwrap();
    }
    let bits = |path: &str, bits: u32| {
        fs::set_permissions(base.join(path), fs::Permissions::from_mode(bits)).unwrap();
    };
    for (path, uid, gid, mode) in [
        ("maps/host.map", 1234, 1235, 0o604),
        ("certs/site.pem", 1234, 1236, 0o440),
        ("maps/gone.map", 7, 7, 0o600),
    ] {
        fs::write(base.join(path), b"old\n").unwrap();
        chown(base.join(path), Some(uid), Some(gid)).unwrap();
        bits(path, mode);
    }
    chown(base.join("shared"), None, Some(4242)).unwrap();
    bits("shared", 0o2755);
    let haproxy = Haproxy::start(Version::V3_4, &base, &minimal(&base));
    let agent = Setup::new(&base).start();
    let set = |plan: &str, seq: u64, word: &str| {
        Apply::new(plan, 1, seq)
            .file("maps/host.map", word.as_bytes())
            .file("certs/site.pem", word.as_bytes())
            .file("maps/gone.map", word.as_bytes())
            .file("shared/deep/new.txt", word.as_bytes())
            .file("certs/new.pem", word.as_bytes())
            .file("haproxy.cfg", minimal(&base).as_bytes())
    };
    let check = || {
        for (path, uid, gid, want) in [
            ("maps/host.map", 1234, 1235, 0o604),
            ("certs/site.pem", 1234, 1236, 0o440),
            ("maps/gone.map", 7, 7, 0o600),
            ("shared/deep", 0, 4242, 0o2755),
            ("shared/deep/new.txt", 0, 4242, 0o644),
            ("certs/new.pem", 0, 0, 0o640),
        ] {
            let found = fs::metadata(base.join(path)).unwrap();
            assert_eq!((found.uid(), found.gid()), (uid, gid), "{path}");
            assert_eq!(mode(&base.join(path)), want, "{path}");
        }
    };
    let state = set("p1", 1, "one\n")
        .on(&agent.state())
        .succeed(&agent, "reload");
    check();
    let changed = set("p2", 2, "two\n").mode("auto").on(&state);
    changed.succeed(&agent, "file_only");
    check();
    let mut broken = set("p3", 3, "three\n").on(&agent.state());
    broken = broken.file("x.map", b"");
    let config = broken.parts.iter_mut().find(|part| part.0 == "haproxy.cfg");
    let bytes = &mut config.unwrap().2;
    bytes.extend_from_slice(b"nonsense\n");
    let bytes = bytes.clone();
    let files = broken.manifest["files"].as_array_mut().unwrap();
    let entry = files.iter_mut().find(|file| file["path"] == "haproxy.cfg");
    let entry = entry.unwrap();
    entry["digest"] = crate::support::agent::sha256(&bytes).into();
    entry["size"] = bytes.len().into();
    broken.fail(&agent, "reload");
    assert_eq!(fs::read(base.join("maps/host.map")).unwrap(), b"one\n");
    check();
    drop(haproxy);
}
