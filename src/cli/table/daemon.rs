//! The daemon's flags and variables.

use super::{Command, EnvVar, Flag, LOG_LEVEL_VAR};

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
    /// `--check-listen`
    CheckListen,
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
/// The daemon.
pub const DAEMON: Command<DaemonFlag> = Command {
    name: "haptic-agent",
    about: "Writes and reloads one HAProxy as a controller asks for.",
    operands: &[],
    env_prefix: None,
    one_dash: false,
    manual: "haptic-agent(8)",
    flags: &[
        Flag::option(
            DaemonFlag::BaseDir,
            "base-dir",
            "DIR",
            "/etc/haproxy",
            "where HAProxy's files are",
            "The directory that holds the files of this HAProxy.\n\
             Every path of a manifest lies below it, and so do the files that the agent keeps for itself.\n\
             The directory has to exist; it may be a symbolic link.",
        ).common(),
        Flag::option(
            DaemonFlag::Config,
            "config",
            "FILE",
            "haproxy.cfg",
            "main configuration, below the base",
            "The manifest path of the main configuration file: the one that HAProxy was started with.\n\
             It is written last and is looked at before a reload is asked for.",
        ),
        Flag::option(
            DaemonFlag::MasterSocket,
            "master-socket",
            "PATH",
            "haproxy-master.sock",
            "the master socket (-S)",
            "The socket that HAProxy's master process was given with\n\
             .Fl S .\n\
             A relative path counts from the base directory.",
        ),
        Flag::option(
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
        Flag::option(
            DaemonFlag::Listen,
            "listen",
            "ADDR",
            ":5555",
            "where the API listens: [HOST]:PORT",
            "Where the API listens.\n\
             The host is an IPv4 address or an IPv6 address in brackets; without one the agent listens on every address.\n\
             Port 0 takes a free port, which the log names.",
        ).common(),
        Flag::option(
            DaemonFlag::MetricsListen,
            "metrics-listen",
            "ADDR",
            ":9101",
            "where the metrics are served",
            "Where\n\
             .Pa /metrics\n\
             is served, in the same form.",
        ).common(),
        Flag::option(
            DaemonFlag::CheckListen,
            "check-listen",
            "ADDR",
            "off",
            "agent checks, answered by this process",
            "Where agent checks of HAProxy are answered, in the same form;\n\
             .Ql off\n\
             leaves that to others.\n\
             The responder within the agent takes its other settings from the variables\n\
             .Ev HAPTIC_RESPONDER_... ;\n\
             see\n\
             .Xr haptic-responder 7 .",
        ),
        Flag::option(
            DaemonFlag::StateFile,
            "state-file",
            "NAME",
            ".haptic-agent.json",
            "the agent's state file",
            "The name of the agent's state file in the base directory.\n\
             It has to start with a dot, because no manifest path may: so no controller can overwrite it.",
        ),
        Flag::option(
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
        ).common(),
        Flag::option(
            DaemonFlag::ReloadTimeout,
            "reload-timeout",
            "TIME",
            "60s",
            "how long one reload may take, 1s to 60s",
            "How long one reload may take, from 1s to 60s.\n\
             It covers the retries while another reload is in progress and the wait for the new worker.",
        ),
        Flag::option(
            DaemonFlag::DeleteGrace,
            "delete-grace",
            "TIME",
            "30s",
            "how long deleted servers may drain, 0 to 1h",
            "How long the sessions of a server that is deleted at runtime may end by themselves, from 0 to 1h.\n\
             A delete that names a time of its own has that one.",
        ),
        Flag::option(
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
        Flag::option(
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
        Flag::option(
            DaemonFlag::FileMode,
            "file-mode",
            "MODE",
            "0644",
            "permission bits of a new file",
            "The permission bits of a new file, in octal.\n\
             A file that is replaced keeps the bits it has.",
        ),
        Flag::option(
            DaemonFlag::SecretMode,
            "secret-mode",
            "MODE",
            "0640",
            "permission bits of a new certificate",
            "The permission bits of a new file that the manifest calls a\n\
             .Ql cert ,\n\
             which holds a private key.",
        ),
        Flag::option(
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
        Flag::help(DaemonFlag::Help),
        Flag::version(DaemonFlag::Version),
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
        LOG_LEVEL_VAR,
    ],
};
