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

use crate::wire::manifest::ReservedPaths;
use crate::wire::path::{ManifestPath, PathError};
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
mod turns;
mod worker;

pub use knobs::{Break, OpFault, Pacing, ReloadFault};
pub use record::{Applied, Given, Part};

use judge::Judge;
use pod::Pod;
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
        let reserved = ReservedPaths::new(self.reserved);
        let mut pod = Pod::new(config, &self.version);
        pod.reserved = reserved.names();
        let shared = Arc::new(Shared::new(
            Credentials::new(&self.credentials.0, &self.credentials.1),
            reserved,
            self.judge,
            relay.lines(),
            pod,
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
