//! The verbs, flags and variables of `hapticctl`.

use super::overrides::{
    BY, CONSUL_ADDR, DRAIN, FOR, HAPROXY_SOCKET, KV_DIR, KV_MARKER, KV_PREFIX, MAINT, OVERRIDES,
    PIN, RAMP, RAMP_HOLD, READY, RESPONDER, SWEEP, WAIT_FLAG, WEIGHT, WHY,
};
use super::{Command, Count, EnvVar, Flag, Operand, Program, Verb};

/// The flags of all verbs; each verb takes some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CtlFlag {
    /// `--agent`
    Agent,
    /// `--agents`
    Agents,
    /// `--credentials-file`
    CredentialsFile,
    /// `--output`
    Output,
    /// `--config`
    Config,
    /// `--kind`
    Kind,
    /// `--unordered-map`
    UnorderedMap,
    /// `--reload`
    Reload,
    /// `--overwrite`
    Overwrite,
    /// `--take-over`
    TakeOver,
    /// `--epoch`
    Epoch,
    /// `--no-wait`
    NoWait,
    /// `--timeout`
    Timeout,
    /// `--deletes`
    Deletes,
    /// `--consul-addr`
    ConsulAddr,
    /// `--kv-prefix`
    KvPrefix,
    /// `--kv-dir`
    KvDir,
    /// `--kv-marker`
    KvMarker,
    /// `--for`
    For,
    /// `--why`
    Why,
    /// `--by`
    By,
    /// `--ramp`
    Ramp,
    /// `--ramp-hold`
    RampHold,
    /// `--pin`
    Pin,
    /// `--responder`
    Responder,
    /// `--haproxy-socket`
    HaproxySocket,
    /// `--wait`
    Wait,
    /// `--sweep`
    Sweep,
    /// `--help`
    Help,
    /// `--version`
    Version,
}

/// The variable with the user.
pub const CTL_USERNAME: &str = "HAPTIC_USERNAME";
/// The variable with the password.
pub const CTL_PASSWORD: &str = "HAPTIC_PASSWORD";

/// What stands before a flag's name in its variable.
pub(super) const PREFIX: &str = "HAPTIC_";
pub(super) const MANUAL: &str = "hapticctl(1)";

/// All verbs.
pub const CTL: Program = Program {
    name: "hapticctl",
    about: "Pushes a directory of HAProxy files to agents, and shows what they hold and run.",
    verbs: &[
        verb("plan", "what a push would do, and why; changes nothing"),
        verb("push", "bring agents to the files of a directory"),
        verb(
            "state",
            "what is applied, running, pending, and what went wrong",
        ),
        verb(
            "verify",
            "hash the files on the agents' disks, list what differs",
        ),
        verb("revert", "back to the last known good set, with a reload"),
        verb("wait", "until agents are up and nothing is pending"),
        verb("doctor", "what in a directory will be trouble later"),
        verb("drain", "no new connections to servers, by an override"),
        verb("maint", "servers out of service, by an override"),
        verb(
            "weight",
            "a share of their weight for servers, by an override",
        ),
        verb("ready", "end overrides; --ramp for a slow start"),
        verb(
            "overrides",
            "every override: age, end, who and why, who asks",
        ),
        verb("completion", "a completion script for bash, zsh or fish"),
    ],
    manual: MANUAL,
};

const fn verb(name: &'static str, help: &'static str) -> Verb {
    Verb { name, help }
}

/// What the verbs take that hold a directory against agents and change nothing.
const LOOKING: &[Flag<CtlFlag>] = &[
    AGENT,
    AGENTS,
    CREDENTIALS,
    OUTPUT,
    CONFIG,
    KIND,
    UNORDERED,
    HELP,
    VERSION,
];

/// `hapticctl plan`
pub const PLAN: Command<CtlFlag> = command(
    "hapticctl plan",
    "Shows what a push of the directory would do to each agent, and why.",
    DIRECTORY,
    LOOKING,
);

/// `hapticctl push`
pub const PUSH: Command<CtlFlag> = command(
    "hapticctl push",
    "Brings agents to the files of a directory, without a reload where that is safe.",
    DIRECTORY,
    &[
        AGENT,
        AGENTS,
        CREDENTIALS,
        OUTPUT,
        CONFIG,
        KIND,
        UNORDERED,
        RELOAD,
        OVERWRITE,
        TAKE_OVER,
        EPOCH,
        NO_WAIT,
        TIMEOUT,
        HELP,
        VERSION,
    ],
);

/// `hapticctl state`
pub const STATE: Command<CtlFlag> = command(
    "hapticctl state",
    "Shows what each agent holds, what its HAProxy runs, and what went wrong.",
    &[],
    &[AGENT, AGENTS, CREDENTIALS, OUTPUT, HELP, VERSION],
);

/// `hapticctl verify`
pub const VERIFY: Command<CtlFlag> = command(
    "hapticctl verify",
    "Hashes the files on the agents' disks and lists what differs from their records,\nor from the directory.",
    &[Operand {
        name: "DIR",
        count: Count::Optional,
    }],
    &[
        AGENT,
        AGENTS,
        CREDENTIALS,
        OUTPUT,
        CONFIG,
        KIND,
        HELP,
        VERSION,
    ],
);

/// `hapticctl revert`
pub const REVERT: Command<CtlFlag> = command(
    "hapticctl revert",
    "Goes back to the last set that HAProxy loaded, and reloads it.",
    &[],
    &[
        AGENT,
        AGENTS,
        CREDENTIALS,
        OUTPUT,
        TAKE_OVER,
        EPOCH,
        HELP,
        VERSION,
    ],
);

/// `hapticctl wait`
pub const WAIT: Command<CtlFlag> = command(
    "hapticctl wait",
    "Waits until every agent is up, runs what is applied, and has no reload pending.",
    &[],
    &[
        AGENT,
        AGENTS,
        CREDENTIALS,
        OUTPUT,
        TIMEOUT,
        DELETES,
        HELP,
        VERSION,
    ],
);

/// `hapticctl doctor`
pub const DOCTOR: Command<CtlFlag> = command(
    "hapticctl doctor",
    "Looks for what will be trouble later: in the directory, and against what runs.",
    DIRECTORY,
    LOOKING,
);

/// `hapticctl completion`
pub const COMPLETION: Command<CtlFlag> = Command {
    env: &[],
    env_prefix: None,
    ..command(
        "hapticctl completion",
        "Prints a completion script; the manual says where it goes.",
        &[Operand {
            name: "SHELL",
            count: Count::One,
        }],
        &[HELP, VERSION],
    )
};

/// Every verb's command line, in the order of [`CTL`].
pub const CTL_COMMANDS: &[&Command<CtlFlag>] = &[
    &PLAN,
    &PUSH,
    &STATE,
    &VERIFY,
    &REVERT,
    &WAIT,
    &DOCTOR,
    &DRAIN,
    &MAINT,
    &WEIGHT,
    &READY,
    &OVERRIDES,
    &COMPLETION,
];

/// Every flag, in the order of the manual.
pub const CTL_FLAGS: &[Flag<CtlFlag>] = &[
    AGENT,
    AGENTS,
    CREDENTIALS,
    OUTPUT,
    CONFIG,
    KIND,
    UNORDERED,
    RELOAD,
    OVERWRITE,
    TAKE_OVER,
    EPOCH,
    NO_WAIT,
    TIMEOUT,
    DELETES,
    CONSUL_ADDR,
    KV_PREFIX,
    KV_DIR,
    KV_MARKER,
    FOR,
    WHY,
    BY,
    RAMP,
    RAMP_HOLD,
    PIN,
    RESPONDER,
    HAPROXY_SOCKET,
    WAIT_FLAG,
    SWEEP,
    HELP,
    VERSION,
];

/// The variables of every verb that talks to agents.
pub const CTL_ENV: &[EnvVar] = &[
    EnvVar {
        name: CTL_USERNAME,
        help: "the agents' user [DATAPLANE_USERNAME]",
        man: "The user that the agents ask for.\n\
              Without it\n\
              .Ev DATAPLANE_USERNAME\n\
              counts, the agent's own variable.",
    },
    EnvVar {
        name: CTL_PASSWORD,
        help: "the user's password [DATAPLANE_PASSWORD]",
        man: "The user's password.\n\
              Without user and password here\n\
              .Ev DATAPLANE_PASSWORD\n\
              counts.",
    },
];

const DIRECTORY: &[Operand] = &[Operand {
    name: "DIR",
    count: Count::One,
}];

const fn command(
    name: &'static str,
    about: &'static str,
    operands: &'static [Operand],
    flags: &'static [Flag<CtlFlag>],
) -> Command<CtlFlag> {
    Command {
        name,
        about,
        operands,
        flags,
        env: CTL_ENV,
        env_prefix: Some(PREFIX),
        one_dash: false,
        manual: MANUAL,
    }
}

const AGENT: Flag<CtlFlag> = Flag::option(
    CtlFlag::Agent,
    "agent",
    "URL",
    "http://127.0.0.1:5555",
    "an agent; repeat it for more",
    "An agent, as\n\
     .Li http:// Ns Ar host Ns Op : Ns Ar port ,\n\
     without a port 5555, or\n\
     .Li unix:// Ns Ar /path\n\
     where a proxy listens on a socket for it.\n\
     May be given several times: the agents are served side by side.\n\
     A URL with credentials in it is refused.",
)
.repeated()
.common();

const AGENTS: Flag<CtlFlag> = Flag::optional(
    CtlFlag::Agents,
    "agents",
    "FILE",
    "a file with an agent's URL on each line",
    "A file with one agent a line, in the form of\n\
     .Fl -agent ;\n\
     empty lines and lines that start with # are left out.",
)
.common();

const CREDENTIALS: Flag<CtlFlag> = Flag::optional(
    CtlFlag::CredentialsFile,
    "credentials-file",
    "FILE",
    "user:password on its first line",
    "A file whose first line is the user, a colon and the password.\n\
     It wins over the environment.\n\
     There is no flag for the password itself, since everybody can read command lines.",
)
.common();

pub(super) const OUTPUT: Flag<CtlFlag> = Flag::option(
    CtlFlag::Output,
    "output",
    "FORMAT",
    "text",
    "text or json; also -o",
    "How the outcome is printed:\n\
     .Ql text\n\
     for people,\n\
     .Ql json\n\
     for programs, one document on standard output unless the exit status is 2.",
)
.letter('o')
.common();

const CONFIG: Flag<CtlFlag> = Flag::option(
    CtlFlag::Config,
    "config",
    "FILE",
    "haproxy.cfg",
    "the main configuration, below DIR",
    "The main configuration's path below the directory; the agents have to be told the same name.",
);

const KIND: Flag<CtlFlag> = Flag::optional(
    CtlFlag::Kind,
    "kind",
    "FILE=KIND",
    "where the rules guess a file's kind wrong",
    "What a file is for, where the rules under\n\
     .Sx FILE SETS\n\
     get it wrong:\n\
     .Ql map ,\n\
     .Ql cert ,\n\
     .Ql ca ,\n\
     .Ql crtlist\n\
     or\n\
     .Ql general .\n\
     May be given several times.",
)
.repeated();

const UNORDERED: Flag<CtlFlag> = Flag::optional(
    CtlFlag::UnorderedMap,
    "unordered-map",
    "FILE",
    "a map whose entries may stand in any order",
    "A map whose entries may stand in any order, because its keys are looked up exactly.\n\
     Of such a map the entries that changed are sent to HAProxy, not all of them.\n\
     May be given several times.",
)
.repeated();

const RELOAD: Flag<CtlFlag> = Flag::switch(
    CtlFlag::Reload,
    "reload",
    "reload, whatever the change is",
    "Reload HAProxy, also where commands on the running worker would do.",
)
.common();

const OVERWRITE: Flag<CtlFlag> = Flag::switch(
    CtlFlag::Overwrite,
    "overwrite",
    "go on where somebody else has pushed meanwhile",
    "Where somebody else has pushed between the look at an agent and the push, push over it.\n\
     Without it their set stays, and you are told whose it is.",
)
.common();

const TAKE_OVER: Flag<CtlFlag> = Flag::switch(
    CtlFlag::TakeOver,
    "take-over",
    "go on where a newer leader has spoken",
    "Where a leader with a higher epoch has spoken to an agent, raise the epoch above it.\n\
     A controller that is still running with the lower epoch is refused from then on.",
);

const EPOCH: Flag<CtlFlag> = Flag::option(
    CtlFlag::Epoch,
    "epoch",
    "NUMBER",
    "1",
    "the least leader epoch to push with",
    "The least leader epoch to push with; an agent's own is used where it is higher.",
);

const NO_WAIT: Flag<CtlFlag> = Flag::switch(
    CtlFlag::NoWait,
    "no-wait",
    "do not wait for a reload that is put off",
    "Where an agent puts the reload off, because the last one is not long ago, return at once.\n\
     The agent then counts as not converged.",
)
.common();

const TIMEOUT: Flag<CtlFlag> = Flag::option(
    CtlFlag::Timeout,
    "timeout",
    "DURATION",
    "150s",
    "how long to wait",
    "How long to wait, for each agent: in\n\
     .Ic push\n\
     for a reload that is put off (15 seconds of it where HAProxy does not answer), in\n\
     .Ic wait\n\
     in all.",
);

const DELETES: Flag<CtlFlag> = Flag::switch(
    CtlFlag::Deletes,
    "deletes",
    "also wait for servers that are being removed",
    "Wait also until no server or backend is waiting to be removed, which lasts as long as its connections do.",
);

pub(super) const HELP: Flag<CtlFlag> = Flag::help(CtlFlag::Help);
pub(super) const VERSION: Flag<CtlFlag> = Flag::version(CtlFlag::Version);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_its_command_and_every_flag_its_place() {
        let named: Vec<String> = CTL
            .verbs
            .iter()
            .map(|v| format!("hapticctl {}", v.name))
            .collect();
        let commands: Vec<&str> = CTL_COMMANDS.iter().map(|c| c.name).collect();
        assert_eq!(named, commands);
        for command in CTL_COMMANDS {
            for flag in command.flags {
                assert!(CTL_FLAGS.iter().any(|f| f.key == flag.key), "{}", flag.long);
            }
        }
    }
}
