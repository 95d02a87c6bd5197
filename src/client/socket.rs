//! The one line of the configuration that the agent itself needs: a `stats socket` where
//! it looks for HAProxy's worker.
//!
//! A set without it loads, and then nobody can tell the agent so: the push fails when the
//! reload's time is over. So whoever pushes is warned before. The configuration may come
//! from other files too, and sockets may have other names in another container, so this
//! never refuses anything, and says nothing where the running worker answers and its
//! configuration stays.

use super::decide::mentions::{VARIABLE, configuration_lines};
use super::decide::names::plain;
use super::fileset::FileSet;
use crate::wire::path::ManifestPath;
use crate::wire::state::State;

/// Why the agent might not reach the worker that loads a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Where it is about a line that is there.
    pub(crate) place: (ManifestPath, Option<usize>),
    pub(crate) text: String,
    pub(crate) next: String,
}

impl Doubt {
    /// With its place in front.
    pub(crate) fn line(&self) -> String {
        match &self.place {
            (path, Some(line)) => format!("{path}:{line}: {}", self.text),
            (path, None) => format!("{path}: {}", self.text),
        }
    }
}

/// The line, for a global section. `socket`: where the agent looks, if it tells.
#[must_use]
pub fn stats_socket_line(socket: Option<&str>) -> String {
    match socket {
        Some(path) => format!("stats socket unix@{path} mode 600 level admin"),
        None => {
            "stats socket unix@SOCKET mode 600 level admin (SOCKET is the agent's --worker-socket)"
                .to_owned()
        }
    }
}

pub(crate) fn doubt(set: &FileSet, state: &State) -> Option<Doubt> {
    if is_proven(set, state) {
        return None;
    }
    let socket = state.worker_socket.as_deref();
    // The line that comes closest, and whether it is the right socket.
    let mut closest: Option<(bool, &ManifestPath, usize)> = None;
    for (path, line, words) in configuration_lines(set) {
        let [stats, word, address, rest @ ..] = words.as_slice() else {
            continue;
        };
        if stats != "stats" || word != "socket" {
            continue;
        }
        let right = is_at(address, socket);
        if right && is_admin(rest) {
            return None;
        }
        if closest.is_none_or(|(before, _, _)| right && !before) {
            closest = Some((right, path, line));
        }
    }
    let wanted = stats_socket_line(socket);
    let at = socket.map_or_else(
        || "the agent's socket".to_owned(),
        |socket| format!("the agent's socket {socket}"),
    );
    Some(match closest {
        Some((true, path, line)) => Doubt {
            place: (path.clone(), Some(line)),
            text: format!(
                "it opens {at} without `level admin`, so the agent can change nothing at runtime"
            ),
            next: format!("write: {wanted}"),
        },
        Some((false, path, line)) => Doubt {
            place: (path.clone(), Some(line)),
            text: format!(
                "no `stats socket` line opens {at}, this one neither: HAProxy would load the set, and the agent could not reach it and call the push failed"
            ),
            next: format!("add to the global section: {wanted}"),
        },
        None => Doubt {
            place: (set.config().clone(), None),
            text: format!(
                "no `stats socket` line opens {at}: HAProxy would load the set, and the agent could not reach it and call the push failed"
            ),
            next: format!("add to the global section: {wanted}"),
        },
    })
}

/// The worker answers, and what it was started from stays.
fn is_proven(set: &FileSet, state: &State) -> bool {
    let answers = state.worker.as_ref().is_some_and(|worker| worker.answers);
    let applied = &state.applied_plan_id;
    let known = !applied.is_empty() && state.worker_ops_plan_id == *applied;
    let stays = |path: &ManifestPath| {
        let held = state.files.get(path);
        let entry = set.get(path.as_str());
        held.zip(entry)
            .is_some_and(|(held, entry)| held.digest == entry.digest)
    };
    answers && known && stays(set.config())
}

/// Whether an address is the agent's socket, by its last component: the directory may
/// have another name where the agent runs.
fn is_at(address: &str, socket: Option<&str>) -> bool {
    if address.contains(VARIABLE) {
        return true;
    }
    let path = match address.split_once('@') {
        Some(("unix", path)) => path,
        Some(_) => return false,
        None if address.starts_with('/') => address,
        None => return false,
    };
    let last = |path: &str| plain(path).rsplit('/').next().map(str::to_owned);
    socket.is_none_or(|socket| last(socket) == last(path))
}

fn is_admin(words: &[String]) -> bool {
    let level = words.iter().position(|word| word == "level");
    let level = level.and_then(|at| words.get(at + 1));
    level.is_some_and(|level| level == "admin" || level.contains(VARIABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_by_their_last_component() {
        let socket = Some("/etc/haproxy/haproxy-worker.sock");
        for (address, serves) in [
            ("/etc/haproxy/haproxy-worker.sock", true),
            ("unix@/var/lib/haproxy/haproxy-worker.sock", true),
            ("unix@haproxy-worker.sock", true),
            ("unix@\u{1}/stats", true),
            ("/run/haproxy/admin.sock", false),
            ("haproxy-worker.sock", false),
            ("abns@haproxy-worker.sock", false),
            ("ipv4@127.0.0.1:9999", false),
            (":9999", false),
        ] {
            assert_eq!(is_at(address, socket), serves, "{address}");
        }
        assert!(is_at("/run/any.sock", None));
        assert!(!is_at("127.0.0.1:9999", None));
    }
}
