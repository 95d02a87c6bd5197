//! One connection from its first byte to its close: HEAD, BUSY, then IDLE or LINGER.
//!
//! The order within a request is the head, the service (which looks at route,
//! credentials and declared length), and the body only if the service reads it. The
//! connection is kept only when the next byte is known to be the next request's.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::admission::{Phase, Slot};
use super::body::BodyState;
use super::head::{Head, HeadError, Method, Scanner};
use super::limits::{MAX_LINGER_BYTES, MAX_REQUESTS_PER_CONNECTION, SMALL_ANSWER_BYTES};
use super::link::{Link, Pace, Trouble};
use super::request::Request;
use super::response::{Response, Status};
use super::server::{ServerStats, Service};

/// What a connection's thread owns. The slot is the last field, so that the socket is
/// closed before the place is free.
pub(super) struct Conn {
    pub(super) link: Link,
    pub(super) peer: SocketAddr,
    pub(super) service: Arc<dyn Service>,
    pub(super) stats: Arc<ServerStats>,
    pub(super) slot: Slot,
}

/// What came instead of a request.
enum NoRequest {
    /// Nothing to answer: the client closed, stayed silent, or was shut.
    Quiet,
    /// A head that must be refused.
    Refused(HeadError),
}

/// How a request left its connection.
enum After {
    /// The next request may come.
    Keep,
    /// Answered; close, but let the client read the answer.
    Close,
    /// The answer did not get through.
    Lost,
}

impl Conn {
    /// Serves until the connection ends.
    pub(super) fn serve(mut self) {
        for count in 1..=MAX_REQUESTS_PER_CONNECTION {
            let head = match self.next_head(count == 1) {
                Ok(head) => head,
                Err(NoRequest::Quiet) => return,
                Err(NoRequest::Refused(error)) => return self.refuse(error),
            };
            if !self.slot.enter(Phase::Busy) {
                return;
            }
            let last = count == MAX_REQUESTS_PER_CONNECTION;
            match self.answer(&head, last) {
                After::Keep => {}
                After::Close => return self.close(),
                After::Lost => return self.link.abandon(),
            }
        }
    }

    fn next_head(&mut self, first: bool) -> Result<Head, NoRequest> {
        let deadlines = self.link.deadlines();
        let mut wait = Pace::until(if first {
            deadlines.first_byte
        } else {
            deadlines.idle
        });
        if self.link.input().is_empty() {
            if !first && !self.slot.enter(Phase::Idle) {
                return Err(NoRequest::Quiet);
            }
            match self.link.fill(&mut wait) {
                Ok(0) | Err(_) => return Err(NoRequest::Quiet),
                Ok(_) => {}
            }
        }
        if !self.slot.enter(Phase::Head) {
            return Err(NoRequest::Quiet);
        }
        let mut pace = Pace::until(self.link.deadlines().head);
        let mut scanner = Scanner::default();
        loop {
            let end = scanner
                .scan(self.link.input())
                .map_err(NoRequest::Refused)?;
            if let Some(end) = end {
                let head = Head::parse(&self.link.input()[..end]).map_err(NoRequest::Refused);
                self.link.take(end);
                return head;
            }
            match self.link.fill(&mut pace) {
                Ok(0) | Err(Trouble::Io(_)) => return Err(NoRequest::Quiet),
                Ok(_) => {}
                Err(Trouble::Stalled | Trouble::Late) => {
                    return Err(NoRequest::Refused(HeadError::Late));
                }
            }
        }
    }

    fn answer(&mut self, head: &Head, last: bool) -> After {
        self.stats.requests.fetch_add(1, Ordering::Relaxed);
        let mut body = BodyState::new(head.framing(), head.expects_continue());
        let mut request = Request::new(head, self.peer, &mut self.link, &mut body);
        let service = &self.service;
        // The service is shared between threads anyway, so what a panic leaves behind
        // in it is its own to guard; the request is not used again.
        let answer = catch_unwind(AssertUnwindSafe(|| service.call(&mut request)));
        let panicked = answer.is_err();
        let answer = answer.unwrap_or_else(|_| {
            self.stats.panics.fetch_add(1, Ordering::Relaxed);
            Response::text(Status::InternalServerError, "internal error\n")
        });
        let close = last
            || panicked
            || head.wants_close()
            || !body.is_finished()
            || self.link.stop().is_raised();
        match self.send(&answer, close, *head.method() == Method::Head) {
            Ok(()) if close => After::Close,
            Ok(()) => After::Keep,
            Err(_) => After::Lost,
        }
    }

    /// Answers a head that is no request.
    fn refuse(mut self, error: HeadError) {
        let answer = Response::text(error.status(), &format!("{error}\n"));
        match self.send(&answer, true, false) {
            Ok(()) => self.close(),
            Err(_) => self.link.abandon(),
        }
    }

    fn send(&mut self, answer: &Response, close: bool, head_only: bool) -> Result<(), Trouble> {
        let deadlines = self.link.deadlines();
        let mut pace = Pace::new(deadlines.write, deadlines.write_stall);
        let mut head = answer.head(close);
        let body = if head_only { &[] } else { answer.body() };
        if body.len() <= SMALL_ANSWER_BYTES {
            head.extend_from_slice(body);
            return self.link.send(&head, &mut pace);
        }
        self.link.send(&head, &mut pace)?;
        self.link.send(body, &mut pace)
    }

    fn close(mut self) {
        if self.slot.enter(Phase::Linger) {
            let time = self.link.deadlines().linger;
            self.link.linger(time, MAX_LINGER_BYTES);
        }
    }
}

/// What is sent to a connection that gets no thread.
pub(super) fn busy_answer() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let answer =
            Response::text(Status::ServiceUnavailable, "busy\n").header("Retry-After", "1");
        let mut bytes = answer.head(true);
        bytes.extend_from_slice(answer.body());
        bytes
    })
}
