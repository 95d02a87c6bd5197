//! The session of haptic-agent-api(7), typed into a shell as it is printed there.

use super::in_repository;
use crate::support::agent::Setup;
use crate::support::haproxy::{Haproxy, Version, minimal};
use crate::support::ports::Port;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};

/// Stands in the output behind each step.
const MARK: &str = "==== step";

/// A stretch of commands, and the words that its output must have.
#[derive(Debug, Default)]
struct Step {
    commands: String,
    wanted: Vec<String>,
}

/// The literal blocks of EXAMPLES, cut where a comment says what is to be seen.
fn steps(page: &str) -> Vec<Step> {
    let section = page.split("\n.Sh EXAMPLES\n").nth(1).unwrap();
    let section = section.split("\n.Sh ").next().unwrap();
    let mut steps = vec![Step::default()];
    let mut literal = false;
    for line in section.lines() {
        if line.starts_with(".Bd ") || line == ".Ed" {
            literal = line != ".Ed";
            continue;
        }
        if !literal {
            continue;
        }
        let step = steps.last_mut().unwrap();
        if let Some(words) = line.strip_prefix("# ") {
            step.wanted = words.split(' ').map(str::to_owned).collect();
            steps.push(Step::default());
        } else {
            let line = line.replace("\\&", "").replace("\\e", "\\");
            writeln!(step.commands, "{line}").unwrap();
        }
    }
    let rest = steps.pop().unwrap();
    assert_eq!(rest.commands, "", "the last step says what is to be seen");
    steps
}

#[test]
fn the_session_of_the_manual_runs_as_printed() {
    let page = fs::read_to_string(in_repository("man/haptic-agent-api.7")).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 6, "{steps:#?}");
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        fs::create_dir(&base).unwrap();
        let port = Port::reserve();
        let _haproxy = Haproxy::start(version, &base, &minimal(&base));
        let mut setup = Setup::new(&base).with("--reload-interval-min", "5s");
        for (name, value) in [("USERNAME", "admin"), ("PASSWORD", "change-me")] {
            let variable = (format!("DATAPLANE_{name}"), value.to_owned());
            setup.environment.push(variable);
        }
        let agent = setup.start();
        let mut script = String::from("set -eu\n");
        for step in &steps {
            writeln!(script, "{}echo '{MARK}'", step.commands).unwrap();
        }
        let base = base.to_str().unwrap();
        for (printed, here) in [
            ("haproxy-worker.sock", "worker.sock"),
            ("/etc/haproxy", base),
            ("127.0.0.1:5555", &agent.api().to_string()),
            ("127.0.0.1:8080", &format!("127.0.0.1:{}", port.number())),
        ] {
            assert!(script.contains(printed), "{printed}");
            script = script.replace(printed, here);
        }
        let shell = Command::new("bash")
            .args(["-c", &script])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&shell.stdout);
        let complaints = String::from_utf8_lossy(&shell.stderr);
        assert!(
            shell.status.success() && complaints.is_empty(),
            "{version}: {}: {complaints}\n{said}",
            shell.status
        );
        let outputs: Vec<&str> = said.split(MARK).collect();
        assert_eq!(outputs.len(), steps.len() + 1, "{version}: {said}");
        for (step, output) in steps.iter().zip(outputs) {
            for word in &step.wanted {
                assert!(
                    output.contains(word),
                    "{version}: no {word} behind\n{}in\n{output}",
                    step.commands
                );
            }
        }
    }
}
