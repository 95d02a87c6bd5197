//! The file sets that the shapes apply. Each differs from each other one in its
//! configuration, so a tree can be told by its bytes.

use std::collections::BTreeMap;

use super::haproxy::{Files, REFUSED};

/// What stood there before the agent came.
pub(super) const BOOT: &str = "boot";

/// The set that the check after every point applies, and the one that it has refused.
pub(super) const AFTER: &str = "after";
pub(super) const BAD_AFTER: &str = "bad-after";

/// Files that are nobody's business.
const FOREIGN: (&str, &[u8]) = ("foreign/readme", b"not ours");

/// Whether the set comes without a configuration of its own.
fn config(plan: &str) -> Vec<u8> {
    let mark = if plan.starts_with("bad") { REFUSED } else { "" };
    format!("# {plan}\n{mark}\n").into_bytes()
}

/// What the agent owns of a set; nothing of [`BOOT`].
pub(super) fn owned(plan: &str) -> Files {
    let mut files: Files = BTreeMap::new();
    let mut put = |path: &str, bytes: &str| {
        files.insert(path.to_owned(), bytes.as_bytes().to_vec());
    };
    match plan {
        BOOT => return files,
        "p1" => {
            put("maps/host.map", "one");
            put("general/500.http", "one");
        }
        // Everything changed.
        "p2" => {
            put("maps/host.map", "two");
            put("general/500.http", "two");
        }
        // Everything but the configuration gone.
        "p3" => {}
        // Some gone, some new and in new directories, on both mounts.
        "p4" => {
            put("certs/a/b/site.pem", "key");
            put("general/deep/x", "x");
            put("maps/other.map", "other");
        }
        // Changes of `p1` that leave most of it.
        "p5" => {
            put("maps/host.map", "one");
            put("general/500.http", "five");
            put("maps/fifth.map", "five");
        }
        // `p5` with only its configuration changed: the rest is in the journal, not in
        // the intent.
        "p6" | "bad6" => {
            put("maps/host.map", "one");
            put("general/500.http", "five");
            put("maps/fifth.map", "five");
        }
        // A name that is a directory in one and a file in the other.
        "d1" => {
            put("general/x/y", "y");
            put("general/x/z/w", "w");
            put("maps/m", "m");
        }
        "f1" => {
            put("general/x", "file");
            put("maps/m/n", "n");
        }
        "badd" => put("general/x/q", "bad"),
        "badf" => put("general/x", "bad"),
        "w1" | "w2" => {
            for n in 0..200 {
                let kind = ["maps", "general", "certs/x", "general/y"][n % 4];
                let of = if n % 3 == 0 { "same" } else { plan };
                put(&format!("{kind}/{n}"), of);
            }
        }
        AFTER | BAD_AFTER => {
            put("maps/host.map", "after");
            put("general/z/after", "after");
        }
        "bad" => {
            put("general/500.http", "bad");
            put("maps/bad.map", "bad");
        }
        other => panic!("no such set: {other}"),
    }
    files.insert("haproxy.cfg".to_owned(), config(plan));
    files
}

/// Every visible file while a set is on disk.
pub(super) fn tree(plan: &str) -> Files {
    let mut files = owned(plan);
    if plan == BOOT {
        files.insert("haproxy.cfg".to_owned(), config(BOOT));
    }
    files.insert(FOREIGN.0.to_owned(), FOREIGN.1.to_vec());
    files
}

/// The set that a tree is, if it is one.
pub(super) fn name_of(files: &Files) -> Option<&'static str> {
    const ALL: [&str; 17] = [
        BOOT, "p1", "p2", "p3", "p4", "p5", "p6", "bad6", "d1", "f1", "badd", "badf", "w1", "w2",
        AFTER, BAD_AFTER, "bad",
    ];
    ALL.into_iter().find(|plan| tree(plan) == *files)
}
