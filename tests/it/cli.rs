//! Command line, help texts and manual page, as a user meets them.

use std::fs;
use std::path::PathBuf;

use haptic_agent::cli::{help, man, table};

#[cfg(feature = "testkit")]
mod pages_api;
mod session;

fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Texts that are made from the flag table and committed. `make man` writes them.
mod pages {
    use super::*;

    fn compare(path: &str, made: &str) {
        let file = in_repository(path);
        if std::env::var_os("HAPTIC_BLESS").is_some() {
            #[allow(clippy::disallowed_methods)]
            fs::write(&file, made).unwrap();
            return;
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        let differs = committed.lines().zip(made.lines()).find(|(a, b)| a != b);
        assert!(
            committed == made,
            "{path} is not what the flag table makes: run `make man`; first difference: {differs:?}"
        );
    }

    #[test]
    fn help_texts_are_the_committed_ones() {
        let both = |name: &str, long: &str, short: &str| {
            compare(&format!("fixtures/cli/{name}.txt"), long);
            compare(&format!("fixtures/cli/{name}-short.txt"), short);
        };
        let (daemon, respond) = (&table::DAEMON, &table::RESPOND);
        both(
            "help",
            &help::help(daemon, false),
            &help::help(daemon, true),
        );
        both(
            "respond",
            &help::help(respond, false),
            &help::help(respond, true),
        );
        compare("fixtures/cli/hapticctl.txt", &help::program(&table::CTL));
        for (verb, command) in table::CTL.verbs.iter().zip(table::CTL_COMMANDS) {
            let text = help::help(command, false);
            compare(&format!("fixtures/cli/hapticctl-{}.txt", verb.name), &text);
        }
    }

    #[test]
    fn the_manual_pages_are_the_committed_ones() {
        for (name, blocks) in [
            ("man/haptic-agent.8", man::daemon_blocks()),
            ("man/haptic-responder.7", man::responder_blocks()),
            ("man/hapticctl.1", man::ctl_blocks()),
        ] {
            let template = fs::read_to_string(in_repository(&format!("{name}.in"))).unwrap();
            let page =
                man::page(&template, &blocks).unwrap_or_else(|error| panic!("{name}: {error}"));
            compare(name, &page);
        }
    }

    /// Prose names flags by hand; a flag that was renamed must not live on there.
    #[test]
    fn prose_names_only_flags_that_exist() {
        let daemon = table::DAEMON.flags.iter().map(|f| f.long);
        let respond = table::RESPOND.flags.iter().map(|f| f.long);
        let ctl = table::CTL_FLAGS.iter().map(|f| f.long);
        let known: Vec<&str> = daemon.chain(respond).chain(ctl).collect();
        for path in [
            "man/haptic-agent.8.in",
            "man/haptic-responder.7.in",
            "man/hapticctl.1.in",
            "man/haptic-agent-api.7",
            "README.md",
        ] {
            let text = fs::read_to_string(in_repository(path)).unwrap();
            for named in flags_named(path, &text) {
                assert!(
                    known.contains(&named.as_str()),
                    "{path} names --{named}, which does not exist"
                );
            }
        }
    }

    /// Every flag is in README's list, and every family of metrics in the manual.
    #[test]
    fn readme_lists_every_flag_and_variable() {
        let text = fs::read_to_string(in_repository("README.md")).unwrap();
        for flag in table::DAEMON.flags {
            assert!(
                text.contains(&format!("`--{}", flag.long)),
                "--{}",
                flag.long
            );
            if let Some(default) = flag.default {
                assert!(text.contains(&format!("`{default}`")), "default {default}");
            }
        }
        for var in table::DAEMON.env {
            assert!(text.contains(var.name), "{}", var.name);
        }
    }

    /// Flag names in running text: `Fl -name` in mdoc, `haptic-agent … --name` or
    /// `` `--name `` in Markdown.
    fn flags_named(path: &str, text: &str) -> Vec<String> {
        let mut names = Vec::new();
        for line in text.lines() {
            let marker = match path.ends_with(".md") {
                true => "`--",
                false => "Fl -",
            };
            for part in line.split(marker).skip(1) {
                let name: String = part
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || *c == '-')
                    .collect();
                if name.len() > 1 {
                    names.push(name);
                }
            }
        }
        names
    }
}

/// The binary itself: what it prints where, and how it ends.
mod process {
    use std::process::{Command, Output};

    use super::*;

    fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_haptic-agent"))
            .args(args)
            .env_clear()
            .envs(env.iter().copied())
            .output()
            .unwrap()
    }

    #[test]
    fn help_and_version_go_to_standard_output_and_end_well() {
        for (word, want) in [
            ("--help", help::help(&table::DAEMON, false)),
            ("-h", help::help(&table::DAEMON, true)),
            ("--version", help::version(table::DAEMON.name)),
        ] {
            let out = run(&[word], &[]);
            assert_eq!(out.status.code(), Some(0), "{word}");
            assert_eq!(String::from_utf8_lossy(&out.stdout), want);
            assert!(out.stderr.is_empty(), "{word}");
        }
    }

    #[test]
    fn a_wrong_command_line_or_environment_is_one_line_and_exit_code_2() {
        let credentials = [
            ("DATAPLANE_USERNAME", "u"),
            ("DATAPLANE_PASSWORD", "s3cret"),
        ];
        for (args, env, want) in [
            (
                &["--basedir", "x"][..],
                &credentials[..],
                "did you mean --base-dir?",
            ),
            (
                &["--listen", "5555"][..],
                &credentials[..],
                "expected an address like",
            ),
            (&[][..], &credentials[..1], "DATAPLANE_PASSWORD is not set"),
            (&[][..], &[][..], "DATAPLANE_USERNAME is not set"),
        ] {
            let out = run(args, env);
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.starts_with("haptic-agent: "), "{said}");
            assert!(said.contains(want), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(!said.contains("s3cret"), "{said}");
            assert!(out.stdout.is_empty(), "nothing on standard output");
        }
    }

    /// A base directory that is not there: exit code 3, and a record that says so.
    #[test]
    fn what_cannot_start_says_why_and_exits_3() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("not-there");
        let out = run(
            &[
                "--base-dir",
                missing.to_str().unwrap(),
                "--listen=127.0.0.1:0",
                "--metrics-listen=127.0.0.1:0",
            ],
            &[("DATAPLANE_USERNAME", "u"), ("DATAPLANE_PASSWORD", "p")],
        );
        assert_eq!(out.status.code(), Some(3));
        let said = String::from_utf8_lossy(&out.stdout);
        let last: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "error");
        assert!(
            last["error"].as_str().unwrap().contains("base directory"),
            "{said}"
        );
    }
}
