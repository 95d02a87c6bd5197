//! Server keywords: which ones HAProxy is known to take at runtime as it takes them in a
//! file, and how many arguments those have.

use crate::format::{HaproxyVersion, field};
use crate::wire::op::Keyword;

/// Taken alike by 3.0 to 3.4, on a server line and in `add server`, with this many
/// arguments. `weight` and `disabled` are fields of the record.
const VERIFIED: [(&str, usize); 38] = [
    ("agent-addr", 1),
    ("agent-check", 0),
    ("agent-inter", 1),
    ("agent-port", 1),
    ("agent-send", 1),
    ("addr", 1),
    ("alpn", 1),
    ("backup", 0),
    ("ca-file", 1),
    ("check", 0),
    ("ciphers", 1),
    ("ciphersuites", 1),
    ("cookie", 1),
    ("crl-file", 1),
    ("crt", 1),
    ("downinter", 1),
    ("fall", 1),
    ("fastinter", 1),
    ("guid", 1),
    ("inter", 1),
    ("maxconn", 1),
    ("maxqueue", 1),
    ("minconn", 1),
    ("observe", 1),
    ("on-marked-down", 1),
    ("port", 1),
    ("proto", 1),
    ("rise", 1),
    ("send-proxy", 0),
    ("send-proxy-v2", 0),
    ("slowstart", 1),
    ("sni", 1),
    ("ssl", 0),
    ("ssl-max-ver", 1),
    ("ssl-min-ver", 1),
    ("verify", 1),
    ("verifyhost", 1),
    ("init-state", 1),
];

fn verified(name: &str) -> Option<usize> {
    let found = VERIFIED.iter().find(|(known, _)| *known == name);
    found.map(|(_, arguments)| *arguments)
}

/// Reads `name argument…`. The number of arguments of a known keyword must be right:
/// otherwise a second keyword hides among them.
pub(super) fn parse(text: &str) -> Result<Keyword, String> {
    let mut words = text.split([' ', '\t']).filter(|word| !word.is_empty());
    let Some(name) = words.next() else {
        return Err("a keyword is empty".to_owned());
    };
    let args: Vec<String> = words.map(str::to_owned).collect();
    for word in std::iter::once(name).chain(args.iter().map(String::as_str)) {
        config_word(word)?;
    }
    match name {
        "weight" => {
            return Err("say `weight` as a key of the server, not among its keywords".to_owned());
        }
        "disabled" | "enabled" => {
            return Err(format!(
                "say `\"state\": \"{}\"` instead of the keyword `{name}`",
                if name == "disabled" { "maint" } else { "ready" }
            ));
        }
        _ => {}
    }
    if let Some(wanted) = verified(name) {
        if args.len() != wanted {
            return Err(format!(
                "the keyword `{name}` has {wanted} argument(s) and `{text}` has {}; write each keyword as an item of its own",
                args.len()
            ));
        }
    }
    Ok(Keyword {
        name: name.to_owned(),
        args,
    })
}

/// What stays one word of a configuration line as it is.
fn config_word(word: &str) -> Result<(), String> {
    if word.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err(format!("{word:?} holds a control character"));
    }
    match word.contains(['"', '\'', '#', '$']) {
        true => Err(format!("{word:?} must not hold any of \" ' # $")),
        false => Ok(()),
    }
}

/// Why a server with this keyword cannot be added at runtime.
pub(super) fn runtime_fault(keyword: &Keyword, version: &HaproxyVersion) -> Option<String> {
    if let Err(fault) = field::keyword_name(&keyword.name, version) {
        return Some(fault.words);
    }
    if verified(&keyword.name).is_none() {
        return Some(format!(
            "the keyword {} is not known to mean the same at runtime",
            keyword.name
        ));
    }
    keyword
        .args
        .iter()
        .find_map(|arg| field::word(&keyword.name, arg).err())
        .map(|fault| fault.words)
}
