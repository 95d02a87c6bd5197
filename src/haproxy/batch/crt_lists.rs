//! Rows of crt-lists.
//!
//! A list keeps a certificate under the name it was stored with, which may have
//! `crt-base` in front; adding resolves that by itself, deleting does not. A row is
//! deleted by its line number, because one certificate may have several.

use super::run::{Runner, Stop};
use crate::error::Chain;
use crate::format::field::RuntimePath;
use crate::haproxy::command::Command;
use crate::haproxy::inventory::{self, Kind};
use crate::haproxy::ops::{Note, Outcome};
use crate::haproxy::worker::DumpError;
use crate::wire::limits::MAX_PAYLOAD_BYTES;
use std::collections::BTreeSet;

/// What the certificate is called by the worker.
#[derive(Debug)]
pub(crate) enum Stored {
    Name(String),
    Unknown,
    Several,
}

impl Runner<'_> {
    pub(super) fn crt_list_add(
        &mut self,
        op: usize,
        path: &RuntimePath,
        cert: &RuntimePath,
        rest: &str,
    ) -> Result<(), Stop> {
        let answer = self.stored(cert);
        let stored = self.lost(op, answer)?;
        let stored = match stored {
            Stored::Name(name) => name,
            Stored::Unknown | Stored::Several => {
                return Err(self.ambiguous(op, cert, &stored));
            }
        };
        // A relative `crt-base` would be put in front a second time.
        let line = match stored.starts_with('/') {
            true => format!("{stored}{rest}\n"),
            false => format!("{cert}{rest}\n"),
        };
        let text = format!("add ssl crt-list {path}");
        let command = match Command::with_payload(&text, line.as_bytes(), MAX_PAYLOAD_BYTES) {
            Ok(command) => command,
            Err(fault) => return Err(self.fail(op, Outcome::TooBig, fault.to_string())),
        };
        let answer = self.ask_unlocked(&command);
        let reply = self.lost(op, answer)?;
        let text = reply.text();
        let first = format!("Inserting certificate '{stored}' in crt-list '{path}'");
        let added = reply.severity().is_none()
            && text
                .lines()
                .next()
                .is_some_and(|line| line.starts_with(&first))
            && text.lines().next_back() == Some("Success!");
        match added {
            true => {
                self.done(op, Note::Done);
                Ok(())
            }
            false => Err(self.refuse(op, &reply)),
        }
    }

    pub(super) fn crt_list_del(
        &mut self,
        op: usize,
        path: &RuntimePath,
        cert: &RuntimePath,
        on_disk: Option<&BTreeSet<Vec<u8>>>,
    ) -> Result<(), Stop> {
        let dump = self
            .worker
            .dump(&format!("show ssl crt-list -n {path}"), self.deadline);
        let answer = match dump {
            Ok(dump) => parse_rows(&dump).ok_or_else(|| {
                Stop::Unknown(format!(
                    "the rows of the crt-list {path} are not understood"
                ))
            }),
            Err(DumpError::Refused { words, .. }) => {
                return Err(self.fail(op, Outcome::Rejected, words));
            }
            Err(error) => Err(Stop::Unknown(Chain(&error).to_string())),
        };
        let rows = self.lost(op, answer)?;
        let answer = self.stored(cert);
        let stored = match self.lost(op, answer)? {
            Stored::Name(name) => name,
            // Its rows, if any, may still be there under its own name.
            Stored::Unknown => cert.to_string(),
            several @ Stored::Several => return Err(self.ambiguous(op, cert, &several)),
        };
        let lines: Vec<u64> = rows
            .iter()
            .filter(|row| row.name == stored)
            .map(|row| row.line)
            .collect();
        let still_named = on_disk.is_none_or(|names| {
            names.contains(cert.as_str().as_bytes()) || names.contains(stored.as_bytes())
        });
        if lines.len() > 1 && still_named {
            let words = format!(
                "the crt-list {path} has {} rows for {stored} and its file still names it",
                lines.len()
            );
            return Err(self.fail(op, Outcome::Ambiguous, words));
        }
        for line in &lines {
            let text = format!("del ssl crt-list {path} {stored}:{line}");
            let command = match Command::line(&text) {
                Ok(command) => command,
                Err(fault) => return Err(self.fail(op, Outcome::Ambiguous, fault.to_string())),
            };
            let answer = self.ask_unlocked(&command);
            let reply = self.lost(op, answer)?;
            let wanted = format!("Entry '{stored}' deleted in crtlist '{path}'!");
            if !(reply.severity() == Some(5) && reply.text() == wanted) {
                return Err(self.refuse(op, &reply));
            }
        }
        let note = match lines.is_empty() {
            true => Note::Absent,
            false => Note::Done,
        };
        self.done(op, note);
        Ok(())
    }

    fn stored(&mut self, cert: &RuntimePath) -> Result<Stored, Stop> {
        let names = inventory::read(self.worker, Kind::Certs, self.deadline)
            .map_err(|error| Stop::Unknown(Chain(&error).to_string()))?
            .names;
        Ok(stored(&names, cert.as_str()))
    }

    fn ambiguous(&mut self, op: usize, cert: &RuntimePath, stored: &Stored) -> Stop {
        let words = match stored {
            Stored::Several => format!("several certificates of HAProxy could be {cert}"),
            Stored::Unknown | Stored::Name(_) => {
                format!("HAProxy holds no certificate {cert}")
            }
        };
        self.fail(op, Outcome::Ambiguous, words)
    }
}

/// The exact name, else the only one that ends in it.
pub(crate) fn stored(names: &[String], cert: &str) -> Stored {
    if names.iter().any(|name| name == cert) {
        return Stored::Name(cert.to_owned());
    }
    let end = format!("/{cert}");
    let mut ending = names.iter().filter(|name| name.ends_with(&end));
    match (ending.next(), ending.next()) {
        (Some(name), None) => Stored::Name(name.clone()),
        (None, _) => Stored::Unknown,
        (Some(_), Some(_)) => Stored::Several,
    }
}

/// One row of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) line: u64,
}

/// `name:line[ …]` below a `# list` line; options may hold NULs, which mean nothing.
pub(crate) fn parse_rows(dump: &[u8]) -> Option<Vec<Row>> {
    let text: String = String::from_utf8_lossy(dump).replace('\0', "");
    let rows = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# "));
    rows.map(|line| {
        let first = line.split(' ').next()?;
        let (name, number) = first.rsplit_once(':')?;
        Some(Row {
            name: name.to_owned(),
            line: number.parse().ok()?,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_exact_or_the_only_one_that_ends_so() {
        let names: Vec<String> = ["/etc/a.pem", "a.pem", "/x/b.pem", "/y/b.pem", "/z/c.pem"]
            .map(str::to_owned)
            .to_vec();
        let of = |cert| match stored(&names, cert) {
            Stored::Name(name) => name,
            Stored::Unknown => "none".to_owned(),
            Stored::Several => "several".to_owned(),
        };
        assert_eq!(of("a.pem"), "a.pem");
        assert_eq!(of("b.pem"), "several");
        assert_eq!(of("c.pem"), "/z/c.pem");
        assert_eq!(of("z/c.pem"), "/z/c.pem");
        assert_eq!(of(".pem"), "none");
    }

    #[test]
    fn rows_end_at_their_last_colon() {
        let rows = parse_rows(b"# l\na.pem:1 [alpn h2\0] x\nodd:name.pem:12\n\n").unwrap();
        let seen: Vec<_> = rows.iter().map(|r| (r.name.as_str(), r.line)).collect();
        assert_eq!(seen, [("a.pem", 1), ("odd:name.pem", 12)]);
        assert_eq!(parse_rows(b"# l\na.pem\n"), None);
        assert_eq!(parse_rows(b"# l\na.pem:x\n"), None);
    }
}
