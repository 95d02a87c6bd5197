//! The endpoints: requests of the HTTP server to the pod and back.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use tiny_http::{Header, Method, Request, Response};

use crate::wire::limits::{
    MAX_APPLY_BODY_BYTES, MAX_FILES, MAX_MANIFEST_BYTES, MAX_PLAN_BLOB_BYTES,
};
use crate::wire::manifest::{Manifest, Mode};
use crate::wire::result::{Failure, Stage};

use super::apply::{Answer, Run, Upload};
use super::form::{self, Form, FormError, Head};
use super::knobs::Break;
use super::pod::Content;
use super::record::{Applied, Given, Part};
use super::shared::Shared;

/// Uploads at one time.
const MAX_UPLOADS: usize = 4;

/// Manifest, plan blob, and one part a file.
const MAX_PARTS: usize = MAX_FILES + 2;

/// How much of a refused request's body is read before the answer: an answer in front of
/// unread bytes can get lost.
const MAX_DRAINED: u64 = 2 * MAX_APPLY_BODY_BYTES;

/// How often a request that waits looks whether it can go on.
const LOOK_EVERY: Duration = Duration::from_millis(10);

type Bytes = Response<std::io::Cursor<Vec<u8>>>;

/// Answers one request.
pub(super) fn serve(shared: &Shared, mut request: Request) {
    let peer = request.remote_addr().copied();
    if too_long(shared, &request, peer) {
        // The server would read the announced bytes into memory before it lets go.
        std::mem::forget(request);
        return;
    }
    let target = request.url().to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let method = request.method().clone();
    let reads = matches!(method, Method::Get | Method::Head);
    let answer = match path {
        "/healthz" if reads => Some(text(200, "ok\n")),
        "/readyz" if reads => Some(match shared.lock().knobs.ready {
            true => text(200, "ready\n"),
            false => text(503, "initialising\n"),
        }),
        "/v1/state" if reads => match authorized(shared, &request) {
            true => Some(state(shared, query)),
            false => Some(unauthorized()),
        },
        "/v1/apply" if method == Method::Post => match authorized(shared, &request) {
            true => apply(shared, &mut request, peer),
            false => Some(unauthorized()),
        },
        "/healthz" | "/readyz" | "/v1/state" => Some(not_allowed("GET, HEAD")),
        "/v1/apply" => Some(not_allowed("POST")),
        _ => Some(text(404, "not found\n")),
    };
    if let (None, Some(peer)) = (&answer, peer) {
        shared.lines.cut(peer);
    }
    drain(&mut request);
    // A peer that is gone gets no answer; the next request shows it.
    let _ = request.respond(answer.unwrap_or_else(|| text(500, "cut\n")));
}

/// A length that no apply may have is answered past the server.
fn too_long(shared: &Shared, request: &Request, peer: Option<SocketAddr>) -> bool {
    let length = request.body_length().unwrap_or_default() as u64;
    if length <= MAX_DRAINED {
        return false;
    }
    if let Some(peer) = peer {
        let body =
            "{\"stage\":\"parts\",\"message\":\"the body is larger than an apply may be\"}\n";
        let head = format!(
            "HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        shared
            .lines
            .last_words(peer, format!("{head}{body}").as_bytes());
    }
    true
}

fn drain(request: &mut Request) {
    let rest = request.as_reader().take(MAX_DRAINED);
    let mut rest = rest;
    // What cannot be read needs no reading.
    let _ = std::io::copy(&mut rest, &mut std::io::sink());
}

fn authorized(shared: &Shared, request: &Request) -> bool {
    let given = header(request, "Authorization");
    let Some((scheme, token)) = given.and_then(|value| value.split_once(' ')) else {
        return false;
    };
    scheme.eq_ignore_ascii_case("basic") && token.trim_start() == shared.credentials.token
}

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let found = request
        .headers()
        .iter()
        .find(|header| header.field.as_str().as_str().eq_ignore_ascii_case(name));
    found.map(|header| header.value.as_str())
}

fn state(shared: &Shared, query: &str) -> Bytes {
    let (mut verify, mut plan) = (false, true);
    for pair in query.split('&') {
        match pair {
            "verify=1" => verify = true,
            "verify=0" => verify = false,
            "plan=0" => plan = false,
            "plan=1" => plan = true,
            // As the agent: what is not understood is not looked at.
            _ => {}
        }
    }
    if !shared.wait_until(|inner| inner.knobs.ready) {
        return refusal(503, Stage::Startup, "the agent is not ready, or stops");
    }
    let mut inner = shared.lock();
    inner.state_reads += 1;
    if verify {
        inner.pod.look();
    }
    let state = inner.pod.state(&inner.knobs, plan);
    drop(inner);
    json(200, &state)
}

/// The answer; `None` is a connection that ends without one.
fn apply(shared: &Shared, request: &mut Request, peer: Option<SocketAddr>) -> Option<Bytes> {
    let broken = shared.lock().knobs.breaks.pop_front();
    if broken == Some(Break::BeforeReading) {
        return None;
    }
    {
        let mut inner = shared.lock();
        if !inner.knobs.ready {
            let message = "the agent is still starting; see /readyz";
            return Some(refusal(503, Stage::Startup, message));
        }
        if inner.knobs.busy > 0 {
            inner.knobs.busy -= 1;
            return Some(too_busy());
        }
    }
    let Some(_place) = Place::take(shared) else {
        return Some(too_busy());
    };
    let mut seen = Applied::default();
    let given = receive(shared, request, broken, &mut seen)?;
    if let (Some(Break::InAnswer(bytes)), Some(peer)) = (broken, peer) {
        shared.lines.cut_after(peer, bytes);
    }
    let (status, answer) = match &given {
        Given::Result(result) => (200, json(200, result)),
        Given::Conflict(conflict) => (409, json(409, conflict)),
        Given::Missing(missing) => (409, json(409, missing)),
        Given::Refused { status, failure } => (*status, json(*status, failure)),
    };
    seen.status = status;
    seen.answer = given;
    shared.lock().applies.push(seen);
    (broken != Some(Break::AfterApplying)).then_some(answer)
}

fn too_busy() -> Bytes {
    let message = "too many uploads at once; try again in a second";
    refusal(503, Stage::Busy, message).with_header(field("Retry-After", "1"))
}

/// One of the upload places.
struct Place<'a>(&'a Shared);

impl<'a> Place<'a> {
    fn take(shared: &'a Shared) -> Option<Self> {
        shared
            .uploads
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
                (taken < MAX_UPLOADS).then_some(taken + 1)
            })
            .ok()
            .map(|_| Self(shared))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Reads a request and has it carried out. `None`: the connection breaks here.
fn receive(
    shared: &Shared,
    request: &mut Request,
    broken: Option<Break>,
    seen: &mut Applied,
) -> Option<Given> {
    let content_type = header(request, "Content-Type")
        .unwrap_or_default()
        .to_owned();
    let boundary = match form::boundary(&content_type) {
        Ok(boundary) => boundary,
        Err(error) => return Some(refuse_form(&error)),
    };
    if request.body_length().unwrap_or_default() as u64 > MAX_APPLY_BODY_BYTES {
        return Some(refuse_form(&FormError::TooLarge));
    }
    let mut form = Form::new(request.as_reader(), &boundary, MAX_APPLY_BODY_BYTES);
    let manifest = match manifest(shared, &mut form, seen) {
        Ok(manifest) => manifest,
        Err(given) => return Some(given),
    };
    if broken == Some(Break::MidBody) {
        // The first part's head has been seen, if there is one.
        let _ = form.head();
        return None;
    }
    {
        let inner = &mut *shared.lock();
        if let Err(conflict) = inner.pod.fence(&manifest, false) {
            return Some(Given::Conflict(conflict));
        }
        let newer = manifest.token.leader_epoch > inner.pod.epoch;
        if manifest.mode != Mode::RevertLkg && !newer {
            if let Some(nack) = inner.declared_bad(&manifest) {
                return Some(Given::Result(Box::new(nack)));
            }
        }
    }
    let mut upload = Upload {
        manifest,
        parts: std::collections::BTreeMap::new(),
        blob: None,
    };
    if let Err(given) = parts(&mut form, &mut upload, seen) {
        return Some(given);
    }
    if let Err(error) = form.finish() {
        return Some(refuse_form(&error));
    }
    let delay = shared.lock().knobs.delay;
    if !shared.pause(delay) {
        return None;
    }
    let inner = &mut *shared.lock();
    let answer = Run {
        pod: &mut inner.pod,
        knobs: &mut inner.knobs,
        judge: &shared.judge,
    }
    .apply(upload);
    shared.ring();
    Some(match answer {
        Answer::Result(result) => Given::Result(result),
        Answer::Conflict(conflict) => Given::Conflict(conflict),
        Answer::Missing(missing) => Given::Missing(missing),
    })
}

fn manifest<R: std::io::Read>(
    shared: &Shared,
    form: &mut Form<R>,
    seen: &mut Applied,
) -> Result<Manifest, Given> {
    let head = form.head().map_err(|error| refuse_form(&error))?;
    if head.is_none_or(|head| head.name != "manifest") {
        let message = "the first part must be named manifest";
        return Err(refuse(400, Stage::Request, message));
    }
    let content = form
        .content(MAX_MANIFEST_BYTES)
        .map_err(|error| refuse_form(&error))?;
    let Some(bytes) = content else {
        let message = format!("the manifest is larger than {MAX_MANIFEST_BYTES} bytes");
        return Err(refuse(400, Stage::Manifest, message));
    };
    seen.manifest_json = String::from_utf8_lossy(&bytes).into_owned();
    let manifest = Manifest::parse(&bytes, &shared.reserved)
        .map_err(|error| refuse(400, Stage::Manifest, error.to_string()))?;
    seen.manifest = Some(manifest.clone());
    Ok(manifest)
}

fn parts<R: std::io::Read>(
    form: &mut Form<R>,
    upload: &mut Upload,
    seen: &mut Applied,
) -> Result<(), Given> {
    let refuse_parts = |message: String| refuse(400, Stage::Parts, message);
    let mut count = 1;
    while let Some(head) = form.head().map_err(|error| refuse_form(&error))? {
        count += 1;
        if count > MAX_PARTS {
            return Err(refuse(400, Stage::Request, "the form has too many parts"));
        }
        if is_blob(&upload.manifest, &head) {
            let most = usize::try_from(MAX_PLAN_BLOB_BYTES).unwrap_or(usize::MAX);
            if upload.blob.is_some() {
                return Err(refuse_parts("part \"plan\" came twice".to_owned()));
            }
            let content = form.content(most).map_err(|error| refuse_form(&error))?;
            let Some(bytes) = content else {
                let message = format!("the plan blob is larger than {MAX_PLAN_BLOB_BYTES} bytes");
                return Err(refuse_parts(message));
            };
            seen.blob = Some(bytes.clone());
            upload.blob = Some(bytes);
            continue;
        }
        let declares = |name: &str| {
            let found = upload
                .manifest
                .files
                .iter()
                .find(|f| f.path.as_str() == name);
            found.cloned()
        };
        let name = match declares(&head.name) {
            Some(_) => head.name.clone(),
            None => percent_decoded(&head.name),
        };
        let Some(file) = declares(&name) else {
            return Err(refuse_parts(format!(
                "part {name:?} is not declared in the manifest; list it under files or leave it out"
            )));
        };
        if upload.parts.contains_key(&file.path) {
            return Err(refuse_parts(format!("part {name:?} came twice")));
        }
        let most = usize::try_from(file.size).unwrap_or(usize::MAX);
        let content = form.content(most).map_err(|error| refuse_form(&error))?;
        let Some(bytes) = content.filter(|bytes| bytes.len() == most) else {
            return Err(refuse_parts(format!(
                "{name}: {} bytes are declared and others were sent",
                file.size
            )));
        };
        seen.parts.push(Part {
            name,
            filename: head.filename,
            bytes: bytes.clone(),
        });
        let content = Content::of(bytes);
        if !content.hash.matches(&file.digest) {
            return Err(refuse_parts(format!(
                "{}: the bytes sent do not have the digest that the manifest declares",
                file.path
            )));
        }
        upload.parts.insert(file.path, content);
    }
    Ok(())
}

fn is_blob(manifest: &Manifest, head: &Head) -> bool {
    let declared = || manifest.files.iter().any(|f| f.path.as_str() == "plan");
    head.name == "plan" && !(head.filename.as_deref() == Some("plan") && declared())
}

/// A quote and line ends as some clients write them.
fn percent_decoded(name: &str) -> String {
    let mut out = name.to_owned();
    for (code, plain) in [
        ("%22", "\""),
        ("%0D", "\r"),
        ("%0d", "\r"),
        ("%0A", "\n"),
        ("%0a", "\n"),
    ] {
        out = out.replace(code, plain);
    }
    out
}

fn refuse(status: u16, stage: Stage, message: impl Into<String>) -> Given {
    Given::Refused {
        status,
        failure: Failure {
            stage,
            message: message.into(),
        },
    }
}

fn refuse_form(error: &FormError) -> Given {
    match error {
        FormError::TooLarge => refuse(413, Stage::Parts, error.to_string()),
        FormError::Broken(_) | FormError::Source(_) => {
            refuse(400, Stage::Request, error.to_string())
        }
    }
}

fn refusal(status: u16, stage: Stage, message: &str) -> Bytes {
    let failure = Failure {
        stage,
        message: message.to_owned(),
    };
    json(status, &failure)
}

fn unauthorized() -> Bytes {
    text(401, "wrong or missing credentials\n")
        .with_header(field("WWW-Authenticate", "Basic realm=\"haptic-agent\""))
}

fn not_allowed(allow: &str) -> Bytes {
    text(405, "method not allowed\n").with_header(field("Allow", allow))
}

fn text(status: u16, body: &str) -> Bytes {
    answer(
        status,
        "text/plain; charset=utf-8",
        body.as_bytes().to_vec(),
    )
}

fn json(status: u16, value: &impl Serialize) -> Bytes {
    match serde_json::to_vec(value) {
        Ok(mut body) => {
            body.push(b'\n');
            answer(status, "application/json", body)
        }
        Err(_) => text(500, "internal error\n"),
    }
}

fn answer(status: u16, content_type: &str, body: Vec<u8>) -> Bytes {
    Response::from_data(body)
        .with_status_code(status)
        .with_header(field("Content-Type", content_type))
        // Answers of the agent always have a length.
        .with_chunked_threshold(usize::MAX)
}

fn field(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("the header fields written here are ASCII")
}

/// How often [`Shared`] looks.
pub(super) const TICK: Duration = LOOK_EVERY;
