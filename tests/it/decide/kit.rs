//! A directory, an agent, a HAProxy, and a look at all that the worker shows of its
//! files.

use crate::support::agent::{Agent, PASSWORD, Setup, USER};
use crate::support::haproxy::{Haproxy, Version, minimal};
use crate::support::{certs, wait};
use haptic_agent::client::decide::Verdict;
use haptic_agent::client::push::{Outcome, PushOptions, Pushed, push};
use haptic_agent::client::{Client, ClientConfig, Credentials, FileSet, FileSetOptions, StateRead};
use haptic_agent::wire::state::State;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const BOTH: [Version; 2] = [Version::V3_0, Version::V3_4];

/// A person's directory beside a running site.
pub(super) struct Site {
    pub(super) haproxy: Haproxy,
    pub(super) agent: Agent,
    pub(super) client: Client,
    pub(super) base: PathBuf,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) options: FileSetOptions,
    _dir: tempfile::TempDir,
}

impl Site {
    /// HAProxy and agent with `files` pushed and loaded; `@BASE@` in them is the base
    /// directory.
    pub(super) fn start(version: Version, files: &[(&str, String)]) -> Self {
        Self::start_with(version, files, FileSetOptions::default())
    }

    pub(super) fn start_with(
        version: Version,
        files: &[(&str, String)],
        options: FileSetOptions,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        std::fs::create_dir(&base).unwrap();
        let haproxy = Haproxy::start(version, &base, &minimal(&base));
        let agent = Setup::new(&base).start();
        let credentials = Credentials::new(USER, PASSWORD).unwrap();
        let url = format!("http://{}", agent.api());
        let client = Client::new(ClientConfig::new(&url, credentials).unwrap());
        let mut site = Self {
            haproxy,
            agent,
            client,
            base,
            files: BTreeMap::new(),
            options,
            _dir: dir,
        };
        for (path, text) in files {
            site.write(path, text);
        }
        let pushed = site.push();
        assert_eq!(pushed.decision.verdict, Verdict::Reload);
        assert_eq!(pushed.outcome, Outcome::Applied, "{pushed:#?}");
        site
    }

    pub(super) fn write(&mut self, path: &str, text: &str) {
        let text = text.replace("@BASE@", &self.base.display().to_string());
        self.files.insert(path.to_owned(), text.into_bytes());
    }

    pub(super) fn replace(&mut self, path: &str, from: &str, to: &str) {
        let text = String::from_utf8(self.files[path].clone()).unwrap();
        assert!(text.contains(from), "{path} has no {from:?}");
        self.write(path, &text.replace(from, to));
    }

    pub(super) fn set(&self) -> FileSet {
        FileSet::from_files(self.files.clone(), &self.options).unwrap()
    }

    pub(super) fn state(&self) -> State {
        let read = StateRead {
            plan: true,
            ..StateRead::default()
        };
        self.client.state(read).unwrap()
    }

    pub(super) fn push(&self) -> Pushed {
        self.push_with(&PushOptions::default())
    }

    fn push_with(&self, options: &PushOptions) -> Pushed {
        let pushed = push(&self.client, &self.set(), options);
        pushed.unwrap_or_else(|error| panic!("{}: {error}", self.haproxy.version()))
    }

    /// Pushes; the worker stays, and the agent says `runtime`.
    pub(super) fn runtime(&self) -> Pushed {
        self.without_reload(Verdict::Runtime, "runtime")
    }

    /// Pushes; the worker stays, and no command was needed.
    pub(super) fn file_only(&self) -> Pushed {
        self.without_reload(Verdict::FileOnly, "file_only")
    }

    fn without_reload(&self, verdict: Verdict, mode: &str) -> Pushed {
        let version = self.haproxy.version();
        let before = self.haproxy.worker_pid();
        let pushed = self.push();
        assert_eq!(
            pushed.decision.verdict, verdict,
            "{version} {:#?}",
            pushed.decision
        );
        assert_eq!(pushed.outcome, Outcome::Applied, "{version} {pushed:#?}");
        let result = pushed.result.as_ref().unwrap();
        let said = serde_json::to_value(result).unwrap();
        assert_eq!(said["mode"], mode, "{version} {said:#}");
        assert_eq!(self.haproxy.worker_pid(), before, "{version}");
        pushed
    }

    /// Pushes; it is a reload, for a reason that says `words`.
    pub(super) fn reload(&self, words: &str) -> Pushed {
        let version = self.haproxy.version();
        let before = self.haproxy.worker_pid();
        let pushed = self.push();
        assert_eq!(
            pushed.decision.verdict,
            Verdict::Reload,
            "{version} {:#?}",
            pushed.decision
        );
        let told = &pushed.decision.reasons;
        assert!(
            told.iter().any(|reason| reason.text.contains(words)),
            "{version}: wanted {words:?} in {told:#?}"
        );
        assert_eq!(pushed.outcome, Outcome::Applied, "{version} {pushed:#?}");
        assert_ne!(self.haproxy.worker_pid(), before, "{version}");
        pushed
    }

    /// Worker and files agree, and the same set loaded anew looks the same. Deletes that
    /// wait are waited for.
    pub(super) fn agrees(&self) {
        let divergence = self.agent.sample("haptic_runtime_map_divergence_total");
        let version = self.haproxy.version();
        assert_eq!(
            divergence, 0.0,
            "{version}: the agent found worker and files apart"
        );
        self.agrees_in_the_end();
    }

    /// As [`agrees`](Self::agrees), where somebody's hand was in between and the agent may
    /// have noticed.
    pub(super) fn agrees_in_the_end(&self) {
        let version = self.haproxy.version();
        wait::until("no delete waits", Duration::from_secs(40), || {
            let waiting = self.state().pending_deletes;
            (waiting.servers.is_empty() && waiting.backends.is_empty()).then_some(())
        });
        for (path, file) in crate::support::agent::tree(&self.base) {
            let wanted = self.set();
            let wanted = wanted
                .get(&path)
                .unwrap_or_else(|| panic!("{path} is left over"));
            assert_eq!(wanted.content, file, "{version} {path}");
        }
        self.maps_are_their_files();
        let before = self.seen();
        let pid = self.haproxy.worker_pid();
        self.push_with(&PushOptions {
            reload: true,
            ..PushOptions::default()
        });
        assert_ne!(self.haproxy.worker_pid(), pid, "{version}");
        assert_eq!(
            before,
            self.seen(),
            "{version}: left the ops, right the files"
        );
    }

    pub(super) fn maps_are_their_files(&self) {
        for name in self.state().runtime_inventory.maps {
            let Some(file) = self.files.get(&name) else {
                continue;
            };
            let lines = haptic_agent::format::map_file::parse(file).unwrap();
            let wanted: Vec<String> = lines
                .iter()
                .map(|line| {
                    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                    format!("{} {}", text(line.key), text(line.value))
                })
                .collect();
            let mut seen = self.map(&name);
            let mut wanted = wanted;
            if self.options.unordered_maps.contains(&name) {
                seen.sort();
                wanted.sort();
            }
            assert_eq!(wanted, seen, "{} {name}", self.haproxy.version());
        }
    }

    pub(super) fn ask(&self, line: &str) -> String {
        self.haproxy.ask(line).unwrap()
    }

    /// `key value` for each entry, in the worker's order.
    pub(super) fn map(&self, name: &str) -> Vec<String> {
        let rows = self.ask(&format!("show map {name}"));
        let rows = rows.lines().filter(|row| !row.is_empty());
        rows.map(|row| row.split_once(' ').unwrap().1.to_owned())
            .collect()
    }

    pub(super) fn serial(&self, cert: &str) -> String {
        let text = self.ask(&format!("show ssl cert {cert}"));
        let line = text.lines().find_map(|line| line.strip_prefix("Serial: "));
        line.unwrap_or_else(|| panic!("no serial in {text}"))
            .to_owned()
    }

    /// Everything that the worker shows of maps, certificates, lists, backends and
    /// servers, without what differs from worker to worker.
    pub(super) fn seen(&self) -> BTreeMap<String, Vec<String>> {
        let mut seen = BTreeMap::new();
        let inventory = self.state().runtime_inventory;
        for name in &inventory.maps {
            let mut rows = self.map(name);
            if self.options.unordered_maps.contains(name) {
                rows.sort();
            }
            seen.insert(format!("map {name}"), rows);
        }
        for (what, names) in [("cert", &inventory.certs), ("ca-file", &inventory.ca_files)] {
            for name in names {
                let text = self.ask(&format!("show ssl {what} {name}"));
                let keep = ["Serial:", "Status:", "SHA1", "Chain Subject:", "Subject:"];
                let lines = text
                    .lines()
                    .filter(|line| keep.iter().any(|k| line.starts_with(k)));
                seen.insert(format!("{what} {name}"), lines.map(str::to_owned).collect());
            }
        }
        for name in &inventory.crt_lists {
            let text = self.ask(&format!("show ssl crt-list {name}"));
            let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
            rows.sort();
            seen.insert(format!("crt-list {name}"), rows);
        }
        for (server, row) in self.servers() {
            seen.insert(format!("server {server}"), row);
        }
        seen
    }

    /// By `backend/server`: address, port, state, weight, and what its keywords come to.
    /// The backend itself stands under `backend/BACKEND`.
    pub(super) fn servers(&self) -> BTreeMap<String, Vec<String>> {
        let mut servers = BTreeMap::new();
        let text = self.ask("show servers state");
        for row in text
            .lines()
            .filter(|row| row.starts_with(|c: char| c.is_ascii_digit()))
        {
            let fields: Vec<&str> = row.split(' ').collect();
            let [_, backend, _, server, address, _, admin, weight, ..] = fields.as_slice() else {
                continue;
            };
            let admin: u32 = admin.parse().unwrap();
            let row = vec![
                format!("{address}:{}", fields[18]),
                format!("admin {}", admin & 9),
                format!("weight {weight}"),
            ];
            servers.insert(format!("{backend}/{server}"), row);
        }
        for row in self.statistics() {
            let name = format!("{}/{}", row["pxname"], row["svname"]);
            if row["svname"] == "FRONTEND" {
                continue;
            }
            let mut shown = Vec::new();
            for column in [
                "slim",
                "qlimit",
                "bck",
                "cookie",
                "mode",
                "algo",
                "check_rise",
                "check_fall",
                "agent_rise",
                "agent_fall",
            ] {
                // A backend's own limit is worked out from the frontends when HAProxy starts.
                if column == "slim" && row["svname"] == "BACKEND" {
                    continue;
                }
                let value = row.get(column).map_or("", String::as_str);
                shown.push(format!("{column} {value}"));
            }
            let checked = !row["check_status"].is_empty();
            shown.push(format!("checked {checked}"));
            let agent = row.get("agent_status").is_some_and(|text| !text.is_empty());
            shown.push(format!("agent {agent}"));
            servers.entry(name).or_default().extend(shown);
        }
        servers
    }

    pub(super) fn statistics(&self) -> Vec<BTreeMap<String, String>> {
        let text = self.ask("show stat");
        let mut lines = text.lines();
        let header: Vec<&str> = lines
            .next()
            .unwrap()
            .trim_start_matches("# ")
            .split(',')
            .collect();
        lines
            .filter(|line| !line.is_empty())
            .map(|line| {
                let fields = line.split(',').map(str::to_owned);
                header.iter().map(|h| (*h).to_owned()).zip(fields).collect()
            })
            .collect()
    }
}

/// Sockets, defaults and a frontend on a unix socket that uses two maps.
pub(super) fn config(more: &str) -> (&'static str, String) {
    let text = format!(
        "{}frontend front\n    bind unix@@BASE@/front.sock\n    http-request return status 200 content-type text/plain lf-string \"%[path,map(maps/path.map,none)]\" if {{ path -m found }}\n{more}",
        preamble()
    );
    ("haproxy.cfg", text)
}

/// As the tests' own, with the placeholder for the base.
pub(super) fn preamble() -> String {
    crate::support::haproxy::preamble(Path::new("@BASE@"))
}

pub(super) fn first() -> String {
    certs::first().pem()
}

pub(super) fn second() -> String {
    certs::second().pem()
}
