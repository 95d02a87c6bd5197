//! What the daemon runs with: arguments and environment, put together once.
//!
//! [`DaemonArgs`] is what was typed, with every default filled in. A [`Config`] has passed every rule that needs no look at the world. Whether the
//! directory exists or an address is free shows when it is used.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::{Typed, UsageError, Values};
use super::respond::Respond;
use super::table::{DAEMON, DaemonFlag, LOG_LEVEL, PASSWORD, USERNAME};
use super::value::{self, Durability, FileMode, LogFormat, MAX_SOCKET_PATH_BYTES};
use crate::wire::path::ManifestPath;

/// The daemon's command line with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonArgs {
    /// `--base-dir`
    pub base_dir: PathBuf,
    /// `--config`
    pub config: ManifestPath,
    /// `--master-socket`, as typed
    pub master_socket: PathBuf,
    /// `--worker-socket`, as typed
    pub worker_socket: PathBuf,
    /// `--listen`
    pub listen: String,
    /// `--metrics-listen`
    pub metrics_listen: String,
    /// `--check-listen`
    pub check_listen: Option<String>,
    /// `--state-file`
    pub state_file: String,
    /// `--reload-interval-min`
    pub reload_interval_min: Duration,
    /// `--reload-timeout`
    pub reload_timeout: Duration,
    /// `--delete-grace`
    pub delete_grace: Duration,
    /// `--delete-cut`
    pub delete_cut: bool,
    /// `--durability`
    pub durability: Durability,
    /// `--file-mode`
    pub file_mode: FileMode,
    /// `--secret-mode`
    pub secret_mode: FileMode,
    /// `--log-format`
    pub log_format: LogFormat,
}

impl DaemonArgs {
    /// Parses each flag's last value, or its default where it was not given.
    pub(super) fn from_words(typed: &Typed<DaemonFlag>) -> Result<Self, UsageError> {
        use DaemonFlag as F;
        let values = Values {
            command: &DAEMON,
            typed: &typed.flags,
            env: &|_| None,
        };
        Ok(Self {
            base_dir: values.one(F::BaseDir, value::path)?,
            config: values.one(F::Config, value::manifest_path)?,
            master_socket: values.one(F::MasterSocket, value::path)?,
            worker_socket: values.one(F::WorkerSocket, value::path)?,
            listen: values.one(F::Listen, value::listen)?,
            metrics_listen: values.one(F::MetricsListen, value::listen)?,
            check_listen: values.one(F::CheckListen, value::listen_or_off)?,
            state_file: values.one(F::StateFile, value::state_file)?,
            reload_interval_min: values.one(F::ReloadIntervalMin, value::reload_interval)?,
            reload_timeout: values.one(F::ReloadTimeout, value::reload_timeout)?,
            delete_grace: values.one(F::DeleteGrace, value::delete_grace)?,
            delete_cut: values.one(F::DeleteCut, value::yes_or_no)?,
            durability: values.one(F::Durability, value::durability)?,
            file_mode: values.one(F::FileMode, value::file_mode)?,
            secret_mode: values.one(F::SecretMode, value::file_mode)?,
            log_format: values.one(F::LogFormat, value::log_format)?,
        })
    }
}

/// Everything the daemon is told from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The directory that holds HAProxy's files; relative to the working directory
    /// unless absolute.
    pub base_dir: PathBuf,
    /// The main configuration file, below the base.
    pub config: ManifestPath,
    /// The master socket, the base directory already in front of a relative one.
    pub master_socket: PathBuf,
    /// The worker's stats socket, likewise.
    pub worker_socket: PathBuf,
    /// Where the API listens, `host:port` with a numeric or empty host.
    pub listen: String,
    /// Where the metrics are served, likewise.
    pub metrics_listen: String,
    /// The state file's name in the base directory; starts with a dot.
    pub state_file: String,
    /// The shortest time between two reloads, at most 60 s.
    pub reload_interval_min: Duration,
    /// How long one reload may take, 1 s to 60 s.
    pub reload_timeout: Duration,
    /// How long a deleted server's sessions may end by themselves, at most 1 h.
    pub delete_grace: Duration,
    /// Whether they are cut then.
    pub delete_cut: bool,
    /// Whether what is written is synced.
    pub durability: Durability,
    /// Mode of a new file.
    pub file_mode: FileMode,
    /// Mode of a new certificate.
    pub secret_mode: FileMode,
    /// How log records look.
    pub log_format: LogFormat,
    /// The least severe record that is written.
    pub log_level: log::LevelFilter,
    /// What a controller has to give.
    pub credentials: Credentials,
    /// The responder that runs in the same process, if one does.
    pub responder: Option<Respond>,
}

/// The user name and password of the API. Neither is ever printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name, not empty.
    pub username: String,
    /// The password, not empty.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials { … }")
    }
}

/// Where the worker's socket is unless it is said.
pub(super) const WORKER_SOCKET: &str = "haproxy-worker.sock";

impl Config {
    /// Puts arguments and environment together.
    ///
    /// # Errors
    /// [`UsageError::Environment`] for credentials or a log level that cannot be
    /// used, [`UsageError::BadValue`] for values that do not go together.
    pub fn new(args: DaemonArgs, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, UsageError> {
        let worker_socket = args.base_dir.join(&args.worker_socket);
        let responder = match args.check_listen {
            Some(listen) => Some(Respond::within(
                listen,
                &worker_socket,
                args.log_format,
                env,
            )?),
            None => None,
        };
        let config = Self {
            master_socket: args.base_dir.join(&args.master_socket),
            worker_socket,
            base_dir: args.base_dir,
            config: args.config,
            listen: args.listen,
            metrics_listen: args.metrics_listen,
            state_file: args.state_file,
            reload_interval_min: args.reload_interval_min,
            reload_timeout: args.reload_timeout,
            delete_grace: args.delete_grace,
            delete_cut: args.delete_cut,
            durability: args.durability,
            file_mode: args.file_mode,
            secret_mode: args.secret_mode,
            log_format: args.log_format,
            log_level: log_level(env)?,
            credentials: Credentials {
                username: required(env, USERNAME)?,
                password: required(env, PASSWORD)?,
            },
            responder,
        };
        config.check_together()?;
        Ok(config)
    }

    /// The manifest paths that are the agent's own: its sockets, where they lie below
    /// the base directory. A manifest that names one is refused.
    #[must_use]
    pub fn reserved_paths(&self) -> Vec<String> {
        [&self.master_socket, &self.worker_socket]
            .into_iter()
            .filter_map(|socket| socket.strip_prefix(&self.base_dir).ok())
            .filter_map(Path::to_str)
            .map(str::to_owned)
            .collect()
    }

    fn check_together(&self) -> Result<(), UsageError> {
        for (flag, socket) in [
            ("master-socket", &self.master_socket),
            ("worker-socket", &self.worker_socket),
        ] {
            let length = socket.as_os_str().len();
            if length > MAX_SOCKET_PATH_BYTES {
                return Err(UsageError::BadValue {
                    flag,
                    given: socket.display().to_string(),
                    expected: format!(
                        "a path of at most {MAX_SOCKET_PATH_BYTES} bytes with the base directory, not {length}, because a socket address holds no more"
                    ),
                });
            }
        }
        if self.master_socket == self.worker_socket {
            // The one that stands at its default was not typed.
            let own = |default: &str| self.base_dir.join(default) != self.worker_socket;
            let (flag, expected) = match own(WORKER_SOCKET) {
                true => (
                    "worker-socket",
                    "another socket than --master-socket: the worker's own",
                ),
                false => (
                    "master-socket",
                    "another socket than --worker-socket: the master's own (-S)",
                ),
            };
            return Err(UsageError::BadValue {
                flag,
                given: self.worker_socket.display().to_string(),
                expected: expected.into(),
            });
        }
        if self
            .reserved_paths()
            .iter()
            .any(|p| p == self.config.as_str())
        {
            return Err(UsageError::BadValue {
                flag: "config",
                given: self.config.to_string(),
                expected: "a file, and this is the path of a socket".into(),
            });
        }
        let taken = |address: &str, by: &str| address == by && !address.ends_with(":0");
        if taken(&self.metrics_listen, &self.listen) {
            return Err(UsageError::BadValue {
                flag: "metrics-listen",
                given: self.metrics_listen.clone(),
                expected: "another address than --listen".into(),
            });
        }
        if let Some(responder) = &self.responder {
            let checks = &responder.listen;
            if taken(checks, &self.listen) || taken(checks, &self.metrics_listen) {
                return Err(UsageError::BadValue {
                    flag: "check-listen",
                    given: checks.clone(),
                    expected: "another address than --listen and --metrics-listen".into(),
                });
            }
        }
        Ok(())
    }
}

pub(super) fn log_level(
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<log::LevelFilter, UsageError> {
    match env(LOG_LEVEL) {
        None => Ok(log::LevelFilter::Info),
        Some(text) if text.is_empty() => Ok(log::LevelFilter::Info),
        Some(text) => value::log_level(&text).map_err(|expected| UsageError::Environment {
            name: LOG_LEVEL.to_owned(),
            problem: format!("is {text:?}; expected {expected}"),
        }),
    }
}

fn required(
    env: &dyn Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<String, UsageError> {
    let problem = match env(name) {
        None => "is not set",
        Some(text) if text.is_empty() => "is empty",
        // What the process environment gives for bytes that are no UTF-8.
        Some(text) if text.contains(char::REPLACEMENT_CHARACTER) => "is not UTF-8",
        Some(text) => return Ok(text),
    };
    Err(UsageError::Environment {
        name: name.to_owned(),
        problem: format!(
            "{problem}: the API needs a user name and a password; set {USERNAME} and {PASSWORD} to what the controller uses"
        ),
    })
}
