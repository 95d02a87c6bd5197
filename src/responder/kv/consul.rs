//! The watcher of a prefix in Consul: one loop of waiting queries.
//!
//! A reply is taken whole or not at all, and what lacks keys of the copy passes the
//! gates of `shrink` first. After anything that is not a good reply
//! the next read does not wait, so an index never outlives the server that gave it.

pub mod api;
pub mod config;
mod failure;
pub mod reply;
pub mod token;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::keeper::Keeper;
use super::shrink::{self, Current, Lost, Offer, Probe, Probed, Verdict};
use super::status::{ErrorKind, Hold, Names};
use super::{Stop, Weights};
use crate::clock::Clock;
use crate::http::client::{self, Cancel};
use crate::responder::copy::Copy;
use crate::responder::key;

use api::{Api, Reply, Within, kind_of};
use config::ConsulConfig;
use failure::{Failure, backoff, jittered, no_leader};
use token::TokenError;

/// Replies in a row whose probes find a key that the list lacks, before this counts as
/// a refusal: a list and a key that keep contradicting each other are not believed.
const MAX_CONTRADICTIONS: u32 = 3;
/// Waiting queries in a row that wake early and bring nothing, before the gap grows.
const IDLE_WAKES: u32 = 20;

/// The watcher's state.
pub(super) struct Watch {
    config: ConsulConfig,
    weights: Weights,
    clock: Arc<dyn Clock>,
    stop: Arc<Stop>,
    keeper: Keeper,
    api: Api,
    /// What the next query waits on; `None` for a plain read.
    index: Option<u64>,
    /// Where the store last said what the copy says.
    copy_index: u64,
    /// What it says beyond that.
    lost: Option<Lost>,
    held: bool,
    contradictions: u32,
    idle_wakes: u32,
    failures: u32,
    last_start: Option<Instant>,
    pause: Duration,
}

impl Watch {
    /// Reads the token; nothing is asked yet.
    pub(super) fn new(
        config: ConsulConfig,
        weights: Weights,
        clock: Arc<dyn Clock>,
        stop: Arc<Stop>,
        cancel: Cancel,
        keeper: Keeper,
    ) -> Result<Self, TokenError> {
        let token = config.server.token.read()?;
        let max_body = api::max_body(config.max_keys);
        let api = Api::new(config.server.clone(), token, cancel, max_body);
        Ok(Self {
            config,
            weights,
            clock,
            stop,
            keeper,
            api,
            index: None,
            copy_index: 0,
            lost: None,
            held: false,
            contradictions: 0,
            idle_wakes: 0,
            failures: 0,
            last_start: None,
            pause: Duration::ZERO,
        })
    }

    /// Reads until the stop comes.
    pub(super) fn run(mut self) {
        loop {
            let pause = self.due();
            self.keeper.status().busy_for(pause + MARGIN);
            if self.stop.pause(pause) {
                return;
            }
            self.last_start = Some(self.clock.now());
            self.pause = self.config.pace.gap;
            let left = self.api.was_left();
            let sent = self.index.take().filter(|_| !left);
            match self.read(sent) {
                Ok(reply) => {
                    self.failures = 0;
                    self.take(&reply, sent);
                }
                Err(None) => return,
                Err(Some(failure)) => self.failed(failure),
            }
        }
    }

    /// What is left of the pause since the last start.
    fn due(&self) -> Duration {
        match self.last_start {
            Some(start) => (start + self.pause).saturating_duration_since(self.clock.now()),
            None => Duration::ZERO,
        }
    }

    /// One list. `Err(None)` is the stop.
    fn read(&mut self, index: Option<u64>) -> Result<Reply, Option<Failure>> {
        let pace = self.config.pace;
        let path = self.config.prefix.path();
        let (target, whole) = match index {
            None => (format!("{path}?recurse"), pace.plain),
            Some(index) => {
                let wait = if self.held { pace.hold } else { pace.wait };
                let millis = wait.as_millis().max(1);
                let target = format!("{path}?recurse&index={index}&wait={millis}ms");
                (target, pace.blocking(wait))
            }
        };
        let reply = self
            .ask(&target, whole)
            .map_err(|error| self.failure(&error))?;
        match reply.status {
            200 | 404 if reply.leaderless => Err(Some(no_leader())),
            200 => Ok(reply),
            // What is no Consul answers 404 to everything.
            404 if reply.index.is_some() => Ok(reply),
            404 => Err(Some(Failure {
                kind: ErrorKind::Http,
                text: "404 without X-Consul-Index: is this a Consul agent?".to_owned(),
                lasting: true,
            })),
            403 => Err(Some(Failure {
                kind: ErrorKind::Acl,
                text: format!(
                    "the token may not read: {}; it needs key_prefix {:?} read",
                    reply.words(),
                    self.config.prefix.with_slash()
                ),
                lasting: false,
            })),
            500..=599 if reply.says_no_leader() => Err(Some(no_leader())),
            status => Err(Some(Failure {
                kind: ErrorKind::Http,
                text: format!("it answers {status}: {}", reply.words()),
                lasting: (300..=499).contains(&status) && status != 429,
            })),
        }
    }

    fn ask(&mut self, target: &str, whole: Duration) -> Result<Reply, client::Error> {
        let connect = self.config.pace.connect;
        self.keeper.status().busy_for(connect + whole + MARGIN);
        self.api.get(target, Within { connect, whole })
    }

    fn failure(&self, error: &client::Error) -> Option<Failure> {
        match error {
            client::Error::Cancelled => None,
            error => {
                let hint = match error {
                    client::Error::TooLarge { .. } => {
                        "; delete what is no override, or raise --kv-max-keys"
                    }
                    _ => "",
                };
                Some(Failure {
                    kind: kind_of(error),
                    text: format!("{}: {error}{hint}", self.api.server().origin),
                    lasting: false,
                })
            }
        }
    }

    /// A complete reply of a Consul with a leader.
    fn take(&mut self, reply: &Reply, sent: Option<u64>) {
        // An index that fell belongs to another server or to a reaped tombstone.
        let next = reply
            .index
            .filter(|index| sent.is_none_or(|sent| *index >= sent));
        let marker = self.config.marker.as_deref();
        let listed = if reply.status == 404 {
            Ok(reply::Listed::default())
        } else {
            let ConsulConfig {
                prefix, max_keys, ..
            } = &self.config;
            reply::listed(&reply.body, prefix, marker, self.weights, *max_keys)
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(what) => {
                return self.failed(Failure {
                    kind: ErrorKind::Parse,
                    text: format!("the list of keys cannot be used: {what}"),
                    lasting: false,
                });
            }
        };
        let unmarked = marker.is_some() && !listed.marked;
        let copy = Copy::new(listed.entries, reply.index.unwrap_or(0), self.keeper.wall());
        let offer = Offer {
            copy: &copy,
            absent: reply.status == 404,
            index: reply.index,
            filtered: reply.filtered,
            unmarked,
        };
        let current = self.current();
        let first = current.is_none();
        let keeps = current.is_some_and(|current| shrink::keeps(current, &offer));
        let verdict = shrink::judge(current, &offer);
        match verdict {
            Verdict::Apply if keeps => self.keep(copy, reply, next, sent),
            Verdict::Apply => self.apply(copy, next, sent),
            Verdict::Hold(hold) => {
                let lost = current.filter(|_| hold == Hold::Index);
                if let Some(lost) = lost.map(|current| shrink::lose(current, &offer)) {
                    self.lose(lost, offer.index);
                }
                self.hold(hold, self.why(hold, reply), next, sent);
            }
            Verdict::Probe(keys) => match self.probe(&keys) {
                Err(None) => {}
                Err(Some(failure)) if first => self.failed(failure),
                Err(Some(failure)) => self.hold(Hold::Probe, failure.text, next, sent),
                Ok(Probed::Apply) if keeps => self.keep(copy, reply, next, sent),
                Ok(Probed::Apply) => self.apply(copy, next, sent),
                // The keys are there; the next plain read has to show them.
                Ok(Probed::ReadAgain) if self.contradictions < MAX_CONTRADICTIONS => {
                    self.contradictions += 1;
                }
                Ok(Probed::ReadAgain | Probed::Hold) => {
                    let why = "a key is missing in the list and there when asked for".to_owned();
                    self.hold(Hold::Probe, why, next, sent);
                }
            },
        }
    }

    fn current(&self) -> Option<Current<'_>> {
        self.keeper.current().map(|copy| Current {
            copy,
            index: self.copy_index,
            lost: self.lost.as_ref(),
        })
    }

    /// Keys have gone that nobody deleted. A store that has begun anew is judged by its
    /// own index from now on.
    fn lose(&mut self, lost: Lost, index: Option<u64>) {
        if lost.rebuilt {
            self.copy_index = index.unwrap_or(0);
        }
        self.keeper.status().lost(Some(&lost.keys));
        self.lost = Some(lost);
    }

    /// Follows what the store has, beside what it lost.
    fn keep(&mut self, copy: Copy, reply: &Reply, next: Option<u64>, sent: Option<u64>) {
        if let Some(lost) = &mut self.lost {
            lost.keys.retain(|key| copy.get(&**key).is_none());
            self.keeper.status().lost(Some(&lost.keys));
            if lost.rebuilt {
                self.copy_index = copy.index();
            }
        }
        if let Some(current) = self.current() {
            let both = shrink::beside(copy, current);
            self.keeper.follow_in_hold(both);
        }
        self.hold(Hold::Index, self.why(Hold::Index, reply), next, sent);
    }

    fn apply(&mut self, copy: Copy, next: Option<u64>, sent: Option<u64>) {
        if copy.is_empty() && self.keeper.current().is_none() && self.config.marker.is_none() {
            let below = self.config.prefix.with_slash();
            log::warn!(below; "the store has no key at all, so every row is answered ready: right where nothing is overridden, and not where Consul was wiped or rebuilt; with --kv-marker the second is told from the first");
        }
        let index = copy.index();
        let news = self.keeper.offer(copy);
        self.copy_index = index;
        self.lost = None;
        self.keeper.status().lost(None);
        self.held = false;
        self.contradictions = 0;
        self.index = next;
        let early = sent.is_some() && !news && self.woke_early();
        self.idle_wakes = if early { self.idle_wakes + 1 } else { 0 };
        if self.idle_wakes > IDLE_WAKES {
            self.pause = self.config.pace.idle_gap;
        }
    }

    /// Whether the query that has just ended did not wait for its time.
    fn woke_early(&self) -> bool {
        let taken = self
            .last_start
            .map(|start| self.clock.now().saturating_duration_since(start));
        taken.is_some_and(|taken| taken < self.config.pace.wait)
    }

    /// A waiting query and a plain read take turns, so that a wrong index hides a
    /// change for one short wait at most.
    fn hold(&mut self, hold: Hold, why: String, next: Option<u64>, sent: Option<u64>) {
        // A token that lost its rights may have a successor.
        let why = match self.renew_token() {
            Ok(_) => why,
            Err(error) => format!("{why}; {error}"),
        };
        self.keeper.hold(hold, why);
        self.held = true;
        self.contradictions = 0;
        self.idle_wakes = 0;
        self.index = next.filter(|_| sent.is_none());
        if self.index.is_none() && sent.is_none() {
            // No index to wait on: the pause takes its place.
            self.pause = self.config.pace.hold;
        }
    }

    /// In words, for a hold that the reply alone decided.
    fn why(&self, hold: Hold, reply: &Reply) -> String {
        let below = self.config.prefix.with_slash();
        match hold {
            Hold::Filtered => format!(
                "Consul left keys below {below} out for lack of rights; give the token key_prefix {below:?} read"
            ),
            Hold::Index => match &self.lost {
                Some(lost) if lost.rebuilt => format!(
                    "the store below {below} was rebuilt (index {}, was {}) and lacks keys, which are answered all the same: {}; \
                     write them again, each is followed as it comes; one that shall end is set to ready and, once this responder answers that, deleted",
                    reply.index.unwrap_or(0),
                    lost.index,
                    self.lost_keys()
                ),
                Some(_) | None => format!(
                    "everything below {below} is gone, but nothing was deleted since it was read (index {}, read at {}): \
                     lost rights or a rebuilt server; answered all the same: {}; if it is meant, write any key below {below} and delete it again",
                    reply.index.unwrap_or(0),
                    self.copy_index,
                    self.lost_keys()
                ),
            },
            Hold::Marker => format!(
                "the marker {below}{} is missing; restore the keys, or write the marker to say that they are meant",
                self.config.marker.as_deref().unwrap_or_default()
            ),
            Hold::Probe | Hold::Directory => String::new(),
        }
    }

    /// What the store lost, for a message.
    fn lost_keys(&self) -> String {
        let keys = self.lost.iter().flat_map(|lost| &lost.keys);
        Names::of(keys.map(|key| key.to_string())).to_string()
    }

    /// Asks for keys one by one until one is refused. `Err(None)` is the stop.
    fn probe(&mut self, keys: &[String]) -> Result<Probed, Option<Failure>> {
        let mut answers = Vec::with_capacity(keys.len());
        for key in keys {
            let full = self.config.prefix.full(key);
            let target = format!("{}?consistent", key::kv_path(&full));
            let reply = self
                .ask(&target, self.config.pace.plain)
                .map_err(|error| self.failure(&error))?;
            let refused = |kind, what: String| {
                Some(Failure {
                    kind,
                    text: what,
                    lasting: false,
                })
            };
            match reply.status {
                200 | 404 if reply.leaderless => return Err(Some(no_leader())),
                200 => answers.push(Probe::Present),
                404 if reply.index.is_some() => answers.push(Probe::Absent),
                403 => {
                    let what = format!(
                        "the token may not read {full}: {}; give it key_prefix {:?} read",
                        reply.words(),
                        self.config.prefix.with_slash()
                    );
                    return Err(refused(ErrorKind::Acl, what));
                }
                500..=599 if reply.says_no_leader() => return Err(Some(no_leader())),
                status => {
                    let what = format!("asked for {full} it answers {status}: {}", reply.words());
                    return Err(refused(ErrorKind::Http, what));
                }
            }
        }
        Ok(shrink::after_probes(&answers))
    }

    fn failed(&mut self, failure: Failure) {
        let pace = self.config.pace;
        // The token is worth another look, and one that changed another try at once.
        let token = match failure.kind {
            ErrorKind::Acl => self.renew_token(),
            ErrorKind::Connect
            | ErrorKind::Timeout
            | ErrorKind::Http
            | ErrorKind::Leader
            | ErrorKind::Parse => Ok(false),
        };
        let (renewed, text) = match token {
            Ok(renewed) => (renewed, failure.text),
            Err(error) => (false, format!("{}; {error}", failure.text)),
        };
        self.keeper.fail(Some(failure.kind), text);
        self.last_start = Some(self.clock.now());
        self.pause = if renewed {
            pace.gap
        } else if failure.lasting {
            pace.retry_max
        } else {
            jittered(backoff(self.failures, pace.retry_min, pace.retry_max))
        };
        self.failures = self.failures.saturating_add(1);
    }

    /// Reads the token file again; true if it has another token.
    fn renew_token(&mut self) -> Result<bool, TokenError> {
        let token = self.config.server.token.read()?;
        Ok(self.api.set_token(token))
    }
}

/// What the loop itself may take on top of an announced wait.
const MARGIN: Duration = Duration::from_secs(5);
