//! Certificates, CA files and crt-lists: one transaction each for the whole process.

use super::model::{Ca, Cert, CertTransaction, Model, Row, Version};
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

fn has_cert(pem: &str) -> bool {
    pem.contains("CERTIFICATE-----")
}

fn has_key(pem: &str) -> bool {
    pem.contains("PRIVATE KEY-----")
}

/// How many places of the configuration use a certificate.
fn instances(model: &Model, name: &str) -> usize {
    let of_bind = |bind: &super::model::Bind| {
        if bind.detached {
            return 0;
        }
        let direct = bind.certs.iter().filter(|cert| *cert == name).count();
        let list = bind.list.as_ref();
        let list = list.and_then(|list| model.crt_lists.iter().find(|known| known.name == *list));
        let rows = list.map_or(0, |l| l.rows.iter().filter(|row| row.cert == name).count());
        direct + rows
    };
    model.binds.iter().map(of_bind).sum()
}

fn names<'a>(transaction: Option<String>, listed: impl Iterator<Item = String> + 'a) -> Reply {
    let mut text = String::new();
    if let Some(open) = transaction {
        text.push_str(&format!("# transaction\n*{open}\n"));
    }
    text.push_str("# filename\n");
    let mut rows: Vec<String> = listed.collect();
    rows.sort_unstable();
    for row in rows {
        text.push_str(&row);
        text.push('\n');
    }
    Reply::Plain(text)
}

pub(super) fn show_cert(model: &Model, words: &[String], version: Version) -> Reply {
    let Some(name) = words.first() else {
        let open = model
            .cert_transaction
            .as_ref()
            .map(|open| open.name.clone());
        return names(open, model.certs.iter().map(|cert| cert.name.clone()));
    };
    let cert = model.certs.iter().find(|cert| cert.name == *name);
    let open = name.strip_prefix('*').and_then(|name| {
        let open = model.cert_transaction.as_ref();
        open.filter(|open| open.name == name)
    });
    let status = match (cert, open) {
        (_, Some(_)) => "Uncommitted",
        (Some(cert), None) if !cert.has_cert => "Empty",
        (Some(cert), None) if instances(model, &cert.name) > 0 => "Used",
        (Some(_), None) => "Unused",
        (None, None) => {
            return Reply::err(
                "Can't display the certificate: Not found or the certificate is a bundle!",
            );
        }
    };
    let file = match version {
        Version::V3_0 => String::new(),
        Version::V3_2 | Version::V3_4 if status == "Empty" => String::new(),
        Version::V3_2 | Version::V3_4 => format!("Crt filename: {name}\n"),
    };
    let options = match version {
        Version::V3_0 | Version::V3_2 => "",
        Version::V3_4 => "Option: ocsp-update off\nOption: jwt off\n",
    };
    Reply::Plain(format!(
        "Filename: {name}\n{file}{options}Status: {status}\nOCSP Response Key: \n"
    ))
}

pub(super) fn new_cert(model: &mut Model, words: &[String]) -> Reply {
    let Some(name) = words.first() else {
        return Reply::err("'new ssl cert' expects a filename");
    };
    if model.certs.iter().any(|cert| cert.name == *name) {
        return Reply::err(format!("Certificate '{name}' already exists!"));
    }
    model.certs.push(Cert {
        name: name.clone(),
        has_cert: false,
        has_key: false,
    });
    Reply::notice(format!("New empty certificate store '{name}'!"))
}

pub(super) fn set_cert(model: &mut Model, words: &[String], payload: Option<&str>) -> Reply {
    let (Some(given), Some(pem)) = (words.first(), payload) else {
        return Reply::err("'set ssl cert' expects a filename and a certificate as a payload");
    };
    let known = |name: &str| model.certs.iter().find(|cert| cert.name == name).cloned();
    let only_key = given
        .strip_suffix(".key")
        .filter(|_| known(given).is_none());
    let name = only_key.unwrap_or(given);
    let refused = |why: String| Reply::err(format!("{why}\nCan't update {given}!"));
    let Some(cert) = known(name) else {
        return refused(
            "Can't replace a certificate which is not referenced by the configuration!".to_owned(),
        );
    };
    if let Some(open) = model
        .cert_transaction
        .as_ref()
        .filter(|open| open.name != name)
    {
        return refused(format!(
            "The ongoing transaction is about '{}' but you are trying to set '{name}'",
            open.name
        ));
    }
    let fresh = match only_key {
        Some(_) if has_key(pem) => {
            let old = model.cert_transaction.as_ref();
            CertTransaction {
                name: name.to_owned(),
                has_cert: old.map_or(cert.has_cert, |open| open.has_cert),
                has_key: true,
            }
        }
        None if has_cert(pem) => CertTransaction {
            name: name.to_owned(),
            has_cert: true,
            has_key: has_key(pem),
        },
        Some(_) | None => {
            return refused(format!(
                "unable to load certificate from file '{given}': no start line.\nCan't load the payload"
            ));
        }
    };
    let verb = match model.cert_transaction.replace(fresh) {
        Some(_) => "updated",
        None => "created",
    };
    Reply::notice(format!("Transaction {verb} for certificate {name}!"))
}

pub(super) fn commit_cert(model: &mut Model, words: &[String], version: Version) -> Reply {
    let name = words.first().cloned().unwrap_or_default();
    let refused = |why: String| Reply::err(format!("{why}\nCan't commit {name}!"));
    let Some(open) = model.cert_transaction.clone() else {
        return refused("No ongoing transaction! !".to_owned());
    };
    if open.name != name {
        return refused(format!(
            "The ongoing transaction is about '{}' but you are trying to set '{name}'",
            open.name
        ));
    }
    let used = instances(model, &name);
    if !open.has_key {
        match version {
            Version::V3_0 | Version::V3_2 => {
                return refused(
                    "The transaction must contain at least a certificate and a private key!"
                        .to_owned(),
                );
            }
            Version::V3_4 if used > 0 => {
                model.cert_transaction = None;
                return Reply::Plain(format!(
                    "Committing {name}\nunable to load SSL private key into SSL Context '{name}': passed a null parameter.\nFailed!"
                ));
            }
            // Nobody looks at it until it is used.
            Version::V3_4 => {}
        }
    }
    model.cert_transaction = None;
    if let Some(cert) = model.certs.iter_mut().find(|cert| cert.name == name) {
        cert.has_cert = open.has_cert;
        cert.has_key = open.has_key;
    }
    Reply::Plain(format!("Committing {name}{}\nSuccess!", ".".repeat(used)))
}

/// An abort of either kind; both speak of a certificate.
fn abort(open: Option<&str>, words: &[String]) -> (Reply, bool) {
    let name = words.first().cloned().unwrap_or_default();
    match open {
        None => (Reply::err("No ongoing transaction!"), false),
        Some(open) if open != name => {
            let text = format!(
                "The ongoing transaction is about '{open}' but you are trying to abort a transaction for '{name}'"
            );
            (Reply::err(text), false)
        }
        Some(_) => {
            let text = format!("Transaction aborted for certificate '{name}'!");
            (Reply::notice(text), true)
        }
    }
}

pub(super) fn abort_cert(model: &mut Model, words: &[String]) -> Reply {
    let open = model
        .cert_transaction
        .as_ref()
        .map(|open| open.name.as_str());
    let (reply, aborted) = abort(open, words);
    if aborted {
        model.cert_transaction = None;
    }
    reply
}

pub(super) fn del_cert(model: &mut Model, words: &[String]) -> Reply {
    let name = words.first().cloned().unwrap_or_default();
    let refused = |why: String| Reply::err(format!("Can't remove the certificate: {why}"));
    if model
        .cert_transaction
        .as_ref()
        .is_some_and(|open| open.name == name)
    {
        return refused(format!("ongoing transaction for the certificate '{name}'"));
    }
    if !model.certs.iter().any(|cert| cert.name == name) {
        return refused(format!("certificate '{name}' doesn't exist!"));
    }
    let listed = |list: &super::model::CrtList| list.rows.iter().any(|row| row.cert == name);
    if instances(model, &name) > 0 || model.crt_lists.iter().any(listed) {
        return refused(format!("certificate '{name}' in use, can't be deleted!"));
    }
    model.certs.retain(|cert| cert.name != name);
    Reply::notice(format!("Certificate '{name}' deleted!"))
}

pub(super) fn show_ca(model: &Model, words: &[String]) -> Reply {
    let Some(name) = words.first() else {
        let row = |ca: &Ca| format!("{} - {} certificate(s)", ca.name, ca.certificates);
        let system = "@system-ca - 145 certificate(s)".to_owned();
        let open = model.ca_transaction.as_ref().map(row);
        return names(open, model.cas.iter().map(row).chain([system]));
    };
    match model.cas.iter().find(|ca| ca.name == *name) {
        Some(ca) => {
            let status = match (ca.certificates, ca_instances(model, name)) {
                (0, _) => "Empty",
                (_, 0) => "Unused",
                (_, _) => "Used",
            };
            Reply::Plain(format!("Filename: {name}\nStatus: {status}\n"))
        }
        None => Reply::err("Can't display the CA file : Not found!"),
    }
}

/// Certificates of binds that verify with that CA.
fn ca_instances(model: &Model, name: &str) -> usize {
    let uses = |bind: &&super::model::Bind| bind.ca.as_deref() == Some(name);
    let of_bind = |bind: &super::model::Bind| {
        let list = bind.list.as_ref();
        let list = list.and_then(|list| model.crt_lists.iter().find(|known| known.name == *list));
        bind.certs.len() + list.map_or(0, |list| list.rows.len())
    };
    model.binds.iter().filter(uses).map(of_bind).sum()
}

pub(super) fn show_crl(model: &Model) -> Reply {
    names(None, model.crls.iter().cloned())
}

pub(super) fn new_ca(model: &mut Model, words: &[String]) -> Reply {
    let Some(name) = words.first() else {
        return Reply::err("'new ssl ca-file' expects a filename");
    };
    if model.cas.iter().any(|ca| ca.name == *name) {
        return Reply::err(format!("CA file '{name}' already exists!"));
    }
    model.cas.push(Ca {
        name: name.clone(),
        certificates: 0,
    });
    Reply::notice(format!("New CA file created '{name}'!"))
}

/// `set`, or `add` to what is there.
pub(super) fn set_ca(
    model: &mut Model,
    words: &[String],
    payload: Option<&str>,
    add: bool,
) -> Reply {
    let (Some(name), Some(pem)) = (words.first(), payload) else {
        return Reply::err("'set ssl ca-file' expects a filename and CAs as a payload");
    };
    let refused = |why: String| Reply::err(format!("{why}\nCan't update {name}!"));
    let Some(known) = model.cas.iter().find(|ca| ca.name == *name) else {
        return refused(
            "Can't replace a CA file which is not referenced by the configuration!".to_owned(),
        );
    };
    if let Some(open) = model
        .ca_transaction
        .as_ref()
        .filter(|open| open.name != *name)
    {
        return refused(format!(
            "The ongoing transaction is about '{}' but you are trying to set '{name}'",
            open.name
        ));
    }
    let count = pem.matches("-----BEGIN CERTIFICATE-----").count();
    if count == 0 {
        return refused("Invalid payload".to_owned());
    }
    let before = match &model.ca_transaction {
        _ if !add => 0,
        Some(open) => open.certificates,
        None => known.certificates,
    };
    let fresh = Ca {
        name: name.clone(),
        certificates: before + count,
    };
    let verb = match model.ca_transaction.replace(fresh) {
        Some(_) => "updated",
        None => "created",
    };
    Reply::notice(format!("transaction {verb} for CA {name}!"))
}

pub(super) fn commit_ca(model: &mut Model, words: &[String], version: Version) -> Reply {
    let name = words.first().cloned().unwrap_or_default();
    let refused = |why: String| Reply::err(format!("{why}\nCan't commit {name}!"));
    let Some(open) = model.ca_transaction.clone() else {
        return refused("No ongoing transaction! !".to_owned());
    };
    if open.name != name {
        return refused(format!(
            "The ongoing transaction is about '{}' but you are trying to set '{name}'",
            open.name
        ));
    }
    model.ca_transaction = None;
    if let Some(ca) = model.cas.iter_mut().find(|ca| ca.name == name) {
        ca.certificates = open.certificates;
    }
    let used = ca_instances(model, &name);
    if version == Version::V3_0 {
        let uses = |bind: &&mut super::model::Bind| bind.ca.as_deref() == Some(name.as_str());
        for bind in model.binds.iter_mut().filter(uses) {
            bind.detached = true;
        }
    }
    Reply::Plain(format!("Committing {name}{}\nSuccess!", ".".repeat(used)))
}

pub(super) fn abort_ca(model: &mut Model, words: &[String]) -> Reply {
    let open = model.ca_transaction.as_ref().map(|open| open.name.as_str());
    let (reply, aborted) = abort(open, words);
    if aborted {
        model.ca_transaction = None;
    }
    reply
}

pub(super) fn del_ca(model: &mut Model, words: &[String]) -> Reply {
    let name = words.first().cloned().unwrap_or_default();
    let refused = |why: String| Reply::err(format!("Can't remove the CA file: {why}"));
    if !model.cas.iter().any(|ca| ca.name == name) {
        return refused(format!("CA file '{name}' doesn't exist!"));
    }
    if ca_instances(model, &name) > 0 {
        return refused(format!("CA file '{name}' in use, can't be deleted!"));
    }
    model.cas.retain(|ca| ca.name != name);
    Reply::notice(format!("CA file '{name}' deleted!"))
}

pub(super) fn show_list(model: &Model, words: &[String]) -> Reply {
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

pub(super) fn add_row(model: &mut Model, words: &[String], payload: Option<&str>) -> Reply {
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
        Some(known) if !known.has_cert => {
            return refused(format!("certificate '{cert}' is empty!"));
        }
        Some(known) if !known.has_key => {
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

pub(super) fn del_row(model: &mut Model, words: &[String]) -> Reply {
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
