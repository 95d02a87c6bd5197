//! `add`, `set`, `del`, `prepare`, `commit`, `clear` and `show map`.

use super::model::{Entry, Map, Model, Version};
use super::reply::Reply;

const UNKNOWN: &str = "Unknown map identifier. Please use #<id> or <file>.";
const ADD_USAGE: &str = "'add map' expects three parameters (map identifier, key and value) or one parameter (map identifier) and a payload";

/// A map command behind its first two words: an optional `@version`, then the rest.
struct Words<'a> {
    version: Option<u32>,
    rest: &'a [String],
}

impl<'a> Words<'a> {
    /// A version that is no number is version 0, silently.
    fn of(words: &'a [String]) -> Self {
        match words.split_first() {
            Some((first, rest)) if first.starts_with('@') => Self {
                version: Some(first.trim_start_matches('@').parse().unwrap_or(0)),
                rest,
            },
            Some(_) | None => Self {
                version: None,
                rest: words,
            },
        }
    }

    fn word(&self, place: usize) -> Option<&'a str> {
        self.rest.get(place).map(String::as_str)
    }
}

fn find<'a>(model: &'a mut Model, name: Option<&str>) -> Option<&'a mut Map> {
    model
        .maps
        .iter_mut()
        .find(|map| Some(map.name.as_str()) == name)
}

pub(super) fn add(model: &mut Model, words: &[String], payload: Option<&str>) -> Reply {
    let words = Words::of(words);
    let name = words.word(0);
    let (key, value) = (words.word(1), words.word(2));
    let text = match (payload, key, value) {
        (Some(payload), _, _) => payload.to_owned(),
        (None, Some(key), Some(value)) => format!("{key} {value}"),
        (None, _, _) => return Reply::err(ADD_USAGE),
    };
    let Some(map) = find(model, name) else {
        return Reply::err(UNKNOWN);
    };
    let version = match words.version {
        Some(version) if version > map.newest => {
            return Reply::err("Version number in the future, please use 'prepare map' before.");
        }
        Some(version) => version,
        None => map.current,
    };
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // A key goes up to the next blank, whatever line that is on.
        let Some((key, behind)) = rest.split_once([' ', '\t']) else {
            return Reply::err(format!("Missing value for key '{rest}'."));
        };
        let (value, next) = behind.split_once('\n').unwrap_or((behind, ""));
        rest = next;
        let address = model.take_address();
        let entry = Entry {
            address,
            version,
            key: key.to_owned(),
            value: value.trim_start_matches([' ', '\t']).to_owned(),
        };
        // A superseded version takes it silently too; no lookup sees it.
        if let Some(map) = find(model, name) {
            map.entries.push(entry);
        }
    }
    Reply::Silent
}

pub(super) fn set(model: &mut Model, words: &[String], branch: Version) -> Reply {
    let (Some(key), Some(value)) = (words.get(1), words.get(2)) else {
        return Reply::err("'set map' expects three parameters: map identifier, key and value.");
    };
    let Some(map) = find(model, words.first().map(String::as_str)) else {
        return Reply::err(UNKNOWN);
    };
    let current = map.current;
    // 3.0 changes entries of pending versions too.
    let reaches = |entry: &Entry| entry.version == current || branch == Version::V3_0;
    let mut found = false;
    for entry in map
        .entries
        .iter_mut()
        .filter(|e| e.key == *key && reaches(e))
    {
        entry.value.clone_from(value);
        found = true;
    }
    match found {
        true => Reply::Silent,
        false => Reply::err("entry not found."),
    }
}

pub(super) fn del(model: &mut Model, words: &[String], branch: Version) -> Reply {
    let Some(map) = find(model, words.first().map(String::as_str)) else {
        return Reply::err(UNKNOWN);
    };
    let Some(key) = words.get(1) else {
        return Reply::err("This command expects two parameters: map identifier and key.");
    };
    let current = map.current;
    let hit = |entry: &Entry| entry.version == current && entry.key == *key;
    let Some(first) = map.entries.iter().position(hit) else {
        return Reply::err("Key not found.");
    };
    match branch {
        Version::V3_0 => map.entries.retain(|entry| entry.key != *key),
        Version::V3_2 => map.entries.retain(|entry| !hit(entry)),
        // One call removes one duplicate, the oldest.
        Version::V3_4 => {
            map.entries.remove(first);
        }
    }
    Reply::Silent
}

pub(super) fn prepare(model: &mut Model, words: &[String]) -> Reply {
    let Some(map) = find(model, words.first().map(String::as_str)) else {
        return Reply::err(UNKNOWN);
    };
    map.newest += 1;
    Reply::info(format!("New version created: {}", map.newest))
}

pub(super) fn commit(model: &mut Model, words: &[String]) -> Reply {
    let words = Words::of(words);
    let Some(version) = words.version else {
        return Reply::err("Missing version number.");
    };
    let Some(map) = find(model, words.word(0)) else {
        return Reply::err(UNKNOWN);
    };
    if version <= map.current || version > map.newest {
        return Reply::err("Version number out of range.");
    }
    map.current = version;
    map.entries.retain(|entry| entry.version >= version);
    Reply::Silent
}

pub(super) fn clear(model: &mut Model, words: &[String], branch: Version) -> Reply {
    let words = Words::of(words);
    let Some(map) = find(model, words.word(0)) else {
        return Reply::err(UNKNOWN);
    };
    let version = words.version.unwrap_or(map.current);
    // It looks at the oldest version that has entries, and at no other.
    let older = map.entries.iter().any(|entry| entry.version < version);
    if branch == Version::V3_4 && older {
        return Reply::Silent;
    }
    map.entries.retain(|entry| entry.version != version);
    Reply::Silent
}

pub(super) fn show(model: &mut Model, words: &[String]) -> Reply {
    let words = Words::of(words);
    if words.rest.is_empty() {
        let mut text = "# id (file) description\n".to_owned();
        for (id, map) in model.maps.iter().enumerate() {
            let Map {
                name,
                current,
                newest,
                entries,
            } = map;
            text.push_str(&format!(
                "{id} ({name}) pattern loaded from file '{name}' used by map at file 'haproxy.cfg' line 1. curr_ver={current} next_ver={newest} entry_cnt={}\n",
                entries.len()
            ));
        }
        return Reply::Plain(text);
    }
    let Some(map) = find(model, words.word(0)) else {
        return Reply::err(UNKNOWN);
    };
    let version = words.version.unwrap_or(map.current);
    let seen = map.entries.iter().filter(|entry| entry.version == version);
    let row = |entry: &Entry| format!("0x{:x} {} {}\n", entry.address, entry.key, entry.value);
    let rows: String = seen.map(row).collect();
    Reply::Plain(rows)
}
