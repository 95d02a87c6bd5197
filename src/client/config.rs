//! How one agent is reached: where, with which credentials, within which time.

use std::fmt;
use std::time::Duration;

use crate::http::basic::basic_header;
use crate::http::client::{Origin, OriginError};

/// The contract's retries of a connection that was refused or reset.
pub const RETRIES: u32 = 3;

/// The pause before each of them.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A user and a password, both non-empty. Nothing prints the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    header: String,
}

/// The user or the password is empty, which no agent accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialsError;

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("user and password must both be set: no agent starts without them")
    }
}

impl std::error::Error for CredentialsError {}

impl Credentials {
    /// The same two values that the agent has in `DATAPLANE_USERNAME` and
    /// `DATAPLANE_PASSWORD`.
    ///
    /// # Errors
    /// One of them is empty.
    pub fn new(user: &str, password: &str) -> Result<Self, CredentialsError> {
        if user.is_empty() || password.is_empty() {
            return Err(CredentialsError);
        }
        Ok(Self {
            user: user.to_owned(),
            header: basic_header(user, password),
        })
    }

    /// The `Authorization` value.
    pub(super) fn header(&self) -> &str {
        &self.header
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// How long what may take, retries included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// One connect.
    pub connect: Duration,
    /// Reading the state.
    pub state: Duration,
    /// One apply, its upload and a reload within it.
    pub apply: Duration,
}

/// The contract's: 5 s, 10 s, 2 min.
impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            state: Duration::from_secs(10),
            apply: Duration::from_secs(120),
        }
    }
}

/// Everything that a [`Client`](super::Client) is made of.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Where the agent listens.
    pub origin: Origin,
    /// Who asks.
    pub credentials: Credentials,
    /// How long what may take.
    pub timeouts: Timeouts,
    /// Retries of a refused or reset connection; [`RETRIES`] unless set.
    pub retries: u32,
}

impl ClientConfig {
    /// An agent by its URL, with the contract's times.
    ///
    /// # Errors
    /// The URL is none that can be used; see [`OriginError`].
    pub fn new(url: &str, credentials: Credentials) -> Result<Self, OriginError> {
        Ok(Self {
            origin: Origin::parse(url)?,
            credentials,
            timeouts: Timeouts::default(),
            retries: RETRIES,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_prints_the_password() {
        let credentials = Credentials::new("controller", "geheim").unwrap();
        let config = ClientConfig::new("http://127.0.0.1:5555", credentials).unwrap();
        let shown = format!("{config:?}");
        assert!(shown.contains("controller"), "{shown}");
        assert!(!shown.contains("geheim"), "{shown}");
        assert!(!shown.contains(config.credentials.header()), "{shown}");
    }

    #[test]
    fn half_credentials_are_none() {
        assert_eq!(Credentials::new("", "x"), Err(CredentialsError));
        assert_eq!(Credentials::new("x", ""), Err(CredentialsError));
    }
}
