//! What the responder runs with, alone or within the daemon.
//!
//! The same settings either way: alone they come from flags and variables, within the
//! daemon from `--check-listen`, the daemon's worker socket and the variables.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::{Typed, UsageError, Values};
use super::config::log_level;
use super::table::{RESPOND, RespondFlag};
use super::value::{self, LogFormat, MAX_SOCKET_PATH_BYTES};
use crate::responder::kv::{ConsulConfig, DirConfig, Source, Weights, WhenMissing};

/// Everything the responder is told from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond {
    /// Where agent checks are answered, `host:port` with a numeric or empty host.
    pub listen: String,
    /// Where metrics and health are served, if anywhere.
    pub monitoring: Option<String>,
    /// Where the wanted state comes from.
    pub store: Source,
    /// How long the first read may take; `None` waits for ever.
    pub sync_deadline: Option<Duration>,
    /// Whether answers carry weights.
    pub weights: Weights,
    /// The worker's stats socket, for coverage.
    pub haproxy_socket: Option<PathBuf>,
    /// How log records look.
    pub log_format: LogFormat,
    /// The least severe record that is written.
    pub log_level: log::LevelFilter,
}

impl Respond {
    /// The settings of `haptic-agent respond`.
    ///
    /// # Errors
    /// [`UsageError`] for a value that cannot be used, or two that do not go together.
    pub fn new(
        typed: &Typed<RespondFlag>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, UsageError> {
        use RespondFlag as F;
        let values = Values {
            command: &RESPOND,
            typed: &typed.flags,
            env,
        };
        let listen = values.one(F::ListenAddr, value::listen)?;
        let monitoring = values.one(F::MonitoringAddr, value::listen_or_off)?;
        let log_format = values.one(F::LogFormat, value::log_format)?;
        let respond = Self::from_values(&values, listen, monitoring, log_format)?;
        if respond.monitoring.as_ref() == Some(&respond.listen) && !respond.listen.ends_with(":0") {
            return Err(UsageError::BadValue {
                flag: "monitoring-addr",
                given: respond.listen,
                expected: "another address than --listen-addr".into(),
            });
        }
        Ok(respond)
    }

    /// The settings of a responder within the daemon, which serves its metrics itself:
    /// another listener only where the variable asks for one.
    ///
    /// # Errors
    /// [`UsageError`] for a variable that cannot be used.
    pub fn within(
        listen: String,
        worker_socket: &Path,
        log_format: LogFormat,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, UsageError> {
        let values = Values {
            command: &RESPOND,
            typed: &[],
            env,
        };
        let asked = RESPOND
            .flags
            .iter()
            .find(|f| f.key == RespondFlag::MonitoringAddr)
            .and_then(|f| RESPOND.variable(f))
            .and_then(|name| env(&name))
            .is_some_and(|text| !text.is_empty());
        let monitoring = match asked {
            true => values.one(RespondFlag::MonitoringAddr, value::listen_or_off)?,
            false => None,
        };
        let mut respond = Self::from_values(&values, listen, monitoring, log_format)?;
        if respond.haproxy_socket.is_none() {
            respond.haproxy_socket = Some(worker_socket.to_owned());
        }
        Ok(respond)
    }

    fn from_values(
        values: &Values<'_, RespondFlag>,
        listen: String,
        monitoring: Option<String>,
        log_format: LogFormat,
    ) -> Result<Self, UsageError> {
        use RespondFlag as F;
        Ok(Self {
            listen,
            monitoring,
            store: store(values)?,
            sync_deadline: values.one(F::SyncDeadline, value::sync_deadline)?,
            weights: values.one(F::Weights, value::weights)?,
            haproxy_socket: values.maybe(F::HaproxySocket, socket)?,
            log_format,
            log_level: log_level(values.env)?,
        })
    }
}

fn store(values: &Values<'_, RespondFlag>) -> Result<Source, UsageError> {
    use RespondFlag as F;
    let address = values.maybe(F::ConsulAddr, text)?;
    let marker = values.maybe(F::KvMarker, text)?;
    let max_keys = values.one(F::KvMaxKeys, value::max_keys)?;
    let missing = values.one(F::KvMissing, value::when_missing)?;
    if let Some(dir) = values.maybe(F::KvDir, value::path)? {
        let beside = match (&address, &marker) {
            (None, None) => {
                return Ok(Source::Dir(DirConfig {
                    missing,
                    max_keys,
                    ..DirConfig::new(dir)
                }));
            }
            (Some(_), _) => "no --consul-addr beside it: the keys come from one store",
            (None, Some(_)) => "no --kv-marker beside it: a directory has a mark of its own",
        };
        return Err(UsageError::BadValue {
            flag: "kv-dir",
            given: dir.display().to_string(),
            expected: beside.into(),
        });
    }
    if missing != WhenMissing::default() {
        return Err(UsageError::BadValue {
            flag: "kv-missing",
            given: "make".into(),
            expected: "--kv-dir beside it: Consul needs nothing made".into(),
        });
    }
    let prefix = values.one(F::KvPrefix, text)?;
    let consul = ConsulConfig::new(address.as_deref(), &prefix, marker.as_deref(), values.env);
    consul
        .map(|consul| Source::Consul(ConsulConfig { max_keys, ..consul }))
        .map_err(|error| UsageError::Unusable {
            problem: error.to_string(),
        })
}

fn text(text: &OsStr) -> Result<String, value::Expected> {
    match value::utf8(text)? {
        "" => Err("something".into()),
        text => Ok(text.to_owned()),
    }
}

fn socket(text: &OsStr) -> Result<PathBuf, value::Expected> {
    let path = value::path(text)?;
    if text.len() > MAX_SOCKET_PATH_BYTES {
        return Err(format!(
            "a path of at most {MAX_SOCKET_PATH_BYTES} bytes, because a socket address holds no more"
        ));
    }
    Ok(path)
}

#[cfg(test)]
mod tests;
