use super::*;

fn env(name: &str) -> Option<String> {
    match name {
        CTL_USERNAME => Some("controller".into()),
        CTL_PASSWORD => Some("geheim".into()),
        _ => None,
    }
}

fn parsed(words: &[&str]) -> Result<CtlInvocation, UsageError> {
    parse(words.iter().map(OsString::from), &env)
}

fn run_of(words: &[&str]) -> Ctl {
    match parsed(words) {
        Ok(CtlInvocation::Run(ctl)) => *ctl,
        other => panic!("{words:?} gave {other:?}"),
    }
}

fn refusal(words: &[&str]) -> String {
    match parsed(words) {
        Err(error) => error.to_string(),
        other => panic!("{words:?} gave {other:?}"),
    }
}

fn urls(ctl: &Ctl) -> Vec<String> {
    ctl.agents.iter().map(ToString::to_string).collect()
}

#[test]
fn a_directory_is_all_that_a_push_needs() {
    let ctl = run_of(&["push", "site"]);
    assert_eq!(urls(&ctl), ["http://127.0.0.1:5555"]);
    assert_eq!(ctl.output, Output::Text);
    let Task::Push(directory, flags) = ctl.task else {
        panic!("{:?}", ctl.task);
    };
    assert_eq!(directory.path, PathBuf::from("site"));
    assert_eq!(directory.options, FileSetOptions::default());
    let plain = PushFlags {
        reload: false,
        overwrite: false,
        take_over: false,
        epoch: 1,
        wait: Duration::from_secs(150),
    };
    assert_eq!(flags, plain);
}

#[test]
fn every_flag_arrives() {
    let ctl = run_of(&[
        "push",
        "--agent",
        "http://a",
        "-o",
        "json",
        "site",
        "--agent=http://b:1/",
        "--config",
        "lb.cfg",
        "--kind",
        "x=y=cert",
        "--kind",
        "z=map",
        "--unordered-map",
        "maps/a.map",
        "--reload",
        "--overwrite",
        "--take-over",
        "--epoch",
        "7",
        "--no-wait",
        "--agents",
        "list",
        "--credentials-file",
        "secret",
    ]);
    assert_eq!(urls(&ctl), ["http://a:5555", "http://b:1"]);
    assert_eq!(ctl.agents_file, Some("list".into()));
    assert_eq!(ctl.credentials, CredentialSource::File("secret".into()));
    assert_eq!(ctl.output, Output::Json);
    let Task::Push(directory, flags) = ctl.task else {
        panic!("{:?}", ctl.task);
    };
    assert_eq!(directory.options.config, "lb.cfg");
    assert_eq!(directory.options.kinds["x=y"], FileKind::Cert);
    assert_eq!(directory.options.kinds["z"], FileKind::Map);
    assert!(directory.options.unordered_maps.contains("maps/a.map"));
    let all = PushFlags {
        reload: true,
        overwrite: true,
        take_over: true,
        epoch: 7,
        wait: Duration::ZERO,
    };
    assert_eq!(flags, all);
    let wait = run_of(&["wait", "--timeout", "5s", "--deletes"]);
    assert_eq!(
        wait.task,
        Task::Wait {
            timeout: Duration::from_secs(5),
            deletes: true
        }
    );
}

#[test]
fn agents_come_from_the_environment_where_none_is_typed() {
    let env = |name: &str| match name {
        "HAPTIC_AGENT" => Some("http://a http://b:7".into()),
        other => env(other),
    };
    let agents = |words: &[&str]| match parse(words.iter().map(OsString::from), &env) {
        Ok(CtlInvocation::Run(ctl)) => urls(&ctl),
        other => panic!("{other:?}"),
    };
    assert_eq!(agents(&["state"]), ["http://a:5555", "http://b:7"]);
    assert_eq!(agents(&["state", "--agent", "http://c"]), ["http://c:5555"]);
    assert!(agents(&["state", "--agents", "file"]).is_empty());
}

#[test]
fn a_wrong_line_says_what_was_meant() {
    let table: &[(&[&str], &str)] = &[
        (&[], "a verb is needed"),
        (&["pusch", "site"], "did you mean push?"),
        (&["site"], "there is no verb \"site\""),
        (&["push"], "DIR is missing"),
        (&["push", "a", "b"], "expected a flag, not \"b\""),
        (&["state", "--reload"], "there is no flag \"--reload\""),
        (&["state", "-o", "yaml"], "expected text or json"),
        (
            &["state", "--agent", "10.0.0.1:5555"],
            "starts with http://",
        ),
        (&["state", "--agent", "https://a"], "https is not spoken"),
        (
            &["state", "--agent", "http://a/v1"],
            "nothing may follow the port",
        ),
        (&["push", "d", "--epoch", "-1"], "a number"),
        (&["push", "d", "--timeout", "5"], "a time from 0 to 1h"),
        (
            &["push", "d", "--kind", "a"],
            "an equals sign and map, cert",
        ),
        (&["push", "d", "--kind", "../a=map"], "a path below"),
        (&["completion", "tcsh"], "expected one of bash, zsh, fish"),
    ];
    for (words, said) in table {
        let text = refusal(words);
        assert!(text.contains(said), "{words:?}: {text}");
    }
}

#[test]
fn a_password_in_a_url_is_refused_and_never_repeated() {
    for url in [
        "http://u:geheim@h:1",
        "https://u:geheim@h",
        "http://geheim@h",
    ] {
        let text = refusal(&["state", "--agent", url]);
        assert!(text.contains("must not hold credentials"), "{text}");
        assert!(!text.contains("geheim"), "{text}");
    }
}

#[test]
fn credentials_come_from_the_environment_and_their_lack_is_told() {
    let with = |pairs: &'static [(&str, &str)]| {
        let env = move |name: &str| {
            let found = pairs.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        parse([OsString::from("state")].into_iter(), &env)
    };
    let given = |pairs| match with(pairs) {
        Ok(CtlInvocation::Run(ctl)) => ctl.credentials,
        other => panic!("{other:?}"),
    };
    let of = |user, password| CredentialSource::Given(Credentials::new(user, password).unwrap());
    assert_eq!(
        given(&[("DATAPLANE_USERNAME", "a"), ("DATAPLANE_PASSWORD", "b")]),
        of("a", "b")
    );
    let both = &[
        ("DATAPLANE_USERNAME", "a"),
        ("DATAPLANE_PASSWORD", "b"),
        (CTL_USERNAME, "c"),
        (CTL_PASSWORD, "d"),
    ];
    assert_eq!(given(both), of("c", "d"));
    let lacking = with(&[]).unwrap_err().to_string();
    assert!(lacking.contains("--credentials-file"), "{lacking}");
    let half = with(&[(CTL_USERNAME, "c")]).unwrap_err().to_string();
    assert!(
        half.starts_with("HAPTIC_PASSWORD is not set, but HAPTIC_USERNAME is"),
        "{half}"
    );
}

#[test]
fn help_names_every_verb_and_fits_a_screen() {
    let Ok(CtlInvocation::Print(text)) = parsed(&["--help"]) else {
        panic!("no help");
    };
    for verb in CTL.verbs {
        assert!(text.contains(verb.name));
    }
    let screens = CTL_COMMANDS
        .iter()
        .map(|command| help::help(command, false));
    for text in screens.chain([text]) {
        assert!(text.lines().count() <= 24, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
    }
}

#[test]
fn nothing_printed_of_a_command_line_holds_the_password() {
    let shown = format!("{:?}", run_of(&["state"]));
    assert!(!shown.contains("geheim"), "{shown}");
}
