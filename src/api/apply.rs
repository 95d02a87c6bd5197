//! `POST /v1/apply`: the conditions of the contract, in its order.
//!
//! Credentials, ready, upload place, framing, manifest, fence and known-bad cache,
//! parts; then the core runs and its answer is a 200 or a 409.

use std::io::Read as _;

use crate::apply::{Agent, Answer, Early, PartError, Upload};
use crate::http::multipart::{Multipart, MultipartError, PartHead, boundary_of, percent_decoded};
use crate::http::{Body, BodyError, Request, Response, Status};
use crate::metrics::{Metrics, RejectStage};
use crate::wire::limits::{MAX_APPLY_BODY_BYTES, MAX_FILES, MAX_MANIFEST_BYTES};
use crate::wire::manifest::{Manifest, ReservedPaths};
use crate::wire::result::{Conflict, ConflictReason, Stage};

use super::{json, refusal, refused};

/// Manifest, plan blob, and one part a file.
const MAX_PARTS: usize = MAX_FILES + 2;

/// Answers one apply.
pub(super) fn post(agent: &Agent, metrics: &Metrics, request: &mut Request<'_>) -> Response {
    let reject = |stage: RejectStage| metrics.rejected.of(stage).inc();
    if !agent.gate.is_open() {
        reject(RejectStage::Startup);
        let message = agent.gate.why_not_ready();
        return refusal(Status::ServiceUnavailable, Stage::Startup, message);
    }
    let Some(slot) = agent.gate.upload() else {
        reject(RejectStage::Busy);
        let message = "too many uploads at once; try again in a second";
        refused("busy", Status::ServiceUnavailable, message);
        return refusal(Status::ServiceUnavailable, Stage::Busy, message)
            .header("Retry-After", "1");
    };
    let boundary = match boundary_of(request.content_type().unwrap_or_default()) {
        Ok(boundary) => boundary,
        Err(error) => {
            reject(RejectStage::Request);
            return Refused::bad(Stage::Request, error.to_string()).answer();
        }
    };
    let mut parts = Multipart::new(request.body(MAX_APPLY_BODY_BYTES), &boundary, MAX_PARTS);
    let (manifest, looked) = agent.look_beside(|| manifest(&mut parts, agent.reserved_paths()));
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(refused) => {
            reject(refused.label());
            return refused.answer();
        }
    };
    let mut upload = match agent.admit(manifest, slot, looked) {
        Ok(upload) => upload,
        Err(Early::Conflict(conflict)) => {
            reject(RejectStage::Fence);
            return conflicted(&conflict);
        }
        Err(Early::KnownBad(nack)) => {
            reject(RejectStage::KnownBad);
            refused(
                "known_bad",
                Status::Ok,
                "HAProxy refused the same bytes a moment ago; the answer is repeated",
            );
            return json(Status::Ok, &*nack);
        }
    };
    if let Err(refused) = take_parts(&mut upload, parts) {
        reject(refused.label());
        return refused.answer();
    }
    match upload.run() {
        Answer::Result(result) => json(Status::Ok, &*result),
        Answer::Conflict(conflict) => {
            reject(RejectStage::Fence);
            conflicted(&conflict)
        }
        Answer::Missing(missing) => {
            reject(RejectStage::Missing);
            refused(
                "missing",
                Status::Conflict,
                "content was neither sent nor is held; the answer lists it",
            );
            json(Status::Conflict, &missing)
        }
    }
}

fn conflicted(conflict: &Conflict) -> Response {
    let why = match conflict.reason {
        ConflictReason::PrevMismatch => "prev_mismatch: another plan or token is applied",
        ConflictReason::StaleEpoch => "stale_epoch: a newer leader has spoken",
        ConflictReason::UnknownBaseline => "unknown_baseline: what is applied is not known",
        ConflictReason::WorkerOpsMismatch => "worker_ops_mismatch: the worker holds another plan",
    };
    refused("fence", Status::Conflict, why);
    json(Status::Conflict, conflict)
}

/// Why a body is refused; nothing was written but staging, which is gone again.
#[derive(Debug)]
struct Refused {
    status: Status,
    stage: Stage,
    message: String,
}

impl Refused {
    fn bad(stage: Stage, message: impl Into<String>) -> Self {
        Self {
            status: Status::BadRequest,
            stage,
            message: message.into(),
        }
    }

    /// Framing belongs to the request; a body that is too large belongs to the parts,
    /// wherever it was noticed.
    fn framing(error: &MultipartError) -> Self {
        match error.body_error() {
            Some(error) => Self::body(*error),
            None => Self::bad(Stage::Request, error.to_string()),
        }
    }

    fn body(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { .. } => Self {
                status: Status::PayloadTooLarge,
                stage: Stage::Parts,
                message: error.to_string(),
            },
            BodyError::Truncated
            | BodyError::Stalled
            | BodyError::Late
            | BodyError::BadFraming(_)
            | BodyError::Gone(_) => Self::bad(Stage::Request, error.to_string()),
        }
    }

    fn part(error: PartError) -> Self {
        match error {
            PartError::Source(source) => match BodyError::of(&source) {
                Some(error) => Self::body(*error),
                None => Self::bad(Stage::Request, source.to_string()),
            },
            // The disk, not the sender: the same request may do once there is room, and
            // the baseline is untouched.
            PartError::Store(_) => Self {
                status: Status::ServiceUnavailable,
                stage: Stage::Parts,
                message: crate::error::Chain(&error).to_string(),
            },
            PartError::BlobTooBig
            | PartError::Undeclared(_)
            | PartError::Twice(_)
            | PartError::Size(_)
            | PartError::Digest(_) => Self::bad(Stage::Parts, error.to_string()),
        }
    }

    fn label(&self) -> RejectStage {
        match self.stage {
            Stage::Manifest => RejectStage::Manifest,
            Stage::Parts => RejectStage::Parts,
            Stage::Startup
            | Stage::Busy
            | Stage::Request
            | Stage::Backup
            | Stage::Write
            | Stage::Reload
            | Stage::Revert
            | Stage::RevertReload
            | Stage::ScheduledReload
            | Stage::InPlace => RejectStage::Request,
        }
    }

    fn answer(self) -> Response {
        if self.status == Status::ServiceUnavailable {
            // The disk is ours, not the sender's: somebody has to make room.
            log::error!(stage = self.stage.as_str(), error = self.message.as_str(); "a part cannot be stored");
        } else {
            refused(self.stage.as_str(), self.status, &self.message);
        }
        refusal(self.status, self.stage, self.message)
    }
}

/// The first part, which must be the manifest.
fn manifest(
    parts: &mut Multipart<Body<'_>>,
    reserved: &ReservedPaths,
) -> Result<Manifest, Refused> {
    let head = parts
        .next_part()
        .map_err(|error| Refused::framing(&error))?;
    if head.is_none_or(|head| head.name != "manifest") {
        let message = "the first part must be named manifest";
        return Err(Refused::bad(Stage::Request, message));
    }
    let mut bytes = Vec::new();
    let limit = MAX_MANIFEST_BYTES as u64 + 1;
    parts
        .part()
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| Refused::part(PartError::Source(error)))?;
    Manifest::parse(&bytes, reserved)
        .map_err(|error| Refused::bad(Stage::Manifest, error.to_string()))
}

/// Every part after the manifest, to the closing delimiter.
fn take_parts(upload: &mut Upload<'_>, mut parts: Multipart<Body<'_>>) -> Result<(), Refused> {
    while let Some(head) = parts
        .next_part()
        .map_err(|error| Refused::framing(&error))?
    {
        let taken = if is_blob(upload, &head) {
            upload.blob(&mut parts.part())
        } else {
            let name = file_name(upload, &head);
            upload.part(&name, &mut parts.part())
        };
        taken.map_err(Refused::part)?;
    }
    parts.finish().map_err(|error| Refused::framing(&error))
}

/// The name `plan` is the blob's, unless the manifest declares a file of that path and
/// the part's filename says that this is it.
fn is_blob(upload: &Upload<'_>, head: &PartHead) -> bool {
    head.name == "plan" && !(upload.declares("plan") && head.filename.as_deref() == Some("plan"))
}

/// Some clients percent-encode quotes and line ends in a part's name; a path that is
/// declared with these characters as they are comes first.
fn file_name(upload: &Upload<'_>, head: &PartHead) -> String {
    if upload.declares(&head.name) {
        head.name.clone()
    } else {
        percent_decoded(&head.name).into()
    }
}
