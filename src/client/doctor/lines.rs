//! Contents: what HAProxy's loader makes of a file, and what a person expects of it.

use std::collections::BTreeMap;

use super::Severity::{Error, Note, Warning};
use super::findings::Findings;
use crate::client::fileset::{Entry, FileSet};
use crate::format::payload::MAX_PAYLOAD_LINE_BYTES;
use crate::format::{crt_list, map_file};
use crate::wire::manifest::FileKind;

pub(super) fn look(entry: &Entry<'_>, set: &FileSet, findings: &mut Findings) {
    match entry.kind {
        FileKind::Config => config(entry, findings),
        FileKind::Map => map(entry, findings),
        // What belongs to them lies in other files too.
        FileKind::Cert | FileKind::Ca => {}
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
