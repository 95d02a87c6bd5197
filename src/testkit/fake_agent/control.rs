//! The knobs as words on a line, for fakes that run as a process of their own.

use std::time::Duration;

use serde_json::{Value, json};

use crate::wire::manifest::{FileKind, Token};

use super::{Applied, Break, FakeAgent, Given, OpFault, Pacing, ReloadFault};

/// What can be said, a line each.
const HELP: &[(&str, &str)] = &[
    ("help", "this list"),
    ("state", "the state document"),
    ("applies", "the applies so far"),
    ("clear", "forgets them"),
    ("ready on|off", "whether it has finished starting"),
    ("delay MILLISECONDS", "how long every apply takes"),
    ("busy COUNT", "so many applies are one upload too many"),
    ("api-version NUMBER", "the contract's version in the state"),
    ("haproxy VERSION", "HAProxy's version"),
    ("known-ops KIND...", "the op kinds it knows"),
    ("reject KIND WORDS...", "ops of that kind are refused"),
    ("no-answer KIND", "ops of that kind get no answer"),
    ("accept KIND", "ops of that kind behave again"),
    ("fail-reload WORDS...", "HAProxy refuses the next reload"),
    (
        "surroundings WORDS...",
        "it refuses for no fault of the files",
    ),
    (
        "unconfirmed WORDS...",
        "no new worker shows up after the next reload",
    ),
    ("unreachable WORDS...", "the master cannot be asked"),
    ("forget-refusals", "as after a minute"),
    (
        "pace none|after-each|always|MILLISECONDS",
        "when a reload has to wait",
    ),
    ("open-window", "the next reload does not wait"),
    ("schedule", "a reload is pending"),
    ("fire", "the pending reload runs"),
    ("hold-deletes on|off", "deletes wait in the queue"),
    (
        "break before-reading|mid-body|after-applying|BYTES",
        "where the next apply's connection breaks",
    ),
    ("refuse-connections COUNT", "so many are closed at once"),
    ("cut", "ends every connection"),
    (
        "push-behind PLAN EPOCH SEQ",
        "another controller pushes an empty configuration",
    ),
    (
        "write-behind PATH [WORDS...]",
        "something else writes or removes a file",
    ),
    ("lose-baseline", "it does not know what is applied"),
    ("restart-haproxy", "another worker runs"),
    (
        "silence WORDS...",
        "the worker does not answer, says the state",
    ),
    ("wake", "it answers again"),
];

pub(super) fn control(agent: &FakeAgent, line: &str) -> String {
    match obey(agent, line.trim()) {
        Ok(None) => "ok".to_owned(),
        Ok(Some(value)) => value.to_string(),
        Err(what) => format!("error: {what}"),
    }
}

fn obey(agent: &FakeAgent, line: &str) -> Result<Option<Value>, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        "help" => return Ok(Some(help())),
        "state" => return Ok(serde_json::to_value(agent.state()).ok()),
        "applies" => return Ok(Some(agent.applies().iter().map(applied).collect())),
        "clear" => agent.clear_applies(),
        "ready" => agent.set_ready(switch(rest)?),
        "delay" => agent.set_delay(Duration::from_millis(number(rest)?)),
        "busy" => agent.turn_away(count(rest)?),
        "api-version" => agent.set_api_version(number(rest)?),
        "haproxy" => agent.set_haproxy_version(some(rest)?),
        "known-ops" => agent.set_known_ops(&rest.split_whitespace().collect::<Vec<_>>()),
        "reject" => {
            let (kind, words) = some(rest)?.split_once(' ').unwrap_or((rest, "refused"));
            agent.reject_op(kind, words);
        }
        "no-answer" => agent.set_op_fault(some(rest)?, Some(OpFault::NoAnswer)),
        "accept" => agent.accept_op(some(rest)?),
        "fail-reload" => agent.next_reload(ReloadFault::Refused(some(rest)?.to_owned())),
        "surroundings" => agent.next_reload(ReloadFault::Surroundings(some(rest)?.to_owned())),
        "unconfirmed" => agent.next_reload(ReloadFault::Unconfirmed(some(rest)?.to_owned())),
        "unreachable" => agent.next_reload(ReloadFault::Unreachable(some(rest)?.to_owned())),
        "forget-refusals" => agent.forget_refusals(),
        "pace" => agent.set_pacing(match rest {
            "none" => Pacing::None,
            "after-each" => Pacing::AfterEach,
            "always" => Pacing::Always,
            time => Pacing::Window(Duration::from_millis(number(time)?)),
        }),
        "open-window" => agent.open_window(),
        "schedule" => agent.schedule_reload(),
        "fire" => {
            let fired = agent
                .fire()
                .ok_or("no reload is pending, or it cannot be asked for")?;
            return Ok(serde_json::to_value(fired).ok());
        }
        "hold-deletes" => agent.hold_deletes(switch(rest)?),
        "break" => agent.break_next(match rest {
            "before-reading" => Break::BeforeReading,
            "mid-body" => Break::MidBody,
            "after-applying" => Break::AfterApplying,
            bytes => Break::InAnswer(number(bytes)?),
        }),
        "refuse-connections" => agent.refuse_connections(count(rest)?),
        "cut" => agent.cut_connections(),
        "push-behind" => {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let [plan, epoch, seq] = words.as_slice() else {
                return Err("push-behind needs a plan id, an epoch and a sequence".to_owned());
            };
            let token = Token {
                leader_epoch: number(epoch)?,
                render_seq: number(seq)?,
            };
            let file: (&str, FileKind, &[u8]) = ("haproxy.cfg", FileKind::Config, b"global\n");
            let pushed = agent.push_behind(plan, token, [file]);
            pushed.map_err(|error| error.to_string())?;
        }
        "write-behind" => {
            let (path, words) = match some(rest)?.split_once(' ') {
                Some((path, words)) => (path, Some(words)),
                None => (rest, None),
            };
            let written = agent.write_behind(path, words.map(str::as_bytes));
            written.map_err(|error| error.to_string())?;
        }
        "lose-baseline" => agent.lose_baseline(),
        "restart-haproxy" => agent.restart_haproxy(),
        "silence" => agent.silence_worker(some(rest)?),
        "wake" => agent.wake_worker(),
        other => return Err(format!("{other:?} is no knob; help lists them")),
    }
    Ok(None)
}

fn help() -> Value {
    HELP.iter()
        .map(|(usage, what)| json!({"usage": usage, "what": what}))
        .collect()
}

fn applied(apply: &Applied) -> Value {
    let manifest: Value = serde_json::from_str(&apply.manifest_json).unwrap_or_default();
    let answer = match &apply.answer {
        Given::Result(result) => serde_json::to_value(result),
        Given::Conflict(conflict) => serde_json::to_value(conflict),
        Given::Missing(missing) => serde_json::to_value(missing),
        Given::Refused { failure, .. } => serde_json::to_value(failure),
    };
    json!({
        "plan_id": manifest["plan_id"],
        "status": apply.status,
        "parts": apply.part_names(),
        "blob_bytes": apply.blob.as_ref().map(Vec::len),
        "manifest": manifest,
        "answer": answer.unwrap_or_default(),
    })
}

fn switch(word: &str) -> Result<bool, String> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("{other:?} must be on or off")),
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse()
        .map_err(|_| format!("{word:?} is no number that fits"))
}

fn count(word: &str) -> Result<usize, String> {
    number(word)
}

fn some(rest: &str) -> Result<&str, String> {
    match rest {
        "" => Err("something has to follow; help says what".to_owned()),
        rest => Ok(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_of_the_list_is_one() {
        let agent = FakeAgent::start().unwrap();
        for (usage, _) in HELP {
            let word = usage.split(' ').next().unwrap();
            let answer = agent.control(word);
            assert!(!answer.contains("is no knob"), "{usage}: {answer}");
        }
        assert!(
            agent
                .control("frob")
                .starts_with("error: \"frob\" is no knob")
        );
    }

    #[test]
    fn lines_turn_knobs() {
        let agent = FakeAgent::start().unwrap();
        for line in [
            "pace after-each",
            "reject map_set entry not found.",
            "fail-reload no",
            "push-behind p9 4 2",
            "haproxy 3.0.11",
            "api-version 2",
        ] {
            assert_eq!(agent.control(line), "ok", "{line}");
        }
        let state = agent.state();
        assert_eq!(state.applied_plan_id, "p9");
        assert_eq!(state.applied_token.leader_epoch, 4);
        assert_eq!(state.haproxy.version, "3.0.11");
        assert_eq!(state.api_version, 2);
        assert_eq!(agent.control("applies"), "[]");
        assert!(agent.control("fire").starts_with("error:"));
        assert!(agent.control("ready maybe").contains("on or off"));
    }
}
