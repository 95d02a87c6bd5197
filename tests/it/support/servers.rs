//! Where the real servers are: the directory named by `HAPTIC_SERVERS`, else
//! `target/servers` of this crate.

use std::env;
use std::path::PathBuf;

/// The executable `name/exe`. Panics with the remedy when it is not there.
pub(crate) fn executable(name: &str, exe: &str) -> PathBuf {
    let path = directory().join(name).join(exe);
    assert!(
        path.is_file(),
        "{} is missing: `make servers` brings it, or HAPTIC_SERVERS names the directory that has it",
        path.display()
    );
    path
}

fn directory() -> PathBuf {
    match env::var_os("HAPTIC_SERVERS") {
        Some(named) if !named.is_empty() => PathBuf::from(named),
        Some(_) | None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/servers"),
    }
}
