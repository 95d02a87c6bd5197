//! The one truth about flags and environment variables.
//!
//! The parser, both help texts and the manual page's blocks are made from this
//! table; tests walk it. A flag that is not here does not exist, and a default is
//! written down once: as the text that a user could have typed. The table holds no
//! logic and no parsed value.

/// A command line: the flags it knows and the environment that it reads. `K` names
/// the flags of this one command, so another command brings its own set.
#[derive(Debug)]
pub struct Command<K: 'static> {
    /// What is typed to run it.
    pub name: &'static str,
    /// One sentence for the head of the help.
    pub about: &'static str,
    /// Every flag, in the order in which help and manual list them.
    pub flags: &'static [Flag<K>],
    /// Every environment variable.
    pub env: &'static [EnvVar],
}

/// One flag.
#[derive(Debug)]
pub struct Flag<K> {
    /// Which one it is.
    pub key: K,
    /// The name behind two dashes.
    pub long: &'static str,
    /// A one-letter form, for `-h` and `-V` only.
    pub short: Option<char>,
    /// What stands for the value in help; `None` for a switch.
    pub value: Option<&'static str>,
    /// What holds when the flag is not given, as text; `None` for a switch.
    pub default: Option<&'static str>,
    /// Listed by `-h` too.
    pub common: bool,
    /// A few words of help: with the default they fit in a line.
    pub help: &'static str,
    /// The manual's paragraph, in mdoc.
    pub man: &'static str,
}

/// One environment variable.
#[derive(Debug)]
pub struct EnvVar {
    /// Its name.
    pub name: &'static str,
    /// A few words of help: with the default they fit in a line.
    pub help: &'static str,
    /// The manual's paragraph, in mdoc.
    pub man: &'static str,
}

/// The daemon's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonFlag {
    /// `--base-dir`
    BaseDir,
    /// `--config`
    Config,
    /// `--master-socket`
    MasterSocket,
    /// `--worker-socket`
    WorkerSocket,
    /// `--listen`
    Listen,
    /// `--metrics-listen`
    MetricsListen,
    /// `--state-file`
    StateFile,
    /// `--reload-interval-min`
    ReloadIntervalMin,
    /// `--reload-timeout`
    ReloadTimeout,
    /// `--delete-grace`
    DeleteGrace,
    /// `--delete-cut`
    DeleteCut,
    /// `--durability`
    Durability,
    /// `--file-mode`
    FileMode,
    /// `--secret-mode`
    SecretMode,
    /// `--log-format`
    LogFormat,
    /// `--help`
    Help,
    /// `--version`
    Version,
}

/// The environment variable with the user name.
pub const USERNAME: &str = "DATAPLANE_USERNAME";
/// The environment variable with the password.
pub const PASSWORD: &str = "DATAPLANE_PASSWORD";
/// The environment variable with the log level.
pub const LOG_LEVEL: &str = "LOG_LEVEL";

/// A flag with a value, for [`DAEMON`].
const fn option(
    key: DaemonFlag,
    long: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
    man: &'static str,
) -> Flag<DaemonFlag> {
    Flag {
        key,
        long,
        short: None,
        value: Some(value),
        default: Some(default),
        common: false,
        help,
        man,
    }
}

/// The same flag, listed by `-h` too.
const fn common(flag: Flag<DaemonFlag>) -> Flag<DaemonFlag> {
    Flag {
        common: true,
        ..flag
    }
}

/// The daemon.
pub const DAEMON: Command<DaemonFlag> = Command {
    name: "haptic-agent",
    about: "Writes and reloads one HAProxy as a controller asks for.",
    flags: &[
        common(option(
            DaemonFlag::BaseDir,
            "base-dir",
            "DIR",
            "/etc/haproxy",
            "where HAProxy's files are",
            "The directory that holds the files of this HAProxy.\n\
             Every path of a manifest lies below it, and so do the files that the agent keeps for itself.\n\
             The directory has to exist; it may be a symbolic link.",
        )),
        option(
            DaemonFlag::Config,
            "config",
            "FILE",
            "haproxy.cfg",
            "main configuration, below the base",
            "The manifest path of the main configuration file: the one that HAProxy was started with.\n\
             It is written last and is looked at before a reload is asked for.",
        ),
        option(
            DaemonFlag::MasterSocket,
            "master-socket",
            "PATH",
            "haproxy-master.sock",
            "the master socket (-S)",
            "The socket that HAProxy's master process was given with\n\
             .Fl S .\n\
             A relative path counts from the base directory.",
        ),
        option(
            DaemonFlag::WorkerSocket,
            "worker-socket",
            "PATH",
            "haproxy-worker.sock",
            "the worker's stats socket",
            "The stats socket of the worker, as the\n\
             .Ql stats socket\n\
             line of the configuration's global section names it.\n\
             It needs\n\
             .Ql level admin .\n\
             A relative path counts from the base directory.",
        ),
        common(option(
            DaemonFlag::Listen,
            "listen",
            "ADDR",
            ":5555",
            "where the API listens: [HOST]:PORT",
            "Where the API listens.\n\
             The host is an IPv4 address or an IPv6 address in brackets; without one the agent listens on every address.\n\
             Port 0 takes a free port, which the log names.",
        )),
        common(option(
            DaemonFlag::MetricsListen,
            "metrics-listen",
            "ADDR",
            ":9101",
            "where the metrics are served",
            "Where\n\
             .Pa /metrics\n\
             is served, in the same form.",
        )),
        option(
            DaemonFlag::StateFile,
            "state-file",
            "NAME",
            ".haptic-agent.json",
            "the agent's state file",
            "The name of the agent's state file in the base directory.\n\
             It has to start with a dot, because no manifest path may: so no controller can overwrite it.",
        ),
        common(option(
            DaemonFlag::ReloadIntervalMin,
            "reload-interval-min",
            "TIME",
            "5s",
            "least time between two reloads, 0 to 60s",
            "The shortest time between two reloads.\n\
             A reload that is asked for sooner waits until it has passed; it is neither dropped nor put off by later applies.\n\
             0 turns the pacing off; the most is 60s.\n\
             Times are written like\n\
             .Ql 500ms ,\n\
             .Ql 5s\n\
             or\n\
             .Ql 1m .",
        )),
        option(
            DaemonFlag::ReloadTimeout,
            "reload-timeout",
            "TIME",
            "60s",
            "how long one reload may take, 1s to 60s",
            "How long one reload may take, from 1s to 60s.\n\
             It covers the retries while another reload is in progress and the wait for the new worker.",
        ),
        option(
            DaemonFlag::DeleteGrace,
            "delete-grace",
            "TIME",
            "30s",
            "how long deleted servers may drain, 0 to 1h",
            "How long the sessions of a server that is deleted at runtime may end by themselves, from 0 to 1h.\n\
             A delete that names a time of its own has that one.",
        ),
        option(
            DaemonFlag::DeleteCut,
            "delete-cut",
            "yes|no",
            "yes",
            "whether sessions are cut after that",
            "Whether the sessions that are left are cut when the grace is over.\n\
             With\n\
             .Ql no\n\
             a server that stays in use is given up and goes with the next reload.",
        ),
        option(
            DaemonFlag::Durability,
            "durability",
            "full|process",
            "full",
            "full syncs to disk, process never does",
            ".Ql full\n\
             syncs files, directories and state, so that an apply survives a power cut.\n\
             .Ql process\n\
             never syncs: enough where the files live in memory and are lost with the machine anyway.\n\
             Both survive an agent that is killed at any point.",
        ),
        option(
            DaemonFlag::FileMode,
            "file-mode",
            "MODE",
            "0644",
            "permission bits of a new file",
            "The permission bits of a new file, in octal.\n\
             A file that is replaced keeps the bits it has.",
        ),
        option(
            DaemonFlag::SecretMode,
            "secret-mode",
            "MODE",
            "0640",
            "permission bits of a new certificate",
            "The permission bits of a new file that the manifest calls a\n\
             .Ql cert ,\n\
             which holds a private key.",
        ),
        option(
            DaemonFlag::LogFormat,
            "log-format",
            "json|text",
            "json",
            "JSON lines, or text for people",
            "How the records on standard output look:\n\
             .Ql json ,\n\
             one object a line, or\n\
             .Ql text ,\n\
             one line for people to read.",
        ),
        Flag {
            key: DaemonFlag::Help,
            long: "help",
            short: Some('h'),
            value: None,
            default: None,
            common: true,
            help: "this text; -h for the short one",
            man: "Print every flag with its default and exit.\n\
                  .Fl h\n\
                  prints the flags that most people need.",
        },
        Flag {
            key: DaemonFlag::Version,
            long: "version",
            short: Some('V'),
            value: None,
            default: None,
            common: false,
            help: "print the version",
            man: "Print the version and exit.",
        },
    ],
    env: &[
        EnvVar {
            name: USERNAME,
            help: "user name that a controller has to give",
            man: "The user name that a controller has to give.\n\
                  Required, and not empty.",
        },
        EnvVar {
            name: PASSWORD,
            help: "password that a controller has to give",
            man: "The password that goes with it.\n\
                  Required, and not empty.\n\
                  There is no flag for either, because other users can read a command line.",
        },
        EnvVar {
            name: LOG_LEVEL,
            help: "error, warn, info, debug, trace (default info)",
            man: "The least severe record that is written:\n\
                  .Ql error ,\n\
                  .Ql warn ,\n\
                  .Ql info ,\n\
                  .Ql debug\n\
                  or\n\
                  .Ql trace .\n\
                  Unset or empty means\n\
                  .Ql info .",
        },
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_values_have_defaults() {
        for (i, flag) in DAEMON.flags.iter().enumerate() {
            for other in DAEMON.flags.iter().skip(i + 1) {
                assert_ne!(flag.long, other.long);
                assert_ne!(flag.key, other.key);
                assert!(flag.short.is_none() || flag.short != other.short);
            }
            assert!(!flag.man.is_empty(), "{}", flag.long);
            assert_eq!(
                flag.value.is_some(),
                flag.default.is_some(),
                "{}",
                flag.long
            );
        }
    }

    #[test]
    fn manual_paragraphs_put_each_macro_on_its_own_line() {
        let paragraphs = DAEMON.flags.iter().map(|f| f.man);
        for man in paragraphs.chain(DAEMON.env.iter().map(|v| v.man)) {
            for line in man.lines() {
                assert!(!line.is_empty(), "an empty line in {man:?}");
                assert_eq!(line, line.trim(), "blanks around {line:?}");
            }
        }
    }
}
