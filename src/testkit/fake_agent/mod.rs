//! An agent that touches neither disk nor HAProxy.
//!
//! It speaks the whole contract over loopback: every status in the contract's order, the
//! fence with all its reasons, missing content, ops, plan roles, plan blob, remembered
//! refusals, scheduled reloads. Files are kept in memory and their digests are checked.
//! Whether HAProxy would accept a set is what the test says ([`Builder::judge`],
//! [`FakeAgent::fail_next_reload`]). What it cannot know it takes: ops on servers and
//! backends succeed unless [`FakeAgent::reject_op`] says otherwise.
//!
//! ```
//! # #[cfg(feature = "testkit")] {
//! use haptic_agent::testkit::FakeAgent;
//!
//! let agent = FakeAgent::start()?;
//! agent.fail_next_reload("config : parsing [haproxy.cfg:3] : unknown keyword 'frob'");
//! // ... let the controller push to agent.url() with agent.username(), agent.password() ...
//! assert!(agent.applies().is_empty());
//! assert_eq!(agent.state().applied_plan_id, "");
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # A fake for controllers in other languages
//!
//! The knobs are also words on a line ([`FakeAgent::control`]), so a stand-alone fake whose
//! knobs a test turns through its standard input is this:
//!
//! ```no_run
//! use haptic_agent::testkit::FakeAgent;
//!
//! fn main() -> std::io::Result<()> {
//!     let agent = FakeAgent::builder()
//!         .listen("127.0.0.1:5555".parse().expect("an address"))
//!         .credentials("controller", "secret")
//!         .start()?;
//!     println!("{}", agent.url());
//!     for line in std::io::stdin().lines() {
//!         println!("{}", agent.control(&line?));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! ```text
//! $ ./fake-agent
//! http://127.0.0.1:5555
//! pace after-each
//! ok
//! reject map_set entry not found.
//! ok
//! applies
//! [{"plan_id":"p1","status":200,"parts":["haproxy.cfg"],...}]
//! ```
//!
//! Locks: one, over all of the fake's memory. It is held while an apply is carried out and
//! never while a body is read or an answer written.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::wire::manifest::{FileKind, ReservedPaths, Token};
use crate::wire::path::{ManifestPath, PathError};
use crate::wire::result::ApplyResult;
use crate::wire::state::State;

mod apply;
mod base64;
mod control;
mod form;
mod judge;
mod knobs;
mod ops;
mod pod;
mod record;
mod relay;
mod reload;
mod serve;
mod shared;
mod worker;

pub use knobs::{Break, OpFault, Pacing, ReloadFault};
pub use record::{Applied, Given, Part};

use judge::Judge;
use pod::{Content, Pod};
use relay::Relay;
use shared::{Credentials, Shared};

/// What a controller is told of the HAProxy that is not there.
pub const DEFAULT_VERSION: &str = "3.4.7-1";

/// Requests answered at one time.
const MAX_REQUESTS: usize = 128;

/// A running fake. It ends when this is dropped.
pub struct FakeAgent {
    shared: Arc<Shared>,
    /// Before the server: connections end first.
    relay: Option<Relay>,
    server: Arc<tiny_http::Server>,
    threads: Vec<JoinHandle<()>>,
}

/// How a fake is started.
#[derive(Debug)]
pub struct Builder {
    listen: SocketAddr,
    credentials: (String, String),
    config: String,
    version: String,
    reserved: Vec<String>,
    judge: Judge,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            credentials: ("controller".to_owned(), "fake-secret".to_owned()),
            config: "haproxy.cfg".to_owned(),
            version: DEFAULT_VERSION.to_owned(),
            reserved: ["haproxy-master.sock", "haproxy-worker.sock"]
                .map(str::to_owned)
                .to_vec(),
            judge: Judge::default(),
        }
    }
}

impl Builder {
    /// Where it listens; a free port of 127.0.0.1 unless said otherwise.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// What requests have to carry; `controller` and `fake-secret` unless said otherwise.
    #[must_use]
    pub fn credentials(mut self, username: &str, password: &str) -> Self {
        self.credentials = (username.to_owned(), password.to_owned());
        self
    }

    /// The main configuration file, which no set may lack once it had it.
    #[must_use]
    pub fn config(mut self, path: &str) -> Self {
        path.clone_into(&mut self.config);
        self
    }

    /// HAProxy's version as it would say it, `3.4.7-1`; decides which ops are executable.
    #[must_use]
    pub fn haproxy_version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Paths that no manifest may use, as the agent's own sockets and state files.
    #[must_use]
    pub fn reserved(mut self, paths: impl IntoIterator<Item = String>) -> Self {
        self.reserved = paths.into_iter().collect();
        self
    }

    /// Who says at each reload whether HAProxy accepts the files, by path: `Err` has the
    /// words of its refusal. Everything is accepted unless said otherwise.
    #[must_use]
    pub fn judge(
        mut self,
        verdict: impl Fn(&BTreeMap<String, Arc<[u8]>>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.judge = Judge::new(verdict);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// The address cannot be listened on, the configuration's path is none, or a thread
    /// cannot be started.
    pub fn start(self) -> io::Result<FakeAgent> {
        let config = path(&self.config)?;
        let server = tiny_http::Server::http((Ipv4Addr::LOCALHOST, 0))
            .map_err(|error| io::Error::other(error.to_string()))?;
        let inner = server
            .server_addr()
            .to_ip()
            .ok_or_else(|| io::Error::other("the server has no address"))?;
        let relay = Relay::start(self.listen, inner)?;
        let shared = Arc::new(Shared::new(
            Credentials::new(&self.credentials.0, &self.credentials.1),
            ReservedPaths::new(self.reserved),
            self.judge,
            relay.lines(),
            Pod::new(config, &self.version),
        ));
        let server = Arc::new(server);
        let mut agent = FakeAgent {
            shared,
            relay: Some(relay),
            server,
            threads: Vec::new(),
        };
        agent.spawn("fake-agent", |server, shared| dispatch(&server, &shared))?;
        agent.spawn("fake-agent-timer", |_, shared| shared.keep())?;
        Ok(agent)
    }
}

fn path(text: &str) -> io::Result<ManifestPath> {
    let invalid = |error: PathError| io::Error::new(io::ErrorKind::InvalidInput, error);
    ManifestPath::parse(text).map_err(invalid)
}

/// Hands requests to threads of their own, until the fake ends.
fn dispatch(server: &tiny_http::Server, shared: &Arc<Shared>) {
    let mut open: Vec<JoinHandle<()>> = Vec::new();
    while !shared.stops() {
        let Ok(request) = server.recv() else {
            continue;
        };
        open.retain(|thread| !thread.is_finished());
        if open.len() >= MAX_REQUESTS {
            // Dropped: the server answers 500.
            continue;
        }
        let shared = Arc::clone(shared);
        let started = thread::Builder::new()
            .name("fake-agent-request".to_owned())
            .spawn(move || serve::serve(&shared, request));
        open.extend(started);
    }
    for thread in open {
        let _ = thread.join();
    }
}

impl FakeAgent {
    /// A fake with the defaults of [`Builder`].
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// A fake that differs from the defaults.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(Arc<tiny_http::Server>, Arc<Shared>) + Send + 'static,
    ) -> io::Result<()> {
        let (server, shared) = (Arc::clone(&self.server), Arc::clone(&self.shared));
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(server, shared))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match &self.relay {
            Some(relay) => relay.address(),
            // Only while it is being dropped.
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// What a client is pointed at, `http://127.0.0.1:5555`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The user that requests have to name.
    #[must_use]
    pub fn username(&self) -> &str {
        &self.shared.credentials.username
    }

    /// The user's password.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.shared.credentials.password
    }

    /// The value of the header `Authorization` that a request has to have.
    #[must_use]
    pub fn authorization(&self) -> String {
        format!("Basic {}", self.shared.credentials.token)
    }

    /// Every apply whose request was read, in the order they were answered.
    #[must_use]
    pub fn applies(&self) -> Vec<Applied> {
        self.shared.lock().applies.clone()
    }

    /// The latest of [`FakeAgent::applies`].
    #[must_use]
    pub fn last(&self) -> Option<Applied> {
        self.shared.lock().applies.last().cloned()
    }

    /// Forgets the recorded applies.
    pub fn clear_applies(&self) {
        self.shared.lock().applies.clear();
    }

    /// How often the state was read.
    #[must_use]
    pub fn state_reads(&self) -> usize {
        self.shared.lock().state_reads
    }

    /// The state as `GET /v1/state` gives it, whether the fake is ready or not.
    #[must_use]
    pub fn state(&self) -> State {
        let inner = self.shared.lock();
        inner.pod.state(&inner.knobs, true)
    }

    /// The files it holds, by path.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Arc<[u8]>> {
        apply::contents(&self.shared.lock().pod.disk)
    }

    /// The entries of a map as the worker holds them, in HAProxy's order.
    #[must_use]
    pub fn map(&self, path: &str) -> Option<Vec<(String, String)>> {
        let inner = self.shared.lock();
        inner.pod.worker.loaded.maps.get(path).cloned()
    }

    /// The next applies are turned away with 503 `busy`, so many of them.
    pub fn turn_away(&self, applies: usize) {
        self.shared.lock().knobs.busy = applies;
    }

    /// Whether it has finished starting. While it has not, states wait and applies are
    /// turned away with 503 `startup`.
    pub fn set_ready(&self, ready: bool) {
        self.shared.lock().knobs.ready = ready;
        self.shared.ring();
    }

    /// How long every apply takes from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.lock().knobs.delay = delay;
    }

    /// The contract's version in the state.
    pub fn set_api_version(&self, version: u32) {
        self.shared.lock().knobs.api_version = Some(version);
    }

    /// The op kinds that it knows, as an older agent would; an apply with another one is
    /// answered with a reload.
    pub fn set_known_ops(&self, kinds: &[&str]) {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        self.shared.lock().knobs.known_ops = Some(kinds);
    }

    /// HAProxy's version from now on; the worker stays the same.
    pub fn set_haproxy_version(&self, version: &str) {
        self.shared.lock().pod.worker.set_version(version);
    }

    /// Every op of that kind is refused with these words: the apply goes on with a reload.
    pub fn reject_op(&self, kind: &str, words: &str) {
        self.set_op_fault(kind, Some(OpFault::Refuse(words.to_owned())));
    }

    /// Ops of that kind behave again.
    pub fn accept_op(&self, kind: &str) {
        self.set_op_fault(kind, None);
    }

    /// What ops of that kind meet.
    pub fn set_op_fault(&self, kind: &str, fault: Option<OpFault>) {
        let faults = &mut self.shared.lock().knobs.op_faults;
        match fault {
            Some(fault) => faults.insert(kind.to_owned(), fault),
            None => faults.remove(kind),
        };
    }

    /// HAProxy refuses the next reload with these words.
    pub fn fail_next_reload(&self, words: &str) {
        self.next_reload(ReloadFault::Refused(words.to_owned()));
    }

    /// What the next reload meets; several are met in turn.
    pub fn next_reload(&self, fault: ReloadFault) {
        self.shared.lock().knobs.reload_faults.push_back(fault);
    }

    /// Refusals that were remembered are forgotten, as after a minute.
    pub fn forget_refusals(&self) {
        self.shared.lock().pod.forget_refusals();
    }

    /// When a reload has to wait.
    pub fn set_pacing(&self, pacing: Pacing) {
        self.shared.lock().knobs.pacing = pacing;
        self.shared.ring();
    }

    /// With [`Pacing::AfterEach`]: the next reload does not have to wait.
    pub fn open_window(&self) {
        self.shared.lock().pod.last_reload = None;
    }

    /// A reload of what is applied is pending from now on: every apply comes back
    /// scheduled and only its in-place ops run, until [`FakeAgent::fire`].
    pub fn schedule_reload(&self) {
        let inner = &mut *self.shared.lock();
        let plan_id = inner.pod.applied.clone();
        self.shared.run(inner).put_off(plan_id, false);
        self.shared.ring();
    }

    /// The pending reload runs now. What becomes of it, as the state's `last_apply` will
    /// show it; `None` if there is none, or if HAProxy could not be asked.
    pub fn fire(&self) -> Option<ApplyResult> {
        let inner = &mut *self.shared.lock();
        self.shared.run(inner).fire()
    }

    /// Deletes wait in the queue from now on, as while connections are open, until they
    /// are let go.
    pub fn hold_deletes(&self, hold: bool) {
        let mut inner = self.shared.lock();
        inner.knobs.hold_deletes = hold;
        if !hold {
            inner.pod.worker.servers.clear();
            inner.pod.worker.backends.clear();
        }
    }

    /// The connection of the next apply breaks there; several break in turn.
    pub fn break_next(&self, place: Break) {
        self.shared.lock().knobs.breaks.push_back(place);
    }

    /// The next connections are closed as soon as they are made, so many of them.
    pub fn refuse_connections(&self, count: usize) {
        if let Some(relay) = &self.relay {
            relay.lines().turn_away(count);
        }
    }

    /// Ends every open connection, as a restart does.
    pub fn cut_connections(&self) {
        self.shared.lines.cut_all();
    }

    /// Another controller pushes this set behind the back of the one that is tested, and
    /// HAProxy loads it.
    ///
    /// # Errors
    /// A path that the contract does not allow.
    pub fn push_behind<'a>(
        &self,
        plan_id: &str,
        token: Token,
        files: impl IntoIterator<Item = (&'a str, FileKind, &'a [u8])>,
    ) -> io::Result<()> {
        let mut set = BTreeMap::new();
        for (name, kind, bytes) in files {
            set.insert(path(name)?, (kind, bytes.to_vec()));
        }
        self.shared.lock().pod.push_behind(plan_id, token, set);
        Ok(())
    }

    /// Something other than the agent writes an owned file, or removes it. Noticed by the
    /// next `verify=1` and by the next apply: the baseline is unknown then.
    ///
    /// # Errors
    /// A path that the contract does not allow.
    pub fn write_behind(&self, name: &str, bytes: Option<&[u8]>) -> io::Result<()> {
        let content = bytes.map(|bytes| Content::of(bytes.to_vec()));
        let path = path(name)?;
        self.shared.lock().pod.behind.insert(path, content);
        Ok(())
    }

    /// The agent does not know any more what is applied.
    pub fn lose_baseline(&self) {
        self.shared.lock().pod.forget_baseline();
    }

    /// HAProxy is restarted with the files that are there: the agent reloads the applied
    /// set once, or schedules that, to know again what runs.
    pub fn restart_haproxy(&self) {
        let inner = &mut *self.shared.lock();
        self.shared.run(inner).other_worker();
        self.shared.ring();
    }

    /// HAProxy's worker does not answer from now on, for that reason, until a reload works
    /// or it is [there again](FakeAgent::wake_worker). Only the state says so: what a
    /// reload meets is for [`FakeAgent::next_reload`].
    pub fn silence_worker(&self, reason: &str) {
        let reason = Some(reason.to_owned());
        self.shared.lock().pod.worker.set_answer(reason);
    }

    /// HAProxy's worker answers again.
    pub fn wake_worker(&self) {
        self.shared.lock().pod.worker.set_answer(None);
    }

    /// The knobs as words on a line; `help` lists them. The answer is one line, `ok`, what
    /// was asked for as JSON, or `error: ` and what is wrong.
    pub fn control(&self, line: &str) -> String {
        control::control(self, line)
    }
}

impl fmt::Debug for FakeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeAgent")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.shared.stop();
        self.relay = None;
        self.server.unblock();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
