//! A command of its own, so that every kind of flag and operand is met.

use super::super::table::{DAEMON, Operand, Verb};
use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Agent,
    Output,
    Force,
    Help,
    Version,
}

const SEND: Command<Key> = Command {
    name: "tool send",
    about: "Sends.",
    operands: &[
        Operand {
            name: "DIR",
            count: Count::One,
        },
        Operand {
            name: "FILE",
            count: Count::Optional,
        },
    ],
    flags: &[
        Flag::optional(Key::Agent, "agent-url", "URL", "where", "Where.").repeated(),
        Flag::option(Key::Output, "output", "FORM", "text", "how", "How.").letter('o'),
        Flag::switch(Key::Force, "force", "do it", "Do it."),
        Flag::help(Key::Help),
        Flag::version(Key::Version),
    ],
    env: &[],
    env_prefix: Some("TOOL_"),
    one_dash: true,
    manual: "tool(1)",
};

const TOOL: Program = Program {
    name: "tool",
    about: "Does things.",
    verbs: &[
        Verb {
            name: "send",
            help: "sends",
        },
        Verb {
            name: "receive",
            help: "receives",
        },
    ],
    manual: "tool(1)",
};

fn words(text: &[&str]) -> Vec<OsString> {
    text.iter().map(OsString::from).collect()
}

fn typed(text: &[&str]) -> Typed<Key> {
    match split(&SEND, &words(text)) {
        Ok(Asked::Run(typed)) => typed,
        other => panic!("{text:?} gave {other:?}"),
    }
}

fn refusal(text: &[&str]) -> String {
    split(&SEND, &words(text)).unwrap_err().to_string()
}

fn text(value: &OsStr) -> Result<String, Expected> {
    match value.to_str() {
        Some("bad") | None => Err("something else".into()),
        Some(text) => Ok(text.to_owned()),
    }
}

#[test]
fn operands_and_flags_come_in_any_order() {
    for line in [
        &["d", "f", "--force", "-o", "json"][..],
        &["--force", "d", "-ojson", "f"][..],
        &["-force", "-output=json", "d", "--", "f"][..],
    ] {
        let typed = typed(line);
        assert_eq!(typed.operands, words(&["d", "f"]), "{line:?}");
        let values = Values {
            command: &SEND,
            typed: &typed.flags,
            env: &|_| None,
        };
        assert!(values.given(Key::Force));
        assert_eq!(values.one(Key::Output, text).as_deref(), Ok("json"));
        assert_eq!(values.all(Key::Agent, text), Ok(vec![]));
    }
}

#[test]
fn what_is_missing_or_too_much_is_named() {
    for (line, want) in [
        (&[][..], "DIR is missing"),
        (&["a", "b", "c"][..], "expected a flag, not \"c\""),
        (
            &["a", "--agent-url"][..],
            "--agent-url needs a value: --agent-url URL",
        ),
        (
            &["a", "-agent-url", "-output", "x"][..],
            "--agent-url needs a value",
        ),
        (&["a", "--force=1"][..], "--force takes no value"),
        (&["a", "-x"][..], "there is no flag \"-x\""),
        (&["a", "--outputs"][..], "did you mean --output?"),
    ] {
        let said = refusal(line);
        assert!(said.contains(want), "{line:?}: {said}");
    }
}

#[test]
fn a_flag_wins_over_its_variable_and_a_variable_over_the_default() {
    let env = |name: &str| match name {
        "TOOL_OUTPUT" => Some("env".to_owned()),
        "TOOL_AGENT_URL" => Some(" a  b ".to_owned()),
        "TOOL_FORCE" => Some("1".to_owned()),
        _ => None,
    };
    let read = |line: &[&str]| {
        let typed = typed(line);
        let values = Values {
            command: &SEND,
            typed: &typed.flags,
            env: &env,
        };
        let output = values.one(Key::Output, text).unwrap();
        (output, values.all(Key::Agent, text).unwrap())
    };
    assert_eq!(read(&["d"]), ("env".into(), vec!["a".into(), "b".into()]));
    let line = [
        "d",
        "--output",
        "x",
        "--output=y",
        "--agent-url=c",
        "--agent-url=d",
    ];
    assert_eq!(read(&line), ("y".into(), vec!["c".into(), "d".into()]));
}

#[test]
fn a_bad_variable_is_named_and_an_empty_one_is_none() {
    let with = |value: &'static str| {
        let env = move |_: &str| Some(value.to_owned());
        let values = Values {
            command: &SEND,
            typed: &[],
            env: &env,
        };
        (
            values.one(Key::Output, text).map_err(|e| e.to_string()),
            values.one(Key::Agent, text).map_err(|e| e.to_string()),
            values.given(Key::Force),
        )
    };
    let bad = |name: &str| Err(format!("{name} is \"bad\"; expected something else"));
    assert_eq!(
        with("bad"),
        (bad("TOOL_OUTPUT"), bad("TOOL_AGENT_URL"), false)
    );
    let needed = Err("--agent-url is needed: --agent-url URL".to_owned());
    assert_eq!(with(""), (Ok("text".to_owned()), needed, false));
}

#[test]
fn verbs_are_the_first_word() {
    assert_eq!(verb(&TOOL, &words(&["send", "x"])), Ok("send"));
    for (line, want) in [
        (&[][..], "a verb is needed; --help lists the verbs"),
        (
            &["sned"][..],
            "there is no verb \"sned\"; --help lists the verbs",
        ),
        (
            &["recieve"][..],
            "there is no verb \"recieve\"; did you mean receive?",
        ),
        (
            &["--force"][..],
            "there is no verb \"--force\"; --help lists the verbs",
        ),
    ] {
        let said = verb(&TOOL, &words(line)).unwrap_err().to_string();
        assert_eq!(said, want);
    }
}

#[test]
fn distances() {
    let table = [
        ("", "", 0),
        ("a", "", 1),
        ("", "ab", 2),
        ("kitten", "sitting", 3),
        ("listen", "listne", 2),
    ];
    for (a, b, want) in table {
        assert_eq!(distance(a, b), want, "{a} {b}");
    }
    assert_eq!(distance(&"x".repeat(MAX_COMPARED + 1), "x"), usize::MAX);
}

#[test]
fn near_names_are_offered_and_far_ones_are_not() {
    let table = [
        ("basedir", Some("base-dir")),
        ("base", Some("base-dir")),
        ("lisen", Some("listen")),
        ("metrics", Some("metrics-listen")),
        ("reload-interval", Some("reload-interval-min")),
        ("halp", Some("help")),
        ("port", None),
        ("x", None),
        ("", None),
    ];
    for (given, want) in table {
        assert_eq!(nearest_flag(given, &DAEMON), want, "{given}");
    }
}
