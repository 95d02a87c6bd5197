//! Changed certificates, CA files and crt-lists.

use std::collections::BTreeSet;

use super::judge::{Found, Judge, Why};
use super::maps::rest_after;
use super::phases::Phases;
use crate::client::backends::ops::op;
use crate::client::fileset::Entry;
use crate::format::{Fault, FaultKind, crt_list, field, payload, pem};
use crate::wire::op::{Keyword, Op, OpKind};
use crate::wire::state::HeldFile;

/// Options of a crt-list row, and how many arguments they have. Those with state of
/// their own (`ocsp-update`) are not among them.
const OPTIONS: [(&str, usize); 17] = [
    ("allow-0rtt", 0),
    ("alpn", 1),
    ("ca-file", 1),
    ("ca-verify-file", 1),
    ("ciphers", 1),
    ("ciphersuites", 1),
    ("client-sigalgs", 1),
    ("crl-file", 1),
    ("curves", 1),
    ("ecdhe", 1),
    ("no-alpn", 0),
    ("no-ca-names", 0),
    ("npn", 1),
    ("sigalgs", 1),
    ("ssl-max-ver", 1),
    ("ssl-min-ver", 1),
    ("verify", 1),
];

fn refused(fault: Fault) -> Found {
    let why = match fault.kind {
        FaultKind::TooBig => Why::TooBig,
        FaultKind::Invalid | FaultKind::Unsupported => Why::Content,
    };
    Found::reload(why, fault.words)
}

impl Judge<'_> {
    /// A certificate that the worker holds.
    pub(super) fn certificate(&mut self, entry: &Entry<'_>) -> Found {
        let path = entry.path.as_str();
        if let Err(fault) = self.one_pem(entry) {
            return refused(fault);
        }
        self.phases.cert.push(file_op(OpKind::CertSet, path));
        Found::op("the certificate can be replaced at runtime")
    }

    fn one_pem(&self, entry: &Entry<'_>) -> Result<(), Fault> {
        let path = entry.path.as_str();
        pem::certificate(entry.content, payload::room(path)).map(drop)
    }

    /// A CA file that the worker holds.
    pub(super) fn authority(&mut self, entry: &Entry<'_>) -> Found {
        let path = entry.path.as_str();
        if !self.version.at_least(3, 2) {
            return Found::reload(
                Why::Version,
                format!(
                    "HAProxy changes CA files at runtime safely from 3.2 on, and this is {}",
                    self.version.short()
                ),
            );
        }
        match pem::contents(entry.content) {
            Ok(seen) if seen.keys + seen.others == 0 => {}
            Ok(_) => {
                return Found::reload(
                    Why::Content,
                    "it holds more than certificates, and a runtime command takes nothing else",
                );
            }
            Err(fault) => return refused(fault),
        }
        match pem::bundle(entry.content, payload::room(path)) {
            Ok(bundle) => {
                self.phases.cert.push(file_op(OpKind::CaSet, path));
                let count = bundle.pieces.len();
                Found::op(format!(
                    "the CA certificates can be replaced at runtime, in {count} command(s)"
                ))
            }
            Err(fault) => refused(fault),
        }
    }

    /// A crt-list that the worker holds. Rows at its end can be added, with certificates
    /// that the worker holds or that are new in this set.
    pub(super) fn crt_list(&mut self, entry: &Entry<'_>, held: Option<&HeldFile>) -> Found {
        let path = entry.path.as_str();
        let rows = match crt_list::parse(entry.content) {
            Ok(rows) => rows,
            Err(fault) => return refused(fault),
        };
        let Some(rest) = held.and_then(|held| rest_after(entry.content, held)) else {
            return Found::reload(
                Why::CrtList,
                "lines of it changed, and only new lines at the end of a crt-list can be added at runtime",
            );
        };
        let new = match crt_list::parse(rest) {
            Ok(new) if new.is_empty() => {
                return Found::meaningless("only comments or blanks were added");
            }
            Ok(new) => new,
            Err(fault) => return refused(fault),
        };
        let old = rows.get(..rows.len() - new.len()).unwrap_or_default();
        if old.is_empty() {
            return Found::reload(
                Why::CrtList,
                "it was empty, and the first line of a crt-list is the default certificate, which only a reload sets",
            );
        }
        let known = |name: &str| self.state.runtime_inventory.certs.iter().any(|n| n == name);
        let relative = |row: &&crt_list::Row<'_>| !row.cert.starts_with(b"/");
        let mut spelled = old.iter().filter(relative).peekable();
        if spelled.peek().is_some()
            && !spelled.any(|row| std::str::from_utf8(row.cert).is_ok_and(known))
        {
            return Found::reload(
                Why::NotInInventory,
                "the running HAProxy calls the certificates of this list by other names than its lines do (crt-base?), so a new one cannot be named at runtime",
            );
        }
        let before = entry.content.len() - rest.len();
        let front = entry.content.get(..before).unwrap_or_default();
        let lines_before = front.iter().filter(|&&b| b == b'\n').count();
        let mut phases = Phases::default();
        let mut covered = BTreeSet::new();
        for row in &new {
            match self.row(path, row, &known) {
                Ok((cert, add)) => {
                    if let Some(cert) = cert {
                        covered.insert(cert.clone());
                        let fresh = file_op(OpKind::CertNew, &cert);
                        if !phases.cert.contains(&fresh) {
                            phases.cert.push(fresh);
                        }
                    }
                    phases.crt_list.push(add);
                }
                Err(words) => {
                    let line = lines_before + row.line;
                    return Found::reload(Why::CrtList, format!("line {line} {words}"));
                }
            }
        }
        self.covered.extend(covered);
        // Two lists may name the same new certificate.
        for fresh in phases.cert {
            if !self.phases.cert.contains(&fresh) {
                self.phases.cert.push(fresh);
            }
        }
        self.phases.crt_list.extend(phases.crt_list);
        Found::op(format!(
            "{} line(s) at its end can be added at runtime",
            new.len()
        ))
    }

    /// The op for one row, and its certificate if that is a new one.
    fn row(
        &self,
        list: &str,
        row: &crt_list::Row<'_>,
        known: &dyn Fn(&str) -> bool,
    ) -> Result<(Option<String>, Op), String> {
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
            Ok::<_, String>(text.to_owned())
        };
        if row.unclosed {
            return Err("has a bracket that is not closed".to_owned());
        }
        if !row.dropped.is_empty() {
            return Err("has words before its bracket, which HAProxy drops".to_owned());
        }
        let cert = text(row.cert)?;
        let fresh = match self.set.get(&cert) {
            _ if known(&cert) => None,
            Some(entry) if !self.state.files.contains_key(entry.path) => {
                if let Err(fault) = self.one_pem(&entry) {
                    return Err(format!("names {cert}: {}", fault.words));
                }
                Some(cert.clone())
            }
            Some(_) => {
                return Err(format!(
                    "names {cert}, which the running HAProxy does not hold under that name"
                ));
            }
            None => {
                return Err(format!(
                    "names {cert}, which is neither in the set nor held by the running HAProxy"
                ));
            }
        };
        field::path("the certificate", &cert).map_err(|fault| fault.words)?;
        let filters: Vec<String> = row
            .filters
            .iter()
            .map(|w| text(w))
            .collect::<Result<_, _>>()?;
        let words: Vec<String> = row
            .options
            .iter()
            .map(|w| text(w))
            .collect::<Result<_, _>>()?;
        for word in filters.iter().chain(&words) {
            field::crt_word("a word", word).map_err(|fault| fault.words)?;
        }
        let add = Op {
            path: Some(list.to_owned()),
            cert: Some(cert),
            options: options(&words)?,
            sni_filters: filters,
            ..op(OpKind::CrtlistAdd)
        };
        Ok((fresh, add))
    }
}

fn options(words: &[String]) -> Result<Vec<Keyword>, String> {
    let mut options = Vec::new();
    let mut words = words.iter();
    while let Some(name) = words.next() {
        let known = OPTIONS.iter().find(|(known, _)| known == name);
        let Some((_, count)) = known else {
            return Err(format!(
                "has the option {name}, which is not known to mean the same at runtime"
            ));
        };
        let args: Vec<String> = words.by_ref().take(*count).cloned().collect();
        if args.len() < *count {
            return Err(format!("has the option {name} without its argument"));
        }
        options.push(Keyword {
            name: name.clone(),
            args,
        });
    }
    Ok(options)
}

fn file_op(kind: OpKind, path: &str) -> Op {
    Op {
        path: Some(path.to_owned()),
        ..op(kind)
    }
}
