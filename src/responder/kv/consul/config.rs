//! Where Consul is and who asks: flags first, then Consul's own environment variables.
//!
//! What cannot be honoured stops the start instead of being passed over: a token sent
//! in the clear where TLS was asked for, or sent nowhere, is worse than no start.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::token::{Token, checked_token};
use crate::http::client::{Origin, OriginError};
use crate::responder::key::{self, KeyError, MAX_KEY_BYTES, Prefix};
use crate::responder::limits::MAX_KV_KEYS;

/// Consul's address where neither a flag nor the environment names one.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:8500";
/// Consul's variable for its address.
pub const ADDR_ENV: &str = "CONSUL_HTTP_ADDR";
/// Consul's variable for a token.
pub const TOKEN_ENV: &str = "CONSUL_HTTP_TOKEN";
/// Consul's variable for a file that has one.
pub const TOKEN_FILE_ENV: &str = "CONSUL_HTTP_TOKEN_FILE";
/// Consul's variable that asks for TLS.
const SSL_ENV: &str = "CONSUL_HTTP_SSL";
/// Consul's variable for a user and a password of a proxy before it.
const AUTH_ENV: &str = "CONSUL_HTTP_AUTH";

/// A Consul agent or server, and the token for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulServer {
    /// Where it listens.
    pub origin: Origin,
    /// Who asks.
    pub token: Token,
}

impl ConsulServer {
    /// From the address flag, if it was given, and the environment.
    ///
    /// # Errors
    ///
    /// [`ConsulConfigError`]: an address that is none, TLS, or credentials that cannot
    /// be honoured.
    pub fn new(
        address: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConsulConfigError> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let (text, from) = match (address, set(ADDR_ENV)) {
            (Some(flag), _) => (flag.to_owned(), "--consul-addr"),
            (None, Some(value)) => (value, ADDR_ENV),
            (None, None) => (DEFAULT_ADDRESS.to_owned(), "the default"),
        };
        let origin = origin(&text).map_err(|why| ConsulConfigError::Address { from, why })?;
        if set(SSL_ENV).is_some_and(|value| is_true(&value)) {
            return Err(ConsulConfigError::Ssl);
        }
        if set(AUTH_ENV).is_some() {
            return Err(ConsulConfigError::Auth);
        }
        // Consul's own tools prefer the file, too.
        let token = match (set(TOKEN_FILE_ENV), set(TOKEN_ENV)) {
            (Some(path), _) => Token::File(path.into()),
            (None, Some(token)) => {
                let token = checked_token(token.trim().as_bytes());
                Token::Fixed(token.ok_or(ConsulConfigError::Token)?)
            }
            (None, None) => Token::None,
        };
        Ok(Self { origin, token })
    }
}

/// `host:port`, `http://host:port` or `unix:///path`. A port is required, because
/// Consul's tools and a browser would fill in different ones.
fn origin(text: &str) -> Result<Origin, AddressError> {
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let origin = Origin::parse(&url).map_err(AddressError::Origin)?;
    match &origin {
        Origin::Unix(_) => Ok(origin),
        Origin::Tcp { .. } => {
            let authority = url.trim_end_matches('/').rsplit('/').next();
            let port = authority.and_then(|text| text.rsplit_once(':'));
            match port {
                Some((_, digits)) if !digits.ends_with(']') => Ok(origin),
                Some(_) | None => Err(AddressError::NoPort),
            }
        }
    }
}

/// What Go's `strconv.ParseBool` takes for true; anything unknown counts as well, since
/// it was meant to switch something on.
fn is_true(value: &str) -> bool {
    !matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False")
}

/// Why an address is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressError {
    /// It is no URL of ours.
    Origin(OriginError),
    /// It names no port.
    NoPort,
}

/// Why Consul cannot be asked as it was configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsulConfigError {
    /// The address cannot be used.
    Address {
        /// Which flag or variable has it.
        from: &'static str,
        /// What is wrong.
        why: AddressError,
    },
    /// `CONSUL_HTTP_SSL` is set.
    Ssl,
    /// `CONSUL_HTTP_AUTH` is set.
    Auth,
    /// `CONSUL_HTTP_TOKEN` is no token.
    Token,
    /// The prefix cannot be one.
    Prefix {
        /// As typed.
        given: String,
        /// What is wrong.
        why: KeyError,
    },
    /// The marker cannot be one.
    Marker {
        /// As typed.
        given: String,
        /// What is wrong.
        why: KeyError,
    },
}

impl fmt::Display for ConsulConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { from, why } => match why {
                AddressError::Origin(OriginError::Tls) => write!(
                    f,
                    "{from} asks for https, which is not built in: point it at the Consul agent of this machine over http or unix://, and let that one speak TLS to the servers"
                ),
                AddressError::Origin(why) => write!(f, "{from} cannot be used: {why}"),
                AddressError::NoPort => write!(
                    f,
                    "{from} names no port; Consul's is 8500, as in 127.0.0.1:8500"
                ),
            },
            Self::Ssl => write!(
                f,
                "{SSL_ENV} asks for TLS, which is not built in: unset it and point {ADDR_ENV} at the Consul agent of this machine over http or unix://"
            ),
            Self::Auth => write!(
                f,
                "{AUTH_ENV} is set, and a user and password are not sent to Consul: unset it, or give a token with {TOKEN_FILE_ENV}"
            ),
            Self::Token => write!(
                f,
                "{TOKEN_ENV} is no token: it has blanks or characters that cannot be sent"
            ),
            Self::Prefix { given, why } => write!(
                f,
                "--kv-prefix {given:?} cannot be used: {}; write for instance haptic-agent/state",
                why.what()
            ),
            Self::Marker { given, why } => {
                write!(f, "--kv-marker {given:?} cannot be used: {}", why.what())
            }
        }
    }
}

impl Error for ConsulConfigError {}

/// How fast and how patient the watcher is. Tests shorten it; nobody else changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsulPace {
    /// A connection is there by then.
    pub connect: Duration,
    /// A plain read has ended by then; Consul takes up to 7.4 s to say that it has no
    /// leader.
    pub plain: Duration,
    /// How long a query waits for a change. It bounds how long a wrong index can hide
    /// one.
    pub wait: Duration,
    /// What a waiting query may take beyond `wait` and the sixteenth that Consul adds.
    pub slack: Duration,
    /// From the start of one read to the start of the next.
    pub gap: Duration,
    /// The same, once waiting queries keep waking for nothing: an empty prefix wakes at
    /// every write to the whole store.
    pub idle_gap: Duration,
    /// First pause after a failed read; doubles up to `retry_max`, each ± 25 %.
    pub retry_min: Duration,
    /// Longest pause after a failed read.
    pub retry_max: Duration,
    /// How long a query waits while a reply is held back; a plain read follows.
    pub hold: Duration,
}

impl Default for ConsulPace {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            plain: Duration::from_secs(10),
            wait: Duration::from_secs(55),
            slack: Duration::from_secs(5),
            gap: Duration::from_millis(50),
            idle_gap: Duration::from_millis(250),
            retry_min: Duration::from_millis(200),
            retry_max: Duration::from_secs(5),
            hold: Duration::from_secs(5),
        }
    }
}

impl ConsulPace {
    /// How long a waiting query may take as a whole.
    pub(super) fn blocking(&self, wait: Duration) -> Duration {
        wait + wait / 16 + self.slack
    }
}

/// Consul as a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulConfig {
    /// The server and the token.
    pub server: ConsulServer,
    /// Where the keys are.
    pub prefix: Prefix,
    /// A key that has to be in every reply that is applied.
    pub marker: Option<String>,
    /// Keys of one reply; one with more is not applied.
    pub max_keys: usize,
    /// Deadlines and pauses.
    pub pace: ConsulPace,
}

impl ConsulConfig {
    /// From what was typed and the environment: `--consul-addr`, `--kv-prefix`,
    /// `--kv-marker`.
    ///
    /// # Errors
    ///
    /// [`ConsulConfigError`], for which usage is the exit code.
    pub fn new(
        address: Option<&str>,
        prefix: &str,
        marker: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConsulConfigError> {
        let server = ConsulServer::new(address, env)?;
        let prefix = Prefix::new(prefix).map_err(|why| ConsulConfigError::Prefix {
            given: prefix.to_owned(),
            why,
        })?;
        if let Some(marker) = marker {
            key::checked_path(marker, MAX_KEY_BYTES).map_err(|why| ConsulConfigError::Marker {
                given: marker.to_owned(),
                why,
            })?;
        }
        Ok(Self {
            server,
            prefix,
            marker: marker.map(str::to_owned),
            max_keys: MAX_KV_KEYS,
            pace: ConsulPace::default(),
        })
    }
}

#[cfg(test)]
mod tests;
