//! What a verb found, ready to be printed as text or as JSON.
//!
//! The document: `{"good": bool, …, "agents": [{"agent": URL, "good": bool, …}]}`. A
//! failure is `{"kind", "message", "next"}`. Keys are only ever added.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::words::clean;

/// One agent's outcome.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Whether what was asked for holds.
    pub(super) good: bool,
    /// The first line, behind the agent's address.
    pub(super) title: String,
    /// Further lines.
    pub(super) lines: Vec<String>,
    /// What to do next, if there is anything.
    pub(super) next: Option<String>,
    /// For programs.
    pub(super) fields: Map<String, Value>,
}

impl Block {
    /// An outcome that is as it should be, or not.
    pub(super) fn new(good: bool, title: impl Into<String>) -> Self {
        Self {
            good,
            title: title.into(),
            lines: Vec::new(),
            next: None,
            fields: Map::new(),
        }
    }

    /// An agent that could not be asked, or refused.
    pub(super) fn failure(failure: &Failure) -> Self {
        let message = clean(&failure.message);
        let mut lines = message.lines();
        let mut block = Self::new(false, lines.next().unwrap_or_default());
        block.lines = lines.map(str::to_owned).collect();
        block.next = Some(failure.next.clone());
        block.field("error", failure.json());
        block
    }

    pub(super) fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// A label and a value, aligned with the others.
    pub(super) fn row(&mut self, label: &str, value: impl AsRef<str>) {
        let value = clean(value.as_ref());
        let mut lines = value.lines();
        let first = lines.next().unwrap_or_default();
        self.lines.push(format!("{label:<11} {first}"));
        for line in lines {
            self.lines.push(format!("{:<11} {line}", ""));
        }
    }

    pub(super) fn field(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }
}

/// What went wrong, and what to do about it.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) kind: &'static str,
    pub(super) message: String,
    pub(super) next: String,
}

impl Failure {
    fn json(&self) -> Value {
        json!({"kind": self.kind, "message": self.message, "next": self.next})
    }
}

/// All outcomes.
#[derive(Debug)]
pub(super) struct Report {
    /// Before the agents.
    pub(super) head: Vec<String>,
    /// Keys beside the agents.
    pub(super) fields: Map<String, Value>,
    /// By agent, in the order they were named.
    pub(super) agents: Vec<(String, Block)>,
}

impl Report {
    pub(super) fn new(labels: Vec<String>, blocks: Vec<Block>) -> Self {
        Self {
            head: Vec::new(),
            fields: Map::new(),
            agents: labels.into_iter().zip(blocks).collect(),
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.agents.iter().all(|(_, block)| block.good)
    }

    pub(super) fn text(&self) -> String {
        // Writing to a string cannot fail.
        let mut text = String::new();
        for line in &self.head {
            let _ = writeln!(text, "{line}");
        }
        for (agent, block) in &self.agents {
            let _ = writeln!(text, "{agent}  {}", clean(&block.title));
            for line in &block.lines {
                let _ = writeln!(text, "  {}", clean(line).trim_end());
            }
            if let Some(next) = &block.next {
                let _ = writeln!(text, "  next: {}", clean(next));
            }
        }
        if self.agents.len() > 1 {
            let good = self.agents.iter().filter(|(_, block)| block.good).count();
            let _ = match self.agents.len() - good {
                0 => writeln!(text, "all {good} agents are good"),
                bad => writeln!(text, "{bad} of {} agents are not good", good + bad),
            };
        }
        text
    }

    pub(super) fn json(&self) -> String {
        let agents: Vec<Value> = self
            .agents
            .iter()
            .map(|(agent, block)| {
                let mut fields = Map::new();
                fields.insert("agent".into(), agent.as_str().into());
                fields.insert("good".into(), block.good.into());
                fields.extend(block.fields.clone());
                Value::Object(fields)
            })
            .collect();
        let mut fields = Map::new();
        fields.insert("good".into(), self.is_good().into());
        fields.extend(self.fields.clone());
        fields.insert("agents".into(), agents.into());
        let mut text = format!("{:#}", Value::Object(fields));
        text.push('\n');
        text
    }
}

/// One line on standard error, with the program's name.
#[allow(clippy::print_stderr)]
pub(super) fn complain(text: &str) {
    use std::io::Write as _;
    // Nobody is left to be told if this fails.
    let _ = writeln!(std::io::stderr().lock(), "hapticctl: {}", clean(text));
}
