//! Contents: what HAProxy's loader makes of a file, and what a person expects of it.

use std::collections::BTreeMap;

use super::Severity::{Error, Note, Warning};
use super::findings::Findings;
use crate::client::fileset::{Entry, FileSet};
use crate::format::payload::MAX_PAYLOAD_LINE_BYTES;
use crate::format::{crt_list, map_file, pem};
use crate::wire::manifest::FileKind;

pub(super) fn look(entry: &Entry<'_>, set: &FileSet, findings: &mut Findings) {
    match entry.kind {
        FileKind::Config => config(entry, findings),
        FileKind::Map => map(entry, findings),
        FileKind::Cert | FileKind::Ca => certificate(entry, set, findings),
        FileKind::Crtlist => list(entry, set, findings),
        FileKind::General => {}
    }
}

fn config(entry: &Entry<'_>, findings: &mut Findings) {
    let at = (Some(entry.path), None);
    let content = entry.content;
    if content.trim_ascii().is_empty() {
        findings.add(
            Error,
            at,
            "empty_config",
            "it is empty; HAProxy would load it and listen nowhere",
            "write a configuration",
        );
    } else if !content.ends_with(b"\n") {
        findings.add(
            Error,
            at,
            "open_last_line",
            "its last line has no line end, which HAProxy refuses",
            "end it with a newline",
        );
    }
    if let Some(place) = content.iter().position(|&b| b == 0) {
        let line = content.get(..place).unwrap_or_default();
        let line = line.iter().filter(|&&b| b == b'\n').count() + 1;
        findings.add(
            Error,
            (Some(entry.path), Some(line)),
            "nul",
            "it holds a NUL byte, which HAProxy refuses",
            "remove it",
        );
    }
}

/// What a map's file says and what a command, or a person, would read.
fn map(entry: &Entry<'_>, findings: &mut Findings) {
    let mut keys: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (line, number) in entry.content.split(|&b| b == b'\n').zip(1..) {
        let at = (Some(entry.path), Some(number));
        if line.contains(&0) {
            findings.add(
                Warning,
                at,
                "nul",
                "it holds a NUL byte, where HAProxy ends the line",
                "remove it",
            );
            continue;
        }
        if line.len() + 1 > MAX_PAYLOAD_LINE_BYTES {
            findings.add(
                Warning,
                at,
                "long_line",
                format!(
                    "it has {} bytes; HAProxy's loader cuts such lines into several entries",
                    line.len()
                ),
                format!("keep lines below {MAX_PAYLOAD_LINE_BYTES} bytes"),
            );
            continue;
        }
        if number == 1 && line.starts_with("\u{feff}".as_bytes()) {
            findings.add(
                Warning,
                at,
                "bom",
                "the file begins with a byte order mark, which becomes part of the first key",
                "save it as UTF-8 without one",
            );
        }
        let inner = line.strip_suffix(b"\r").unwrap_or(line);
        if inner.contains(&b'\r') && !line.starts_with(b"#") {
            findings.add(
                Warning,
                at,
                "carriage_return",
                "it holds a carriage return; HAProxy's loader drops what follows it on the line",
                "remove it",
            );
        }
        let start = line.trim_ascii_start();
        if start.len() < line.len() && start.starts_with(b"#") {
            findings.add(
                Warning,
                at,
                "indented_comment",
                "a # is a comment in the first column only; here it is a key",
                "begin the line with it, or remove the line",
            );
        }
        let Some(one) = map_file::parse(line)
            .ok()
            .and_then(|lines| lines.first().copied())
        else {
            continue;
        };
        if one.value.is_empty() {
            findings.add(
                Note,
                at,
                "no_value",
                format!("the key {} has no value", shown(one.key)),
                "if it is not meant so: key and value are separated by the first blank, on one line",
            );
        }
        if let [first, .., last] = one.value {
            if first == last && matches!(first, b'"' | b'\'') {
                findings.add(
                    Note,
                    at,
                    "quotes",
                    "the quotes are part of the value; map files know no quoting",
                    "remove them if they are not meant",
                );
            }
        }
        match keys.get(one.key) {
            Some(before) => findings.add(
                Note,
                at,
                "same_key",
                format!(
                    "the key {} stands on line {before} already, and exact lookups find that one",
                    shown(one.key)
                ),
                "keep one of them",
            ),
            None => {
                keys.insert(one.key, number);
            }
        }
    }
}

fn shown(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(key);
    format!("{:?}", text.chars().take(60).collect::<String>())
}

fn certificate(entry: &Entry<'_>, set: &FileSet, findings: &mut Findings) {
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
    let beside = set.get(&format!("{path}.key")).is_some();
    match (entry.kind, seen.certificates, seen.keys) {
        (FileKind::Cert, 0, 0) => findings.add(
            Warning,
            at,
            "no_certificate",
            "it is declared a certificate and holds neither certificate nor key",
            "put both into it, or leave its kind to the rules",
        ),
        (FileKind::Cert, 1.., 0) if beside => findings.add(
            Note,
            at,
            "key_beside",
            format!("its key is in {path}.key, so a change of either takes a reload"),
            "put certificate, chain and key into one file to change it at runtime",
        ),
        (FileKind::Cert, 1.., 0) => findings.add(
            Warning,
            at,
            "no_key",
            "it holds a certificate and no private key",
            format!("put the key into it, or beside it as {path}.key"),
        ),
        (_, 0, 1..) => {
            let stem = path.strip_suffix(".key");
            let joined = stem.and_then(|stem| set.get(stem)).is_some();
            if !joined {
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

fn list(entry: &Entry<'_>, set: &FileSet, findings: &mut Findings) {
    for row in crt_list::rows(entry.content) {
        let row = match row {
            Ok(row) => row,
            Err(bad) => {
                findings.add(
                    Error,
                    (Some(entry.path), Some(bad.line)),
                    "bad_line",
                    format!("the line {}", bad.what),
                    "write CERTIFICATE [OPTIONS] FILTERS, and end the last line",
                );
                continue;
            }
        };
        let at = (Some(entry.path), Some(row.line));
        if row.unclosed {
            findings.add(
                Warning,
                at,
                "unclosed_bracket",
                "its bracket is not closed, and HAProxy takes the options for SNI filters",
                "close it behind the options",
            );
        }
        if !row.dropped.is_empty() {
            findings.add(
                Warning,
                at,
                "dropped_filter",
                "filters before the bracket are dropped by HAProxy",
                "write them behind it",
            );
        }
        let name = String::from_utf8_lossy(row.cert);
        let known = set.files().any(|entry| {
            let path = entry.path.as_str();
            path == name
                || path
                    .strip_suffix(&*name)
                    .is_some_and(|front| front.ends_with('/'))
                || path
                    .strip_prefix(&*name)
                    .is_some_and(|rest| rest.starts_with(['/', '.']))
        });
        if !known && !name.starts_with(['/', '@']) {
            findings.add(
                Warning,
                at,
                "no_such_file",
                format!("it names {name}, which is not in the set"),
                "put the file there, correct the name, or remove the line",
            );
        }
    }
}
