//! What is wrong with a JSON text, without the words of the program that reads it.

use serde_json::error::Category;

/// The fault and its place.
pub(super) fn words(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let place = format!(" at line {line} column {column}");
    let what = text.strip_suffix(place.as_str()).unwrap_or(&text);
    let what = match error.classify() {
        Category::Eof => "it ends too early; is it the whole file?".to_owned(),
        Category::Syntax | Category::Io => format!("it is no JSON: {what}"),
        Category::Data => data(what),
    };
    match line {
        0 => what,
        line => format!("line {line}, column {column}: {what}"),
    }
}

fn data(what: &str) -> String {
    let quoted = |rest: &str| rest.split('`').nth(1).map(str::to_owned);
    if let Some(key) = what.strip_prefix("missing field ").and_then(quoted) {
        return format!("the key {key:?} is missing");
    }
    if let Some(key) = what.strip_prefix("duplicate field ").and_then(quoted) {
        return format!("the key {key:?} is there twice");
    }
    if let Some(rest) = what.strip_prefix("unknown field ") {
        let names: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        if let Some((key, known)) = names.split_first() {
            return match known {
                [] => format!("there is no key {key:?} here"),
                known => format!(
                    "there is no key {key:?} here; there are {}",
                    known.join(", ")
                ),
            };
        }
    }
    let got = ["invalid type: ", "invalid value: ", "invalid length "];
    let rest = got.iter().find_map(|begin| what.strip_prefix(begin));
    match rest.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((got, wanted)) => format!("{} is there, where {} belongs", thing(got), thing(wanted)),
        None => what.to_owned(),
    }
}

/// A value, or what a value should have been.
fn thing(text: &str) -> String {
    match text {
        "u64" | "i64" => "a whole number".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "sequence" | "a sequence" => "a list".to_owned(),
        "map" | "a map" => "an object".to_owned(),
        text if text.starts_with("struct ") => "an object".to_owned(),
        // The length of a list that was taken for an object's values.
        text if text.bytes().all(|b| b.is_ascii_digit()) => "a list".to_owned(),
        text => {
            let kinds = ["string ", "integer ", "floating point ", "boolean "];
            let bare = kinds.iter().find_map(|kind| text.strip_prefix(kind));
            bare.unwrap_or(text).replace('`', "")
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::client::backends::{BACKENDS_FILE, Declared};

    #[test]
    fn faults_are_told_in_the_words_of_whoever_wrote_the_file() {
        for (text, words) in [
            ("{\"version\": 1,", "line 1, column 14: it ends too early"),
            ("{\"version\": 1,}", "it is no JSON: trailing comma"),
            (
                "{\"version\": \"1\"}",
                "\"1\" is there, where a whole number belongs",
            ),
            (
                "{\"version\": -1}",
                "-1 is there, where a whole number belongs",
            ),
            (
                "{\"version\": 1.5}",
                "1.5 is there, where a whole number belongs",
            ),
            ("[]", "a list is there, where an object belongs"),
            ("{\"version\": 1}", "the key \"backends\" is missing"),
            (
                "{\"version\": 1, \"backends\": {\"a\": {\"profile\": 1}}}",
                "1 is there, where a text in quotes belongs",
            ),
            (
                "{\"version\": 1, \"profiles\": {\"w\": {\"mod\": \"http\"}}, \"backends\": {}}",
                "there is no key \"mod\" here; there are mode, balance, hash_type, default_server",
            ),
            (
                "{\"version\": 1, \"version\": 1, \"backends\": {}}",
                "the key \"version\" is there twice",
            ),
            (
                "{\"version\": 1, \"backends\": {\"a\": {\"profile\": \"w\", \"servers\": \"s\"}}}",
                "\"s\" is there, where a list belongs",
            ),
            (
                "{\"version\": 1, \"backends\": {\"a\": {\"profile\": \"w\"}}}",
                "there is no profile \"w\" in backends.json (none is declared)",
            ),
        ] {
            let template = b"# haptic: backends\n";
            let read = Declared::read(
                BACKENDS_FILE,
                Some(text.as_bytes()),
                "haproxy.cfg",
                template,
            );
            let Err(error) = read else { panic!("{text}") };
            let told = error.to_string();
            assert!(told.contains(words), "{text}: {told}");
            for foreign in ["u64", "i64", "struct", "sequence", "expected", "field"] {
                assert!(!told.contains(foreign), "{text}: {told}");
            }
        }
    }
}
