//! `hapticctl` as a person runs it.

use serde_json::Value as Json;
use std::process::{Command, Stdio};

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Ended {
    #[track_caller]
    pub(super) fn good(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// Ended with 1, and says this somewhere.
    #[track_caller]
    pub(super) fn bad(self, says: &str) -> Self {
        assert_eq!(self.code, 1, "{self:#?}");
        let said = self.out.contains(says) || self.err.contains(says);
        assert!(said, "not said: {says}\n{self:#?}");
        self
    }

    #[track_caller]
    pub(super) fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap()
    }

    /// The object of one key.
    #[track_caller]
    pub(super) fn key(&self, key: &str) -> Json {
        let json = self.json();
        let keys = json["keys"].as_array().unwrap();
        let found = keys.iter().find(|object| object["key"] == key);
        found
            .unwrap_or_else(|| panic!("no {key} in {json:#}"))
            .clone()
    }
}

/// Runs `hapticctl words…` with these variables and no others of ours.
pub(super) fn run(env: &[(&str, &str)], words: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_hapticctl"))
        .args(words)
        .env_clear()
        .env("USER", "alice")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ended {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
