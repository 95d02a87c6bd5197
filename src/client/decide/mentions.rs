//! Where the files of a set name other files of it.
//!
//! A runtime command changes what the worker holds under a name. Whatever else was made
//! of the same file when HAProxy started (a page that is returned, an ACL under another
//! spelling, what a script has read) stays as it was. The worker lists ACLs; the rest it
//! does not tell, so the set's own text is looked at: any word of it that may be the
//! file's name, and does not stand where the worker's list of names speaks for it, is
//! another use.
//!
//! This is no parser of the configuration: it knows quotes, escapes, comments and
//! variables, and the few words behind which a map, a certificate, a CA file or a
//! crt-list is named. What is not understood counts as a use, which costs a reload. Not
//! seen are files outside of the set and names that a script puts together.

use std::collections::{BTreeMap, HashMap};

use self::lines::Names;
use super::names::{Use, plain};
use crate::client::fileset::{Entry, FileSet};
use crate::wire::manifest::FileKind;
use crate::wire::path::ManifestPath;

/// What stands for a variable of the environment in a word; no path has it.
pub(crate) const VARIABLE: char = '\u{1}';

/// Words of which the next one is a file or directory. Behind any other a word that is
/// nothing but a variable (a port, a name) is not taken for one.
const FILE_WORDS: [&str; 21] = [
    "-f",
    "file",
    "lf-file",
    "errorfile",
    "errorfiles",
    "errorloc",
    "crt",
    "default-crt",
    "crt-list",
    "ca-file",
    "ca-verify-file",
    "ca-sign-file",
    "crl-file",
    "key",
    "ocsp",
    "issuer",
    "sctl",
    "config",
    "lua-load",
    "lua-load-per-thread",
    "ssl-dh-param-file",
];

/// Words behind which a directory stands for the files in it.
const DIRECTORY_WORDS: [&str; 3] = ["errorfiles", "ca-file", "ca-verify-file"];

/// First words of a file that HAProxy may have been told to read besides the main one.
const SECTIONS: [&str; 8] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "peers",
    "resolvers",
    "http-errors",
];

/// A word that may be a file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mention {
    /// In which file of the set.
    pub(crate) file: ManifestPath,
    /// From 1.
    pub(crate) line: usize,
    /// Without quotes and escapes.
    name: String,
    stands: Stands,
}

impl Mention {
    /// Nothing but a variable, which may be any file.
    fn is_bare(&self) -> bool {
        self.name.chars().all(|c| c == VARIABLE || c == '/')
    }

    fn is_behind(&self, words: &[&str]) -> bool {
        match &self.stands {
            Stands::After(word) => words.contains(&word.as_str()),
            Stands::In(_) | Stands::Row | Stands::Anywhere => false,
        }
    }
}

/// Where a name stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stands {
    /// The first argument of what looks like a call.
    In(String),
    /// The next word after this one.
    After(String),
    /// The first word of a crt-list's row.
    Row,
    Anywhere,
}

/// All of them, by the last component.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mentions {
    by_name: HashMap<String, Vec<Mention>>,
    /// With a variable in it.
    variable: Vec<Mention>,
    /// Behind a word that takes a directory.
    directories: Vec<Mention>,
}

impl Mentions {
    /// Reads the configuration and, from there on, what is named in it.
    pub(crate) fn of(set: &FileSet) -> Self {
        let names = Names::new(set.files().map(|entry| last(entry.path.as_str())));
        let mut mentions = Self::default();
        let mut unread: BTreeMap<&str, Entry<'_>> = BTreeMap::new();
        let mut next: Vec<(Entry<'_>, bool)> = Vec::new();
        for entry in set.files() {
            match entry.kind {
                FileKind::Map | FileKind::Cert | FileKind::Ca => {}
                FileKind::Config => next.push((entry, false)),
                FileKind::General if is_read_anyway(&entry) => next.push((entry, false)),
                FileKind::General | FileKind::Crtlist => {
                    unread.insert(entry.path.as_str(), entry);
                }
            }
        }
        while !next.is_empty() {
            for (entry, rows) in &next {
                mentions.read(entry, *rows, &names);
            }
            next.clear();
            unread.retain(|path, entry| {
                let named = mentions.naming(path, set).chain(mentions.around(path));
                let named: Vec<&Mention> = named.filter(|mention| !mention.is_bare()).collect();
                if !named.is_empty() {
                    let rows = named.iter().any(|mention| mention.is_behind(&["crt-list"]));
                    next.push((*entry, rows || entry.kind == FileKind::Crtlist));
                }
                named.is_empty()
            });
        }
        mentions
    }

    /// A use of this file besides the one that the worker lists it for.
    pub(crate) fn other_use<'a>(
        &'a self,
        path: &'a str,
        one: Use,
        set: &'a FileSet,
    ) -> Option<&'a Mention> {
        let unlisted = |mention: &&Mention| !is_listed(one, mention);
        let named = self.naming(path, set).find(unlisted);
        named.or_else(|| self.around(path).next())
    }

    fn naming<'a>(&'a self, path: &'a str, set: &'a FileSet) -> impl Iterator<Item = &'a Mention> {
        let named = self.by_name.get(last(path)).into_iter().flatten();
        let named = named.filter(move |mention| {
            // Another file by its full name is that one.
            let other = mention.name != path && set.get(&mention.name).is_some();
            !other && may_be(&mention.name, path)
        });
        let variable = self.variable.iter();
        let variable = variable.filter(move |mention| may_become(mention, path));
        named.chain(variable)
    }

    /// Where the directory that it is in stands for the files in it.
    fn around<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Mention> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let directories = self.directories.iter();
        directories.filter(move |mention| may_be(&mention.name, parent))
    }

    /// `rows`: of a crt-list.
    fn read(&mut self, entry: &Entry<'_>, rows: bool, names: &Names<'_>) {
        let text = String::from_utf8_lossy(entry.content);
        let configuration = rows || is_configuration(entry);
        for (line, text) in (1..).zip(text.lines()) {
            if configuration && !names.may_be_in(text) {
                continue;
            }
            let words = match configuration {
                true => words(text),
                false => vec![text.replace(['"', '\'', '\\'], "")],
            };
            for (at, word) in words.iter().enumerate() {
                let before = at.checked_sub(1).and_then(|before| words.get(before));
                for (start, name) in names_in(word) {
                    let stands = match (call(word, start), before) {
                        (Some(call), _) => Stands::In(call),
                        (None, Some(before)) if begins(word, start) => {
                            Stands::After(before.trim_start_matches(OPENING).to_owned())
                        }
                        (None, None) if rows && start == 0 => Stands::Row,
                        (None, _) => Stands::Anywhere,
                    };
                    self.add(
                        Mention {
                            file: entry.path.clone(),
                            line,
                            name,
                            stands,
                        },
                        names,
                    );
                }
            }
        }
    }

    fn add(&mut self, mention: Mention, names: &Names<'_>) {
        let directory = mention.is_behind(&DIRECTORY_WORDS);
        if mention.name.contains(VARIABLE) {
            self.variable.push(mention);
            return;
        }
        let name = last(&plain(&mention.name)).to_owned();
        if directory {
            self.directories.push(mention.clone());
        }
        if names.has(&name) {
            self.by_name.entry(name).or_default().push(mention);
        }
    }
}

/// The lines of the set's configurations that hold anything, as words: by file, the line
/// from 1.
pub(crate) fn configuration_lines(
    set: &FileSet,
) -> impl Iterator<Item = (&ManifestPath, usize, Vec<String>)> {
    let files = set.files().filter(is_configuration);
    files.flat_map(|entry| {
        let lines = entry.content.split(|&byte| byte == b'\n');
        (1..).zip(lines).filter_map(move |(line, text)| {
            let words = words(&String::from_utf8_lossy(text));
            (!words.is_empty()).then_some((entry.path, line, words))
        })
    })
}

/// Whether all of a path is of the bytes that a name is looked for by.
pub(crate) fn can_be_found(path: &str) -> bool {
    path.chars().all(|c| is_of_name(c) && c != '@')
}

/// Whether the worker's list of this sort has what is named there, so that a command
/// reaches it, or shows that it is held under another name too.
fn is_listed(one: Use, mention: &Mention) -> bool {
    if mention.name.ends_with(VARIABLE) && mention.is_behind(&DIRECTORY_WORDS) {
        return false;
    }
    match (one, &mention.stands) {
        (Use::Map, Stands::In(call)) => {
            ["map", "set-map", "del-map", "Map.new"].contains(&call.as_str())
                || call.starts_with("map_")
        }
        (Use::Cert, Stands::Row) => true,
        (Use::Cert, Stands::After(word)) => ["crt", "default-crt"].contains(&word.as_str()),
        (Use::Ca, Stands::After(word)) => ["ca-file", "ca-verify-file"].contains(&word.as_str()),
        (Use::CrtList, Stands::After(word)) => word == "crt-list",
        (
            Use::Map | Use::Acl | Use::Cert | Use::Ca | Use::Crl | Use::CrtList,
            Stands::In(_) | Stands::After(_) | Stands::Row | Stands::Anywhere,
        ) => false,
    }
}

/// Whether a name may be that file: the base directory is not known, and `default-path`
/// may shorten a name.
pub(crate) fn may_be(name: &str, path: &str) -> bool {
    let name = plain(name);
    let behind = |long: &str, short: &str| {
        long.strip_suffix(short)
            .is_some_and(|front| front.is_empty() || front.ends_with('/'))
    };
    match name.is_empty() || path.is_empty() {
        true => name == path,
        false => behind(&name, path) || behind(path, &name),
    }
}

/// The same with variables, of which nothing is known.
fn may_become(mention: &Mention, path: &str) -> bool {
    let (head, tail) = match (
        mention.name.split_once(VARIABLE),
        mention.name.rsplit_once(VARIABLE),
    ) {
        (Some((head, _)), Some((_, tail))) => (head, tail),
        (_, _) => return false,
    };
    let begins = last(head);
    if mention.is_bare() {
        return match &mention.stands {
            Stands::After(word) => FILE_WORDS.contains(&word.as_str()),
            Stands::In(_) | Stands::Row => true,
            Stands::Anywhere => false,
        };
    }
    let rooted = format!("/{path}");
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    match tail.is_empty() {
        // A directory and any name in it, or the beginning of a name.
        true if begins.is_empty() => may_be(head, parent),
        true => name.starts_with(begins),
        false => rooted.ends_with(tail) || tail.ends_with(&rooted),
    }
}

/// Read by HAProxy for all that is known, though nothing may name it: `-f` takes several
/// files.
fn is_read_anyway(entry: &Entry<'_>) -> bool {
    let scripts = [".lua", ".cfg", ".conf"];
    scripts.iter().any(|end| entry.path.as_str().ends_with(end)) || is_configuration(entry)
}

fn is_configuration(entry: &Entry<'_>) -> bool {
    let path = entry.path.as_str();
    if entry.kind == FileKind::Config || path.ends_with(".cfg") || path.ends_with(".conf") {
        return true;
    }
    let begins = |line: &[u8], section: &str| {
        line.strip_prefix(section.as_bytes())
            .is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
    };
    let mut lines = entry.content.split(|&b| b == b'\n');
    lines.any(|line| SECTIONS.iter().any(|section| begins(line, section)))
}

/// The words of a line, quotes and escapes resolved, each variable a [`VARIABLE`].
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('#', None) => break,
            (c, None) if c.is_ascii_whitespace() => words.extend(word.take()),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => {
                let word = word.get_or_insert_default();
                match rest.next() {
                    Some('x') => {
                        let digits: String = rest.by_ref().take(2).collect();
                        let byte = u8::from_str_radix(&digits, 16).unwrap_or_default();
                        word.push(char::from(byte));
                    }
                    Some(c) => word.push(c),
                    None => {}
                }
            }
            ('$', Some('"')) => {
                let word = word.get_or_insert_default();
                word.push(VARIABLE);
                if rest.next_if_eq(&'{').is_some() {
                    let _ = rest.by_ref().find(|&c| c == '}');
                } else {
                    let of_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
                    while rest.next_if(of_name).is_some() {}
                }
            }
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What may stand in front of a word's first name.
const OPENING: [char; 4] = ['[', '{', '(', '!'];

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '_' | '-' | '.' | '/' | '+' | '~' | '@' | VARIABLE)
        || (!c.is_ascii() && c.is_alphanumeric())
}

/// The runs of a word that may be names, and where they begin. What `virt@` names is no
/// file.
fn names_in(word: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    let mut start = 0;
    for run in word.split_inclusive(|c| !is_of_name(c)) {
        let name = run.trim_end_matches(|c| !is_of_name(c));
        let (kind, file) = name.rsplit_once('@').unwrap_or(("", name));
        if !file.is_empty() && kind != "virt" {
            names.push((start, file.to_owned()));
        }
        start += run.len();
    }
    names
}

/// What is called with the name that begins there as its first argument.
fn call(word: &str, start: usize) -> Option<String> {
    let front = word.get(..start)?.trim_end().strip_suffix('(')?.trim_end();
    let is_of_call = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let end = front.trim_end_matches(is_of_call).len();
    Some(front.get(end..)?.to_owned())
}

/// Whether nothing but opening marks stands in front.
fn begins(word: &str, start: usize) -> bool {
    word.get(..start)
        .is_some_and(|front| front.chars().all(|c| OPENING.contains(&c)))
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

mod lines;
#[cfg(test)]
mod tests;
