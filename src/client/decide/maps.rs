//! A changed map.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::judge::{Found, Why};
use super::phases::Phases;
use crate::client::backends::ops::op;
use crate::client::fileset::Entry;
use crate::format::map_file::{self, Entry as Line};
use crate::format::{field, payload};
use crate::wire::digest::Digest;
use crate::wire::limits::MAX_MAP_ROWS;
use crate::wire::op::{Op, OpKind};
use crate::wire::state::HeldFile;

/// Changes of single entries that are still cheaper to read and to check than the whole
/// map.
const MAX_ENTRY_OPS: usize = 64;

/// A map of the running HAProxy. `before` is its content where that is at hand and its
/// entries may stand in any order.
pub(super) fn judge(
    entry: &Entry<'_>,
    held: Option<&HeldFile>,
    before: Option<&[u8]>,
    phases: &mut Phases,
) -> Found {
    let path = entry.path.as_str();
    let lines = match map_file::parse(entry.content) {
        Ok(lines) => lines,
        Err(fault) => {
            return Found::reload(
                Why::Content,
                format!("{}, so HAProxy has to judge the file", fault.words),
            );
        }
    };
    if lines.len() > MAX_MAP_ROWS {
        return Found::reload(
            Why::TooBig,
            format!(
                "it has {} entries, and above {MAX_MAP_ROWS} the agent cannot compare worker and file",
                lines.len()
            ),
        );
    }
    let chunks = match map_file::chunks(&lines, payload::room(path)) {
        Ok(chunks) => chunks.len(),
        Err(fault) => return Found::reload(Why::TooBig, fault.words),
    };
    // One command replaces a map of one chunk; single entries would be no cheaper.
    if chunks > 1 {
        if let Some(ops) = held.and_then(|held| appended(entry, held)) {
            let text = match ops.len() {
                0 => return Found::meaningless("only comments or blanks were added"),
                count => format!("{count} entries at its end can be added at runtime"),
            };
            phases.map.extend(ops);
            return Found::op(text);
        }
        if let Some((ops, dels)) = before.and_then(|before| difference(path, before, &lines)) {
            let count = ops.len() + dels.len();
            if count == 0 {
                return Found::meaningless(
                    "only the order of its entries changed, and it was declared to have none",
                );
            }
            phases.map.extend(ops);
            phases.map_del.extend(dels);
            return Found::op(format!("{count} of its entries can be changed at runtime"));
        }
    }
    phases.map.push(Op {
        path: Some(path.to_owned()),
        ..op(OpKind::MapReplace)
    });
    Found::op(format!(
        "all of its {} entries can be replaced at runtime",
        lines.len()
    ))
}

/// Adds for what follows the old content, when that is still there in front, byte for
/// byte: its digest and size are enough to see that. New entries come last in the file
/// and in the worker, so their order is the same whatever the map is looked up by.
fn appended(entry: &Entry<'_>, held: &HeldFile) -> Option<Vec<Op>> {
    let rest = rest_after(entry.content, held)?;
    let lines = map_file::parse(rest).ok()?;
    if lines.len() > MAX_ENTRY_OPS {
        return None;
    }
    lines
        .iter()
        .map(|line| add(entry.path.as_str(), line))
        .collect()
}

/// What follows the held content, if that is the beginning of `content` and ends a line.
pub(super) fn rest_after<'a>(content: &'a [u8], held: &HeldFile) -> Option<&'a [u8]> {
    let Digest::Sha256(wanted) = held.digest else {
        return None;
    };
    let (front, rest) = content.split_at_checked(usize::try_from(held.size).ok()?)?;
    let whole_lines = front.is_empty() || front.ends_with(b"\n") || rest.starts_with(b"\n");
    let same = || <[u8; 32]>::from(Sha256::digest(front)) == wanted;
    (whole_lines && same()).then_some(rest)
}

fn add(path: &str, line: &Line<'_>) -> Option<Op> {
    let key = std::str::from_utf8(line.key).ok()?;
    let value = std::str::from_utf8(line.value).ok()?;
    field::map_key(key).ok()?;
    field::map_value(value).ok()?;
    Some(Op {
        path: Some(path.to_owned()),
        key: Some(key.to_owned()),
        value: Some(value.to_owned()),
        ..op(OpKind::MapAdd)
    })
}

fn set(path: &str, line: &Line<'_>) -> Option<Op> {
    // The command for it takes one word.
    let one = add(path, line)?;
    field::word("value", one.value.as_deref()?).ok()?;
    Some(Op {
        kind: op(OpKind::MapSet).kind,
        ..one
    })
}

/// Adds and changes, then removals, for entries in any order. A key with several values
/// must keep them as they are: no command changes one of them alone.
fn difference(path: &str, before: &[u8], after: &[Line<'_>]) -> Option<(Vec<Op>, Vec<Op>)> {
    let before = map_file::parse(before).ok()?;
    let old = by_key(&before);
    let new = by_key(after);
    let mut ops = Vec::new();
    let mut dels = Vec::new();
    for (key, values) in &new {
        let line = |value| Line { key, value };
        match (old.get(key).map(Vec::as_slice), values.as_slice()) {
            (Some(before), after) if before == after => {}
            (None, values) => {
                for value in values {
                    ops.push(add(path, &line(value))?);
                }
            }
            (Some([_]), [value]) => ops.push(set(path, &line(value))?),
            (Some(_), _) => return None,
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        let one = add(path, &Line { key, value: b"" })?;
        dels.push(Op {
            kind: op(OpKind::MapDel).kind,
            value: None,
            ..one
        });
    }
    (ops.len() + dels.len() <= MAX_ENTRY_OPS).then_some((ops, dels))
}

fn by_key<'a>(lines: &[Line<'a>]) -> BTreeMap<&'a [u8], Vec<&'a [u8]>> {
    let mut keys: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for line in lines {
        keys.entry(line.key).or_default().push(line.value);
    }
    keys
}
