//! The daemon put together: one base directory, one HAProxy, two listeners.
//!
//! With `--check-listen` the agent-check responder runs in the same process. The two share
//! nothing but the process: the apply side must not end or wait because a key-value store
//! is away. So a store that is not read in time is logged and shown, and never ends the
//! daemon; until it is read the responder is silent, which changes nothing at HAProxy. Only
//! an address that cannot be had, or a token file that cannot be read, stops the start.
//!
//! Order at start: descriptor limit, base directory and its lock, mounts, listeners,
//! signals; only then recovery, so that HTTP answers while HAProxy is waited for. Order
//! at the end: listeners first, then what was under way, then the background thread.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::api::router::{Api, MetricsApi};
use crate::apply::port::Sockets;
use crate::apply::{Agent, Settings};
use crate::cli::exit::{self, Exit};
use crate::cli::{Config, Durability, Respond};
use crate::clock;
use crate::error::Report;
use crate::haproxy::deletes::Policy;
use crate::haproxy::{MasterSocket, WorkerSocket};
use crate::http::limits::{API_CONNECTIONS, METRICS_CONNECTIONS};
use crate::http::{
    BasicAuth, Deadlines, ListenAddr, Request, Response, Server, ServerConfig, Service, Status,
    Stopper,
};
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::respond;
use crate::responder::Responder;
use crate::responder::kv::SyncWait;
use crate::responder::monitor::{Monitor, PATHS};
use crate::store::disk::DiskFs;
use crate::store::lock::BaseLock;
use crate::store::mounts::Mounts;
use crate::store::{self, Store};
use crate::sys;
use crate::wire::manifest::ReservedPaths;

/// The plan blob of the applied plan, in the base directory.
const BLOB_FILE: &str = ".haptic-agent-plan.bin";

/// Descriptors beside one a connection: per upload a staged file and a directory, the
/// two sockets, state, lock, listeners, pipes, standard streams.
const OTHER_DESCRIPTORS: u64 = 64;

/// Runs until a signal asks for the end.
///
/// # Errors
/// Why it could not start, or could not go on, with the exit code that says so.
pub fn run(config: Config) -> Result<(), Report> {
    let cannot_start =
        |error: Box<dyn std::error::Error + Send + Sync>| Report::new(Exit::CannotStart, error);
    let connections = (API_CONNECTIONS + METRICS_CONNECTIONS) as u64;
    let checks = config
        .responder
        .as_ref()
        .map_or(0, |_| respond::descriptors());
    sys::survive_file_size_limit();
    sys::raise_nofile_limit(connections + OTHER_DESCRIPTORS + checks)
        .map_err(|error| cannot_start(error.into()))?;
    let disk = open_base(&config.base_dir).map_err(cannot_start)?;
    let _lock = BaseLock::acquire(&disk).map_err(|error| cannot_start(error.into()))?;
    let mounts =
        Mounts::probe(&disk, &config.base_dir).map_err(|error| cannot_start(error.into()))?;
    for mount in mounts.iter().filter(|mount| !mount.is_empty()) {
        log::info!(directory = mount; "a mount of its own: staging and backups of its files stay on it");
    }
    for file in mounts.files() {
        log::warn!(path = file; "this file is a mount point and cannot be replaced; mount its directory instead");
    }
    let durability = match config.durability {
        Durability::Full => store::Durability::Full,
        Durability::Process => store::Durability::Process,
    };
    let store = Store::new(Arc::new(disk), mounts, durability);

    let auth = BasicAuth::new(&config.credentials.username, &config.credentials.password)
        .map_err(|error| cannot_start(error.into()))?;
    let api = bind("api", &config.listen, API_CONNECTIONS).map_err(cannot_start)?;
    let metrics_server =
        bind("metrics", &config.metrics_listen, METRICS_CONNECTIONS).map_err(cannot_start)?;

    let responder = match &config.responder {
        Some(settings) => Some(start_responder(settings).map_err(cannot_start)?),
        None => None,
    };

    let metrics = Arc::new(Metrics::new());
    let agent = Arc::new(agent(&config, store, Arc::clone(&metrics)));
    let stoppers = [api.stopper(), metrics_server.stopper()];
    watch_signals(stoppers.to_vec(), Arc::clone(&agent))
        .map_err(|error| cannot_start(error.into()))?;

    let metrics_api = Shown {
        agent: MetricsApi {
            metrics: Arc::clone(&metrics),
            api: api.stats(),
        },
        responder: responder.as_ref().map(Responder::monitor),
    };
    let metrics_thread = spawn("metrics", move || {
        if let Err(error) = metrics_server.run(Arc::new(metrics_api)) {
            Report::new(Exit::Failed, error).log();
            exit::now(Exit::Failed);
        }
    })
    .map_err(|error| cannot_start(error.into()))?;
    let keeper = {
        let agent = Arc::clone(&agent);
        spawn("keeper", move || {
            // Without this thread no scheduled reload fires and nobody looks: better to be
            // started again and recover than to live on half.
            let kept = catch_unwind(AssertUnwindSafe(|| {
                if agent.start() {
                    sys::run_in_background();
                    agent.keep();
                }
            }));
            if kept.is_err() {
                log::error!("the background thread ended in a panic; stopping so that a restart recovers from disk");
                exit::now(Exit::Broken);
            }
        })
        .map_err(|error| cannot_start(error.into()))?
    };

    let served = api.run(Arc::new(Api {
        agent: Arc::clone(&agent),
        auth,
        metrics,
    }));
    agent.stop();
    for stopper in stoppers {
        stopper.stop();
    }
    // Last, because HAProxy asks all the time and an apply may still be under way.
    drop(responder);
    for thread in [metrics_thread, keeper] {
        if thread.join().is_err() {
            log::error!("a background thread ended in a panic");
        }
    }
    served.map_err(|error| Report::new(Exit::Failed, error))?;
    log::info!("stopped");
    Ok(())
}

/// Starts the responder beside the agent; whether its store answers is its own affair.
fn start_responder(
    settings: &Respond,
) -> Result<Responder, Box<dyn std::error::Error + Send + Sync>> {
    let responder = respond::start(settings)?;
    if let Some(address) = &settings.monitoring {
        respond::serve_monitoring(address, responder.monitor())?;
    }
    let (status, deadline) = (responder.status(), settings.sync_deadline);
    spawn("sync", move || {
        if status.wait_synced(deadline) == SyncWait::Late {
            let trouble = status.snapshot().trouble.unwrap_or_default();
            log::error!(trouble = trouble; "the responder's store could not be read in time; agent checks are not answered until it is, and applies go on");
        }
    })?;
    Ok(responder)
}

/// The metrics listener: the agent's metrics and, with a responder, its metrics, health
/// and coverage too.
struct Shown {
    agent: MetricsApi,
    responder: Option<Arc<Monitor>>,
}

impl Service for Shown {
    fn call(&self, request: &mut Request<'_>) -> Response {
        let Some(responder) = &self.responder else {
            return self.agent.call(request);
        };
        let path = request.path();
        if path.starts_with(PATHS) {
            return responder.answer(request.method(), path, request.query());
        }
        let response = self.agent.call(request);
        if path != "/metrics" || response.status() != Status::Ok {
            return response;
        }
        let mut text = response.body().to_vec();
        text.extend_from_slice(responder.exposition(false).as_bytes());
        Response::bytes(Status::Ok, CONTENT_TYPE, text)
    }
}

fn agent(config: &Config, store: Store, metrics: Arc<Metrics>) -> Agent {
    let clock = clock::system();
    let sockets = Sockets::new(
        WorkerSocket::new(config.worker_socket.clone()),
        MasterSocket::new(config.master_socket.clone()),
        config.reload_timeout,
        Arc::clone(&clock),
    );
    let settings = Settings {
        config: config.config.clone(),
        reload_interval: config.reload_interval_min,
        file_mode: config.file_mode.bits(),
        secret_mode: config.secret_mode.bits(),
        deletes: Policy {
            grace: config.delete_grace,
            cut: config.delete_cut,
        },
        reserved: ReservedPaths::new(config.reserved_paths()),
        worker_socket: std::path::absolute(&config.worker_socket)
            .ok()
            .and_then(|path| path.to_str().map(str::to_owned)),
    };
    Agent::new(
        settings,
        store,
        &config.state_file,
        BLOB_FILE,
        Arc::new(sockets),
        clock,
        metrics,
    )
}

fn open_base(base: &Path) -> Result<DiskFs, Box<dyn std::error::Error + Send + Sync>> {
    DiskFs::open(base).map_err(|error| {
        let base = base.display();
        format!("the base directory {base} cannot be opened: {error}; --base-dir names HAProxy's directory").into()
    })
}

fn bind(
    name: &'static str,
    address: &str,
    max_connections: usize,
) -> Result<Server, Box<dyn std::error::Error + Send + Sync>> {
    let address: ListenAddr = address.parse()?;
    let server = Server::bind(
        &address,
        ServerConfig {
            name,
            max_connections,
            deadlines: Deadlines::default(),
        },
    )?;
    log::info!(listener = name, address:% = server.local_addr(); "listening");
    Ok(server)
}

/// The first signal stops in order; a second one does not wait for what is under way,
/// which is what a restart can cope with anyway.
fn watch_signals(stoppers: Vec<Stopper>, agent: Arc<Agent>) -> std::io::Result<()> {
    let (mut read, write) = UnixStream::pair()?;
    pipe::register(SIGTERM, write.try_clone()?)?;
    pipe::register(SIGINT, write)?;
    spawn("signals", move || {
        let mut byte = [0u8; 1];
        let mut signals = 0u32;
        while read.read_exact(&mut byte).is_ok() {
            signals += 1;
            if signals > 1 {
                log::warn!("a second signal: ending at once");
                exit::now(Exit::Stopped);
            }
            log::info!("stopping: no new requests, and those under way are finished");
            for stopper in &stoppers {
                stopper.stop();
            }
            agent.stop();
        }
    })?;
    Ok(())
}

fn spawn<F: FnOnce() + Send + 'static>(
    name: &str,
    work: F,
) -> std::io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}
