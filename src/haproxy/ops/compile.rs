//! The whole batch is decided here, before its first byte.

use super::expect::Expect;
use super::plan::{Deletes, backend_key, server_key};
use super::program::{
    CaProgram, CertProgram, MapDel, MapReplace, Remove, Segment, Settle, Step, Target, ZeroUpdates,
    stop_server, unpublish,
};
use super::touched::Touched;
use super::typed::{AdminState, TypedOp};
use super::{Fault, NotExecutable, Outcome};
use crate::format::field::{Name, RuntimePath, ServerRef, required};
use crate::format::{HaproxyVersion, crt_list, map_file, payload, pem};
use crate::haproxy::batch::Batch;
use crate::haproxy::command::Command;
use crate::haproxy::deletes::{DeleteRequest, Key, ObjectKind, Queue};
use crate::wire::limits::{
    MAX_FILES_BYTES, MAX_OPS_PER_APPLY, MAX_PAYLOAD_BYTES, MAX_WAIT_BUDGET_MS,
};
use crate::wire::op::Op;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

/// The longest inline wait, below half of the time after which HAProxy closes an idle
/// session.
const MAX_INLINE_WAIT_MS: u64 = 2000;
/// What a wait may take beyond its budget.
const WAIT_MARGIN: Duration = Duration::from_secs(2);

/// File content, handed in: the bytes that the apply has just put on disk.
pub trait Content {
    /// The file of that manifest path, to be read.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be opened; in an operator's words.
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, String>;

    /// The whole of it.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); it cannot be read, or it is larger than a whole set may
    /// be.
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        self.open(path)?
            .take(MAX_FILES_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("{path} cannot be read: {error}"))?;
        match bytes.len() as u64 > MAX_FILES_BYTES {
            true => Err(format!("{path} is larger than {MAX_FILES_BYTES} bytes")),
            false => Ok(bytes),
        }
    }
}

/// Checks all ops and makes their commands, for a worker of that version and with
/// `queue` as it is for this worker. Sends nothing.
///
/// # Errors
///
/// [`NotExecutable`] for the first op at fault; the files are to be reloaded instead.
pub fn compile(
    ops: &[Op],
    version: &HaproxyVersion,
    content: &dyn Content,
    queue: &Queue,
) -> Result<Batch, NotExecutable> {
    let at = |index: usize| {
        move |fault: Fault| NotExecutable {
            index,
            kind: ops.get(index).map(|op| op.kind.clone()).unwrap_or_default(),
            outcome: fault.outcome,
            words: fault.words,
        }
    };
    if ops.len() > MAX_OPS_PER_APPLY {
        let fault = Fault::too_big(format!("a batch has at most {MAX_OPS_PER_APPLY} ops"));
        return Err(at(MAX_OPS_PER_APPLY)(fault));
    }
    let mut typed = Vec::with_capacity(ops.len());
    for (index, op) in ops.iter().enumerate() {
        let op = TypedOp::parse(op, version).map_err(Fault::from);
        typed.push(op.map_err(at(index))?);
    }
    let mut compiler = Compiler::new(&typed, version, content, queue);
    for (index, op) in typed.iter().enumerate() {
        compiler.op(index, op).map_err(at(index))?;
    }
    compiler.settle_addresses();
    Ok(Batch {
        kinds: ops.iter().map(|op| op.kind.clone()).collect(),
        segments: compiler.segments,
        deferred: compiler.deferred,
        cancels: compiler.cancels,
        absorbed: compiler.plan.absorbed,
        touched: Touched::of(&typed),
    })
}

/// The text of a command, with room for its line end.
fn joined(words: &[&str]) -> String {
    let bytes: usize = words.iter().map(|word| word.len()).sum();
    let mut text = String::with_capacity(bytes + 1);
    words.iter().for_each(|word| text.push_str(word));
    text
}

struct Compiler<'a> {
    version: &'a HaproxyVersion,
    content: &'a dyn Content,
    plan: Deletes,
    /// What waits at this point of the batch, from before it, and what was given up.
    queued: BTreeSet<Key>,
    abandoned: &'a BTreeSet<Key>,
    room: [(ObjectKind, usize); 2],
    segments: Vec<Segment>,
    deferred: Vec<(usize, DeleteRequest)>,
    cancels: Vec<Key>,
    /// Servers added so far: whether with a check, whether with an agent-check.
    added: BTreeMap<ServerRef, (bool, bool)>,
    servers_follow: BTreeSet<Name>,
    new_cas: BTreeSet<RuntimePath>,
    addresses: BTreeMap<ServerRef, Settle>,
    wait_left_ms: u64,
}

impl<'a> Compiler<'a> {
    fn new(
        ops: &[TypedOp],
        version: &'a HaproxyVersion,
        content: &'a dyn Content,
        queue: &'a Queue,
    ) -> Self {
        let servers_follow = ops.iter().filter_map(|op| match op {
            TypedOp::ServerAdd { server, .. } => Some(server.backend.clone()),
            _ => None,
        });
        Self {
            version,
            content,
            plan: Deletes::of(ops),
            queued: queue
                .entries()
                .keys()
                .chain(queue.abandoned())
                .cloned()
                .collect(),
            abandoned: queue.abandoned(),
            room: [ObjectKind::Server, ObjectKind::Backend].map(|kind| (kind, queue.room(kind))),
            segments: Vec::new(),
            deferred: Vec::new(),
            cancels: Vec::new(),
            added: BTreeMap::new(),
            servers_follow: servers_follow.collect(),
            new_cas: BTreeSet::new(),
            addresses: BTreeMap::new(),
            wait_left_ms: MAX_WAIT_BUDGET_MS,
        }
    }

    fn op(&mut self, at: usize, op: &TypedOp) -> Result<(), Fault> {
        match op {
            TypedOp::BackendAdd {
                backend,
                profile,
                mode,
                guid,
            } => {
                self.make_way(at, &backend_key(backend));
                let guid = guid
                    .as_ref()
                    .map_or_else(String::new, |g| format!(" guid {g}"));
                let expect = Expect::BackendAdded {
                    servers_follow: self.servers_follow.contains(backend),
                };
                self.line(
                    at,
                    &format!("add backend {backend} from {profile} mode {mode}{guid}"),
                    expect,
                )
            }
            TypedOp::BackendPublish(backend) => {
                self.cancel(&backend_key(backend));
                let expect = Expect::Exact(6, "Backend published.".to_owned());
                self.line(at, &format!("publish backend {backend}"), expect)
            }
            TypedOp::BackendUnpublish(backend) => {
                let expect = Expect::Exact(6, "Backend unpublished.".to_owned());
                self.line(at, &unpublish(backend), expect)
            }
            TypedOp::BackendDel(backend) => self.delete(at, &backend_key(backend), |this| {
                this.line(at, &unpublish(backend), Expect::Unpublished)
            }),
            TypedOp::WaitBackend {
                backend,
                timeout_ms,
            } => self.wait(at, *timeout_ms, &format!("be-removable {backend}")),
            TypedOp::ServerAdd {
                server,
                address,
                keywords,
            } => {
                self.make_way(at, &server_key(server));
                let mut text = format!("add server {server} {}", address.text());
                for keyword in keywords {
                    for word in std::iter::once(&keyword.name).chain(&keyword.args) {
                        text.push(' ');
                        text.push_str(word.as_str());
                    }
                }
                let has = |name: &str| keywords.iter().any(|k| k.name.as_str() == name);
                self.added
                    .insert(server.clone(), (has("check"), has("agent-check")));
                self.line(at, &text, Expect::ServerAdded)
            }
            TypedOp::ServerEnable { server, health } => self.enable(at, server, *health),
            TypedOp::ServerDisable(server) => {
                self.lines(at, &stop_server(server), || Expect::Silent)
            }
            TypedOp::ServerSetAddr { server, ip, port } => self.set_address(
                server,
                Settle {
                    op: at,
                    server: server.clone(),
                    ip: *ip,
                    port: *port,
                },
            ),
            TypedOp::ServerSetWeight { server, weight } => {
                let text = format!("set server {server} weight {weight}");
                self.line(at, &text, Expect::Silent)
            }
            TypedOp::ServerSetState { server, state } => {
                let mut steps = Vec::new();
                if *state == AdminState::Ready {
                    self.cancel(&server_key(server));
                    steps = self.wake_agent(server);
                }
                let text = format!("set server {server} state {}", state.as_str());
                steps.push((text, Expect::Silent));
                self.steps(at, steps)
            }
            TypedOp::WaitServer { server, timeout_ms } => {
                self.wait(at, *timeout_ms, &format!("srv-removable {server}"))
            }
            TypedOp::ShutdownSessions(server) => {
                if self.plan.absorbed.contains(&at) {
                    return Ok(());
                }
                let text = format!("shutdown sessions server {server}");
                self.line(at, &text, Expect::Silent)
            }
            TypedOp::ServerDel(server) => {
                self.addresses.remove(server);
                self.delete(at, &server_key(server), |this| {
                    this.lines(at, &stop_server(server), || Expect::Stopped)
                })
            }
            TypedOp::MapAdd { path, key, value } => {
                let body = format!("{key} {value}\n");
                let text = format!("add map {path}");
                let command = Command::with_payload(&text, body.as_bytes(), MAX_PAYLOAD_BYTES)?;
                self.push(at, command, Expect::Silent, true);
                Ok(())
            }
            TypedOp::MapSet { path, key, value } => {
                let words = [
                    "set map ",
                    path.as_str(),
                    " ",
                    key.as_str(),
                    " ",
                    value.as_str(),
                ];
                let command = Command::from_line(joined(&words))?;
                self.push(at, command, Expect::Silent, true);
                Ok(())
            }
            TypedOp::MapDel { path, key } => {
                let command = Command::line(&format!("del map {path} {key}"))?;
                let one = MapDel { op: at, command };
                match self.segments.last_mut() {
                    Some(Segment::MapDels(open)) => open.push(one),
                    Some(_) | None => self.segments.push(Segment::MapDels(vec![one])),
                }
                Ok(())
            }
            TypedOp::MapReplace(path) => {
                let file = self.file(path)?;
                let room = payload::room(path.as_str());
                let chunks = map_file::chunks(&map_file::parse(&file)?, room)?;
                self.segments.push(Segment::MapReplace(MapReplace {
                    op: at,
                    path: path.clone(),
                    chunks,
                }));
                Ok(())
            }
            TypedOp::CertSet(path) => self.certificate(at, path, false),
            TypedOp::CertNew(path) => self.certificate(at, path, true),
            TypedOp::CaSet(path) => {
                // On earlier releases it voids the certificate changes after it and can
                // end the worker, unless nothing uses the CA; only a new one surely is.
                if !self.version.at_least(3, 2) && !self.new_cas.contains(path) {
                    return Err(Fault::unsupported(format!(
                        "changing a CA file at runtime needs HAProxy 3.2 and this is {}",
                        self.version.short()
                    )));
                }
                self.authority(at, path, false)
            }
            TypedOp::CaNew(path) => {
                self.new_cas.insert(path.clone());
                self.authority(at, path, true)
            }
            TypedOp::CrtlistAdd { path, cert, rest } => {
                // The stored name is known later and at most `crt-base` longer.
                Command::with_payload(
                    &format!("add ssl crt-list {path}"),
                    format!("{cert}{rest}\n").as_bytes(),
                    MAX_PAYLOAD_BYTES.saturating_sub(MAX_STORED_PREFIX_BYTES),
                )?;
                self.segments.push(Segment::CrtAdd {
                    op: at,
                    path: path.clone(),
                    cert: cert.clone(),
                    rest: rest.clone(),
                });
                Ok(())
            }
            TypedOp::CrtlistDel { path, cert } => {
                let file = self.content.read(path.as_str()).ok();
                self.segments.push(Segment::CrtDel {
                    op: at,
                    path: path.clone(),
                    cert: cert.clone(),
                    on_disk: file.map(|file| crt_list::names(&file)),
                });
                Ok(())
            }
        }
    }

    fn line(&mut self, at: usize, text: &str, expect: Expect) -> Result<(), Fault> {
        let command = Command::line(text)?;
        self.push(at, command, expect, true);
        Ok(())
    }

    fn lines(
        &mut self,
        at: usize,
        texts: &[String],
        expect: impl Fn() -> Expect,
    ) -> Result<(), Fault> {
        for (n, text) in texts.iter().enumerate() {
            let command = Command::line(text)?;
            self.push(at, command, expect(), n + 1 == texts.len());
        }
        Ok(())
    }

    fn push(&mut self, op: usize, command: Command, expect: Expect, last: bool) {
        let step = Step { op, expect, last };
        match self.segments.last_mut() {
            Some(Segment::Plain { commands, steps }) => {
                commands.push(command);
                steps.push(step);
            }
            Some(_) | None => self.segments.push(Segment::Plain {
                commands: vec![command],
                steps: vec![step],
            }),
        }
    }

    fn enable(&mut self, at: usize, server: &ServerRef, health: bool) -> Result<(), Fault> {
        self.cancel(&server_key(server));
        let added = self.added.get(server).copied();
        if health && added.is_some_and(|(check, _)| !check) {
            return Err(Fault::invalid(format!(
                "health checks of {server} cannot be enabled, it was added without the keyword check"
            )));
        }
        let mut steps = Vec::new();
        if health {
            steps.push((format!("enable health {server}"), Expect::Silent));
        }
        steps.extend(self.wake_agent(server));
        steps.push((format!("enable server {server}"), Expect::Silent));
        self.steps(at, steps)
    }

    /// The agent of a row that was disabled is silenced, whatever ends that: it is asked
    /// again. Without the second command a row that was added at runtime stays down
    /// before 3.4.2, whatever its agent says. Only of a row that was added here it is
    /// known if it has one.
    fn wake_agent(&self, server: &ServerRef) -> Vec<(String, Expect)> {
        let expect = match self.added.get(server) {
            None => Expect::AgentIfAny,
            Some((_, true)) => Expect::Silent,
            Some((_, false)) => return Vec::new(),
        };
        vec![
            (format!("enable agent {server}"), expect.clone()),
            (format!("set server {server} agent up"), expect),
        ]
    }

    /// Commands of one op, which is done with the last.
    fn steps(&mut self, at: usize, steps: Vec<(String, Expect)>) -> Result<(), Fault> {
        let last = steps.len().saturating_sub(1);
        for (n, (text, expect)) in steps.into_iter().enumerate() {
            let command = Command::from_line(text)?;
            self.push(at, command, expect, n == last);
        }
        Ok(())
    }

    /// HAProxy applies an address after it answered, so two in a row can end wrong with
    /// clean answers: the first must be seen before the second is sent.
    fn set_address(&mut self, server: &ServerRef, wanted: Settle) -> Result<(), Fault> {
        let port = wanted
            .port
            .map_or_else(String::new, |p| format!(" port {p}"));
        let text = format!("set server {server} addr {}{port}", wanted.ip);
        let expect = Expect::Address {
            ip: wanted.ip,
            port: wanted.port,
        };
        let at = wanted.op;
        if let Some(before) = self.addresses.insert(server.clone(), wanted) {
            self.segments.push(Segment::Settle(vec![before]));
        }
        self.line(at, &text, expect)
    }

    fn settle_addresses(&mut self) {
        let open: Vec<Settle> = std::mem::take(&mut self.addresses).into_values().collect();
        if !open.is_empty() {
            self.segments.push(Segment::Settle(open));
        }
    }

    fn wait(&mut self, at: usize, timeout_ms: Option<u64>, what: &str) -> Result<(), Fault> {
        if self.plan.absorbed.contains(&at) {
            return Ok(());
        }
        // Only the delete that a wait belongs to has a grace of its own to fall back on.
        let ms = (*required("timeout_ms", timeout_ms.as_ref())?)
            .min(MAX_INLINE_WAIT_MS)
            .min(self.wait_left_ms)
            .max(1);
        self.wait_left_ms = self.wait_left_ms.saturating_sub(ms);
        let patience = Duration::from_millis(ms) + WAIT_MARGIN;
        let command = Command::line(&format!("wait {ms}ms {what}"))?.with_patience(patience);
        self.push(at, command, Expect::Removable, true);
        Ok(())
    }

    /// A delete: traffic stops here, the rest waits in the queue, unless the same name
    /// comes again in this batch.
    fn delete(
        &mut self,
        at: usize,
        key: &Key,
        stop: impl FnOnce(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let asked = self.plan.asked.get(&at).copied().unwrap_or_default();
        if self.plan.in_place.contains(&at) {
            let targets = self.targets(key, asked.cut);
            self.segments.push(Segment::Remove(Remove {
                op: at,
                targets,
                is_delete: true,
            }));
            return Ok(());
        }
        let known = self.deferred.iter().any(|(_, request)| request.key == *key);
        let waits = self.queued.contains(key) && !self.abandoned.contains(key);
        if !known && !waits {
            for (kind, left) in &mut self.room {
                if *kind == key.kind() {
                    *left = left.checked_sub(1).ok_or_else(|| Fault {
                        outcome: Outcome::QueueFull,
                        words: "too many deletes are waiting for their sessions to end".to_owned(),
                    })?;
                }
            }
        }
        stop(self)?;
        let grace_ms = match asked.cut {
            true => Some(0),
            false => asked.timeout_ms,
        };
        let request = DeleteRequest {
            key: key.clone(),
            grace_ms,
        };
        self.deferred.push((at, request));
        Ok(())
    }

    /// What must go with `key`: a backend's waiting servers before it.
    fn targets(&mut self, key: &Key, cut: bool) -> Vec<Target> {
        let mut keys: Vec<Key> = match key {
            Key::Server { .. } => Vec::new(),
            Key::Backend { backend } => self
                .queued
                .iter()
                .filter(|k| k.kind() == ObjectKind::Server && k.backend() == backend)
                .cloned()
                .collect(),
        };
        keys.push(key.clone());
        for key in &keys {
            self.queued.remove(key);
        }
        keys.into_iter().map(|key| Target { key, cut }).collect()
    }

    /// An add of something whose delete waits: the delete is tried now.
    fn make_way(&mut self, at: usize, key: &Key) {
        if self.queued.contains(key) {
            let targets = self.targets(key, false);
            self.segments.push(Segment::Remove(Remove {
                op: at,
                targets,
                is_delete: false,
            }));
        }
    }

    /// The object is wanted again, whoever gave it up: this batch or one before.
    fn cancel(&mut self, key: &Key) {
        self.deferred.retain(|(_, request)| request.key != *key);
        if self.queued.remove(key) {
            self.cancels.push(key.clone());
        }
    }

    fn file(&self, path: &RuntimePath) -> Result<Vec<u8>, Fault> {
        self.content.read(path.as_str()).map_err(Fault::invalid)
    }

    fn certificate(&mut self, at: usize, path: &RuntimePath, new: bool) -> Result<(), Fault> {
        let pem = pem::certificate(&self.file(path)?, payload::room(path.as_str()))?;
        self.segments.push(Segment::Cert(CertProgram {
            op: at,
            path: path.clone(),
            new,
            pem,
            zero: match (new, self.version.at_least(3, 2)) {
                (true, _) => ZeroUpdates::Fine,
                (false, false) => ZeroUpdates::NotApplied,
                (false, true) => ZeroUpdates::NotAppliedIfUsed,
            },
        }));
        Ok(())
    }

    fn authority(&mut self, at: usize, path: &RuntimePath, new: bool) -> Result<(), Fault> {
        let bundle = pem::bundle(&self.file(path)?, payload::room(path.as_str()))?;
        self.segments.push(Segment::Ca(CaProgram {
            op: at,
            path: path.clone(),
            new,
            bundle,
        }));
        Ok(())
    }
}

/// What `crt-base` may add to a certificate's name.
const MAX_STORED_PREFIX_BYTES: usize = 1024;

#[cfg(test)]
mod tests;
