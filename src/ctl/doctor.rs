//! `hapticctl doctor`: what will be trouble later.

use std::time::SystemTime;

use serde_json::json;

use super::view::{Block, Report};
use super::{labels, plan, words};
use crate::client::doctor::{Finding, Severity};
use crate::client::{FileSet, Fleet, StateRead, doctor};

pub(super) fn run(fleet: &Fleet, set: &FileSet) -> Report {
    let read = StateRead {
        plan: true,
        ..StateRead::default()
    };
    let blocks = fleet.each(|_, client| match client.state(read) {
        Ok(state) => block(&doctor(set, &state, SystemTime::now())),
        Err(error) => plan::unasked(&error),
    });
    let mut report = Report::new(labels(fleet), blocks);
    plan::describe(set, &mut report);
    report
}

fn block(findings: &[Finding]) -> Block {
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let errors = count(Severity::Error);
    let title = match findings {
        [] => "nothing found".to_owned(),
        _ => format!(
            "{}, {}, {}",
            words::counted(errors, "error"),
            words::counted(count(Severity::Warning), "warning"),
            words::counted(count(Severity::Note), "note")
        ),
    };
    let mut block = Block::new(errors == 0, title);
    block.field("findings", json!(findings));
    for finding in findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let place = match (&finding.path, finding.line) {
            (Some(path), Some(line)) => format!("{path}:{line}: "),
            (Some(path), None) => format!("{path}: "),
            (None, _) => String::new(),
        };
        block.line(format!("{severity}: {place}{}", finding.text));
        block.line(format!("  {}", finding.next));
    }
    block
}
