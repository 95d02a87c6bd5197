//! Closed sets of label values.
//!
//! A label value is an enum variant, never a string that a peer sent: the number of
//! series is known when the program is compiled. Where the contract has the set
//! already, its own type is the label.

use crate::wire::op::OpKind;
use crate::wire::result::{ResultMode, Stage};

/// One closed set.
pub trait Label: Copy + PartialEq + 'static {
    /// Every value, in the order of the exposition.
    const ALL: &'static [Self];
    /// The value as it is exposed.
    fn as_str(self) -> &'static str;
    /// The value of this text, if it is one.
    #[must_use]
    fn named(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|l| l.as_str() == text)
    }
    /// Its place in [`Label::ALL`].
    #[must_use]
    fn index(self) -> usize {
        // Every value is in ALL: the macro below writes both from one list.
        Self::ALL.iter().position(|l| *l == self).unwrap_or(0)
    }
}

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vdoc])* $variant),+
        }
        impl $crate::metrics::Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }
    };
}

pub(crate) use labels;

impl Label for ResultMode {
    const ALL: &'static [Self] = &[
        Self::Runtime,
        Self::FileOnly,
        Self::Reload,
        Self::Scheduled,
        Self::Noop,
        Self::Rejected,
    ];

    fn as_str(self) -> &'static str {
        self.as_str()
    }

    // Written out, so that a new mode cannot be forgotten here.
    fn index(self) -> usize {
        match self {
            Self::Runtime => 0,
            Self::FileOnly => 1,
            Self::Reload => 2,
            Self::Scheduled => 3,
            Self::Noop => 4,
            Self::Rejected => 5,
        }
    }
}

impl Label for OpKind {
    const ALL: &'static [Self] = &{
        let mut kinds = [OpKind::ALL[0].0; OpKind::ALL.len()];
        let mut i = 0;
        while i < kinds.len() {
            kinds[i] = OpKind::ALL[i].0;
            i += 1;
        }
        kinds
    };

    fn as_str(self) -> &'static str {
        let named = OpKind::ALL.iter().find(|(kind, _)| *kind == self);
        named.map_or("", |(_, name)| name)
    }
}

labels! {
    /// Where an apply was refused or rolled back.
    RejectStage {
        /// Not multipart, or broken framing.
        Request = "request",
        /// The manifest breaks a rule.
        Manifest = "manifest",
        /// Another baseline or an older epoch.
        Fence = "fence",
        /// A part does not match the manifest.
        Parts = "parts",
        /// Content neither sent nor held.
        Missing = "missing",
        /// Not ready yet.
        Startup = "startup",
        /// Too many uploads at once.
        Busy = "busy",
        /// The journal or the state could not be written.
        Backup = "backup",
        /// A file could not be put in place.
        Write = "write",
        /// The reload was refused or had no verdict.
        Reload = "reload",
        /// The last known good set could not be restored.
        Revert = "revert",
        /// The restored set could not be reloaded.
        RevertReload = "revert_reload",
        /// A reload that had waited failed.
        ScheduledReload = "scheduled_reload",
        /// HAProxy refused these bytes a moment ago.
        KnownBad = "known_bad",
    }
}

labels! {
    /// How a reload ended.
    ReloadResult {
        /// The new worker serves.
        Ok = "ok",
        /// HAProxy, or the look before the reload, refused the configuration.
        Refused = "refused",
        /// No verdict: a timeout or a socket error.
        Failed = "failed",
        /// Accepted, but the new worker did not show up in time.
        Unconfirmed = "unconfirmed",
    }
}

labels! {
    /// The invariants that the agent checks after every apply.
    Invariant {
        /// A successful apply moves the generation by exactly one.
        GenerationMonotonic = "generation_monotonic",
        /// After a successful apply the tree is what the manifest declared.
        DiskIsTheDesiredSet = "disk_is_the_desired_set",
        /// A runtime outcome performed no reload.
        RuntimeModeDoesNotReload = "runtime_mode_does_not_reload",
        /// A reload outcome performed or scheduled one.
        ReloadModeReloads = "reload_mode_reloads",
        /// A noop outcome ran no commands.
        NoopRunsNoOps = "noop_runs_no_ops",
        /// Backups exist only while there is something to go back to.
        JournalOnlyWhileDiverged = "journal_only_while_diverged",
        /// No rename fell back to a copy.
        MountProbeFoundEveryMount = "mount_probe_found_every_mount",
        /// Every op compiled to a command.
        OpsExecutable = "ops_executable",
        /// A recovery reload succeeded.
        RecoveryReload = "recovery_reload",
    }
}

labels! {
    /// What a deferred delete removes.
    DeleteKind {
        /// A server.
        Server = "server",
        /// A backend.
        Backend = "backend",
    }
}

labels! {
    /// How an attempt at a deferred delete ended.
    DeleteOutcome {
        /// The object is gone.
        Done = "done",
        /// Still in use, to be tried again.
        Deferred = "deferred",
        /// Given up; the object stays until the next reload.
        Abandoned = "abandoned",
        /// The worker changed, or the object was added again.
        Superseded = "superseded",
    }
}

labels! {
    /// The paths that are served; everything else is `other`.
    HttpPath {
        /// `/healthz`
        Healthz = "/healthz",
        /// `/readyz`
        Readyz = "/readyz",
        /// `/v1/state`
        State = "/v1/state",
        /// `/v1/apply`
        Apply = "/v1/apply",
        /// `/metrics`
        Metrics = "/metrics",
        /// Any other path, or a head that was refused before it had one.
        Other = "other",
    }
}

labels! {
    /// The status codes that are answered.
    HttpCode {
        /// 200
        Ok = "200",
        /// 400
        BadRequest = "400",
        /// 401
        Unauthorized = "401",
        /// 404
        NotFound = "404",
        /// 405
        MethodNotAllowed = "405",
        /// 408
        RequestTimeout = "408",
        /// 409
        Conflict = "409",
        /// 413
        ContentTooLarge = "413",
        /// 414
        UriTooLong = "414",
        /// 417
        ExpectationFailed = "417",
        /// 431
        FieldsTooLarge = "431",
        /// 500
        Internal = "500",
        /// 501
        NotImplemented = "501",
        /// 503
        Unavailable = "503",
        /// 505
        VersionNotSupported = "505",
        /// Any other code.
        Other = "other",
    }
}

impl RejectStage {
    /// The label of a stage of the contract; `None` for a batch on the running worker
    /// that failed, which does not reject its apply.
    #[must_use]
    pub fn of(stage: Stage) -> Option<Self> {
        match stage {
            Stage::Startup => Some(Self::Startup),
            Stage::Busy => Some(Self::Busy),
            Stage::Request => Some(Self::Request),
            Stage::Manifest => Some(Self::Manifest),
            Stage::Parts => Some(Self::Parts),
            Stage::Backup => Some(Self::Backup),
            Stage::Write => Some(Self::Write),
            Stage::Reload => Some(Self::Reload),
            Stage::Revert => Some(Self::Revert),
            Stage::RevertReload => Some(Self::RevertReload),
            Stage::ScheduledReload => Some(Self::ScheduledReload),
            Stage::InPlace => None,
        }
    }
}

impl HttpPath {
    /// The label of a request's path, its query cut off.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let path = path.split('?').next().unwrap_or(path);
        Self::named(path).unwrap_or(Self::Other)
    }

    /// The codes that this path answers in the ordinary course of things: their
    /// counters are exposed from the start, all others once they count.
    #[must_use]
    pub fn expected(self) -> &'static [HttpCode] {
        use HttpCode as C;
        match self {
            Self::Healthz => &[C::Ok],
            Self::Readyz => &[C::Ok, C::Unavailable],
            Self::State => &[C::Ok, C::Unauthorized],
            Self::Apply => &[
                C::Ok,
                C::BadRequest,
                C::Unauthorized,
                C::Conflict,
                C::ContentTooLarge,
                C::Unavailable,
            ],
            Self::Metrics => &[C::Ok],
            Self::Other => &[C::BadRequest, C::NotFound],
        }
    }
}

impl HttpCode {
    /// The label of a status code.
    #[must_use]
    pub fn of(status: u16) -> Self {
        match status {
            200 => Self::Ok,
            400 => Self::BadRequest,
            401 => Self::Unauthorized,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            408 => Self::RequestTimeout,
            409 => Self::Conflict,
            413 => Self::ContentTooLarge,
            414 => Self::UriTooLong,
            417 => Self::ExpectationFailed,
            431 => Self::FieldsTooLarge,
            500 => Self::Internal,
            501 => Self::NotImplemented,
            503 => Self::Unavailable,
            505 => Self::VersionNotSupported,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense<L: Label + std::fmt::Debug>() {
        for (i, label) in L::ALL.iter().enumerate() {
            assert_eq!(label.index(), i);
            assert_eq!(L::named(label.as_str()), Some(*label));
        }
    }

    #[test]
    fn every_set_is_dense_and_its_texts_are_distinct() {
        dense::<ResultMode>();
        dense::<RejectStage>();
        dense::<ReloadResult>();
        dense::<Invariant>();
        dense::<OpKind>();
        dense::<DeleteKind>();
        dense::<DeleteOutcome>();
        dense::<HttpPath>();
        dense::<HttpCode>();
        assert_eq!(<OpKind as Label>::ALL.len(), 24);
        assert_eq!(Invariant::ALL.len(), 9);
    }

    #[test]
    fn a_stage_keeps_its_name() {
        for stage in [
            Stage::Startup,
            Stage::Busy,
            Stage::Request,
            Stage::Manifest,
            Stage::Parts,
            Stage::Backup,
            Stage::Write,
            Stage::Reload,
            Stage::Revert,
            Stage::RevertReload,
            Stage::ScheduledReload,
        ] {
            let label = RejectStage::of(stage).map(Label::as_str);
            assert_eq!(label, Some(stage.as_str()));
        }
        assert_eq!(RejectStage::of(Stage::InPlace), None);
    }

    #[test]
    fn codes_and_paths_that_a_peer_invents_are_other() {
        for code in HttpCode::ALL.iter().filter(|c| **c != HttpCode::Other) {
            assert_eq!(HttpCode::of(code.as_str().parse().unwrap()), *code);
        }
        assert_eq!(HttpCode::of(418), HttpCode::Other);
        assert_eq!(HttpPath::of("/v1/state?verify=1"), HttpPath::State);
        assert_eq!(HttpPath::of("/v1/state/"), HttpPath::Other);
        assert_eq!(HttpPath::of("other"), HttpPath::Other);
    }
}
