//! Certificates and what belongs to them: private keys, OCSP responses, companions.
//!
//! HAProxy puts a certificate together from several files by their names. Which file is a
//! certificate at all, and not an authority's, only the configuration says: it is looked
//! through for the few words behind which one is named. What those words do not show (a
//! variable, a section that is switched off) is not reported.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::Severity::{Error, Note, Warning};
use super::findings::Findings;
use super::ocsp::{self, Validity, passed};
use crate::client::decide::mentions::{VARIABLE, configuration_lines, may_be};
use crate::client::decide::names::companion_of;
use crate::client::fileset::{Entry, FileSet};
use crate::format::{crt_list, pem};
use crate::wire::manifest::FileKind;

/// Words behind which a certificate is named, or a directory of them.
const CERTIFICATE_WORDS: [&str; 2] = ["crt", "default-crt"];

/// Words behind which a part of a certificate is named.
const PART_WORDS: [&str; 4] = ["key", "ocsp", "issuer", "sctl"];

/// With them HAProxy may find issuers elsewhere.
const ISSUER_WORDS: [&str; 2] = ["issuers-chain-path", "issuer"];

/// With it HAProxy looks for `site.key` beside `site.pem`.
const DROPS_EXTENSION: &str = "ssl-load-extra-del-ext";

pub(super) fn look(set: &FileSet, now: SystemTime, findings: &mut Findings) {
    let named = Named::of(set);
    for entry in set.files() {
        match entry.kind {
            FileKind::Cert | FileKind::Ca => {
                certificate(&entry, set, &named, findings);
                validity(&entry, &named, now, findings);
            }
            FileKind::General => no_certificate(&entry, &named, findings),
            FileKind::Config | FileKind::Map | FileKind::Crtlist => {}
        }
        companion(&entry, set, &named, now, findings);
    }
}

/// What the configurations and crt-lists of a set name.
#[derive(Debug, Default)]
struct Named {
    /// Names of certificates, or of directories of them.
    loaded: BTreeSet<String>,
    /// Those that come without their key.
    certificates: BTreeSet<String>,
    parts: BTreeSet<String>,
    drops_extension: bool,
    finds_issuers: bool,
}

impl Named {
    fn of(set: &FileSet) -> Self {
        let mut named = Self::default();
        for (_, _, words) in configuration_lines(set) {
            let keyed = words.iter().any(|word| word == "key");
            named.drops_extension |= words.iter().any(|word| word == DROPS_EXTENSION);
            let issuers = |word: &String| ISSUER_WORDS.contains(&word.as_str());
            named.finds_issuers |= words.iter().any(issuers);
            for pair in words.windows(2) {
                let [word, name] = pair else { continue };
                if name.contains(VARIABLE) {
                    continue;
                }
                if PART_WORDS.contains(&word.as_str()) {
                    named.parts.insert(name.clone());
                } else if CERTIFICATE_WORDS.contains(&word.as_str()) {
                    named.certificate(name.clone(), keyed);
                }
            }
        }
        for entry in set.files().filter(|entry| entry.kind == FileKind::Crtlist) {
            for row in crt_list::rows(entry.content).flatten() {
                let options = row.options.iter();
                let keyed = options.clone().any(|word| **word == *b"key");
                for pair in row.options.windows(2) {
                    let [word, name] = pair else { continue };
                    if PART_WORDS.iter().any(|part| part.as_bytes() == *word) {
                        named.parts.insert(String::from_utf8_lossy(name).into());
                    }
                }
                named.certificate(String::from_utf8_lossy(row.cert).into(), keyed);
            }
        }
        named
    }

    fn certificate(&mut self, name: String, keyed: bool) {
        if !keyed {
            self.certificates.insert(name.clone());
        }
        self.loaded.insert(name);
    }

    fn is_certificate(&self, path: &str) -> bool {
        is_among(&self.certificates, path)
    }

    /// The same of those whose key is named beside them, too.
    fn is_loaded(&self, path: &str) -> bool {
        is_among(&self.loaded, path)
    }

    fn is_part(&self, path: &str) -> bool {
        self.parts.iter().any(|name| may_be(name, path))
    }
}

/// Whether a certificate's file, or its directory, may be what one of these names means.
fn is_among(names: &BTreeSet<String>, path: &str) -> bool {
    let parent = path.rsplit_once('/').map(|(parent, _)| parent);
    let is_it =
        |name: &String| may_be(name, path) || parent.is_some_and(|parent| may_be(name, parent));
    companion_of(path).is_none() && names.iter().any(is_it)
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A path without its file's extension.
fn stem(path: &str) -> &str {
    let name = path.len() - last(path).len();
    match path.rfind('.') {
        Some(dot) if dot > name => path.get(..dot).unwrap_or(path),
        Some(_) | None => path,
    }
}

fn certificate(entry: &Entry<'_>, set: &FileSet, named: &Named, findings: &mut Findings) {
    let at = (Some(entry.path), None);
    let path = entry.path.as_str();
    let seen = match pem::contents(entry.content) {
        Ok(seen) => seen,
        Err(fault) => {
            findings.add(
                Error,
                at,
                "broken_pem",
                fault.words,
                "repair it; blocks begin and end on lines of their own",
            );
            return;
        }
    };
    let has = |path: &str| set.get(path).is_some();
    let key = [Some(format!("{path}.key")), named.key_beside(path)];
    let key = key.into_iter().flatten().find(|key| has(key));
    match (entry.kind, seen.certificates, seen.keys) {
        (FileKind::Cert, 0, 0) => findings.add(
            Warning,
            at,
            "no_certificate",
            "it is declared a certificate and holds neither certificate nor key",
            "put both into it, or leave its kind to the rules",
        ),
        (FileKind::Cert | FileKind::Ca, 1.., 0) => match key {
            Some(key) => findings.add(
                Note,
                at,
                "key_beside",
                format!("its key is in {key}, so a change of either takes a reload"),
                "put certificate, chain and key into one file to change it at runtime",
            ),
            None if named.is_certificate(path) => findings.add(
                Error,
                at,
                "no_key",
                "the configuration uses it as a certificate, and it holds no private key: HAProxy refuses that",
                format!("put the key into it, or beside it as {path}.key"),
            ),
            None if entry.kind == FileKind::Cert => findings.add(
                Warning,
                at,
                "no_key",
                "it holds a certificate and no private key",
                format!("put the key into it, or beside it as {path}.key"),
            ),
            None => {}
        },
        (_, 0, 1..) => {
            if !named.joins(path, set) {
                findings.add(
                    Warning,
                    at,
                    "lone_key",
                    "it holds a private key, and HAProxy looks for a certificate's key in CERTIFICATE.key only",
                    "put it into the certificate's file, or name it like that file with .key behind",
                );
            }
        }
        (_, _, 2..) => findings.add(
            Note,
            at,
            "several_keys",
            "it holds several private keys, and HAProxy takes the first",
            "keep one",
        ),
        (_, _, _) => {}
    }
}

/// A certificate that has run out: HAProxy takes it, and no client does.
fn validity(entry: &Entry<'_>, named: &Named, now: SystemTime, findings: &mut Findings) {
    if !named.is_loaded(entry.path.as_str()) {
        return;
    }
    let end = pem::ends(entry.content);
    if let Some(until) = end.and_then(|end| passed(&end, now)) {
        findings.add(
            Warning,
            (Some(entry.path), None),
            "expired",
            format!(
                "its certificate was valid until {until}; HAProxy serves it all the same, and clients refuse it"
            ),
            "renew it",
        );
    }
}

/// A file that is used as a certificate and has nothing of one, such as an empty one.
fn no_certificate(entry: &Entry<'_>, named: &Named, findings: &mut Findings) {
    let path = entry.path.as_str();
    if !named.is_loaded(path) {
        return;
    }
    let what = match entry.size {
        0 => "it is empty",
        _ => "it holds no certificate",
    };
    findings.add(
        Error,
        (Some(entry.path), None),
        "no_certificate",
        format!("the configuration uses it as a certificate, and {what}: HAProxy refuses that"),
        "put certificate, chain and key into it, or take it out of the configuration",
    );
}

impl Named {
    /// Where HAProxy looks for a certificate's key besides.
    fn key_beside(&self, path: &str) -> Option<String> {
        self.drops_extension.then(|| format!("{}.key", stem(path)))
    }

    /// Whether a companion is read with some certificate of the set.
    fn joins(&self, path: &str, set: &FileSet) -> bool {
        companion_of(path).is_some_and(|of| set.get(of).is_some())
            || self.is_part(path)
            || self.drops_extension && self.has_certificate(path, set)
    }

    /// Whether a file of the set has the same name but for its extension.
    fn has_certificate(&self, path: &str, set: &FileSet) -> bool {
        let is_it = |entry: &Entry<'_>| {
            let other = entry.path.as_str();
            other != path && stem(other) == stem(path) && companion_of(other).is_none()
        };
        set.files().any(|entry| is_it(&entry))
    }
}

/// An OCSP response, issuer or SCT list beside a certificate.
fn companion(
    entry: &Entry<'_>,
    set: &FileSet,
    named: &Named,
    now: SystemTime,
    findings: &mut Findings,
) {
    let path = entry.path.as_str();
    let at = (Some(entry.path), None);
    let Some(of) = companion_of(path).filter(|_| !path.ends_with(".key")) else {
        return;
    };
    if !named.joins(path, set) {
        findings.add(
            Warning,
            at,
            "lone_companion",
            format!("HAProxy reads it only beside the certificate {of}, which is not in the set"),
            "remove it, or name it like its certificate with that ending behind",
        );
        return;
    }
    if !path.ends_with(".ocsp") {
        return;
    }
    let alone = set.get(of).is_some_and(|certificate| {
        let seen = pem::contents(certificate.content);
        seen.is_ok_and(|seen| seen.certificates == 1)
    });
    if alone && set.get(&format!("{of}.issuer")).is_none() && !named.finds_issuers {
        findings.add(
            Error,
            at,
            "no_issuer",
            format!("the issuer is neither in {of} nor in {of}.issuer, and HAProxy refuses an OCSP response without it"),
            format!("put the issuer's certificate behind the one in {of}, or into {of}.issuer"),
        );
    }
    let (code, text) = match ocsp::validity(entry.content, now) {
        Validity::Valid => return,
        Validity::Over(until) => (
            "stale_ocsp",
            format!(
                "this OCSP response was valid until {until}; HAProxy ignores it and staples none"
            ),
        ),
        Validity::Endless => (
            "bad_ocsp",
            "this OCSP response does not say how long it is valid; HAProxy ignores it".to_owned(),
        ),
        Validity::Broken => (
            "bad_ocsp",
            "it is no OCSP response in DER; HAProxy ignores it".to_owned(),
        ),
    };
    findings.add(
        Warning,
        at,
        code,
        text,
        "fetch a new one from the certificate's authority (openssl ocsp), or remove it",
    );
}
