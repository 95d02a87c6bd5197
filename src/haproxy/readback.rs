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
use super::ops::{Content, MapCheck, Touched, TouchedBackend, TouchedServer};
use super::servers_state::{self, ServerRow};
use super::wait::{Deadline, pause};
use super::worker::{DumpError, WorkerSocket};
use crate::clock::Clock;
use crate::error::Chain;
use crate::format::{map_file, pem};
use crate::wire::limits::MAX_MAP_ROWS;
use std::collections::BTreeMap;
use std::fmt;
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
/// files as they are on disk now; what waits in `queue` is left out. No delete may run
/// meanwhile.
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

/// `Ok(None)` agrees, `Ok(Some)` differs, `Err` is unverified.
type Compared = Result<Option<String>, String>;

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
        let file = self.content.read(path)?;
        let wanted = map_file::parse(&file).map_err(|fault| fault.words)?;
        let dump = self
            .worker
            .dump(&format!("show map {path}"), self.deadline)
            .map_err(|error| Chain(&error).to_string())?;
        let seen = map_rows(&dump)?;
        if wanted.len().max(seen.len()) > MAX_MAP_ROWS {
            return Err(format!("the map has more than {MAX_MAP_ROWS} entries"));
        }
        let wanted: Vec<Pair<'_>> = wanted.iter().map(|e| (e.key, e.value)).collect();
        Ok(match check {
            MapCheck::Sequence => sequence(&wanted, &seen),
            MapCheck::Entries => entries(&wanted, &seen),
        })
    }

    fn backend(&self, name: &str, wanted: &TouchedBackend) -> Compared {
        let key = Key::Backend {
            backend: name.to_owned(),
        };
        if self.queue.contains(&key) {
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
        if self.queue.contains(&key) {
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

type Pair<'a> = (&'a [u8], &'a [u8]);

/// `0x<hex> key value`; a row of another form means a key with an LF in it.
fn map_rows(dump: &[u8]) -> Result<Vec<Pair<'_>>, String> {
    let rows = dump.split(|&b| b == b'\n').filter(|row| !row.is_empty());
    rows.map(|row| {
        let rest = row.strip_prefix(b"0x")?;
        let (_, rest) = split_at_blank(rest)?;
        Some(split_at_blank(rest).unwrap_or((rest, b"")))
    })
    .collect::<Option<_>>()
    .ok_or_else(|| "a row of the map is not understood".to_owned())
}

fn split_at_blank(bytes: &[u8]) -> Option<Pair<'_>> {
    let at = bytes.iter().position(|&b| b == b' ')?;
    let (before, after) = bytes.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}

fn sequence(wanted: &[Pair<'_>], seen: &[Pair<'_>]) -> Option<String> {
    if let Some(at) = wanted.iter().zip(seen).position(|(one, two)| one != two) {
        return Some(format!("entry {} of {} differs", at + 1, wanted.len()));
    }
    (wanted.len() != seen.len()).then(|| {
        format!(
            "the file has {} entries and the worker {}",
            wanted.len(),
            seen.len()
        )
    })
}

fn entries(wanted: &[Pair<'_>], seen: &[Pair<'_>]) -> Option<String> {
    // Stable, so the values of one key keep their order; nothing is copied but pointers.
    let by_key = |pairs: &[Pair<'_>]| {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by(|one, two| {
            pairs
                .get(*one)
                .map(|p| p.0)
                .cmp(&pairs.get(*two).map(|p| p.0))
        });
        order
    };
    let (left, right) = (by_key(wanted), by_key(seen));
    let at = |pairs: &[Pair<'_>], order: &[usize], place: usize| -> Option<(Vec<u8>, Vec<u8>)> {
        let pair = pairs.get(*order.get(place)?)?;
        Some((pair.0.to_vec(), pair.1.to_vec()))
    };
    let place = (0..left.len().max(right.len()))
        .find(|place| at(wanted, &left, *place) != at(seen, &right, *place))?;
    let (key, _) = at(wanted, &left, place).or_else(|| at(seen, &right, place))?;
    let shown = String::from_utf8_lossy(key.get(..80).unwrap_or(&key)).into_owned();
    Some(format!("the values of {shown:?} differ"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_maps() {
        let rows = map_rows(b"0x1f a b c\n0x2 k \n0x3 k\n").unwrap();
        let wanted: [Pair<'_>; 3] = [(b"a", b"b c"), (b"k", b""), (b"k", b"")];
        assert_eq!(rows, wanted);
        assert!(map_rows(b"0x1 a b\nlost c\n").is_err());
        assert!(map_rows(b"0x1\n").is_err());
        assert!(map_rows(b"").unwrap().is_empty());
    }

    #[test]
    fn a_replaced_map_is_compared_in_order_and_others_by_key() {
        fn pairs(text: &str) -> Vec<Pair<'_>> {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            words.chunks(2).map(|pair| (pair[0], pair[1])).collect()
        }
        let file = pairs("a 1 b 2 a 3");
        for (seen, in_order, by_key) in [
            ("a 1 b 2 a 3", true, true),
            ("b 2 a 1 a 3", false, true),
            ("a 3 b 2 a 1", false, false),
            ("a 1 b 2", false, false),
            ("a 1 b 2 a 3 a 3", false, false),
            ("a 1 b 2 a 3 c 4", false, false),
        ] {
            let seen = pairs(seen);
            assert_eq!(sequence(&file, &seen).is_none(), in_order);
            assert_eq!(entries(&file, &seen).is_none(), by_key);
        }
    }

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
