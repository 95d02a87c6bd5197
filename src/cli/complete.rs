//! Completion scripts for `hapticctl`, made from the table.

use std::ffi::OsStr;
use std::fmt::Write as _;

use super::args::UsageError;
use super::table::{COMPLETION, CTL, CTL_COMMANDS, CTL_FLAGS, Command, CtlFlag, Flag};

/// The shells.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// What a word can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    Files,
    Directories,
    These(&'static str),
    Anything,
}

/// The script for a shell.
///
/// # Errors
/// It is none of bash, zsh, fish.
pub(super) fn script(shell: &OsStr) -> Result<String, UsageError> {
    match shell.to_str() {
        Some("bash") => Ok(bash()),
        Some("zsh") => Ok(zsh()),
        Some("fish") => Ok(fish()),
        Some(_) | None => Err(UsageError::UnexpectedOperand {
            name: "SHELL",
            given: shell.to_string_lossy().into_owned(),
            expected: format!("one of {}", SHELLS.join(", ")),
        }),
    }
}

fn of_flag(flag: &Flag<CtlFlag>) -> Words {
    match flag.key {
        CtlFlag::Agents | CtlFlag::CredentialsFile | CtlFlag::HaproxySocket => Words::Files,
        CtlFlag::KvDir => Words::Directories,
        CtlFlag::Output => Words::These("text json"),
        CtlFlag::Agent
        | CtlFlag::Config
        | CtlFlag::Kind
        | CtlFlag::UnorderedMap
        | CtlFlag::Epoch
        | CtlFlag::Timeout
        | CtlFlag::Reload
        | CtlFlag::Overwrite
        | CtlFlag::TakeOver
        | CtlFlag::NoWait
        | CtlFlag::Deletes
        | CtlFlag::ConsulAddr
        | CtlFlag::KvPrefix
        | CtlFlag::KvMarker
        | CtlFlag::For
        | CtlFlag::Why
        | CtlFlag::By
        | CtlFlag::Ramp
        | CtlFlag::RampHold
        | CtlFlag::Pin
        | CtlFlag::Responder
        | CtlFlag::Wait
        | CtlFlag::Sweep
        | CtlFlag::Help
        | CtlFlag::Version => Words::Anything,
    }
}

fn of_operand(command: &Command<CtlFlag>) -> Words {
    match command.operands.first() {
        Some(_) if command.name == COMPLETION.name => Words::These("bash zsh fish"),
        Some(operand) if operand.name == "DIR" => Words::Directories,
        Some(_) | None => Words::Anything,
    }
}

fn verbs() -> String {
    let names: Vec<&str> = CTL.verbs.iter().map(|verb| verb.name).collect();
    names.join(" ")
}

/// Every verb with its command line.
fn commands() -> impl Iterator<Item = (&'static str, &'static Command<CtlFlag>)> {
    let names = CTL.verbs.iter().map(|verb| verb.name);
    names.zip(CTL_COMMANDS.iter().copied())
}

/// Both spellings of a flag.
fn spellings(flag: &Flag<CtlFlag>, between: &str) -> String {
    match flag.short {
        Some(letter) => format!("--{}{between}-{letter}", flag.long),
        None => format!("--{}", flag.long),
    }
}

// Writing to a string cannot fail, here and below.

fn bash() -> String {
    let mut text = String::from(
        "# hapticctl(1) completion for bash\n\
         _hapticctl() {\n\
         \tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n\
         \tCOMPREPLY=()\n",
    );
    let _ = writeln!(
        text,
        "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n\
         \t\tmapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- \"$cur\")\n\
         \t\treturn\n\
         \tfi",
        verbs()
    );
    text.push_str("\tcase $prev in\n");
    for flag in CTL_FLAGS.iter().filter(|flag| flag.value.is_some()) {
        let action = match of_flag(flag) {
            Words::Files => "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); ".to_owned(),
            Words::Directories => "mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); ".to_owned(),
            Words::These(words) => {
                format!("mapfile -t COMPREPLY < <(compgen -W '{words}' -- \"$cur\"); ")
            }
            Words::Anything => String::new(),
        };
        let _ = writeln!(text, "\t{}) {action}return ;;", spellings(flag, "|"));
    }
    text.push_str("\tesac\n\tcase ${COMP_WORDS[1]}:$cur in\n");
    for (verb, command) in commands() {
        let flags: Vec<String> = command
            .flags
            .iter()
            .map(|f| format!("--{}", f.long))
            .collect();
        let _ = writeln!(
            text,
            "\t{verb}:-*) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$cur\") ;;",
            flags.join(" ")
        );
        let words = match of_operand(command) {
            Words::Directories => "compgen -d".to_owned(),
            Words::Files => "compgen -f".to_owned(),
            Words::These(words) => format!("compgen -W '{words}'"),
            Words::Anything => continue,
        };
        let _ = writeln!(
            text,
            "\t{verb}:*) mapfile -t COMPREPLY < <({words} -- \"$cur\") ;;"
        );
    }
    text.push_str("\tesac\n}\ncomplete -o filenames -F _hapticctl hapticctl\n");
    text
}

fn zsh() -> String {
    let mut text =
        String::from("#compdef hapticctl\n\n_hapticctl() {\n\tlocal -a verbs\n\tverbs=(\n");
    for verb in CTL.verbs {
        let _ = writeln!(
            text,
            "\t\t{}",
            single(&format!("{}:{}", verb.name, verb.help))
        );
    }
    text.push_str(
        "\t)\n\
         \tif (( CURRENT == 2 )); then\n\
         \t\t_describe -t verbs verb verbs\n\
         \t\treturn\n\
         \tfi\n\
         \tlocal verb=$words[2]\n\
         \tshift words\n\
         \t(( CURRENT-- ))\n\
         \tcase $verb in\n",
    );
    for (verb, command) in commands() {
        let _ = write!(text, "\t{verb})\n\t\t_arguments");
        for flag in command.flags {
            let help = flag.help.replace('[', "\\[").replace(']', "\\]");
            let value = match (flag.value, of_flag(flag)) {
                (None, _) => String::new(),
                (Some(name), Words::Files) => format!(":{name}:_files"),
                (Some(name), Words::Directories) => format!(":{name}:_files -/"),
                (Some(name), Words::These(words)) => format!(":{name}:({words})"),
                (Some(name), Words::Anything) => format!(":{name}: "),
            };
            let names = match flag.short {
                Some(letter) => vec![format!("--{}", flag.long), format!("-{letter}")],
                None => vec![format!("--{}", flag.long)],
            };
            for name in names {
                let spec = format!("*{name}[{help}]{value}");
                let _ = write!(text, " \\\n\t\t\t{}", single(&spec));
            }
        }
        match of_operand(command) {
            Words::Directories => text.push_str(" \\\n\t\t\t'1:directory:_files -/'"),
            Words::Files => text.push_str(" \\\n\t\t\t'1:file:_files'"),
            Words::These(words) => {
                let _ = write!(text, " \\\n\t\t\t'1:word:({words})'");
            }
            Words::Anything => {}
        }
        text.push_str("\n\t\t;;\n");
    }
    // Found in the function path it is called to complete, sourced it only defines.
    text.push_str(
        "\tesac\n}\n\n\
         if [[ $funcstack[1] = _hapticctl ]]; then\n\
         \t_hapticctl \"$@\"\n\
         else\n\
         \tcompdef _hapticctl hapticctl\n\
         fi\n",
    );
    text
}

fn fish() -> String {
    let mut text = String::from("# hapticctl(1) completion for fish\ncomplete -c hapticctl -f\n");
    for verb in CTL.verbs {
        let _ = writeln!(
            text,
            "complete -c hapticctl -n __fish_use_subcommand -a {} -d {}",
            verb.name,
            single(verb.help)
        );
    }
    for (verb, command) in commands() {
        let here = format!("-n '__fish_seen_subcommand_from {verb}'");
        match of_operand(command) {
            Words::Directories => {
                let _ = writeln!(
                    text,
                    "complete -c hapticctl {here} -a '(__fish_complete_directories)'"
                );
            }
            Words::Files => {
                let _ = writeln!(text, "complete -c hapticctl {here} -F");
            }
            Words::These(words) => {
                let _ = writeln!(text, "complete -c hapticctl {here} -a '{words}'");
            }
            Words::Anything => {}
        }
        for flag in command.flags {
            let short = flag.short.map(|c| format!(" -s {c}")).unwrap_or_default();
            let value = match (flag.value, of_flag(flag)) {
                (None, _) => String::new(),
                (Some(_), Words::Files | Words::Directories) => " -r -F".to_owned(),
                (Some(_), Words::These(words)) => format!(" -x -a '{words}'"),
                (Some(_), Words::Anything) => " -x".to_owned(),
            };
            let _ = writeln!(
                text,
                "complete -c hapticctl {here} -l {}{short}{value} -d {}",
                flag.long,
                single(flag.help)
            );
        }
    }
    text
}

/// In single quotes, as all three shells read them: ours have neither quotes nor
/// backslashes that would need more.
fn single(text: &str) -> String {
    format!("'{}'", text.replace('\'', ""))
}
