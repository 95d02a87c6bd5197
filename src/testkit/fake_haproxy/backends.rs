//! Commands on backends, which only 3.4 has; their listing is older.

use super::model::{Backend, Model};
use super::reply::{INFO, Reply};
use super::servers::NO_BACKEND;

pub(super) fn show(model: &Model) -> Reply {
    let names = model
        .backends
        .iter()
        .map(|backend| format!("{}\n", backend.name));
    Reply::Plain(format!("# name\n{}", names.collect::<String>()))
}

/// `add backend NAME from DEFAULTS [mode MODE] [guid GUID]`.
pub(super) fn add(model: &mut Model, words: &[String]) -> Reply {
    let (name, from) = match words {
        [name, from, defaults, ..] if from == "from" => (name, defaults),
        _ => return Reply::err("Usage: add backend <name> from <defproxy>."),
    };
    if !model.defaults.contains(from) {
        return Reply::err(format!("Cannot find default proxy '{from}'."));
    }
    let mut guid = None;
    let mut rest = words.get(3..).unwrap_or_default();
    while let [word, value, behind @ ..] = rest {
        match (word.as_str(), value.as_str()) {
            ("mode", "http" | "tcp") => {}
            ("mode", _) => return Reply::err("Unknown proxy mode."),
            ("guid", _) => guid = Some(value.clone()),
            (_, _) => return Reply::err("Usage: add backend <name> from <defproxy>."),
        }
        rest = behind;
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    if let Some(bad) = name.chars().find(|c| !plain(*c)) {
        return Reply::err(format!("Invalid character '{bad}' in backend name."));
    }
    let taken = if model.find(name).is_some() {
        Some("backend")
    } else if model.frontends.contains(name) {
        Some("frontend")
    } else {
        model.defaults.contains(name).then_some("defaults")
    };
    if let Some(kind) = taken {
        return Reply::err(format!(
            "Error during backend creation : name is already used by other proxy '{kind} {name}'."
        ));
    }
    let same_guid = |backend: &&Backend| guid.is_some() && backend.guid == guid;
    if let Some(other) = model.backends.iter().find(same_guid) {
        return Reply::err(format!(
            "Error during backend creation : GUID insertion : duplicate entry with backend {}.",
            other.name
        ));
    }
    let mut backend = Backend::new(name);
    backend.published = false;
    backend.guid = guid;
    model.add_backend(backend);
    Reply::info("New backend registered.")
}

pub(super) fn publish(model: &mut Model, words: &[String], on: bool) -> Reply {
    let found = model
        .backends
        .iter_mut()
        .find(|known| Some(&known.name) == words.first());
    let Some(backend) = found else {
        return Reply::err(NO_BACKEND);
    };
    backend.published = on;
    Reply::info(match on {
        true => "Backend published.",
        false => "Backend unpublished.",
    })
}

/// Why a backend cannot be deleted now; `None`: it can.
pub(super) fn kept(model: &Model, name: Option<&String>) -> Result<Option<&'static str>, Reply> {
    let found = model
        .backends
        .iter()
        .find(|known| Some(&known.name) == name);
    let backend = found.ok_or_else(|| Reply::err(NO_BACKEND))?;
    Ok(if backend.referenced {
        Some(
            "This proxy cannot be removed at runtime due to other configuration elements pointing to it.",
        )
    } else if backend.published {
        Some("Backend must be unpublished prior to its deletion.")
    } else if !backend.servers.is_empty() {
        Some("Only a backend without server can be deleted.")
    } else if backend.streams > 0 {
        Some("Backend still has attached streams on it.")
    } else {
        None
    })
}

pub(super) fn del(model: &mut Model, words: &[String]) -> Reply {
    match kept(model, words.first()) {
        Err(refusal) => return refusal,
        Ok(Some(why)) => return Reply::err(why),
        Ok(None) => {}
    }
    model
        .backends
        .retain(|known| Some(&known.name) != words.first());
    let mut lines = std::mem::take(&mut model.said);
    lines.push("Backend deleted.".to_owned());
    Reply::Tagged(INFO, lines.join("\n"))
}
