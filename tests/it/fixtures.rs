//! The file sets that other tests and the demo start from are what they claim to be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn make_site(dir: &Path, args: &[&str]) -> Output {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/make-site"))
        .arg(dir)
        .args(args)
        .output()
        .unwrap()
}

/// The HAProxy versions at hand. Without any, a test that needs one says so and ends.
fn versions() -> Vec<PathBuf> {
    let Some(servers) = std::env::var_os("HAPTIC_SERVERS") else {
        eprintln!("skipped: HAPTIC_SERVERS names no directory of servers (make test sets it)");
        return Vec::new();
    };
    let found: Vec<PathBuf> = ["haproxy-3.0", "haproxy-3.2", "haproxy-3.4"]
        .iter()
        .map(|name| Path::new(&servers).join(name).join("haproxy"))
        .filter(|path| path.exists())
        .collect();
    assert!(
        !found.is_empty(),
        "no HAProxy below {}",
        Path::new(&servers).display()
    );
    found
}

/// Both sites, a certificate, and a configuration that was filled up pass HAProxy's own
/// check on every version, without a warning.
#[test]
fn every_version_accepts_both_sites() {
    let dir = tempfile::tempdir().unwrap();
    let (small, large) = (dir.path().join("small"), dir.path().join("large"));
    let out = make_site(&small, &["--small", "--http-port", "18080"]);
    assert!(out.status.success(), "{out:?}");
    let out = make_site(
        &large,
        &[
            "--routes",
            "300",
            "--https-port",
            "18443",
            "--certs",
            "2",
            "--config-bytes",
            "300000",
        ],
    );
    assert!(out.status.success(), "{out:?}");
    assert_eq!(
        fs::metadata(large.join("haproxy.cfg")).unwrap().len(),
        300_000
    );
    assert_eq!(fs::read_dir(large.join("maps")).unwrap().count(), 29);
    for haproxy in versions() {
        for site in [&small, &large] {
            let out = Command::new(&haproxy)
                .arg("-c")
                .arg("-f")
                .arg(site.join("haproxy.cfg"))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{}: {said}", haproxy.display());
            assert!(!said.contains("[WARNING]"), "{}: {said}", haproxy.display());
        }
    }
}

#[test]
fn the_same_arguments_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("site");
    let read = || {
        assert!(make_site(&site, &["--routes", "20"]).status.success());
        (
            fs::read(site.join("haproxy.cfg")).unwrap(),
            fs::read(site.join("maps/note-29.map")).unwrap(),
        )
    };
    assert_eq!(read(), read());
}

#[test]
fn a_wrong_argument_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for (args, want) in [
        (
            &["--routes", "many"][..],
            "--routes needs a number, not 'many'",
        ),
        (&["--routes", "0"][..], "--routes needs at least 1"),
        (&["--maps", "3"][..], "--maps goes from 4 to 99"),
        (&["--port", "1"][..], "there is no option '--port'"),
    ] {
        let site = dir.path().join("site");
        let out = make_site(&site, args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(want), "{said}");
        assert!(!site.exists(), "{args:?}");
    }
}
