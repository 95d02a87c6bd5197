//! An HAProxy that routes nothing: its master and worker sockets over a model.
//!
//! It answers what an agent asks, with HAProxy's own texts, and differs by branch where
//! HAProxy does ([`Version`]): commands that are not there yet, prompts, payload echoes,
//! what one `del map` removes, what a certificate commit does after a CA commit on 3.0,
//! that an address is answered before it is in place. The same commands are run against
//! it and three real HAProxys by the tests, and the answers compared.
//!
//! What its configuration says is for the caller to know: a [`Model`] at the start, and a
//! hook that is asked at every reload ([`Builder::on_reload`]) and says what the new
//! worker has loaded, or with which words HAProxy refuses the files.
//!
//! ```
//! # #[cfg(feature = "testkit")] {
//! use haptic_agent::testkit::fake_haproxy::{Backend, Fault, FakeHaproxy, Model, Server, Version};
//!
//! # let dir = std::env::temp_dir().join(format!("fake-haproxy-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! let haproxy = FakeHaproxy::builder(Version::V3_4)
//!     .model(
//!         Model::new()
//!             .map("maps/host.map", "a.example be_a\n")
//!             .backend(Backend::new("be_a").server(Server::new("s1", "127.0.0.1", 80))),
//!     )
//!     .on_reload(|running| Ok(running.clone()))
//!     .start(&dir.join("master.sock"), &dir.join("worker.sock"))?;
//! haproxy.inject("set map", Fault::Refuse("entry not found.".to_owned()));
//! // ... an agent on these two sockets ...
//! assert_eq!(haproxy.reloads(), 0);
//! # drop(haproxy);
//! # std::fs::remove_dir_all(&dir)?;
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Not modelled: traffic (sessions are numbers that a test sets), checks, what is inside a
//! certificate beyond its serial number, ACLs (none is listed), other levels than admin.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

mod backends;
mod cli;
mod crt_lists;
mod faults;
mod hub;
mod maps;
mod master;
mod model;
mod pem;
mod reply;
mod servers;
mod tls;
mod worker;

pub use faults::{Fault, ReloadFault};
pub use model::{Backend, Bind, Model, Server, Version};

use cli::Session;
use hub::Hub;
use master::Master;
use worker::Worker;

/// How long HAProxy keeps an idle connection to its stats socket.
pub const STATS_TIMEOUT: Duration = Duration::from_secs(10);

type Hook = dyn Fn(&Model) -> Result<Model, String> + Send + Sync;

/// A running fake. It ends when this is dropped, and its sockets go with it.
pub struct FakeHaproxy {
    hub: Arc<Hub>,
    master: PathBuf,
    worker: PathBuf,
    threads: Vec<JoinHandle<()>>,
}

/// How a fake is started.
pub struct Builder {
    version: Version,
    full_version: String,
    stats_timeout: Duration,
    model: Model,
    hook: Box<Hook>,
}

impl Builder {
    /// What it says of its version, if not [`Version::full`].
    #[must_use]
    pub fn full_version(mut self, text: &str) -> Self {
        text.clone_into(&mut self.full_version);
        self
    }

    /// How long an idle connection is kept; [`STATS_TIMEOUT`] unless said otherwise.
    #[must_use]
    pub fn stats_timeout(mut self, timeout: Duration) -> Self {
        self.stats_timeout = timeout;
        self
    }

    /// What the first worker has loaded.
    #[must_use]
    pub fn model(mut self, model: Model) -> Self {
        self.model = model;
        self
    }

    /// Who says at each reload what the new worker loads, given what the running one
    /// holds. `Err` has the alerts of a refusal, a line each. Without one every reload
    /// brings back what the first worker had.
    #[must_use]
    pub fn on_reload(
        mut self,
        hook: impl Fn(&Model) -> Result<Model, String> + Send + Sync + 'static,
    ) -> Self {
        self.hook = Box::new(hook);
        self
    }

    /// Starts it on the two sockets, in place of what is there.
    ///
    /// # Errors
    /// A socket cannot be listened on, or a thread cannot be started.
    pub fn start(self, master: &Path, worker: &Path) -> io::Result<FakeHaproxy> {
        let hub = Hub::new(
            self.version,
            self.full_version,
            self.stats_timeout,
            self.hook,
            self.model,
        );
        let mut haproxy = FakeHaproxy {
            hub: Arc::new(hub),
            master: master.to_path_buf(),
            worker: worker.to_path_buf(),
            threads: Vec::new(),
        };
        haproxy.listen()?;
        Ok(haproxy)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl FakeHaproxy {
    /// A fake of that branch.
    #[must_use]
    pub fn builder(version: Version) -> Builder {
        Builder {
            version,
            full_version: version.full().to_owned(),
            stats_timeout: STATS_TIMEOUT,
            model: Model::new(),
            hook: Box::new(|running| Ok(running.clone())),
        }
    }

    fn listen(&mut self) -> io::Result<()> {
        let master = bind(&self.master)?;
        let worker = bind(&self.worker)?;
        for (listener, is_master) in [(master, true), (worker, false)] {
            let hub = Arc::clone(&self.hub);
            let thread = thread::Builder::new()
                .name("fake-haproxy".to_owned())
                .spawn(move || accept(&hub, &listener, is_master))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Every worker command so far that was carried out or met no fault, words joined by
    /// blanks, payloads left out.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.hub.commands()
    }

    /// The same for the master.
    #[must_use]
    pub fn master_commands(&self) -> Vec<String> {
        self.hub.master_commands()
    }

    /// Forgets both.
    pub fn clear_commands(&self) {
        self.hub.clear_commands();
    }

    /// Reloads that the master has carried out, refused ones included.
    #[must_use]
    pub fn reloads(&self) -> u32 {
        self.hub.counts().0
    }

    /// The worker that serves.
    #[must_use]
    pub fn worker_pid(&self) -> u32 {
        self.hub.current().pid
    }

    /// What that worker holds.
    #[must_use]
    pub fn model(&self) -> Model {
        let mut model = self.hub.current().model().clone();
        servers::settle(&mut model, self.hub.now() + Duration::from_secs(1));
        model
    }

    /// Connections that keep a server from being deleted.
    pub fn set_connections(&self, backend: &str, server: &str, connections: usize) {
        let process = self.hub.current();
        let model = &mut *process.model();
        let backends = model
            .backends
            .iter_mut()
            .filter(|known| known.name == backend);
        for known in backends.flat_map(|known| &mut known.servers) {
            if known.name == server {
                known.connections = connections;
            }
        }
    }

    /// Streams that keep a backend from being deleted.
    pub fn set_streams(&self, backend: &str, streams: usize) {
        let process = self.hub.current();
        let model = &mut *process.model();
        for known in &mut model.backends {
            if known.name == backend {
                known.streams = streams;
            }
        }
    }

    /// The next worker command that begins with these words meets the fault; several are
    /// met in turn.
    pub fn inject(&self, words: &str, fault: Fault) {
        self.hub.inject(words, fault);
    }

    /// The next reload meets the fault; several are met in turn.
    pub fn inject_reload(&self, fault: ReloadFault) {
        self.hub.inject_reload(fault);
    }

    /// Faults that nothing has met yet are void.
    pub fn clear_faults(&self) {
        self.hub.clear_faults();
    }

    /// A reload that hangs goes on.
    pub fn release(&self) {
        self.hub.release();
    }

    /// Another worker takes over, with another pid; connections to the old one end. It
    /// holds what is given, or what the old one held.
    pub fn replace_worker(&self, model: Option<Model>) {
        self.hub.replace_worker(model);
    }

    /// Master and worker are gone; their sockets stay and nobody listens.
    pub fn kill(&mut self) {
        self.hub.die();
        self.join();
    }

    /// Whether it was killed, or died of a fault.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.hub.is_dead()
    }

    /// Starts again after its end, with another pid and this model.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start_again(&mut self, model: Model) -> io::Result<()> {
        self.hub.die();
        self.join();
        self.hub.revive(model);
        self.listen()
    }

    fn join(&mut self) {
        for path in [&self.master, &self.worker] {
            // Wakes the accept call, if one is waiting.
            let _ = UnixStream::connect(path);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves connections until the process ends. The listener is polled, so that a death is
/// noticed whoever caused it.
fn accept(hub: &Arc<Hub>, listener: &UnixListener, is_master: bool) {
    let mut open: Vec<JoinHandle<()>> = Vec::new();
    while !hub.ends() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) => {
                thread::park_timeout(hub::ACCEPT_EVERY);
                continue;
            }
        };
        open.retain(|thread| !thread.is_finished());
        if stream.set_nonblocking(false).is_err() {
            continue;
        }
        let hub = Arc::clone(hub);
        let started = thread::Builder::new()
            .name("fake-haproxy-cli".to_owned())
            .spawn(move || serve(&hub, stream, is_master));
        // A thread that cannot be had is a connection that ends.
        open.extend(started);
    }
    for thread in open {
        let _ = thread.join();
    }
}

fn serve(hub: &Hub, stream: UnixStream, is_master: bool) {
    if is_master {
        return Session::new(hub, stream, Master { hub }, None).serve();
    }
    let process = hub.current();
    let Some(_place) = hub.place() else {
        return;
    };
    let worker = Worker { hub, process };
    Session::new(hub, stream, worker, Some(hub.stats_timeout)).serve();
}

impl fmt::Debug for FakeHaproxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeHaproxy")
            .field("version", &self.hub.version)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

impl Drop for FakeHaproxy {
    fn drop(&mut self) {
        self.hub.stop();
        self.join();
        for path in [&self.master, &self.worker] {
            let _ = fs::remove_file(path);
        }
    }
}
