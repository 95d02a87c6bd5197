//! `hapticctl drain|maint|weight|ready KEY` and `overrides`: the writer's end of the
//! responder's store.
//!
//! A change is check-and-set: what was shown as the state before is what was replaced.
//! An end (`--for`) is stored with the value, so it comes although this program is long
//! gone; each responder acts on it by its own clock. Nothing here talks to HAProxy but
//! to look.
//!
//! The store may be one that other responders read, too: they see plain values under
//! plain keys. What they do not know is the end: to them an override stays until it is
//! deleted, which `overrides --sweep` does once its time is over.

mod act;
mod compare;
mod consul;
mod coverage;
mod directory;
mod held;
mod list;
mod places;
mod sight;
mod store;
mod watch;

use std::time::Duration;

use serde_json::{Map, Value as Json};

use super::view::{Block, complain};
use super::words::counted;
use crate::cli::ctl::Output;
use crate::responder::note::Note;
use crate::responder::value::Value;

use store::Store;

pub use sight::Sights;
pub use store::StoreChoice;

/// A task on overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overrides {
    /// Which store.
    pub store: StoreChoice,
    /// A key that is no override, if the responders were given one.
    pub marker: Option<String>,
    /// How the outcome is printed.
    pub output: Output,
    /// Where to look whether it has arrived.
    pub sights: Sights,
    /// What to do.
    pub action: Action,
}

/// What to do with overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write a value under each key.
    Set {
        /// The keys.
        keys: Vec<String>,
        /// The value.
        value: Value,
        /// When it ends by itself.
        lasts: Option<Duration>,
        /// Who and why.
        note: Note,
        /// How long to wait until it has arrived.
        wait: Option<Duration>,
    },
    /// Delete the override of each key.
    End {
        /// The keys.
        keys: Vec<String>,
        /// By way of maintenance, for so long at least, so that servers come back slowly.
        ramp: Option<Duration>,
        /// How long to wait until it has arrived.
        wait: Option<Duration>,
    },
    /// Show all.
    List {
        /// Delete those whose time is over.
        sweep: bool,
    },
}

/// Does what was asked for and prints the outcome; false where something is not as it
/// was asked for, or a listing has something to look at.
#[must_use]
pub fn run(task: &Overrides) -> bool {
    let marker = task.marker.as_deref();
    let report = match Store::open(&task.store) {
        Ok(mut store) => match &task.action {
            Action::Set {
                keys,
                value,
                lasts,
                note,
                wait,
            } => {
                let order = act::Order {
                    value: *value,
                    lasts: *lasts,
                    note: note.clone(),
                };
                act::set(
                    &mut store,
                    &task.store,
                    keys,
                    &order,
                    marker,
                    &task.sights,
                    *wait,
                )
            }
            Action::End { keys, ramp, wait } => {
                let way = act::Way {
                    ramp: *ramp,
                    wait: *wait,
                };
                act::end(&mut store, &task.store, keys, way, marker, &task.sights)
            }
            Action::List { sweep } => list::run(&mut store, task, *sweep),
        },
        Err(error) => match task.action {
            Action::List { .. } => list::away(&error, task),
            Action::Set { .. } | Action::End { .. } => Report::failed(error.to_string()),
        },
    };
    let text = match task.output {
        Output::Text => report.text(),
        Output::Json => report.json(),
    };
    crate::cli::print(&text);
    if let Some(error) = &report.error {
        if task.output == Output::Text {
            complain(error);
        }
    }
    report.is_good()
}

/// What came of it, key by key.
///
/// The document: `{"good": bool, "keys": [{"key", "good", …}]}`, and `error` where the
/// store could not be used at all. Keys are only ever added.
#[derive(Debug, Default)]
struct Report {
    error: Option<String>,
    /// Before the keys.
    head: Vec<String>,
    /// Beside the keys.
    fields: Map<String, Json>,
    keys: Vec<(String, Block)>,
    /// Whether something beside the keys is to be looked at.
    trouble: bool,
}

impl Report {
    fn failed(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }

    fn is_good(&self) -> bool {
        self.error.is_none() && !self.trouble && self.keys.iter().all(|(_, block)| block.good)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |indent: &str, line: &str| {
            text += indent;
            text += super::words::clean(line).trim_end();
            text += "\n";
        };
        for head in &self.head {
            line("", head);
        }
        for (key, block) in &self.keys {
            line("", &format!("{key}  {}", block.title));
            for detail in &block.lines {
                line("  ", detail);
            }
            if let Some(next) = &block.next {
                line("  next: ", next);
            }
        }
        let bad = self.keys.iter().filter(|(_, block)| !block.good).count();
        if self.keys.len() > 1 && bad > 0 {
            let all = counted(self.keys.len(), "key");
            line("", &format!("{bad} of {all} need a look"));
        }
        text
    }

    fn json(&self) -> String {
        let keys = self.keys.iter().map(|(key, block)| {
            let mut fields = Map::new();
            fields.insert("key".into(), key.as_str().into());
            fields.insert("good".into(), block.good.into());
            fields.extend(block.fields.clone());
            Json::Object(fields)
        });
        let mut fields = Map::new();
        fields.insert("good".into(), self.is_good().into());
        if let Some(error) = &self.error {
            fields.insert("error".into(), error.as_str().into());
        }
        fields.extend(self.fields.clone());
        fields.insert("keys".into(), keys.collect());
        format!("{:#}\n", Json::Object(fields))
    }
}

#[cfg(all(test, feature = "testkit"))]
mod tests;
