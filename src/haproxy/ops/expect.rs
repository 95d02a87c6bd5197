//! The one answer of each command that counts as success.
//!
//! Tag and full text are compared, names included. Words such as "error" prove nothing:
//! answers hold names that callers chose. What is no success gets a typed outcome when
//! HAProxy's text is known, else it is a refusal.

use super::{Note, Outcome};
use crate::haproxy::reply::Reply;
use std::net::IpAddr;

/// The longest piece of HAProxy's words that a result carries.
const MAX_WORDS_BYTES: usize = 2000;

/// Which answer must come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Nothing at all.
    Silent,
    /// This text with this tag.
    Exact(u8, String),
    /// `add backend`. A remark that it takes no servers is fine when none is to come.
    BackendAdded { servers_follow: bool },
    /// `add server`.
    ServerAdded,
    /// `wait … -removable`.
    Removable,
    /// `set server … addr`.
    Address { ip: IpAddr, port: Option<u16> },
    /// What stops the traffic of a server that will be deleted; it may be gone.
    Stopped,
    /// The same for a backend.
    Unpublished,
    /// What wakes the agent of a server that may have none; the refusal changes nothing.
    AgentIfAny,
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Good(Note),
    Bad(Outcome),
}

impl Expect {
    pub(crate) fn judge(&self, reply: &Reply) -> Judgement {
        let text = reply.text();
        let says =
            |severity: u8, wanted: &str| reply.severity() == Some(severity) && text == wanted;
        let good = match self {
            Self::Silent => reply.is_silent(),
            Self::Exact(severity, wanted) => says(*severity, wanted),
            Self::BackendAdded { servers_follow } => {
                says(6, "New backend registered.")
                    || (!servers_follow
                        && reply.severity() == Some(6)
                        && text.starts_with("New backend registered ("))
            }
            Self::ServerAdded => says(6, "New server registered."),
            Self::Removable => says(6, "Done."),
            Self::Address { ip, port } => match address_changed(reply, &text, *ip, *port) {
                Some(note) => return Judgement::Good(note),
                None => false,
            },
            Self::Stopped if is_gone(reply) => return Judgement::Good(Note::Absent),
            Self::Stopped => reply.is_silent(),
            Self::AgentIfAny => {
                reply.is_silent()
                    || says(3, "Agent was not configured on this server, cannot enable.")
                    || says(3, "agent checks are not enabled on this server.")
            }
            Self::Unpublished if is_gone(reply) => return Judgement::Good(Note::Absent),
            Self::Unpublished => says(6, "Backend unpublished."),
        };
        match good {
            true => Judgement::Good(Note::Done),
            false => Judgement::Bad(self.refusal(&text)),
        }
    }

    fn refusal(&self, text: &str) -> Outcome {
        if is_leaving(text) {
            return Outcome::WorkerChanged;
        }
        match self {
            Self::BackendAdded { .. }
                if text.starts_with(
                    "Error during backend creation : name is already used by other proxy",
                ) =>
            {
                Outcome::NameCollision
            }
            Self::ServerAdded
                if text == "Already exists a server with the same name in backend." =>
            {
                Outcome::NameCollision
            }
            Self::Removable if text.starts_with("Wait delay expired.") => Outcome::Busy,
            Self::BackendAdded { .. }
            | Self::ServerAdded
            | Self::Removable
            | Self::Silent
            | Self::Exact(..)
            | Self::Address { .. }
            | Self::Stopped
            | Self::Unpublished
            | Self::AgentIfAny => Outcome::Rejected,
        }
    }
}

/// A stopping worker's refusal.
pub(crate) fn is_leaving(text: &str) -> bool {
    text == "Proxy is disabled."
}

/// The object that was to go is not there.
pub(crate) fn is_gone(reply: &Reply) -> bool {
    reply.severity() == Some(3) && matches!(&*reply.text(), "No such server." | "No such backend.")
}

/// HAProxy's words for a result: what it said, shortened.
pub(crate) fn words(reply: &Reply) -> String {
    let text = reply.text();
    let text = text.trim_end();
    let mut end = text.len().min(MAX_WORDS_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match text.get(..end) {
        Some("") | None => "HAProxy said nothing where it should have".to_owned(),
        Some(text) => text.to_owned(),
    }
}

/// `IP changed from 'a' to 'b'`, `port changed from 'p' to 'q'`, both joined, then the
/// origin; or that nothing changed.
fn address_changed(reply: &Reply, text: &str, ip: IpAddr, port: Option<u16>) -> Option<Note> {
    if reply.severity() != Some(4) {
        return None;
    }
    if text == "nothing changed" {
        return Some(Note::Unchanged);
    }
    let mut rest = text.strip_suffix(" by 'stats socket command'")?;
    let mut seen = false;
    if let Some(after) = rest.strip_prefix("IP changed from '") {
        let (to, after) = changed_to(after)?;
        if to.parse() != Ok(ip) {
            return None;
        }
        seen = true;
        rest = match after {
            "" => "",
            after => after.strip_prefix(", ")?,
        };
    }
    if let Some(after) = rest.strip_prefix("port changed from '") {
        let (to, after) = changed_to(after)?;
        // A sign in front would mean an offset to the client's port.
        if !to.bytes().all(|b| b.is_ascii_digit()) || to.parse() != Ok(port?) {
            return None;
        }
        seen = true;
        rest = after;
    }
    (seen && rest.is_empty()).then_some(Note::Done)
}

/// `a' to 'b'…`: b and what follows.
fn changed_to(text: &str) -> Option<(&str, &str)> {
    let (_, after) = text.split_once("' to '")?;
    after.split_once('\'')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::haproxy::reply::Splitter;

    fn reply(body: &str) -> Reply {
        let mut splitter = Splitter::default();
        splitter.expect(false);
        let mut replies = Vec::new();
        let wire = match body {
            "" => "\n> ".to_owned(),
            body => format!("{body}\n\n> "),
        };
        splitter.feed(wire.as_bytes(), &mut replies).unwrap();
        replies.pop().unwrap()
    }

    fn judge(expect: &Expect, body: &str) -> Judgement {
        expect.judge(&reply(body))
    }

    #[test]
    fn only_the_exact_answer_is_success() {
        use Judgement::{Bad, Good};
        use Note::{Absent, Done};
        use Outcome::{Busy, NameCollision, Rejected, WorkerChanged};
        let adds = |servers_follow| Expect::BackendAdded { servers_follow };
        let table = [
            (Expect::Silent, "", Good(Done)),
            (Expect::Silent, "[6]: Done.", Bad(Rejected)),
            (Expect::Silent, "[6]: Unknown command: x", Bad(Rejected)),
            (
                Expect::Silent,
                "[3]: Proxy is disabled.",
                Bad(WorkerChanged),
            ),
            (Expect::Exact(5, "x".into()), "[5]: x", Good(Done)),
            (Expect::Exact(5, "x".into()), "[6]: x", Bad(Rejected)),
            (Expect::Exact(5, "x".into()), "x", Bad(Rejected)),
            (Expect::Exact(5, "x".into()), "[5]: x\ny", Bad(Rejected)),
            (adds(true), "[6]: New backend registered.", Good(Done)),
            (
                adds(true),
                "[6]: New backend registered (no support for dynamic servers: x).",
                Bad(Rejected),
            ),
            (
                adds(false),
                "[6]: New backend registered (no support for dynamic servers: x).",
                Good(Done),
            ),
            (
                adds(false),
                "[3]: Error during backend creation : name is already used by other proxy 'backend b'.",
                Bad(NameCollision),
            ),
            (
                adds(false),
                "[3]: Error during backend creation : GUID insertion : duplicate entry with backend name is already used by other proxy.",
                Bad(Rejected),
            ),
            (adds(false), "", Bad(Rejected)),
            (
                Expect::ServerAdded,
                "[6]: New server registered.",
                Good(Done),
            ),
            (
                Expect::ServerAdded,
                "[3]: Already exists a server with the same name in backend.",
                Bad(NameCollision),
            ),
            (Expect::ServerAdded, "", Bad(Rejected)),
            (Expect::Removable, "[6]: Done.", Good(Done)),
            (Expect::Removable, "[3]: Wait delay expired.", Bad(Busy)),
            (
                Expect::Removable,
                "[3]: Wait delay expired. Server still has connections attached to it, cannot remove it.",
                Bad(Busy),
            ),
            (Expect::Removable, "[3]: Failed.", Bad(Rejected)),
            (Expect::Stopped, "", Good(Done)),
            (Expect::Stopped, "[3]: No such server.", Good(Absent)),
            (Expect::Stopped, "[3]: No such backend.", Good(Absent)),
            (Expect::Stopped, "[6]: No such server.", Bad(Rejected)),
            (Expect::Unpublished, "[6]: Backend unpublished.", Good(Done)),
            (Expect::AgentIfAny, "", Good(Done)),
            (
                Expect::AgentIfAny,
                "[3]: Agent was not configured on this server, cannot enable.",
                Good(Done),
            ),
            (Expect::AgentIfAny, "[3]: No such server.", Bad(Rejected)),
            (Expect::Unpublished, "", Bad(Rejected)),
            (Expect::Unpublished, "[3]: No such backend.", Good(Absent)),
        ];
        for (expect, body, wanted) in table {
            assert_eq!(judge(&expect, body), wanted, "{expect:?} {body:?}");
        }
    }

    #[test]
    fn addresses_are_compared_as_addresses_and_ports_as_digits() {
        use Judgement::{Bad, Good};
        let by = "by 'stats socket command'";
        let v4: IpAddr = "10.0.0.2".parse().unwrap();
        let v6: IpAddr = "2001:db8::2".parse().unwrap();
        let bad = Bad(Outcome::Rejected);
        let table: &[(IpAddr, Option<u16>, String, Judgement)] = &[
            (
                v4,
                None,
                format!("[4]: IP changed from '10.0.0.1' to '10.0.0.2' {by}"),
                Good(Note::Done),
            ),
            (
                v4,
                None,
                format!("[4]: IP changed from '10.0.0.1' to '10.0.0.3' {by}"),
                bad,
            ),
            (
                v6,
                None,
                format!("[4]: IP changed from '::1' to '2001:DB8:0::2' {by}"),
                Good(Note::Done),
            ),
            (
                v4,
                Some(81),
                format!(
                    "[4]: IP changed from '' to '10.0.0.2', port changed from '80' to '81' {by}"
                ),
                Good(Note::Done),
            ),
            (
                v4,
                Some(81),
                format!(
                    "[4]: IP changed from '' to '10.0.0.2', port changed from '80' to '+81' {by}"
                ),
                bad,
            ),
            (
                v4,
                Some(81),
                format!(
                    "[4]: IP changed from '' to '10.0.0.2', port changed from '80' to '82' {by}"
                ),
                bad,
            ),
            (
                v4,
                None,
                format!(
                    "[4]: IP changed from '' to '10.0.0.2', port changed from '80' to '82' {by}"
                ),
                bad,
            ),
            (
                v4,
                Some(81),
                format!("[4]: port changed from '80' to '81' {by}"),
                Good(Note::Done),
            ),
            (
                v4,
                Some(81),
                "[4]: port changed from '80' to '81'".to_owned(),
                bad,
            ),
            (
                v4,
                Some(81),
                "[4]: nothing changed".to_owned(),
                Good(Note::Unchanged),
            ),
            (v4, Some(81), "[3]: nothing changed".to_owned(), bad),
            (v4, Some(81), "[4]: Invalid addr 'x'".to_owned(), bad),
            (v4, Some(81), format!("[4]: {by}"), bad),
            (v4, Some(81), String::new(), bad),
        ];
        for (ip, port, body, wanted) in table {
            let expect = Expect::Address {
                ip: *ip,
                port: *port,
            };
            assert_eq!(judge(&expect, body), *wanted, "{body:?}");
        }
    }

    #[test]
    fn words_are_whole_characters_and_never_empty() {
        assert_eq!(words(&reply("[3]: no\nCan't")), "no\nCan't");
        assert!(!words(&reply("")).is_empty());
        let long = "ü".repeat(MAX_WORDS_BYTES);
        assert_eq!(words(&reply(&long)).len(), MAX_WORDS_BYTES);
    }
}
