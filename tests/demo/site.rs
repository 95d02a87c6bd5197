//! The files that the person of the demo wants.

use std::collections::BTreeMap;
use std::path::Path;

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
    /// The responder's port.
    pub(crate) check: u16,
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
        let mut text = places.fill(&text);
        if path == "haproxy.cfg" {
            text = enrolled(&text, places.check);
        }
        site.insert(path.to_owned(), text);
    }
    Ok(site)
}

/// Every server of the shop asks the responder about itself.
fn enrolled(text: &str, check: u16) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let name = line.trim_start().strip_prefix("server ");
        let name = name.and_then(|rest| rest.split(' ').next());
        lines.push(match name.filter(|name| name.starts_with("shop")) {
            Some(name) => format!(
                "{line} agent-check agent-addr 127.0.0.1 agent-port {check} agent-inter 200ms agent-send \"shop/{name} shop\\n\""
            ),
            None => line.to_owned(),
        });
    }
    lines.join("\n") + "\n"
}

/// Writes it as a directory.
pub(crate) fn write(site: &Site, directory: &Path) -> Result<(), String> {
    for (path, content) in site {
        let file = directory.join(path);
        let made = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&file, content))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}
