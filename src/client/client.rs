//! One agent, as a controller sees it: its state, and applies.
//!
//! Every limit of the contract is asserted before a byte is sent. A connection that was
//! refused or reset is tried again as the contract allows: a read always, an apply only
//! while no byte of a part has been read. No redirects, no proxies. A [`Client`] is
//! `Send + Sync`, cheap to clone, and keeps its connections for the next call.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::{ClientConfig, RETRY_PAUSE};
use super::error::{Error, MAX_REFUSAL_BYTES, Refused, Transport};
use super::form::{Form, boundary};
use super::pool::Pool;
use crate::http::client::{
    Answer, Body, Cancel, Connection, Error as HttpError, Method, Origin, Request, Until, after,
};
use crate::wire::limits::{MAX_APPLY_BODY_BYTES, MAX_MANIFEST_BYTES, MAX_PLAN_BLOB_BYTES};
use crate::wire::manifest::{Manifest, ReservedPaths};
use crate::wire::path::ManifestPath;
use crate::wire::result::{ApplyResult, Conflict, Missing};
use crate::wire::state::State;

/// The longest answer that is read.
const MAX_ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// Which state to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateRead {
    /// Hash every owned file on disk first, and look whether worker and baseline are
    /// still what the agent believes.
    pub verify: bool,
    /// With the applied plan's blob.
    pub plan: bool,
}

/// One file's content, read while it is sent.
pub struct Part<'p> {
    path: ManifestPath,
    pub(super) source: Box<dyn Read + 'p>,
}

impl<'p> Part<'p> {
    /// The content of a path that the manifest declares; the source must give exactly
    /// as many bytes as are declared there.
    pub fn new(path: ManifestPath, source: impl Read + 'p) -> Self {
        Self {
            path,
            source: Box::new(source),
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &ManifestPath {
        &self.path
    }
}

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Part").field(&self.path).finish()
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    pool: Arc<Pool>,
    cancel: Cancel,
    /// When every call ends, whatever its own time is.
    until: Option<Instant>,
}

impl Client {
    /// A client; nothing is connected yet.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self {
            config: Arc::new(config),
            pool: Arc::default(),
            cancel: Cancel::new(),
            until: None,
        }
    }

    /// The same client for calls that `cancel` ends.
    #[must_use]
    pub fn cancelled_by(&self, cancel: &Cancel) -> Self {
        Self {
            config: self.config.clone(),
            pool: self.pool.clone(),
            cancel: cancel.clone(),
            until: self.until,
        }
    }

    /// The same client for calls that end by then, whatever their own time is.
    #[must_use]
    pub fn ends_by(&self, until: Instant) -> Self {
        Self {
            until: Some(self.until.map_or(until, |earlier| earlier.min(until))),
            ..self.clone()
        }
    }

    fn deadline(&self, time: Duration) -> Instant {
        let own = after(time);
        self.until.map_or(own, |until| own.min(until))
    }

    /// What ends the calls of this client.
    #[must_use]
    pub fn cancel_handle(&self) -> &Cancel {
        &self.cancel
    }

    /// The agent's address.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.config.origin
    }

    /// `GET /v1/state`. A state of another `api_version` is read as far as it goes, so
    /// that an agent of another release can still be given the full set.
    ///
    /// # Errors
    /// [`Error::Http`], [`Error::Transport`].
    pub fn state(&self, read: StateRead) -> Result<State, Error> {
        let target = match (read.verify, read.plan) {
            (false, false) => "/v1/state?plan=0",
            (false, true) => "/v1/state",
            (true, false) => "/v1/state?verify=1&plan=0",
            (true, true) => "/v1/state?verify=1",
        };
        let deadline = self.deadline(self.config.timeouts.state);
        let fields = [("Authorization", self.config.credentials.header())];
        let bytes = self.retrying(deadline, |connection| {
            let request = Request {
                method: Method::Get,
                target,
                fields: &fields,
                body: Body::None,
            };
            let outcome = connection
                .send(request, Until::all(deadline))
                .and_then(received);
            Attempt {
                outcome,
                again: true,
            }
        })??;
        super::state::read(&bytes).map_err(|error| Error::Transport(Transport::Answer(error)))
    }

    /// `POST /v1/apply`: the manifest, the parts that the agent is believed to lack, and
    /// the plan blob. The parts are sent in the manifest's order, whatever theirs is. A
    /// result with `ok: false` is no error.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn apply(
        &self,
        manifest: &Manifest,
        parts: &mut [Part<'_>],
        plan: Option<&[u8]>,
    ) -> Result<ApplyResult, Error> {
        let (boundary, mut form) = form(manifest, parts, plan)?;
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let fields = [
            ("Authorization", self.config.credentials.header()),
            ("Content-Type", content_type.as_str()),
        ];
        let deadline = self.deadline(self.config.timeouts.apply);
        let outcome = self.retrying(deadline, |connection| {
            form.rewind();
            let request = Request {
                method: Method::Post,
                target: "/v1/apply",
                fields: &fields,
                body: Body::Stream {
                    length: Some(form.length()),
                    source: &mut form,
                },
            };
            let outcome = connection
                .send(request, Until::all(deadline))
                .and_then(received);
            Attempt {
                outcome,
                again: !form.is_touched(),
            }
        });
        let bytes = match (outcome, form.failed()) {
            (Err(Error::Transport(Transport::Http(HttpError::Source(error)))), Some(path)) => {
                return Err(Error::Source {
                    path: path.clone(),
                    error,
                });
            }
            (outcome, _) => outcome??,
        };
        serde_json::from_slice(&bytes).map_err(|error| Error::Transport(Transport::Answer(error)))
    }

    /// Runs `attempt` on a connection, and again on another one where the first was
    /// refused or reset and the attempt allows it.
    fn retrying<T>(
        &self,
        deadline: Instant,
        mut attempt: impl FnMut(&mut Connection) -> Attempt<T>,
    ) -> Result<T, Error> {
        let mut left = self.config.retries;
        loop {
            let connect = after(self.config.timeouts.connect).min(deadline);
            let failed = match self.pool.take(&self.config.origin, connect, &self.cancel) {
                Ok(mut connection) => {
                    let Attempt { outcome, again } = attempt(&mut connection);
                    match outcome {
                        Ok(value) => {
                            self.pool.put(connection);
                            return Ok(value);
                        }
                        Err(error) if again && is_lost(&error) => error,
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) if error.is_refused() => error,
                Err(error) => return Err(error.into()),
            };
            if left == 0 || Instant::now() >= deadline {
                return Err(failed.into());
            }
            left -= 1;
            if !self.cancel.pause(RETRY_PAUSE) {
                return Err(HttpError::Cancelled.into());
            }
        }
    }
}

/// One try, and whether another one is allowed after a lost connection.
struct Attempt<T> {
    outcome: Result<T, HttpError>,
    again: bool,
}

fn is_lost(error: &HttpError) -> bool {
    match error {
        HttpError::Reset(_) => true,
        HttpError::NotConnected(_)
        | HttpError::Cut(_)
        | HttpError::Timeout(_)
        | HttpError::Malformed(_)
        | HttpError::TooLarge { .. }
        | HttpError::Cancelled
        | HttpError::Source(_)
        | HttpError::Request(_) => false,
    }
}

/// A 200's body, or the class of another answer.
fn received(answer: Answer<'_>) -> Result<Result<Vec<u8>, Error>, HttpError> {
    match answer.status() {
        200 => Ok(Ok(answer.collect(MAX_ANSWER_BYTES)?)),
        409 => {
            let bytes = answer.collect(MAX_ANSWER_BYTES)?;
            if let Ok(conflict) = serde_json::from_slice::<Conflict>(&bytes) {
                return Ok(Err(Error::Conflict(Box::new(conflict))));
            }
            if let Ok(Missing { missing }) = serde_json::from_slice(&bytes) {
                return Ok(Err(Error::Missing(missing)));
            }
            Ok(Err(refusal(409, &bytes)))
        }
        status => {
            let bytes = start_of(answer)?;
            Ok(Err(refusal(status, &bytes)))
        }
    }
}

/// As much of a body as is shown to anybody. What is left makes the connection unfit
/// for another request, and costs nothing else.
fn start_of(mut answer: Answer<'_>) -> Result<Vec<u8>, HttpError> {
    let mut bytes = vec![0; MAX_REFUSAL_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match answer.next(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            // The status is known; its explanation may stay incomplete.
            Err(HttpError::Cut(_) | HttpError::Malformed(_)) => break,
            Err(error) => return Err(error),
        }
    }
    if filled == bytes.len() {
        // One read more finds the end, so that the connection can be kept.
        let _rest = answer.next(&mut [0]);
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn refusal(status: u16, bytes: &[u8]) -> Error {
    let bytes = bytes.get(..MAX_REFUSAL_BYTES).unwrap_or(bytes);
    Error::Http {
        status,
        body: String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The request's body, with every limit asserted.
fn form<'f, 'p>(
    manifest: &Manifest,
    parts: &'f mut [Part<'p>],
    plan: Option<&'f [u8]>,
) -> Result<(String, Form<'f, 'p>), Refused> {
    manifest
        .check(&ReservedPaths::default())
        .map_err(Refused::Manifest)?;
    if let Some(blob) = plan {
        if blob.len() as u64 > MAX_PLAN_BLOB_BYTES {
            return Err(Refused::PlanBytes(blob.len()));
        }
    }
    let json = serde_json::to_vec(manifest)
        .map_err(|error| Refused::Manifest(crate::wire::manifest::ManifestError::Json(error)))?;
    if json.len() > MAX_MANIFEST_BYTES {
        return Err(Refused::ManifestBytes(json.len()));
    }
    let mut given = HashMap::with_capacity(parts.len());
    for part in parts {
        if let Some(first) = given.insert(part.path.clone(), part) {
            return Err(Refused::Twice(first.path.clone()));
        }
    }
    let mut files = Vec::with_capacity(given.len());
    for file in &manifest.files {
        if let Some(part) = given.remove(&file.path) {
            files.push((part, file.size));
        }
    }
    if let Some(path) = given.into_keys().min() {
        return Err(Refused::Undeclared(path));
    }
    let boundary = boundary();
    let form = Form::new(&boundary, json, files, plan);
    if form.length() > MAX_APPLY_BODY_BYTES {
        return Err(Refused::BodyBytes(form.length()));
    }
    Ok((boundary, form))
}
