//! One request to Consul, its reply taken whole. No retries; what a status means is the
//! caller's business.

use std::time::{Duration, Instant};

use crate::clock::{Clock as _, SystemClock};
use crate::http::client::{self, Body, Cancel, Connection, Method, Phase, Request, Until};
use crate::responder::kv::status::ErrorKind;

use super::config::ConsulServer;
use crate::responder::limits::REPLY_BYTES_A_KEY;

/// The longest body of a reply that may list so many keys; never less than what one key
/// with the longest value that Consul takes needs.
#[must_use]
pub fn max_body(keys: usize) -> u64 {
    let bytes = u64::try_from(keys.saturating_mul(REPLY_BYTES_A_KEY)).unwrap_or(u64::MAX);
    bytes.max(LEAST_BODY_BYTES)
}

const LEAST_BODY_BYTES: u64 = 1024 * 1024;

/// How long one request may take.
#[derive(Debug, Clone, Copy)]
pub struct Within {
    /// To connect.
    pub connect: Duration,
    /// From then to the last byte of the reply.
    pub whole: Duration,
}

/// A complete reply.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `X-Consul-Index`, unless it is missing, 0 or no number.
    pub index: Option<u64>,
    /// Whether Consul says that it knows no leader.
    pub leaderless: bool,
    /// Whether Consul says that it left keys out for lack of rights.
    pub filtered: bool,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The start of the body on one line, for a message.
    #[must_use]
    pub fn words(&self) -> String {
        let text = String::from_utf8_lossy(self.body.get(..200).unwrap_or(&self.body));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Whether the words are those of a cluster without a leader.
    #[must_use]
    pub fn says_no_leader(&self) -> bool {
        self.leaderless || self.words().contains("No cluster leader")
    }
}

/// A client of one server; it keeps one connection.
#[derive(Debug)]
pub struct Api {
    server: ConsulServer,
    token: Option<String>,
    cancel: Cancel,
    max_body: u64,
    kept: Option<Connection>,
}

impl Api {
    /// A client that sends `token`, ends when `cancel` says so and takes no longer body
    /// than `max_body`.
    #[must_use]
    pub fn new(server: ConsulServer, token: Option<String>, cancel: Cancel, max_body: u64) -> Self {
        Self {
            server,
            token,
            cancel,
            max_body,
            kept: None,
        }
    }

    /// Where it asks.
    #[must_use]
    pub fn server(&self) -> &ConsulServer {
        &self.server
    }

    /// Sends another token from now on; true if it is another one.
    pub fn set_token(&mut self, token: Option<String>) -> bool {
        let changed = self.token != token;
        self.token = token;
        changed
    }

    /// Whether the connection that was kept has been closed meanwhile, as a server does
    /// that restarts.
    pub(super) fn was_left(&mut self) -> bool {
        let left = self.kept.as_mut().is_some_and(|kept| !kept.is_reusable());
        if left {
            self.kept = None;
        }
        left
    }

    /// Reads `target`.
    ///
    /// # Errors
    ///
    /// No complete reply; see [`kind_of`].
    pub fn get(&mut self, target: &str, within: Within) -> Result<Reply, client::Error> {
        // One that was closed while nothing was asked is no failure; what fails later is.
        let mut kept = self.kept.take();
        let connection = match kept.take_if(|kept| kept.is_reusable()) {
            Some(kept) => kept,
            None => self.open(within.connect)?,
        };
        self.exchange(connection, Method::Get, target, &[], within.whole)
    }

    /// Sends a change, on a connection of its own: whether it was done is not known
    /// after a failure, so it is sent once.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn change(
        &mut self,
        method: Method,
        target: &str,
        body: &[u8],
        within: Within,
    ) -> Result<Reply, client::Error> {
        let fresh = self.open(within.connect)?;
        self.exchange(fresh, method, target, body, within.whole)
    }

    fn open(&self, connect: Duration) -> Result<Connection, client::Error> {
        Connection::open(&self.server.origin, after(connect), &self.cancel)
    }

    fn exchange(
        &mut self,
        mut connection: Connection,
        method: Method,
        target: &str,
        body: &[u8],
        whole: Duration,
    ) -> Result<Reply, client::Error> {
        let token: [(&str, &str); 1];
        let fields: &[(&str, &str)] = match &self.token {
            Some(value) => {
                token = [("X-Consul-Token", value)];
                &token
            }
            None => &[],
        };
        let request = Request {
            method,
            target,
            fields,
            body: if body.is_empty() {
                Body::None
            } else {
                Body::Bytes(body)
            },
        };
        let answer = connection.send(request, Until::all(after(whole)))?;
        let head = answer.head();
        let says = |name: &str, word: &str| {
            let value = head.text(name);
            value.is_some_and(|value| value.eq_ignore_ascii_case(word))
        };
        let reply = Reply {
            status: head.status(),
            index: head.text("X-Consul-Index").and_then(index),
            leaderless: says("X-Consul-KnownLeader", "false"),
            filtered: says("X-Consul-Results-Filtered-By-ACLs", "true"),
            body: Vec::new(),
        };
        let body = answer.collect(self.max_body)?;
        if connection.is_reusable() {
            self.kept = Some(connection);
        }
        Ok(Reply { body, ..reply })
    }
}

fn after(time: Duration) -> Instant {
    SystemClock.now() + time
}

/// Digits only; 0 is the index of nothing.
fn index(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|index| digits && *index > 0)
}

/// What a failed request counts as.
#[must_use]
pub fn kind_of(error: &client::Error) -> ErrorKind {
    match error {
        client::Error::NotConnected(_) | client::Error::Reset(_) => ErrorKind::Connect,
        client::Error::Timeout(Phase::Connect) => ErrorKind::Connect,
        client::Error::Timeout(Phase::Send | Phase::Head | Phase::Body) => ErrorKind::Timeout,
        client::Error::Cut(_) | client::Error::TooLarge { .. } => ErrorKind::Parse,
        client::Error::Malformed(_)
        | client::Error::Cancelled
        | client::Error::Source(_)
        | client::Error::Request(_) => ErrorKind::Http,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_a_positive_number_of_64_bits() {
        let table = [
            ("1", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("0", None),
            ("", None),
            ("abc", None),
            ("+5", None),
            ("-5", None),
            ("5.0", None),
        ];
        for (text, value) in table {
            assert_eq!(index(text), value, "{text:?}");
        }
    }
}
