//! What a service sees of one request.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::body::{Body, BodyState};
use super::head::{Framing, Head, Method, Version};
use super::link::Link;
use crate::clock::{Clock as _, SystemClock};
use crate::sys::{self, Interest, Watch};

/// One request: its head, and its body on demand.
///
/// What the head says lives as long as the request itself, so it can be kept while the
/// body is read.
pub struct Request<'a> {
    head: &'a Head,
    peer: SocketAddr,
    link: &'a mut Link,
    body: &'a mut BodyState,
}

/// How a wait on a held request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The time has passed; the client is still there.
    Elapsed,
    /// The client closed or reset the connection; nobody reads the answer.
    ClientGone,
    /// The server is to stop; answer now.
    Stopping,
}

impl<'a> Request<'a> {
    pub(super) fn new(
        head: &'a Head,
        peer: SocketAddr,
        link: &'a mut Link,
        body: &'a mut BodyState,
    ) -> Self {
        Self {
            head,
            peer,
            link,
            body,
        }
    }

    /// The method, as far as routes tell them apart.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.head.method()
    }

    /// The method as it was sent.
    #[must_use]
    pub fn method_name(&self) -> &'a str {
        self.head.method_name()
    }

    /// The target without its query, exactly as sent: percent signs are not decoded.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.head.path()
    }

    /// What stands after the first question mark, exactly as sent.
    #[must_use]
    pub fn query(&self) -> Option<&'a str> {
        self.head.query()
    }

    /// The protocol version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.head.version()
    }

    /// The first field of this name, whatever its case, without the spaces around it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.head.header(name)
    }

    /// The `Content-Type`, if there is one in UTF-8.
    #[must_use]
    pub fn content_type(&self) -> Option<&'a str> {
        std::str::from_utf8(self.header("content-type")?).ok()
    }

    /// The length that the head declares, at most 18 digits; `None` for a chunked body,
    /// 0 when there is no body.
    #[must_use]
    pub fn declared_length(&self) -> Option<u64> {
        match self.head.framing() {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }

    /// The client's address; an IPv4 client of a dual-stack listener has an IPv4 one.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The body, of which at most `limit` bytes may be read in all. A second call goes
    /// on where the first ended.
    ///
    /// The first read tells a waiting client to send, and starts the body's deadline.
    /// Errors carry a [`BodyError`](super::BodyError).
    pub fn body(&mut self, limit: u64) -> Body<'_> {
        Body::new(self.link, self.body, limit)
    }

    /// Whether nothing of the body was read yet.
    #[must_use]
    pub fn body_untouched(&self) -> bool {
        self.body.is_untouched()
    }

    /// Waits for `timeout`, or until the client leaves or the server is to stop. For a
    /// handler that holds a request: it calls this between two looks at what it waits
    /// for.
    ///
    /// A client that only ended its sending side counts as gone: until something is
    /// sent to it, it cannot be told from one that closed.
    #[must_use]
    pub fn wait_or_gone(&self, timeout: Duration) -> Waited {
        let until = SystemClock.now() + timeout;
        loop {
            let left = until.saturating_duration_since(SystemClock.now());
            let mut watches = [
                Watch::new(self.link.stream().as_fd(), Interest::Hangup),
                Watch::new(self.link.stop().as_fd(), Interest::Read),
            ];
            // A poll that fails cannot tell that anybody left; the time still passes.
            let ready = sys::poll(&mut watches, Some(left)).unwrap_or(0);
            if ready > 0 && watches[0].is_ready() {
                return Waited::ClientGone;
            }
            if self.link.stop().is_raised() {
                return Waited::Stopping;
            }
            if ready == 0 && left.is_zero() {
                return Waited::Elapsed;
            }
        }
    }
}

impl fmt::Debug for Request<'_> {
    /// Without header values, which carry credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method_name())
            .field("path", &self.path())
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
