//! A restore of a target that refuses to be replaced.

use super::{path, store};
use crate::store::journal::{self, Change, Journal};
use crate::store::model::ModelFs;
use crate::store::restore::restore;
use crate::wire::digest::ContentHash;

/// A set of one map, backed up by a copy because links are refused.
fn backed_up(fs: &ModelFs) -> Journal {
    fs.put("maps/x", b"old", 0o644, 0, 0);
    fs.refuse_links(Some(libc::EPERM));
    let store = store(fs);
    let path = path("maps/x");
    let change = Change {
        path: &path,
        exists: true,
        removal: false,
        was_owned: None,
        hash: Some(ContentHash::of(b"old")),
    };
    let entries = journal::plan_entries(&Journal::default(), [change], store.mounts(), &mut 1);
    journal::back_up(&store, &entries).unwrap();
    Journal { entries }
}

/// The apply failed because the target could not be replaced, so it has its old bytes:
/// there is nothing to put back, and trying would fail for ever.
#[test]
fn counts_as_restored_while_it_is_as_it_was() {
    let fs = ModelFs::new();
    let journal = backed_up(&fs);
    fs.fail_rename_once("maps/x", libc::EBUSY);
    let restored = restore(&store(&fs), &journal, "haproxy.cfg").unwrap();
    assert_eq!(restored.paths, [path("maps/x")]);
    assert_eq!(fs.read("maps/x").unwrap(), b"old");
}

#[test]
fn is_an_error_when_it_is_not() {
    let fs = ModelFs::new();
    let journal = backed_up(&fs);
    fs.scribble("maps/x", b"new");
    fs.fail_rename_once("maps/x", libc::EBUSY);
    restore(&store(&fs), &journal, "haproxy.cfg").unwrap_err();
    restore(&store(&fs), &journal, "haproxy.cfg").unwrap();
    assert_eq!(fs.read("maps/x").unwrap(), b"old");
}
