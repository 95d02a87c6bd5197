//! A site whose bytes do not depend on where it lies, so that every side of a comparison
//! is sent the same.

use crate::support::agent::{Apply, sha256};
use crate::support::certs;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) const CONFIG: &str = "haproxy.cfg";
pub(super) const MAP: &str = "maps/host.map";
pub(super) const OTHER: &str = "maps/other.map";
pub(super) const CERT: &str = "certs/site.pem";
pub(super) const SPARE: &str = "certs/spare.pem";
pub(super) const CA: &str = "ca/clients.pem";
pub(super) const LIST: &str = "lists/a.list";

/// What HAProxy is started with, before any controller has spoken.
pub(super) fn bootstrap() -> String {
    format!(
        "{PREAMBLE}frontend boot\n    bind unix@front.sock\n    http-request return status 200\n"
    )
}

const PREAMBLE: &str = "global
    default-path config
    stats socket unix@worker.sock mode 600 level admin expose-fd listeners
    hard-stop-after 5s
defaults
    mode http
    timeout client 5s
    timeout connect 2s
    timeout server 5s
";

/// A keyword that no HAProxy knows.
pub(super) const BAD: &str = "frobnicate";

/// A desired set.
#[derive(Debug, Clone)]
pub(super) struct Site {
    files: BTreeMap<String, (&'static str, Vec<u8>)>,
}

impl Site {
    /// Maps, a certificate in a crt-list, a CA, a backend that takes servers.
    pub(super) fn new() -> Self {
        let mut site = Self {
            files: BTreeMap::new(),
        };
        let list = format!("{CERT} a.example\n");
        site.put(MAP, "map", "a one\nb two\n");
        site.put(OTHER, "map", "x y\n");
        site.put(CERT, "cert", &certs::first().pem());
        site.put(CA, "ca", &certs::first().cert);
        site.put(LIST, "crtlist", &list);
        site.config("1")
    }

    /// Only a configuration.
    pub(super) fn bare(revision: &str) -> Self {
        let mut site = Self {
            files: BTreeMap::new(),
        };
        let text = format!("{}# {revision}\n", bootstrap());
        site.put(CONFIG, "config", &text);
        site
    }

    fn put(&mut self, path: &str, kind: &'static str, text: &str) {
        self.files
            .insert(path.to_owned(), (kind, text.as_bytes().to_vec()));
    }

    /// A configuration that names all files, and differs by its revision.
    pub(super) fn config(mut self, revision: &str) -> Self {
        let text = format!(
            "{PREAMBLE}frontend front\n    bind unix@front.sock\n    http-request return status 200 content-type text/plain lf-string \"%[path,map({MAP},none)]|%[path,map({OTHER},none)]\" if {{ path_beg / }}\n    default_backend b\nfrontend tls\n    bind unix@tls.sock ssl crt-list {LIST}\n    bind unix@mutual.sock ssl crt {CERT} ca-file {CA} verify optional\n    http-request return status 200\nbackend b\n    balance roundrobin\n    server s1 127.0.0.1:1\n    server s2 127.0.0.1:1 weight 5\ndefaults tmpl\n    mode http\n    balance roundrobin\n    timeout connect 2s\n    timeout server 5s\n# {revision}\n"
        );
        self.put(CONFIG, "config", &text);
        self
    }

    /// A configuration that HAProxy refuses.
    pub(super) fn bad(mut self, revision: &str) -> Self {
        self = self.config(revision);
        if let Some((_, bytes)) = self.files.get_mut(CONFIG) {
            bytes.extend_from_slice(format!("backend bad\n    {BAD}\n").as_bytes());
        }
        self
    }

    pub(super) fn with(mut self, path: &str, kind: &'static str, text: &str) -> Self {
        self.put(path, kind, text);
        self
    }

    pub(super) fn without(mut self, path: &str) -> Self {
        self.files.remove(path);
        self
    }

    pub(super) fn map(self, text: &str) -> Self {
        self.with(MAP, "map", text)
    }

    /// A push of it in mode `reload` on top of what `state` says, as a controller does it:
    /// content that the state shows is not sent.
    pub(super) fn push(&self, plan_id: &str, state: &Value) -> Apply {
        let token = &state["applied_token"];
        let epoch = token["leader_epoch"].as_u64().unwrap().max(1);
        let seq = token["render_seq"].as_u64().unwrap();
        let mut apply = Apply::new(plan_id, epoch, seq + 1).on(state);
        for (path, (kind, bytes)) in &self.files {
            let digest = sha256(bytes);
            let held = state["files"][path]["digest"] == digest;
            apply = match held {
                true => apply.held(path, bytes),
                false => apply.file(path, bytes),
            };
            let files = apply.manifest["files"].as_array_mut().unwrap();
            files.last_mut().unwrap()["kind"] = json!(kind);
        }
        apply
    }

    /// The same in mode `auto`, with these ops.
    pub(super) fn auto(&self, plan_id: &str, state: &Value, ops: &[Value]) -> Apply {
        self.push(plan_id, state).mode("auto").ops(ops)
    }
}

/// What an apply can have beside its files.
pub(super) trait Ops {
    fn ops(self, ops: &[Value]) -> Self;
    fn in_place(self, ops: &[Value], expected: &str, then: &str) -> Self;
    fn epoch(self, epoch: u64) -> Self;
    fn seq(self, seq: u64) -> Self;
    fn xxh64(self) -> Self;
    fn without_parts(self) -> Self;
    fn validated(self, plan_id: &str) -> Self;
    fn revert(self) -> Self;
}

impl Ops for Apply {
    fn ops(self, ops: &[Value]) -> Self {
        self.edit(|manifest| {
            if !ops.is_empty() {
                manifest["ops"] = json!(ops);
            }
        })
    }

    fn in_place(self, ops: &[Value], expected: &str, then: &str) -> Self {
        self.edit(|manifest| {
            manifest["in_place_ops"] = json!(ops);
            manifest["expected_worker_ops_plan_id"] = json!(expected);
            manifest["worker_ops_plan_id"] = json!(then);
        })
    }

    fn epoch(self, epoch: u64) -> Self {
        self.edit(|manifest| manifest["token"]["leader_epoch"] = json!(epoch))
    }

    fn seq(self, seq: u64) -> Self {
        self.edit(|manifest| manifest["token"]["render_seq"] = json!(seq))
    }

    /// Digests as existing controllers send them, where the content is at hand.
    fn xxh64(mut self) -> Self {
        use haptic_agent::wire::digest::{ContentHash, DigestKind};
        let parts = self.parts.clone();
        self = self.edit(|manifest| {
            for file in manifest["files"].as_array_mut().unwrap() {
                let sent = parts.iter().find(|(name, _, _)| file["path"] == *name);
                if let Some((_, _, bytes)) = sent {
                    let digest = ContentHash::of(bytes).digest(DigestKind::Xxh64);
                    file["digest"] = json!(digest.to_string());
                }
            }
        });
        self
    }

    fn without_parts(mut self) -> Self {
        self.parts.clear();
        self
    }

    fn validated(self, plan_id: &str) -> Self {
        self.edit(|manifest| manifest["validated_plan_id"] = json!(plan_id))
    }

    fn revert(self) -> Self {
        let this = self.mode("revert_lkg").without_parts();
        this.edit(|manifest| manifest["files"] = Value::Null)
    }
}

pub(super) fn map_op(kind: &str, path: &str, key: &str, value: Option<&str>) -> Value {
    let mut op = json!({"kind": kind, "path": path, "key": key});
    if let Some(value) = value {
        op["value"] = json!(value);
    }
    op
}

pub(super) fn server_op(kind: &str, server: &str, more: Value) -> Value {
    let mut op = more;
    op["kind"] = json!(kind);
    op["backend"] = json!("b");
    op["server"] = json!(server);
    op
}

pub(super) fn path_op(kind: &str, path: &str) -> Value {
    json!({"kind": kind, "path": path})
}
