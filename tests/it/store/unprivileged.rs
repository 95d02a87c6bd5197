//! An agent that is not root. Needs root to become someone else.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use haptic_agent::clock::UnixNanos;
use haptic_agent::store::disk::DiskFs;
use haptic_agent::store::restore::restore;
use haptic_agent::store::tree::Tree;

use super::{Session, files, inside, left_over, path, rerun, store_on};

const NOBODY: [&str; 4] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];

fn prepare_base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir(&base).unwrap();
    std::fs::write(base.join("haproxy.cfg"), "root's").unwrap();
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(base.join("haproxy.cfg"), readable).unwrap();
    chown(&base, Some(65534), Some(65534)).ok();
    dir
}

#[test]
fn a_file_of_another_owner_is_backed_up_by_copy_where_links_are_protected() {
    let Some(at) = inside() else {
        let dir = prepare_base();
        rerun(
            &NOBODY,
            "store::unprivileged::a_file_of_another_owner_is_backed_up_by_copy_where_links_are_protected",
            dir.path().join("base").to_str().unwrap(),
        );
        return;
    };
    let base = &PathBuf::from(at);
    let before = files(base);
    let mut session = Session::new(store_on(base));
    session.apply(&[("haproxy.cfg", b"new")], &[]).unwrap();
    let seen = std::fs::metadata(base.join("haproxy.cfg")).unwrap();
    assert_eq!(seen.mode() & 0o7777, 0o644);
    let protected = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks");
    if protected.is_ok_and(|text| text.trim() == "1") {
        assert_eq!(session.store.counters().copied_backups(), 1);
    }
    assert_eq!(session.store.counters().cross_device(), 0);
    restore(&session.store, &session.journal, "haproxy.cfg").unwrap();
    assert_eq!(files(base), before);
    haptic_agent::store::journal::clear(&session.store, &session.journal).unwrap();
    assert_eq!(left_over(base), [""; 0]);
}

#[test]
fn what_the_agent_may_not_do_is_an_error_that_names_the_path() {
    let Some(at) = inside() else {
        let dir = prepare_base();
        let base = dir.path().join("base");
        std::fs::create_dir(base.join("locked")).unwrap();
        std::fs::write(base.join("locked/x"), "old").unwrap();
        std::fs::write(base.join("secret"), "old").unwrap();
        let closed = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(base.join("secret"), closed).unwrap();
        let ran = rerun(
            &NOBODY,
            "store::unprivileged::what_the_agent_may_not_do_is_an_error_that_names_the_path",
            base.to_str().unwrap(),
        );
        if ran {
            assert_eq!(std::fs::read(base.join("locked/x")).unwrap(), b"old");
        }
        return;
    };
    let base = Path::new(&at);
    let fs = DiskFs::open(base).unwrap();
    let error = Tree::observe(&fs, &[path("secret")], UnixNanos(0)).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot read secret: the agent may not; give its user read"),
        "{error}"
    );
    let mut session = Session::new(store_on(base));
    let failed = session.apply(&[("locked/x", b"new")], &[]).unwrap_err();
    assert!(failed.text().contains("locked/x"), "{}", failed.text());
}
