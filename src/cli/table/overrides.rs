//! The verbs of `hapticctl` that write and show overrides, and their flags.

use super::ctl::{CtlFlag, HELP, MANUAL, OUTPUT, PREFIX, VERSION};
use super::{Command, Count, EnvVar, Flag, Operand};

/// What the verbs take that give keys a value.
const SETTING: &[Flag<CtlFlag>] = &[
    CONSUL_ADDR,
    KV_PREFIX,
    KV_DIR,
    KV_MARKER,
    FOR,
    WHY,
    BY,
    RESPONDER,
    HAPROXY_SOCKET,
    WAIT_FLAG,
    OUTPUT,
    HELP,
    VERSION,
];

/// `hapticctl drain`
pub const DRAIN: Command<CtlFlag> = command(
    "hapticctl drain",
    "Takes servers out of balancing: no new connections, on every load balancer.",
    KEYS,
    SETTING,
);

/// `hapticctl maint`
pub const MAINT: Command<CtlFlag> = command(
    "hapticctl maint",
    "Takes servers out of service; leaving it starts their slow start.",
    KEYS,
    SETTING,
);

/// `hapticctl weight`
pub const WEIGHT: Command<CtlFlag> = command(
    "hapticctl weight",
    "Gives servers a share of their configured weight.",
    &[
        Operand {
            name: "KEY",
            count: Count::One,
        },
        Operand {
            name: "N%",
            count: Count::One,
        },
    ],
    SETTING,
);

/// `hapticctl ready`
pub const READY: Command<CtlFlag> = command(
    "hapticctl ready",
    "Ends overrides: servers are in service again, unless another key says no.",
    KEYS,
    &[
        CONSUL_ADDR,
        KV_PREFIX,
        KV_DIR,
        KV_MARKER,
        RAMP,
        RAMP_HOLD,
        PIN,
        FOR,
        WHY,
        BY,
        RESPONDER,
        HAPROXY_SOCKET,
        WAIT_FLAG,
        OUTPUT,
        HELP,
        VERSION,
    ],
);

/// `hapticctl overrides`
pub const OVERRIDES: Command<CtlFlag> = command(
    "hapticctl overrides",
    "Shows every override: value, age, end, who and why, and who asks for it.",
    &[],
    &[
        CONSUL_ADDR,
        KV_PREFIX,
        KV_DIR,
        KV_MARKER,
        RESPONDER,
        SWEEP,
        OUTPUT,
        HELP,
        VERSION,
    ],
);

/// The variables of these verbs that no flag stands for.
pub const OVERRIDE_ENV: &[EnvVar] = &[
    EnvVar {
        name: "CONSUL_HTTP_ADDR",
        help: "where Consul is, without --consul-addr",
        man: "Where Consul is, if\n\
              .Fl -consul-addr\n\
              does not say so:\n\
              .Ar host : Ns Ar port ,\n\
              an http URL, or unix:// and a path.",
    },
    EnvVar {
        name: "CONSUL_HTTP_TOKEN",
        help: "the token for Consul",
        man: "The token for Consul.\n\
              It needs\n\
              .Ql key_prefix PREFIX/ write ,\n\
              and for\n\
              .Fl -why\n\
              and\n\
              .Fl -by\n\
              the same for the notes.\n\
              There is no flag for it, since everybody can read command lines.",
    },
    EnvVar {
        name: "CONSUL_HTTP_TOKEN_FILE",
        help: "a file that holds the token",
        man: "A file that holds the token; it counts before\n\
              .Ev CONSUL_HTTP_TOKEN .",
    },
];

const KEYS: &[Operand] = &[Operand {
    name: "KEY",
    count: Count::Many,
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
        env: OVERRIDE_ENV,
        env_prefix: Some(PREFIX),
        one_dash: false,
        manual: MANUAL,
    }
}

pub(super) const CONSUL_ADDR: Flag<CtlFlag> = Flag::optional(
    CtlFlag::ConsulAddr,
    "consul-addr",
    "ADDR",
    "Consul, host:port [127.0.0.1:8500]",
    "The Consul agent to write to:\n\
     .Ar host : Ns Ar port ,\n\
     an http URL, or unix:// and a path.\n\
     Without it\n\
     .Ev CONSUL_HTTP_ADDR\n\
     counts, then 127.0.0.1:8500.",
)
.common();

pub(super) const KV_PREFIX: Flag<CtlFlag> = Flag::option(
    CtlFlag::KvPrefix,
    "kv-prefix",
    "PREFIX",
    "haptic-agent/state",
    "where the keys are in Consul",
    "Where the keys are in Consul; the responders have to be told the same.",
)
.common();

pub(super) const KV_DIR: Flag<CtlFlag> = Flag::optional(
    CtlFlag::KvDir,
    "kv-dir",
    "DIR",
    "a directory instead of Consul",
    "The directory store of this machine's responder, instead of Consul.",
)
.common();

pub(super) const KV_MARKER: Flag<CtlFlag> = Flag::optional(
    CtlFlag::KvMarker,
    "kv-marker",
    "KEY",
    "the responders' marker, which is no override",
    "The key that the responders were given as\n\
     .Fl -kv-marker :\n\
     it is no override, so it is neither judged as one nor written.\n\
     A responder that\n\
     .Fl -responder\n\
     names says it by itself.",
);

pub(super) const FOR: Flag<CtlFlag> = Flag::optional(
    CtlFlag::For,
    "for",
    "TIME",
    "end by itself after 1s to 90d",
    "End by itself after this time, as 90s, 30m, 12h or 7d.\n\
     The end is stored with the value: each responder counts it as absent from then on, by its own clock, also when nobody is there to delete it.\n\
     Responders of other makes do not know it.",
)
.common();

pub(super) const WHY: Flag<CtlFlag> = Flag::optional(
    CtlFlag::Why,
    "why",
    "TEXT",
    "a reason, shown by overrides",
    "A reason, which\n\
     .Ic hapticctl overrides\n\
     shows.",
)
.common();

pub(super) const BY: Flag<CtlFlag> = Flag::optional(
    CtlFlag::By,
    "by",
    "NAME",
    "who is behind it [$USER, with --why]",
    "Who is behind it; with\n\
     .Fl -why\n\
     alone it is\n\
     .Ev SUDO_USER\n\
     or\n\
     .Ev USER .",
);

pub(super) const RAMP: Flag<CtlFlag> = Flag::switch(
    CtlFlag::Ramp,
    "ramp",
    "back through maint, so that slow start counts",
    "Put drained servers into maint first, and end the override after\n\
     .Fl -ramp-hold :\n\
     leaving maint starts HAProxy's slow start, leaving drain does not.\n\
     Should this program die on the way, the maint ends by itself a minute later.",
)
.common();

pub(super) const RAMP_HOLD: Flag<CtlFlag> = Flag::option(
    CtlFlag::RampHold,
    "ramp-hold",
    "TIME",
    "5s",
    "least time in maint for --ramp",
    "How long the servers stay in maint at least.\n\
     It has to be longer than the longest\n\
     .Ic agent-inter\n\
     of any load balancer, or that one misses it.",
);

pub(super) const PIN: Flag<CtlFlag> = Flag::switch(
    CtlFlag::Pin,
    "pin",
    "store ready, to outweigh a group's key",
    "Store the value ready instead of deleting the key: it outweighs the keys behind it in the request, as a group's.",
);

pub(super) const RESPONDER: Flag<CtlFlag> = Flag::optional(
    CtlFlag::Responder,
    "responder",
    "URL",
    "a responder's monitoring address",
    "The monitoring address of a responder, as http://127.0.0.1:9778.\n\
     A key that none of its rows asks for is warned of,\n\
     .Fl -wait\n\
     waits for its rows, and\n\
     .Ic overrides\n\
     compares what is answered with what is stored.\n\
     May be given several times.",
)
.repeated()
.common();

pub(super) const HAPROXY_SOCKET: Flag<CtlFlag> = Flag::optional(
    CtlFlag::HaproxySocket,
    "haproxy-socket",
    "PATH",
    "a worker's stats socket, for --wait",
    "The stats socket of an HAProxy whose row\n\
     .Fl -wait\n\
     looks at; only for keys that are backend/server.\n\
     May be given several times.",
)
.repeated();

pub(super) const WAIT_FLAG: Flag<CtlFlag> = Flag::optional(
    CtlFlag::Wait,
    "wait",
    "TIME",
    "wait until HAProxy shows it",
    "Wait until every row that asks for the key shows it, at most for this time.\n\
     Needs\n\
     .Fl -responder\n\
     or\n\
     .Fl -haproxy-socket .",
)
.common();

pub(super) const SWEEP: Flag<CtlFlag> = Flag::switch(
    CtlFlag::Sweep,
    "sweep",
    "delete overrides whose time is over",
    "Delete overrides whose time has been over for a minute.\n\
     Nothing changes for responders that know the end; for others it is the end.",
)
.common();
