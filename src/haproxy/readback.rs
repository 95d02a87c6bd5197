//! Whether the worker holds what the last batch and the files say.
//!
//! Only what the batch touched is looked at. What cannot be read or is too large is
//! *unverified*, which is no difference; a difference counts when it is still there at
//! a second look, because HAProxy applies some changes after it answered. A worker that
//! changes meanwhile makes the whole look void.

use super::batch::crt_lists::{self, Stored};
use super::deletes::{Key, Queue};
use super::identity::Identity;
use super::inventory::{self, Kind, Listing};
use super::map_compare::{self, Compared, Sides};
use super::ops::{Content, MapCheck, Touched, TouchedBackend, TouchedServer};
use super::rows::Rows;
use super::servers_state::{self, ServerRow};
use super::wait::{Deadline, pause};
use super::worker::{DumpError, WorkerSocket};
use crate::clock::Clock;
use crate::error::Chain;
use crate::format::pem;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::time::Duration;

/// How long one look at everything may take.
pub const READBACK_PATIENCE: Duration = Duration::from_secs(30);
/// Before the second look, in steps of the longest wait.
const SECOND_LOOK: Duration = Duration::from_millis(50);
const SECOND_LOOK_STEPS: u32 = 5;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A map.
    Map(String),
    /// A backend and its servers.
    Backend(String),
    /// A certificate.
    Cert(String),
    /// A CA file.
    Ca(String),
    /// A certificate in a crt-list.
    CrtRow {
        /// The list.
        list: String,
        /// The certificate, as the op named it.
        cert: String,
    },
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map(path) => write!(f, "map {path}"),
            Self::Backend(name) => write!(f, "backend {name}"),
            Self::Cert(path) => write!(f, "certificate {path}"),
            Self::Ca(path) => write!(f, "CA file {path}"),
            Self::CrtRow { list, cert } => write!(f, "{cert} in crt-list {list}"),
        }
    }
}

/// What the look showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As it must be.
    Agrees,
    /// Not, twice.
    Differs {
        /// How, for the log.
        what: String,
    },
    /// It could not be read.
    Unverified {
        /// Why.
        why: String,
    },
}

/// The look has no meaning: another worker answers, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Void {
    /// What was seen.
    pub why: String,
}

/// Looks at all that `touched` names, on the worker `expected`. `content` hands in the
/// files as they are on disk now; what waits in `queue`, or was given up there, is left
/// out. No delete may run meanwhile.
///
/// # Errors
///
/// [`Void`] when another worker answers before or after.
pub fn read_back(
    worker: &WorkerSocket,
    expected: Identity,
    touched: &Touched,
    content: &dyn Content,
    queue: &Queue,
    clock: &dyn Clock,
) -> Result<Vec<(Object, Verdict)>, Void> {
    let look = Look {
        worker,
        content,
        queue,
        deadline: Deadline::from(clock.now(), READBACK_PATIENCE),
    };
    look.same_worker(expected)?;
    let mut found = look.at(touched, None);
    let differing: Vec<Object> = found
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Differs { .. }))
        .map(|(object, _)| object.clone())
        .collect();
    if !differing.is_empty() {
        for _ in 0..SECOND_LOOK_STEPS {
            pause(SECOND_LOOK / SECOND_LOOK_STEPS);
        }
        let again: BTreeMap<Object, Verdict> =
            look.at(touched, Some(&differing)).into_iter().collect();
        for (object, verdict) in &mut found {
            if let Some(second) = again.get(object) {
                *verdict = second.clone();
            }
        }
    }
    look.same_worker(expected)?;
    Ok(found)
}

struct Look<'a> {
    worker: &'a WorkerSocket,
    content: &'a dyn Content,
    queue: &'a Queue,
    deadline: Deadline,
}

/// A map and its file.
struct OneMap<'a> {
    look: &'a Look<'a>,
    path: &'a str,
}

impl Sides for OneMap<'_> {
    fn file(&self) -> Result<Box<dyn Read + '_>, String> {
        self.look.content.open(self.path)
    }

    fn rows(&self) -> Result<Rows<'_>, String> {
        let command = format!("show map {}", self.path);
        let rows = self.look.worker.rows(&command, self.look.deadline);
        rows.map_err(|error| Chain(&error).to_string())
    }
}

impl Look<'_> {
    fn same_worker(&self, expected: Identity) -> Result<(), Void> {
        let info = self.worker.info(self.deadline).map_err(|error| Void {
            why: Chain(&error).to_string(),
        })?;
        match info.identity == expected && !info.stopping {
            true => Ok(()),
            false => Err(Void {
                why: "another worker runs now".to_owned(),
            }),
        }
    }

    /// All of it, or only what is listed.
    fn at(&self, touched: &Touched, only: Option<&[Object]>) -> Vec<(Object, Verdict)> {
        let mut found = Vec::new();
        let mut look = |object: Object, compare: &dyn Fn() -> Compared| {
            if only.is_none_or(|only| only.contains(&object)) {
                let verdict = match compare() {
                    Ok(None) => Verdict::Agrees,
                    Ok(Some(what)) => Verdict::Differs { what },
                    Err(why) => Verdict::Unverified { why },
                };
                found.push((object, verdict));
            }
        };
        for (path, check) in &touched.maps {
            look(Object::Map(path.clone()), &|| self.map(path, *check));
        }
        for (name, backend) in &touched.backends {
            look(Object::Backend(name.clone()), &|| {
                self.backend(name, backend)
            });
        }
        let certs = self.listing(
            Kind::Certs,
            !touched.certs.is_empty() || !touched.crt_rows.is_empty(),
        );
        for path in touched.certs.keys() {
            look(Object::Cert(path.clone()), &|| {
                self.stored(Kind::Certs, path, &certs)
            });
        }
        let cas = self.listing(Kind::CaFiles, !touched.cas.is_empty());
        for path in touched.cas.keys() {
            look(Object::Ca(path.clone()), &|| {
                self.stored(Kind::CaFiles, path, &cas)
            });
        }
        for ((list, cert), there) in &touched.crt_rows {
            let object = Object::CrtRow {
                list: list.clone(),
                cert: cert.clone(),
            };
            look(object, &|| self.crt_row(list, cert, *there, &certs));
        }
        found
    }

    fn listing(&self, kind: Kind, needed: bool) -> Result<Listing, String> {
        match needed {
            true => inventory::read(self.worker, kind, self.deadline)
                .map_err(|error| Chain(&error).to_string()),
            false => Ok(Listing::default()),
        }
    }

    fn map(&self, path: &str, check: MapCheck) -> Compared {
        map_compare::compare(&OneMap { look: self, path }, check)
    }

    fn backend(&self, name: &str, wanted: &TouchedBackend) -> Compared {
        let key = Key::Backend {
            backend: name.to_owned(),
        };
        if self.queue.knows(&key) {
            return Ok(None);
        }
        let rows = servers_state::read(self.worker, name, self.deadline);
        match (rows, wanted.exists) {
            (Err(DumpError::Refused { words, .. }), Some(false))
                if words.ends_with("Can't find backend.") =>
            {
                Ok(None)
            }
            (Err(DumpError::Refused { words, .. }), _)
                if words.ends_with("Can't find backend.") =>
            {
                Ok(Some("it is missing".to_owned()))
            }
            (Err(error), _) => Err(Chain(&error).to_string()),
            (Ok(_), Some(false)) => Ok(Some("it is still there".to_owned())),
            (Ok(rows), _) => {
                for (server, wanted) in &wanted.servers {
                    let difference = self.server(name, server, wanted, &rows);
                    if difference.is_some() {
                        return Ok(difference);
                    }
                }
                Ok(None)
            }
        }
    }

    fn server(
        &self,
        backend: &str,
        name: &str,
        wanted: &TouchedServer,
        rows: &[ServerRow],
    ) -> Option<String> {
        let key = Key::Server {
            backend: backend.to_owned(),
            server: name.to_owned(),
        };
        if self.queue.knows(&key) {
            return None;
        }
        let row = rows.iter().find(|row| row.name == name);
        match (row, wanted.deleted) {
            (None, true) => None,
            (None, false) => Some(format!("server {name} is missing")),
            (Some(_), true) => Some(format!("server {name} is still there")),
            (Some(row), false) => {
                differing(row, wanted).map(|what| format!("server {name} {what}"))
            }
        }
    }

    /// A certificate or CA file.
    fn stored(&self, kind: Kind, path: &str, listing: &Result<Listing, String>) -> Compared {
        let listing = listing.as_ref().map_err(String::clone)?;
        if listing.open.iter().any(|name| name == path) {
            return Ok(Some("a transaction is open".to_owned()));
        }
        if !listing.names.iter().any(|name| name == path) {
            return Ok(Some("it is missing".to_owned()));
        }
        let dump = self
            .worker
            .dump(&format!("{} {path}", kind.command()), self.deadline)
            .map_err(|error| Chain(&error).to_string())?;
        let text = String::from_utf8_lossy(&dump);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        match field("Status: ") {
            None => return Err("HAProxy does not print its status".to_owned()),
            Some("Empty") => return Ok(Some("it is empty".to_owned())),
            Some(_) => {}
        }
        if kind != Kind::Certs {
            return Ok(None);
        }
        let file = self.content.read(path)?;
        let leaf = pem::summary(&file).ok_or("the file's certificate is not understood")?;
        let serial = field("Serial: ").unwrap_or_default();
        if pem::serial_digits(serial) != leaf.serial {
            return Ok(Some(format!(
                "the worker has serial {serial} and the file {}",
                leaf.serial
            )));
        }
        let chain = text
            .lines()
            .filter(|line| line.starts_with("Chain Subject: "))
            .count();
        Ok((chain < leaf.chain).then(|| {
            format!(
                "the worker's chain has {chain} certificates and the file's {}",
                leaf.chain
            )
        }))
    }

    fn crt_row(
        &self,
        list: &str,
        cert: &str,
        there: bool,
        certs: &Result<Listing, String>,
    ) -> Compared {
        let names = &certs.as_ref().map_err(String::clone)?.names;
        let stored = match crt_lists::stored(names, cert) {
            Stored::Name(name) => name,
            Stored::Unknown => cert.to_owned(),
            Stored::Several => return Err("several certificates could be meant".to_owned()),
        };
        let dump = self
            .worker
            .dump(&format!("show ssl crt-list -n {list}"), self.deadline)
            .map_err(|error| Chain(&error).to_string())?;
        let rows = crt_lists::parse_rows(&dump).ok_or("its rows are not understood")?;
        let found = rows.iter().any(|row| row.name == stored);
        Ok(match (found, there) {
            (true, true) | (false, false) => None,
            (false, true) => Some("the row is missing".to_owned()),
            (true, false) => Some("the row is still there".to_owned()),
        })
    }
}

/// A server whose agent is asked may have got another weight and state from it.
fn differing(row: &ServerRow, wanted: &TouchedServer) -> Option<String> {
    if let Some((ip, port)) = wanted.address {
        if !row.has_address(ip, port) {
            return Some(format!("has the address {}:{}", row.address, row.port));
        }
    }
    if row.is_asked() {
        return None;
    }
    if wanted
        .weight
        .is_some_and(|weight| u32::from(weight) != row.weight)
    {
        return Some(format!("has the weight {}", row.weight));
    }
    let admin = row.admin & 9;
    if wanted
        .admin
        .is_some_and(|wanted| u32::from(wanted) != admin)
    {
        return Some(format!("has the admin state {admin}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_may_change_weight_and_state() {
        let row = |agent| ServerRow {
            backend: "b".to_owned(),
            name: "s".to_owned(),
            address: "::1".to_owned(),
            port: "80".to_owned(),
            admin: 1 | 4,
            weight: 7,
            base_weight: 1,
            agent,
            agent_at: ("-".to_owned(), "0".to_owned()),
        };
        let wanted = |weight, admin, port| TouchedServer {
            deleted: false,
            address: Some(("::1".parse().unwrap(), port)),
            weight,
            admin,
        };
        for (weight, admin, port, agent, same) in [
            (Some(7), Some(1), Some(80), 0, true),
            (None, None, None, 0, true),
            (Some(8), Some(1), Some(80), 0, false),
            (Some(7), Some(0), Some(80), 0, false),
            (Some(7), Some(1), Some(81), 0, false),
            (Some(8), Some(0), Some(80), 4, true),
            (Some(8), Some(0), Some(81), 4, false),
        ] {
            let seen = differing(&row(agent), &wanted(weight, admin, port));
            assert_eq!(seen.is_none(), same, "{seen:?}");
        }
    }
}
