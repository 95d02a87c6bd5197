//! The address of a listener, as an operator writes it.
//!
//! Numbers only: a name would need a resolver, which a static binary does not have,
//! and could mean another interface tomorrow.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// `:5555`, `127.0.0.1:0`, `[::1]:9101`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddr {
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// Every address of both families.
    All,
    One(std::net::IpAddr),
}

impl ListenAddr {
    /// Every address of the machine, both families.
    #[must_use]
    pub fn all(port: u16) -> Self {
        Self {
            host: Host::All,
            port,
        }
    }

    /// The port; 0 lets the system choose.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What to try to bind, in this order: a machine without IPv6 has only the second.
    #[must_use]
    pub fn candidates(&self) -> Vec<SocketAddr> {
        match self.host {
            Host::All => vec![
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port)),
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port)),
            ],
            Host::One(address) => vec![SocketAddr::new(address, self.port)],
        }
    }
}

impl From<SocketAddr> for ListenAddr {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: Host::One(address.ip()),
            port: address.port(),
        }
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::All => write!(f, ":{}", self.port),
            Host::One(address) => write!(f, "{}", SocketAddr::new(address, self.port)),
        }
    }
}

/// Why a text is no listen address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddrError {
    /// There is no `:port` at the end.
    NoPort(String),
    /// The port is not a number from 0 to 65535.
    Port(String),
    /// The part before the port is not a numeric address.
    Host(String),
    /// An IPv6 address without brackets, so that its last group could be the port.
    Brackets(String),
}

impl fmt::Display for ListenAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, rule) = match self {
            Self::NoPort(text) => (text, "has no port"),
            Self::Port(text) => (text, "needs a port from 0 to 65535"),
            Self::Host(text) => (text, "needs an IP address, host names are not looked up"),
            Self::Brackets(text) => (text, "needs brackets around the IPv6 address"),
        };
        write!(
            f,
            "listen address {text:?} {rule}; \
             write 127.0.0.1:5555, [::1]:5555, or :5555 for all addresses"
        )
    }
}

impl std::error::Error for ListenAddrError {}

impl FromStr for ListenAddr {
    type Err = ListenAddrError;

    fn from_str(text: &str) -> Result<Self, ListenAddrError> {
        let owned = || text.to_owned();
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| ListenAddrError::NoPort(owned()))?;
        if host.starts_with('[') && !host.ends_with(']') {
            return Err(ListenAddrError::NoPort(owned()));
        }
        if host.contains(':') && !host.starts_with('[') {
            return Err(ListenAddrError::Brackets(owned()));
        }
        if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ListenAddrError::Port(owned()));
        }
        let port = port.parse().map_err(|_| ListenAddrError::Port(owned()))?;
        let host = match host.strip_prefix('[').and_then(|v6| v6.strip_suffix(']')) {
            _ if host.is_empty() => Host::All,
            Some(v6) => Host::One(
                v6.parse::<Ipv6Addr>()
                    .map_err(|_| ListenAddrError::Host(owned()))?
                    .into(),
            ),
            None => Host::One(
                host.parse::<Ipv4Addr>()
                    .map_err(|_| ListenAddrError::Host(owned()))?
                    .into(),
            ),
        };
        Ok(Self { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_may_write() {
        let table = [
            (":5555", "[::]:5555", ":5555"),
            (":0", "[::]:0", ":0"),
            ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:9101", "[::1]:9101", "[::1]:9101"),
            ("[::]:1", "[::]:1", "[::]:1"),
        ];
        for (text, first, again) in table {
            let address: ListenAddr = text.parse().unwrap();
            assert_eq!(address.candidates()[0].to_string(), first, "{text}");
            assert_eq!(address.to_string(), again);
        }
        assert_eq!(ListenAddr::all(7).candidates()[1].to_string(), "0.0.0.0:7");
    }

    #[test]
    fn what_is_refused_and_why() {
        let owned = str::to_owned;
        let table = [
            ("", ListenAddrError::NoPort(owned(""))),
            ("127.0.0.1", ListenAddrError::NoPort(owned("127.0.0.1"))),
            ("[::1]", ListenAddrError::NoPort(owned("[::1]"))),
            ("::1", ListenAddrError::Brackets(owned("::1"))),
            ("::1:80", ListenAddrError::Brackets(owned("::1:80"))),
            (":", ListenAddrError::Port(owned(":"))),
            (":65536", ListenAddrError::Port(owned(":65536"))),
            (":+80", ListenAddrError::Port(owned(":+80"))),
            (":http", ListenAddrError::Port(owned(":http"))),
            ("localhost:80", ListenAddrError::Host(owned("localhost:80"))),
            ("[1.2.3.4]:80", ListenAddrError::Host(owned("[1.2.3.4]:80"))),
            ("1.2.3:80", ListenAddrError::Host(owned("1.2.3:80"))),
        ];
        for (text, why) in table {
            assert_eq!(text.parse::<ListenAddr>(), Err(why), "{text:?}");
        }
    }
}
