//! Closed sets of label values.
//!
//! A label value is an enum variant, never a string that a peer sent: the number of
//! series is known when the program is compiled.

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
        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }
    };
}

labels! {
    /// What an apply turned out to be.
    ApplyMode {
        /// Runtime commands only.
        Runtime = "runtime",
        /// Files changed, no command was needed.
        FileOnly = "file_only",
        /// HAProxy was reloaded.
        Reload = "reload",
        /// The reload waits for the pacing window.
        Scheduled = "scheduled",
        /// Nothing to do.
        Noop = "noop",
        /// Refused or rolled back.
        Rejected = "rejected",
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
    /// The kinds of runtime ops.
    OpKind {
        /// `backend_add`
        BackendAdd = "backend_add",
        /// `backend_publish`
        BackendPublish = "backend_publish",
        /// `backend_unpublish`
        BackendUnpublish = "backend_unpublish",
        /// `backend_del`
        BackendDel = "backend_del",
        /// `wait_be_removable`
        WaitBeRemovable = "wait_be_removable",
        /// `server_add`
        ServerAdd = "server_add",
        /// `server_enable`
        ServerEnable = "server_enable",
        /// `server_disable`
        ServerDisable = "server_disable",
        /// `server_set_addr`
        ServerSetAddr = "server_set_addr",
        /// `server_set_weight`
        ServerSetWeight = "server_set_weight",
        /// `server_set_state`
        ServerSetState = "server_set_state",
        /// `wait_srv_removable`
        WaitSrvRemovable = "wait_srv_removable",
        /// `shutdown_sessions`
        ShutdownSessions = "shutdown_sessions",
        /// `server_del`
        ServerDel = "server_del",
        /// `map_add`
        MapAdd = "map_add",
        /// `map_set`
        MapSet = "map_set",
        /// `map_del`
        MapDel = "map_del",
        /// `map_replace`
        MapReplace = "map_replace",
        /// `cert_set`
        CertSet = "cert_set",
        /// `cert_new`
        CertNew = "cert_new",
        /// `ca_set`
        CaSet = "ca_set",
        /// `ca_new`
        CaNew = "ca_new",
        /// `crtlist_add`
        CrtlistAdd = "crtlist_add",
        /// `crtlist_del`
        CrtlistDel = "crtlist_del",
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
        dense::<ApplyMode>();
        dense::<RejectStage>();
        dense::<ReloadResult>();
        dense::<Invariant>();
        dense::<OpKind>();
        dense::<DeleteKind>();
        dense::<DeleteOutcome>();
        dense::<HttpPath>();
        dense::<HttpCode>();
        assert_eq!(OpKind::ALL.len(), 24);
        assert_eq!(Invariant::ALL.len(), 9);
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
