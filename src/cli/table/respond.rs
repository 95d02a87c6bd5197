//! The flags and variables of the responder, alone or within the daemon.

use crate::responder::kv::consul::config::{ADDR_ENV, TOKEN_ENV, TOKEN_FILE_ENV};

use super::{Command, EnvVar, Flag, LOG_LEVEL_VAR};

/// The responder's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RespondFlag {
    /// `--listen-addr`
    ListenAddr,
    /// `--monitoring-addr`
    MonitoringAddr,
    /// `--consul-addr`
    ConsulAddr,
    /// `--kv-prefix`
    KvPrefix,
    /// `--kv-dir`
    KvDir,
    /// `--kv-missing`
    KvMissing,
    /// `--kv-max-keys`
    KvMaxKeys,
    /// `--kv-marker`
    KvMarker,
    /// `--sync-deadline`
    SyncDeadline,
    /// `--weights`
    Weights,
    /// `--haproxy-socket`
    HaproxySocket,
    /// `--log-format`
    LogFormat,
    /// `--help`
    Help,
    /// `--version`
    Version,
}

/// The responder.
pub const RESPOND: Command<RespondFlag> = Command {
    name: "haptic-agent respond",
    about: "Tells HAProxy the wanted state of each server, as its agent checks ask.",
    operands: &[],
    env_prefix: Some("HAPTIC_RESPONDER_"),
    one_dash: true,
    manual: "haptic-responder(7)",
    flags: &[
        Flag::option(
            RespondFlag::ListenAddr,
            "listen-addr",
            "ADDR",
            "127.0.0.1:9777",
            "where agent checks are answered",
            "Where agent checks are answered.\n\
             The host is an IPv4 address or an IPv6 address in brackets; without one it is every address.\n\
             Port 0 takes a free port, which the log names.",
        )
        .common(),
        Flag::option(
            RespondFlag::MonitoringAddr,
            "monitoring-addr",
            "ADDR",
            ":9778",
            "metrics and health; off turns them off",
            "Where metrics, health and coverage are served, in the same form;\n\
             .Ql off\n\
             or an empty word serves them nowhere.",
        )
        .common(),
        Flag::optional(
            RespondFlag::ConsulAddr,
            "consul-addr",
            "ADDR",
            "Consul's address [CONSUL_HTTP_ADDR, 127.0.0.1:8500]",
            "Where Consul's HTTP interface is:\n\
             .Ar host:port ,\n\
             .Li http:// Ns Ar host:port\n\
             or\n\
             .Li unix:// Ns Ar path .\n\
             Without it\n\
             .Ev CONSUL_HTTP_ADDR\n\
             counts, and without that 127.0.0.1:8500.\n\
             An https address stops the start: use the Consul agent of the same machine.",
        )
        .common(),
        Flag::option(
            RespondFlag::KvPrefix,
            "kv-prefix",
            "PREFIX",
            "haptic-agent/state",
            "folder of the keys in Consul",
            "The folder of Consul's key-value store that holds the keys.\n\
             Everything below it is read and nothing else.",
        )
        .common(),
        Flag::optional(
            RespondFlag::KvDir,
            "kv-dir",
            "DIR",
            "a directory that holds the keys instead",
            "A directory that holds the keys, one file each, instead of Consul.\n\
             It has to exist, with its mark; see\n\
             .Sx KEYS AND VALUES .",
        )
        .common(),
        Flag::option(
            RespondFlag::KvMissing,
            "kv-missing",
            "refuse|make",
            "refuse",
            "if it does not exist at the start",
            "What it means that the directory of\n\
             .Fl -kv-dir\n\
             does not exist at the start.\n\
             With\n\
             .Ql refuse\n\
             no check is answered until it is there: the volume that has it may not be mounted, and an empty store would bring every server back.\n\
             .Ql make\n\
             makes it, empty, where its parent exists: for a directory on the machine's own disk.",
        ),
        Flag::optional(
            RespondFlag::KvMarker,
            "kv-marker",
            "KEY",
            "a key without which no reply is believed",
            "A key that has to be in every reply of the store.\n\
             A reply without it is not applied, so a store that was rebuilt empty ends no drain.\n\
             Every responder of a Consul should have one: one that starts while Consul is empty cannot tell a wiped store from one without overrides.\n\
             Its value does not matter as long as it is not empty.",
        ),
        Flag::option(
            RespondFlag::KvMaxKeys,
            "kv-max-keys",
            "N",
            "16384",
            "more keys than this are not believed",
            "How many keys the store may have, from 1 to 1000000.\n\
             A store with more is held back: the last copy is answered, and none at the start.\n\
             A reply of Consul may have 1024 bytes for each of them, and 1 MiB at least.",
        ),
        Flag::option(
            RespondFlag::SyncDeadline,
            "sync-deadline",
            "TIME",
            "15s",
            "give up without a first read, 0 never",
            "How long the first complete read of the store may take, at most 1h.\n\
             After that the process ends with a code of its own, so that what supervises it starts it again.\n\
             0 waits for ever.",
        ),
        Flag::option(
            RespondFlag::Weights,
            "weights",
            "set|keep",
            "set",
            "keep leaves weights to others",
            "With\n\
             .Ql set\n\
             every answer carries a weight, 100% where no key asks for another.\n\
             .Ql keep\n\
             never sends one, for fleets whose weights come from elsewhere; a percentage in the store is invalid then.",
        ),
        Flag::optional(
            RespondFlag::HaproxySocket,
            "haproxy-socket",
            "PATH",
            "the worker's stats socket, for coverage",
            "The stats socket of HAProxy's worker.\n\
             With it the responder compares every 10 seconds what HAProxy did with what it was told.\n\
             It only reads;\n\
             .Ql level user\n\
             is enough for a socket of its own.",
        )
        .common(),
        Flag::option(
            RespondFlag::LogFormat,
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
        Flag::help(RespondFlag::Help),
        Flag::version(RespondFlag::Version),
    ],
    env: &[
        EnvVar {
            name: ADDR_ENV,
            help: "as Consul's own tools read it",
            man: "Consul's address where no flag names one.",
        },
        EnvVar {
            name: TOKEN_ENV,
            help: "a token for Consul",
            man: "The token that is sent to Consul.\n\
                  There is no flag for it, because other users can read a command line.",
        },
        EnvVar {
            name: TOKEN_FILE_ENV,
            help: "a file with that token",
            man: "A file with the token; it is read again whenever Consul refuses the one in use.\n\
                  It wins over\n\
                  .Ev CONSUL_HTTP_TOKEN .",
        },
        LOG_LEVEL_VAR,
    ],
};
