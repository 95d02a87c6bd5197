//! A delete is its own probe: its answer says exactly why it cannot be.

use super::queue::Key;
use crate::haproxy::reply::Reply;

/// What the answer to a delete means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Deleted, or it was not there.
    Gone,
    /// Sessions are left.
    Busy,
    /// A backend with servers.
    HasServers,
    /// Somebody enabled or published it.
    InUseAgain,
    /// Not before a reload.
    Never,
    /// Another refusal.
    Other,
}

impl Key {
    /// The command that deletes it.
    pub(crate) fn delete_command(&self) -> String {
        match self {
            Self::Server { .. } => format!("del server {self}"),
            Self::Backend { .. } => format!("del backend {self}"),
        }
    }

    pub(crate) fn judge(&self, reply: &Reply) -> Probe {
        match self {
            Self::Server { .. } => judge_server(reply),
            Self::Backend { .. } => judge_backend(reply),
        }
    }
}

fn judge_server(reply: &Reply) -> Probe {
    match (reply.severity(), &*reply.text()) {
        (Some(6), "Server deleted.") | (Some(3), "No such server." | "No such backend.") => {
            Probe::Gone
        }
        (Some(3), "Server still has connections attached to it, cannot remove it.") => Probe::Busy,
        (Some(3), "Only servers in maintenance mode can be deleted.") => Probe::InUseAgain,
        (Some(3), text)
            if text
                .contains("cannot be removed at runtime due to other configuration elements") =>
        {
            Probe::Never
        }
        (_, _) => Probe::Other,
    }
}

/// Older messages may stand before the answer; the last line is it.
fn judge_backend(reply: &Reply) -> Probe {
    let text = reply.text();
    let last = text.lines().next_back().unwrap_or_default();
    let last = match last.split_once(": ") {
        Some((tag, rest)) if tag.starts_with('[') => rest,
        Some(_) | None => last,
    };
    match last {
        "Backend deleted." | "No such backend." => Probe::Gone,
        "Only a backend without server can be deleted." => Probe::HasServers,
        "Backend must be unpublished prior to its deletion." => Probe::InUseAgain,
        last if last.starts_with("Backend still has attached streams") => Probe::Busy,
        last if last.starts_with("Cannot remove a backend with stick-table")
            || last
                .contains("cannot be removed at runtime due to other configuration elements") =>
        {
            Probe::Never
        }
        _ => Probe::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::haproxy::reply::Splitter;

    fn judge(key: &Key, body: &str) -> Probe {
        let mut splitter = Splitter::default();
        splitter.expect(false);
        let mut replies = Vec::new();
        splitter
            .feed(format!("{body}\n\n> ").as_bytes(), &mut replies)
            .unwrap();
        key.judge(&replies[0])
    }

    #[test]
    fn servers_by_the_whole_text() {
        let key = Key::Server {
            backend: "b".to_owned(),
            server: "s".to_owned(),
        };
        assert_eq!(key.delete_command(), "del server b/s");
        for (body, probe) in [
            ("[6]: Server deleted.", Probe::Gone),
            ("[3]: No such server.", Probe::Gone),
            ("[3]: No such backend.", Probe::Gone),
            (
                "[3]: Server still has connections attached to it, cannot remove it.",
                Probe::Busy,
            ),
            (
                "[3]: Only servers in maintenance mode can be deleted.",
                Probe::InUseAgain,
            ),
            (
                "[3]: This server cannot be removed at runtime due to other configuration elements pointing to it.",
                Probe::Never,
            ),
            ("[3]: Permission denied", Probe::Other),
            ("[6]: Unknown command: 'del server'", Probe::Other),
            ("Server deleted.", Probe::Other),
        ] {
            assert_eq!(judge(&key, body), probe, "{body}");
        }
    }

    #[test]
    fn backends_by_the_last_line() {
        let key = Key::Backend {
            backend: "b".to_owned(),
        };
        assert_eq!(key.delete_command(), "del backend b");
        for (body, probe) in [
            ("[6]: Backend deleted.", Probe::Gone),
            ("[6]: Backend unpublished.\nBackend deleted.", Probe::Gone),
            ("[3]: No such backend.", Probe::Gone),
            (
                "[3]: Only a backend without server can be deleted.",
                Probe::HasServers,
            ),
            (
                "[3]: Backend must be unpublished prior to its deletion.",
                Probe::InUseAgain,
            ),
            (
                "[3]: Backend still has attached streams on it.",
                Probe::Busy,
            ),
            (
                "[3]: Cannot remove a backend with stick-table.",
                Probe::Never,
            ),
            (
                "[3]: This proxy cannot be removed at runtime due to other configuration elements pointing to it.",
                Probe::Never,
            ),
            ("[3]: Backend deleted.\nsomething else", Probe::Other),
        ] {
            assert_eq!(judge(&key, body), probe, "{body}");
        }
    }
}
