//! Certificates and CA files: one transaction each for the whole process.

use super::model::{Ca, Cert, CertTransaction, Model, Version};
use super::pem::Pem;
use super::reply::Reply;

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
        (Some(cert), None) if !cert.pem.has_cert => "Empty",
        (Some(cert), None) if instances(model, &cert.name) > 0 => "Used",
        (Some(_), None) => "Unused",
        (None, None) => {
            return Reply::err(
                "Can't display the certificate: Not found or the certificate is a bundle!",
            );
        }
    };
    let read = cert.is_some_and(|cert| cert.from_file);
    let file = match version {
        Version::V3_2 | Version::V3_4 if read => format!("Crt filename: {name}\n"),
        Version::V3_0 | Version::V3_2 | Version::V3_4 => String::new(),
    };
    let options = match version {
        Version::V3_0 | Version::V3_2 => "",
        Version::V3_4 => "Option: ocsp-update off\nOption: jwt off\n",
    };
    let pem = open.map(|open| &open.pem).or(cert.map(|cert| &cert.pem));
    let content = match pem.filter(|pem| pem.has_cert) {
        Some(pem) => {
            let chain = "Chain Subject: /CN=fake\n".repeat(pem.chain);
            format!("Serial: {}\n{chain}", pem.serial)
        }
        None => String::new(),
    };
    Reply::Plain(format!(
        "Filename: {name}\n{file}{options}Status: {status}\n{content}OCSP Response Key: \n"
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
        pem: Pem::default(),
        from_file: false,
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
    let pem = Pem::read(pem);
    let fresh = match only_key {
        Some(_) if pem.has_key => {
            let old = model.cert_transaction.as_ref();
            Pem {
                has_key: true,
                ..old.map_or(cert.pem, |open| open.pem.clone())
            }
        }
        None if pem.has_cert => pem,
        Some(_) | None => {
            return refused(format!(
                "unable to load certificate from file '{given}': no start line.\nCan't load the payload"
            ));
        }
    };
    let fresh = CertTransaction {
        name: name.to_owned(),
        pem: fresh,
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
    if !open.pem.has_key {
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
        cert.pem = open.pem;
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
