//! The files that the demo's controller wants, and the manifest that says so.

use std::collections::BTreeMap;
use std::path::Path;

use haptic_agent::wire::digest::{ContentHash, DigestKind};
use serde_json::{Value, json};

/// The smallest configuration that has the sockets which the agent needs.
pub(crate) const BOOTSTRAP: &str = "\
# Started before any controller has spoken.
global
    stats socket unix@@WORKER@ mode 600 level admin
    hard-stop-after 10s

defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s

frontend web
    bind 127.0.0.1:@HTTP@
    http-request return status 503 content-type text/plain string \"nobody has configured me yet\"
";

/// What stands behind the words between at signs.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The base directory.
    pub(crate) base: String,
    /// The worker's socket.
    pub(crate) worker: String,
    /// HAProxy's port.
    pub(crate) http: u16,
    /// The origin's port.
    pub(crate) origin: u16,
}

impl Places {
    /// Fills a text in.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("@BASE@", &self.base)
            .replace("@WORKER@", &self.worker)
            .replace("@HTTP@", &self.http.to_string())
            .replace("@ORIGIN@", &self.origin.to_string())
    }
}

/// A complete desired state: path to content.
pub(crate) type Site = BTreeMap<String, String>;

/// Reads the small site from the fixtures.
pub(crate) fn small(places: &Places) -> Result<Site, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/small");
    let mut site = Site::new();
    for path in [
        "haproxy.cfg",
        "maps/host.map",
        "maps/path.map",
        "general/503.http",
    ] {
        let text = std::fs::read_to_string(root.join(path))
            .map_err(|error| format!("fixtures/small/{path}: {error}"))?;
        site.insert(path.to_owned(), places.fill(&text));
    }
    Ok(site)
}

fn digest(content: &str) -> String {
    ContentHash::of(content.as_bytes())
        .digest(DigestKind::Sha256)
        .to_string()
}

fn kind(path: &str) -> &'static str {
    if path == "haproxy.cfg" {
        "config"
    } else if path.ends_with(".map") {
        "map"
    } else {
        "general"
    }
}

/// The manifest that asks for `site` as plan `id`, built upon what `state` says.
pub(crate) fn manifest(site: &Site, id: &str, sequence: u64, mode: &str, state: &Value) -> Value {
    let files: Vec<Value> = site
        .iter()
        .map(|(path, content)| {
            json!({
                "path": path,
                "digest": digest(content),
                "size": content.len(),
                "kind": kind(path),
                "reload_on_change": true,
            })
        })
        .collect();
    json!({
        "plan_id": id,
        "plan_schema_version": 1,
        "token": {"leader_epoch": 1, "render_seq": sequence},
        "expected_prev_plan_id": state["applied_plan_id"],
        "expected_prev_token": state["applied_token"],
        "files": files,
        "mode": mode,
    })
}

/// The files of `site` that the agent does not hold by what `state` says.
pub(crate) fn lacking<'a>(site: &'a Site, state: &Value) -> Vec<(&'a str, &'a [u8])> {
    site.iter()
        .filter(|(path, content)| state["files"][path.as_str()]["digest"] != digest(content))
        .map(|(path, content)| (path.as_str(), content.as_bytes()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_sent() {
        let site = Site::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let state = json!({"files": {"a": {"digest": digest("1")}, "b": {"digest": digest("x")}}});
        assert_eq!(lacking(&site, &state), [("b", &b"2"[..])]);
        assert_eq!(lacking(&site, &json!({})).len(), 2);
    }
}
