//! What the running HAProxy calls its files.

use crate::wire::state::RuntimeInventory;

/// A list of the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Map,
    Acl,
    Cert,
    Ca,
    Crl,
    CrtList,
}

impl Use {
    pub(crate) const ALL: [Self; 6] = [
        Self::Map,
        Self::Acl,
        Self::Cert,
        Self::Ca,
        Self::Crl,
        Self::CrtList,
    ];

    pub(crate) fn names(self, inventory: &RuntimeInventory) -> &[String] {
        match self {
            Self::Map => &inventory.maps,
            Self::Acl => &inventory.acl_files,
            Self::Cert => &inventory.certs,
            Self::Ca => &inventory.ca_files,
            Self::Crl => &inventory.crl_files,
            Self::CrtList => &inventory.crt_lists,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Acl => "ACL file",
            Self::Cert => "certificate",
            Self::Ca => "CA file",
            Self::Crl => "CRL file",
            Self::CrtList => "crt-list",
        }
    }
}

/// The lists that have this very name.
pub(crate) fn uses(path: &str, inventory: &RuntimeInventory) -> Vec<Use> {
    let has = |one: &Use| one.names(inventory).iter().any(|name| name == path);
    Use::ALL.into_iter().filter(has).collect()
}

/// A name that probably means the same file: the same without what stands in front, or
/// in other letters. Not an ACL's: no spelling makes one change at runtime.
pub(crate) fn near<'a>(path: &str, inventory: &'a RuntimeInventory) -> Option<(Use, &'a str)> {
    let like = |name: &str| {
        let name = name.rsplit('@').next().unwrap_or(name);
        let name = name.strip_prefix("./").unwrap_or(name);
        name == path
            || name
                .strip_suffix(path)
                .is_some_and(|front| front.ends_with('/'))
            || path
                .strip_suffix(name)
                .is_some_and(|front| front.ends_with('/'))
            || name.eq_ignore_ascii_case(path)
    };
    let mut changed = Use::ALL.into_iter().filter(|one| *one != Use::Acl);
    changed.find_map(|one| {
        let names = one.names(inventory);
        let found = names.iter().find(|name| *name != path && like(name))?;
        Some((one, found.as_str()))
    })
}

/// Another name that the worker has for the very file: a runtime command would change
/// what it holds under one of the names and leave the other. An absolute name is taken
/// for it when it ends alike, whatever the base directory is.
pub(crate) fn alias<'a>(path: &str, inventory: &'a RuntimeInventory) -> Option<&'a str> {
    let is_it = |name: &str| {
        let name = name.strip_prefix("opt@").unwrap_or(name);
        let plain = plain(name);
        match name.starts_with('/') {
            true => plain
                .strip_suffix(path)
                .is_some_and(|front| front.is_empty() || front.ends_with('/')),
            // Up from the base and down again: which directory that is, is not known.
            false if plain.starts_with("../") => plain
                .strip_suffix(path)
                .and_then(|front| front.strip_suffix('/'))
                .is_some_and(|front| !front.ends_with("..")),
            false => plain == path,
        }
    };
    Use::ALL
        .into_iter()
        .flat_map(|one| one.names(inventory))
        .map(String::as_str)
        .find(|name| *name != path && is_it(name))
}

/// A name without what a file system passes over: empty components, `.`, and `..` with
/// what it goes back on.
pub(crate) fn plain(name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What makes a certificate's neighbour part of it.
pub(crate) const COMPANIONS: [&str; 4] = [".key", ".ocsp", ".issuer", ".sctl"];

/// The certificate that a file belongs to by its name.
pub(crate) fn companion_of(path: &str) -> Option<&str> {
    COMPANIONS
        .iter()
        .find_map(|end| path.strip_suffix(end))
        .filter(|stem| !stem.is_empty() && !stem.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_another_spelling_of_the_same_file() {
        let inventory = |name: &str| RuntimeInventory {
            maps: vec![name.to_owned()],
            ..RuntimeInventory::default()
        };
        for (path, name, near_by) in [
            ("maps/host.map", "/etc/haproxy/maps/host.map", true),
            ("maps/host.map", "./maps/host.map", true),
            ("maps/host.map", "host.map", true),
            ("maps/host.map", "maps/Host.map", true),
            ("maps/host.map", "virt@maps/host.map", true),
            ("maps/host.map", "maps/host.map", false),
            ("maps/host.map", "xmaps/host.map", false),
            ("maps/host.map", "maps/path.map", false),
            ("maps/host.map", "ost.map", false),
        ] {
            let names = inventory(name);
            assert_eq!(near(path, &names).is_some(), near_by, "{path} {name}");
        }
    }

    #[test]
    fn an_alias_is_the_very_file_by_another_name() {
        let path = "maps/host.map";
        for (name, same) in [
            ("./maps/host.map", true),
            ("maps/./host.map", true),
            ("maps//host.map", true),
            ("maps/../maps/host.map", true),
            ("x/../maps/y/../host.map", true),
            ("/etc/haproxy/maps/host.map", true),
            ("/etc/haproxy/x/../maps/host.map", true),
            ("opt@maps/host.map", true),
            ("maps/host.map", false),
            ("virt@maps/host.map", false),
            ("../maps/host.map", false),
            ("../../maps/host.map", false),
            ("../haproxy/maps/host.map", true),
            ("other/maps/host.map", false),
            ("/etc/xmaps/host.map", false),
            ("maps/Host.map", false),
        ] {
            let inventory = RuntimeInventory {
                maps: vec![path.to_owned()],
                certs: vec![name.to_owned()],
                ..RuntimeInventory::default()
            };
            let found = alias(path, &inventory);
            assert_eq!(found, same.then_some(name), "{name}");
        }
    }

    #[test]
    fn companions_by_their_end() {
        assert_eq!(companion_of("certs/a.pem.key"), Some("certs/a.pem"));
        assert_eq!(companion_of("a.pem.ocsp"), Some("a.pem"));
        assert_eq!(companion_of("a.pem"), None);
        assert_eq!(companion_of("certs/.key"), None);
    }
}
