//! Command line, help texts and manual page, as a user meets them.

use std::fs;
use std::path::PathBuf;

use haptic_agent::cli::{help, man, table};

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
        compare("fixtures/cli/help.txt", &help::help(&table::DAEMON, false));
        compare(
            "fixtures/cli/help-short.txt",
            &help::help(&table::DAEMON, true),
        );
    }

    #[test]
    fn the_manual_page_is_the_committed_one() {
        let template = fs::read_to_string(in_repository("man/haptic-agent.8.in")).unwrap();
        let page = man::page(&template).unwrap_or_else(|error| panic!("{error}"));
        compare("man/haptic-agent.8", &page);
    }

    /// Prose names flags by hand; a flag that was renamed must not live on there.
    #[test]
    fn prose_names_only_flags_that_exist() {
        for path in ["man/haptic-agent.8.in", "README.md"] {
            let text = fs::read_to_string(in_repository(path)).unwrap();
            for named in flags_named(path, &text) {
                assert!(
                    table::DAEMON.flags.iter().any(|f| f.long == named),
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
            let marker = if path.ends_with(".in") { "Fl -" } else { "`--" };
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
