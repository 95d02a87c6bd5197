//! What the daemon runs with: arguments and environment, put together once.
//!
//! A [`Config`] has passed every rule that needs no look at the world. Whether the
//! directory exists or an address is free shows when it is used.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::{DaemonArgs, UsageError};
use super::table::{LOG_LEVEL, PASSWORD, USERNAME};
use super::value::{self, Durability, FileMode, LogFormat, MAX_SOCKET_PATH_BYTES};
use crate::wire::path::ManifestPath;

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

impl Config {
    /// Puts arguments and environment together.
    ///
    /// # Errors
    /// [`UsageError::Environment`] for credentials or a log level that cannot be
    /// used, [`UsageError::BadValue`] for values that do not go together.
    pub fn new(args: DaemonArgs, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, UsageError> {
        let config = Self {
            master_socket: args.base_dir.join(&args.master_socket),
            worker_socket: args.base_dir.join(&args.worker_socket),
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
            return Err(UsageError::BadValue {
                flag: "worker-socket",
                given: self.worker_socket.display().to_string(),
                expected: "another socket than --master-socket: the worker's own".into(),
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
        if self.listen == self.metrics_listen && !self.listen.ends_with(":0") {
            return Err(UsageError::BadValue {
                flag: "metrics-listen",
                given: self.metrics_listen.clone(),
                expected: "another address than --listen".into(),
            });
        }
        Ok(())
    }
}

fn log_level(env: &dyn Fn(&str) -> Option<String>) -> Result<log::LevelFilter, UsageError> {
    match env(LOG_LEVEL) {
        None => Ok(log::LevelFilter::Info),
        Some(text) if text.is_empty() => Ok(log::LevelFilter::Info),
        Some(text) => value::log_level(&text).map_err(|expected| UsageError::Environment {
            name: LOG_LEVEL,
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
        name,
        problem: format!(
            "{problem}: the API needs a user name and a password; set {USERNAME} and {PASSWORD} to what the controller uses"
        ),
    })
}
