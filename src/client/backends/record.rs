//! The records as text and ops are made from them: profiles folded in, every rule passed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{SENTINEL, SENTINEL_PORT};
use crate::format::field;
use crate::wire::op::Keyword;

/// All declared backends, by name. `Display` is their text in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Records(pub BTreeMap<String, Backend>);

/// One backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// The `defaults` section it comes from.
    pub profile: String,
    /// `http` or `tcp`.
    pub mode: String,
    /// Its guid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guid: Option<String>,
    /// `balance` of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// `hash-type` of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_type: Option<String>,
    /// More lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// What the profile is said to have; not in the text.
    #[serde(default)]
    pub facts: Facts,
    /// In their order; no name twice.
    pub servers: Vec<Server>,
}

/// What nobody reads in the `defaults` section, as its declaration says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Its `balance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Its `hash-type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_type: Option<String>,
    /// Whether its server keywords were declared, and so stand on each server's line.
    #[serde(default)]
    pub default_server: bool,
}

/// Whether a server takes traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ServerState {
    #[default]
    Ready,
    Maint,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// None for a spare slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// With an address that has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// None is HAProxy's own, 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// A spare slot is in maintenance.
    #[serde(default)]
    pub state: ServerState,
    /// Those of the profile first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<Keyword>,
}

/// What kind of address a server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A literal, which runtime commands take.
    Ip(IpAddr, u16),
    /// A unix socket, which a server can only be added with.
    Unix(String),
    /// Only a configuration can say it.
    Other(String),
}

impl Address {
    /// As a configuration and `add server` write it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Ip(IpAddr::V4(ip), port) => format!("{ip}:{port}"),
            // Without brackets the last group would be read as the port.
            Self::Ip(IpAddr::V6(ip), port) => format!("[{ip}]:{port}"),
            Self::Unix(text) | Self::Other(text) => text.clone(),
        }
    }
}

impl Server {
    /// Where it points; the sentinel for a spare slot.
    #[must_use]
    pub fn place(&self) -> Address {
        let (text, port) = match &self.address {
            None => (SENTINEL, Some(SENTINEL_PORT)),
            Some(text) => (text.as_str(), self.port),
        };
        match (field::ip(text), port) {
            (Ok(ip), Some(port)) => Address::Ip(ip, port),
            (_, None) if is_unix(text) => Address::Unix(text.to_owned()),
            (_, None) => Address::Other(text.to_owned()),
            (Err(_), Some(port)) => Address::Other(format!("{text}:{port}")),
        }
    }

    /// As HAProxy has it.
    #[must_use]
    pub fn effective_weight(&self) -> u16 {
        self.weight.unwrap_or(1)
    }

    /// Whether it has that keyword.
    #[must_use]
    pub fn has(&self, keyword: &str) -> bool {
        self.keywords.iter().any(|one| one.name == keyword)
    }

    /// Its words behind the address, in a configuration and in `add server`, which has
    /// every server in maintenance at first.
    pub(super) fn words(&self) -> Vec<Keyword> {
        let weight = self.weight.map(|weight| Keyword {
            name: "weight".to_owned(),
            args: vec![weight.to_string()],
        });
        weight
            .into_iter()
            .chain(self.keywords.iter().cloned())
            .collect()
    }
}

/// `/path` or `unix@/path`.
pub(super) fn is_unix(text: &str) -> bool {
    text.strip_prefix("unix@").unwrap_or(text).starts_with('/')
}

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, backend) in &self.0 {
            writeln!(f, "backend {name} from {}", backend.profile)?;
            writeln!(f, "    mode {}", backend.mode)?;
            for (keyword, value) in [
                ("guid", &backend.guid),
                ("balance", &backend.balance),
                ("hash-type", &backend.hash_type),
            ] {
                if let Some(value) = value {
                    writeln!(f, "    {keyword} {value}")?;
                }
            }
            for server in &backend.servers {
                writeln!(f, "    {server}")?;
            }
            for line in &backend.lines {
                writeln!(f, "    {line}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {} {}", self.name, self.place().text())?;
        for keyword in self.words() {
            write!(f, " {}", keyword.name)?;
            for arg in &keyword.args {
                write!(f, " {arg}")?;
            }
        }
        match self.state {
            ServerState::Ready => Ok(()),
            ServerState::Maint => f.write_str(" disabled"),
        }
    }
}
