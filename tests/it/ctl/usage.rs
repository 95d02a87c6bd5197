//! What a new user meets: help, refusals, what cannot be used; and completion scripts.

use std::io::Write as _;
use std::process::{Command, Stdio};

use haptic_agent::cli::{help, table};

use super::kit::{Site, command, ctl, run};

#[test]
fn help_goes_to_standard_output() {
    for (words, wanted) in [
        (&["--help"][..], help::program(&table::CTL)),
        (&["push", "--help"], help::help(&table::PUSH, false)),
        (&["push", "-h"], help::help(&table::PUSH, true)),
        (&["help"], help::program(&table::CTL)),
        (&["help", "push"], help::help(&table::PUSH, false)),
        (&["--version"], help::version("hapticctl")),
        (&["push", "--version"], help::version("hapticctl")),
    ] {
        let out = run(command(words));
        assert_eq!((out.code, &out.stdout), (0, &wanted), "{out}");
        assert_eq!(out.stderr, "");
    }
}

#[test]
fn what_cannot_be_used_is_one_line_and_exit_2_and_nobody_is_asked() {
    let site = Site::new(&[("haproxy.cfg", "global\n")]);
    let empty = Site::new(&[]);
    let missing = site.dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    let table: &[(&[&str], &str)] = &[
        (&[], "a verb is needed"),
        (&["push"], "DIR is missing"),
        (
            &["push", missing],
            "missing is not there; name the directory that holds",
        ),
        (&["push", empty.path()], "haproxy.cfg"),
        (&["push", site.path(), "--kind", "no.map=map"], "no.map"),
        (&["state", "--agents", missing], "cannot read"),
        (&["state", "--credentials-file", missing], "cannot read"),
        (
            &["state", "--agent", "http://u:geheim@h"],
            "must not hold credentials",
        ),
    ];
    for (words, said) in table {
        let out = run(command(words));
        out.ends(2);
        assert!(out.stderr.starts_with("hapticctl: "), "{out}");
        assert!(out.stderr.contains(said), "{said:?} in {out}");
        assert_eq!(out.stderr.lines().count(), 1, "{out}");
        assert_eq!(out.stdout, "", "{out}");
        assert!(!out.stderr.contains("geheim"), "{out}");
    }
}

/// Whatever is wrong with an agent, the next line says what to do.
#[test]
fn every_failure_leads_somewhere() {
    let answers: [&[u8]; 5] = [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
        b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html></html>\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 34\r\n\r\n{\"stage\":\"startup\",\"message\":\"no\"}",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{",
    ];
    for answer in answers {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().take(8) {
                let mut stream = stream.unwrap();
                let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
                let _ = stream.write_all(answer);
            }
        });
        for words in [&["state"][..], &["revert"], &["verify"]] {
            let out = ctl(&url, words);
            out.ends(1).says("next: ");
        }
        let json = ctl(&url, &["state", "-o", "json"]).json();
        let error = &json["agents"][0]["error"];
        for key in ["kind", "message", "next"] {
            assert!(
                error[key].as_str().is_some_and(|text| !text.is_empty()),
                "{json:#}"
            );
        }
    }
}

#[test]
fn the_completion_for_bash_completes() {
    let script = run(command(&["completion", "bash"]));
    script.ends(0);
    let complete = |words: &[&str]| {
        let ask = format!(
            "{}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n_hapticctl\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            script.stdout,
            words
                .iter()
                .map(|w| format!("'{w}'"))
                .collect::<Vec<_>>()
                .join(" "),
            words.len() - 1
        );
        let mut bash = Command::new("bash")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .spawn()
            .unwrap();
        bash.stdin
            .take()
            .unwrap()
            .write_all(ask.as_bytes())
            .unwrap();
        let output = bash.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(complete(&["hapticctl", "pu"]), ["push"]);
    assert_eq!(complete(&["hapticctl", "push", "--over"]), ["--overwrite"]);
    assert_eq!(complete(&["hapticctl", "state", "--over"]), [""; 0]);
    assert_eq!(
        complete(&["hapticctl", "state", "-o", ""]),
        ["text", "json"]
    );
    assert_eq!(complete(&["hapticctl", "completion", "f"]), ["fish"]);
    assert_eq!(complete(&["hapticctl", "push", "fixt"]), ["fixtures"]);
}

/// Every verb and flag is in every script, and none that does not exist.
#[test]
fn the_completions_know_every_flag() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(command(&["completion", shell]));
        for verb in table::CTL.verbs {
            assert!(script.stdout.contains(verb.name), "{shell}: {}", verb.name);
        }
        for flag in table::CTL_FLAGS {
            assert!(script.stdout.contains(flag.long), "{shell}: {}", flag.long);
        }
    }
}
