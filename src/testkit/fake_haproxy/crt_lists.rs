//! Commands on crt-lists.

use super::model::{Model, Row};
use super::reply::Reply;

/// What a crt-list line may have in its brackets.
const OPTIONS: &[&str] = &[
    "allow-0rtt",
    "alpn",
    "ca-file",
    "ca-verify-file",
    "ciphers",
    "ciphersuites",
    "client-sigalgs",
    "crl-file",
    "curves",
    "ecdhe",
    "no-alpn",
    "no-ca-names",
    "npn",
    "ocsp-update",
    "sigalgs",
    "ssl-max-ver",
    "ssl-min-ver",
    "verify",
];

const LIST_USAGE: &str = "Can't edit the crt-list: ";

pub(super) fn show(model: &Model, words: &[String]) -> Reply {
    let numbered = words.first().is_some_and(|word| word == "-n");
    let name = words.get(usize::from(numbered));
    let Some(name) = name else {
        let rows = model
            .crt_lists
            .iter()
            .map(|list| format!("{}\n", list.name));
        return Reply::Plain(rows.collect());
    };
    let Some(list) = model.crt_lists.iter().find(|list| list.name == *name) else {
        return Reply::err("didn't find the specified filename");
    };
    let mut text = format!("# {name}\n");
    for row in &list.rows {
        text.push_str(&row.cert);
        if numbered {
            text.push_str(&format!(":{}", row.line));
        }
        if let Some(options) = &row.options {
            // ALPN protocols are kept as the wire has them, with a NUL behind.
            let end = if options.starts_with("alpn ") {
                "\0"
            } else {
                ""
            };
            text.push_str(&format!(" [{options}{end}]"));
        }
        if !row.filters.is_empty() {
            text.push_str(&format!(" {}", row.filters));
        }
        text.push('\n');
    }
    Reply::Plain(text)
}

pub(super) fn add(model: &mut Model, words: &[String], payload: Option<&str>) -> Reply {
    let refused = |why: String| Reply::err(format!("{LIST_USAGE}{why}"));
    let Some(name) = words.first() else {
        return Reply::err("'add ssl crtlist' expects a filename and a certificate name");
    };
    let line = match (payload, words.get(1)) {
        (Some(payload), _) if payload.trim_end_matches('\n').contains('\n') => {
            return refused("only one line of payload is supported!".to_owned());
        }
        (Some(payload), _) => payload.trim_end_matches('\n'),
        (None, Some(cert)) => cert,
        (None, None) => {
            return Reply::err("'add ssl crtlist' expects a filename and a certificate name");
        }
    };
    let Some(list) = model.crt_lists.iter().find(|list| list.name == *name) else {
        return refused(format!("crt-list '{name}' does not exist!"));
    };
    let row = Row::parse(line, list.next_line);
    if let Some(options) = &row.options {
        let first = options.split(' ').next().unwrap_or_default();
        if !OPTIONS.contains(&first) {
            return refused(format!("parsing [CLI:1]: unknown ssl keyword {first}"));
        }
    }
    let cert = row.cert.clone();
    match model.certs.iter().find(|known| known.name == cert) {
        None => return refused(format!("certificate '{cert}' does not exist!")),
        Some(known) if !known.pem.has_cert => {
            return refused(format!("certificate '{cert}' is empty!"));
        }
        Some(known) if !known.pem.has_key => {
            return Reply::Plain(format!(
                "Inserting certificate '{cert}' in crt-list '{name}'.\nunable to load SSL private key into SSL Context '{cert}'.\nFailed!"
            ));
        }
        Some(_) => {}
    }
    if let Some(list) = model.crt_lists.iter_mut().find(|list| list.name == *name) {
        list.next_line += 1;
        list.rows.push(row);
    }
    Reply::Plain(format!(
        "Inserting certificate '{cert}' in crt-list '{name}'.\nSuccess!"
    ))
}

pub(super) fn del(model: &mut Model, words: &[String]) -> Reply {
    let refused = |why: String| Reply::err(format!("Can't delete the entry: {why}"));
    let (Some(name), Some(given)) = (words.first(), words.get(1)) else {
        return Reply::err("'del ssl crtlist' expects a filename and a certificate name");
    };
    let numbered = given.rsplit_once(':').and_then(|(cert, line)| {
        let line: u32 = line.parse().ok()?;
        Some((cert, line))
    });
    let (cert, line) = match numbered {
        Some((cert, line)) => (cert, Some(line)),
        None => (given.as_str(), None),
    };
    let Some(at) = model.crt_lists.iter().position(|list| list.name == *name) else {
        return refused(format!("crt-list '{name}' does not exist!"));
    };
    if !model.certs.iter().any(|known| known.name == cert) {
        return refused(format!("certificate '{cert}' does not exist!"));
    }
    let lines: Vec<u32> = model.crt_lists[at]
        .rows
        .iter()
        .filter(|row| row.cert == cert)
        .map(|row| row.line)
        .collect();
    let all = lines
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let chosen = match (lines.as_slice(), line) {
        ([], _) => {
            return refused(format!(
                "certificate '{cert}' can't be found in crt-list '{name}'!"
            ));
        }
        ([only], None) => *only,
        (_, None) => {
            return refused(format!(
                "found the certificate '{cert}' in several entries, please specify a line number preceded by colons ({all})!"
            ));
        }
        (_, Some(line)) if lines.contains(&line) => line,
        (_, Some(_)) => {
            return refused(format!(
                "found a certificate '{cert}' but the line number is incorrect, please specify a correct line number preceded by colons ({all})!"
            ));
        }
    };
    let bound = model
        .binds
        .iter()
        .any(|bind| bind.list.as_deref() == Some(name.as_str()));
    let list = &mut model.crt_lists[at];
    let first = list.rows.iter().map(|row| row.line).min();
    if bound && first == Some(chosen) {
        return refused(format!(
            "certificate '{cert}' cannot be deleted, it is used as default certificate by the following frontends:\n\t- haproxy.cfg:1"
        ));
    }
    list.rows.retain(|row| row.line != chosen);
    Reply::notice(format!("Entry '{cert}' deleted in crtlist '{name}'!"))
}
