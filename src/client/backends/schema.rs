//! `backends.json` as people write it, checked and folded into records.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::record::{Backend, Facts, Records, Server, ServerState, is_unix};
use super::{BACKENDS_FILE, DeclaredError, keywords};
use crate::format::field;
use crate::wire::limits::MAX_COMMAND_WORDS;
use crate::wire::op::Keyword;

/// The version of the schema.
const VERSION: u64 = 1;

/// One generated line; HAProxy's runtime takes no longer one either.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// First words that would end the backend, or that the records have keys for.
const NOT_IN_LINES: [&str; 28] = [
    "backend",
    "balance",
    "cache",
    "crt-store",
    "default-server",
    "defaults",
    "disabled",
    "fcgi-app",
    "frontend",
    "global",
    "guid",
    "hash-type",
    "http-errors",
    "listen",
    "log-forward",
    "log-profile",
    "mailers",
    "mode",
    "peers",
    "program",
    "resolvers",
    "ring",
    "server",
    "server-template",
    "traces",
    "userlist",
    "acme",
    "healthcheck",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u64,
    #[serde(default)]
    profiles: Unique<ProfileIn>,
    backends: Unique<BackendIn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileIn {
    mode: Option<String>,
    balance: Option<String>,
    hash_type: Option<String>,
    default_server: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackendIn {
    profile: String,
    mode: Option<String>,
    guid: Option<String>,
    balance: Option<String>,
    hash_type: Option<String>,
    #[serde(default)]
    lines: Vec<String>,
    #[serde(default)]
    servers: Vec<ServerIn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerIn {
    name: String,
    address: Option<String>,
    port: Option<i64>,
    weight: Option<i64>,
    state: Option<String>,
    #[serde(default)]
    keywords: Vec<String>,
}

/// An object whose keys are names. JSON lets a key come twice and serde takes the last:
/// half of somebody's servers would be gone without a word.
struct Unique<T>(BTreeMap<String, T>);

impl<T> Default for Unique<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = Unique<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a name as each key")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique<T>, A::Error> {
                let mut seen = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if seen.contains_key(&name) {
                        return Err(A::Error::custom(format!("{name:?} is declared twice")));
                    }
                    seen.insert(name, map.next_value()?);
                }
                Ok(Unique(seen))
            }
        }

        deserializer.deserialize_map(Names(PhantomData))
    }
}

/// Reads and checks; `name` is the file's path, for messages.
pub(super) fn read(name: &str, source: &[u8]) -> Result<Records, DeclaredError> {
    let file: File = serde_json::from_slice(source).map_err(|source| DeclaredError {
        words: format!("{name}: {}", super::json::words(&source)),
        source: Some(source),
    })?;
    let fail = |words: String| DeclaredError {
        words: format!("{name}: {words}"),
        source: None,
    };
    if file.version != VERSION {
        return Err(fail(format!(
            "version is {} and this program reads {VERSION}",
            file.version
        )));
    }
    let mut records = Records::default();
    for (backend, given) in file.backends.0 {
        let record = fold(&backend, given, &file.profiles.0)
            .map_err(|words| fail(format!("backend {backend:?}: {words}")))?;
        records.0.insert(backend, record);
    }
    Ok(records)
}

fn fold(
    name: &str,
    given: BackendIn,
    profiles: &BTreeMap<String, ProfileIn>,
) -> Result<Backend, String> {
    field::name("the name", name).map_err(|fault| fault.words)?;
    field::name("profile", &given.profile).map_err(|fault| fault.words)?;
    let Some(profile) = profiles.get(&given.profile) else {
        let known: Vec<&str> = profiles.keys().map(String::as_str).collect();
        return Err(format!(
            "there is no profile {:?} in {BACKENDS_FILE} ({}); declare it, `{{}}` is enough",
            given.profile,
            match known.as_slice() {
                [] => "none is declared".to_owned(),
                known => format!("there are {}", known.join(", ")),
            }
        ));
    };
    let mode = given.mode.or_else(|| profile.mode.clone());
    let mode = match mode.as_deref() {
        Some(mode @ ("http" | "tcp")) => mode.to_owned(),
        Some(other) => return Err(format!("mode is {other:?} and must be http or tcp")),
        None => {
            return Err(format!(
                "it has no mode; say http or tcp there or in the profile {}",
                given.profile
            ));
        }
    };
    if let Some(guid) = &given.guid {
        field::word("guid", guid).map_err(|fault| fault.words)?;
        line("guid", guid)?;
    }
    for (key, value) in [
        ("balance", &given.balance),
        ("hash_type", &given.hash_type),
        ("balance", &profile.balance),
        ("hash_type", &profile.hash_type),
    ] {
        if let Some(value) = value {
            line(key, value)?;
        }
    }
    for text in &given.lines {
        line("lines", text)?;
        let first = text.split_ascii_whitespace().next().unwrap_or_default();
        if NOT_IN_LINES.contains(&first) || first.starts_with('.') || first.is_empty() {
            return Err(format!(
                "lines: {text:?} cannot stand there; a backend's own keys and servers say it, or it belongs into the configuration"
            ));
        }
    }
    let defaults = profile.default_server.as_deref().unwrap_or_default();
    let mut servers: Vec<Server> = Vec::with_capacity(given.servers.len());
    let mut names = std::collections::BTreeSet::new();
    for server in given.servers {
        let name = server.name.clone();
        let server =
            fold_server(server, defaults).map_err(|words| format!("server {name:?}: {words}"))?;
        if !names.insert(name.clone()) {
            return Err(format!("server {name:?} is declared twice"));
        }
        servers.push(server);
    }
    Ok(Backend {
        profile: given.profile,
        mode,
        guid: given.guid,
        balance: given.balance,
        hash_type: given.hash_type,
        lines: given.lines,
        facts: Facts {
            balance: profile.balance.clone(),
            hash_type: profile.hash_type.clone(),
            default_server: profile.default_server.is_some(),
        },
        servers,
    })
}

fn fold_server(given: ServerIn, defaults: &[String]) -> Result<Server, String> {
    field::name("name", &given.name).map_err(|fault| fault.words)?;
    let port = match given.port.map(field::port).transpose() {
        Ok(port) => port,
        Err(fault) => return Err(fault.words),
    };
    let mut weight = match given.weight.map(field::weight).transpose() {
        Ok(weight) => weight,
        Err(fault) => return Err(fault.words),
    };
    let state = match given.state.as_deref() {
        None if given.address.is_none() => ServerState::Maint,
        None | Some("ready") => ServerState::Ready,
        Some("maint") => ServerState::Maint,
        Some("drain") => {
            return Err(
                "state drain cannot be written into a configuration, so the next reload would end it; say \"weight\": 0"
                    .to_owned(),
            );
        }
        Some(other) => return Err(format!("state is {other:?} and must be ready or maint")),
    };
    match (&given.address, port) {
        (None, _) if state == ServerState::Ready => {
            return Err("it has no address, so it is a spare slot and cannot be ready".to_owned());
        }
        (None, Some(_)) => return Err("it has a port and no address".to_owned()),
        (None, None) => {}
        (Some(text), port) => address(text, port)?,
    }
    let mut keywords: Vec<Keyword> = Vec::new();
    for text in defaults {
        match text.trim().strip_prefix("weight ") {
            Some(value) => {
                let value: i64 = value
                    .trim()
                    .parse()
                    .map_err(|_| format!("default_server: {text:?} has no number"))?;
                let value = field::weight(value).map_err(|fault| fault.words)?;
                weight = weight.or(Some(value));
            }
            None => keywords
                .push(keywords::parse(text).map_err(|words| format!("default_server: {words}"))?),
        }
    }
    for text in &given.keywords {
        let keyword = keywords::parse(text)?;
        if let Some(negated) = keyword.name.strip_prefix("no-") {
            let before = keywords.len();
            keywords.retain(|one| one.name != negated);
            if keywords.len() == before {
                return Err(format!("{text:?} takes away what is not there"));
            }
            continue;
        }
        keywords.retain(|one| one.name != keyword.name);
        keywords.push(keyword);
    }
    let server = Server {
        name: given.name,
        address: given.address,
        port,
        weight,
        state,
        keywords,
    };
    let text = server.to_string();
    // `add server b/s address` has as many words as `server s address`.
    if text.split(' ').count() + 1 > MAX_COMMAND_WORDS || text.len() > MAX_LINE_BYTES {
        return Err("its line would be too long: at most 63 words in 8 KiB".to_owned());
    }
    Ok(server)
}

fn address(text: &str, port: Option<u16>) -> Result<(), String> {
    field::word("address", text).map_err(|fault| fault.words)?;
    line("address", text)?;
    match (field::ip(text).is_ok(), is_unix(text), port) {
        (true, _, None) => Err(format!("it has the address {text} and no port")),
        (false, true, Some(port)) => Err(format!("port is {port} and a unix socket has none")),
        (false, false, None) if !text.contains('@') => {
            Err(format!("it has the address {text} and no port"))
        }
        (true | false, _, _) => Ok(()),
    }
}

/// What can stand on a line of a configuration.
fn line(key: &str, text: &str) -> Result<(), String> {
    let plain = key != "lines";
    if text.len() > MAX_LINE_BYTES || text.chars().any(|c| c.is_control() && c != '\t') {
        return Err(format!(
            "{key}: {text:.80?} must be one line of at most 8 KiB"
        ));
    }
    if text.ends_with('\\') || (plain && text.contains(['"', '\'', '#', '$', '\\'])) {
        return Err(format!(
            "{key}: {text:.80?} must not hold quotes, #, $ or \\"
        ));
    }
    Ok(())
}
