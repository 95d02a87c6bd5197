//! What is to be seen of a [`World`], and what is seen: in the worker's listings, and by
//! clients.

use super::world::{Admin, DEFAULT, EXTRA, HOSTS, LIST, PATHS, Server, World, made};
use crate::support::haproxy::Haproxy;
use crate::support::traffic::get_port;
use crate::support::wait;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// By object: how it looks, the same before and after a reload.
pub(crate) type View = BTreeMap<String, String>;

fn server_text(address: &str, weight: &str, admin: Admin) -> String {
    match (admin, weight) {
        (Admin::Maint, _) => format!("{address} weight {weight} in maintenance"),
        (Admin::Drain, _) | (Admin::Ready, "0") => format!("{address} draining"),
        (Admin::Ready, _) => format!("{address} weight {weight}"),
    }
}

impl World {
    /// As the worker must show it.
    pub(crate) fn view(&self) -> View {
        let mut view = View::new();
        for (path, rows) in &self.maps {
            let rows: Vec<String> = rows.iter().map(|(k, v)| format!("{k} {v}")).collect();
            view.insert(format!("map {path}"), rows.join("\n"));
        }
        let mut names: BTreeSet<&str> = self.backends.keys().map(String::as_str).collect();
        names.insert("fallback");
        let names: Vec<&str> = names.into_iter().collect();
        view.insert("backends".to_owned(), names.join(" "));
        for (backend, servers) in &self.backends {
            for (name, server) in servers {
                let Server {
                    address,
                    weight,
                    admin,
                    ..
                } = server;
                let text = server_text(&address.to_string(), &weight.to_string(), *admin);
                view.insert(format!("server {backend}/{name}"), text);
            }
        }
        for (path, n) in &self.certs {
            view.insert(format!("cert {path}"), made(*n).serial.clone());
        }
        for (path, all) in &self.cas {
            let serials: BTreeSet<&str> = all.iter().map(|n| &*made(*n).serial).collect();
            let serials: Vec<&str> = serials.into_iter().collect();
            view.insert(format!("ca {path}"), serials.join(" "));
        }
        let mut rows: Vec<String> = self.rows.iter().map(super::world::Row::text).collect();
        rows.push(DEFAULT.to_owned());
        rows.sort();
        view.insert("rows".to_owned(), rows.join("\n"));
        view
    }

    /// The same, asked of the worker: of the certificates and CA files only those of the
    /// model, since a worker keeps what it once held until a reload.
    pub(crate) fn seen(&self, haproxy: &Haproxy) -> View {
        // The agent may look at the certificates at this moment too.
        let ask = |line: &str| {
            wait::until(line, Duration::from_secs(5), || {
                let answer = haproxy.ask(line).unwrap();
                (!answer.contains("are currently locked!")).then_some(answer)
            })
        };
        let mut view = View::new();
        for path in self.maps.keys() {
            let dump = ask(&format!("show map {path}"));
            let rows = dump.lines().filter_map(|row| row.split_once(' '));
            let rows: Vec<&str> = rows.map(|(_, row)| row).collect();
            view.insert(format!("map {path}"), rows.join("\n"));
        }
        let listing = ask("show backend");
        let names = listing.lines().filter(|line| !line.starts_with('#'));
        let mut names: Vec<&str> = names.filter(|line| !line.is_empty()).collect();
        names.retain(|name| *name != "MASTER" && !name.starts_with(EXTRA));
        names.sort_unstable();
        view.insert("backends".to_owned(), names.join(" "));
        for row in ask("show servers state").lines().skip(2) {
            let f: Vec<&str> = row.split(' ').collect();
            if f.len() < 19 || f[1].starts_with(EXTRA) {
                continue;
            }
            let mask: u32 = f[6].parse().unwrap();
            let admin = match (mask & 1, mask & 8) {
                (1, _) => Admin::Maint,
                (_, 8) => Admin::Drain,
                (_, _) => Admin::Ready,
            };
            let text = server_text(&format!("{}:{}", f[4], f[18]), f[7], admin);
            view.insert(format!("server {}/{}", f[1], f[3]), text);
        }
        assert!(
            !ask("show ssl cert").contains("\n*"),
            "a transaction is open"
        );
        for path in self.certs.keys() {
            let serial = serials(&ask(&format!("show ssl cert {path}")));
            view.insert(format!("cert {path}"), serial);
        }
        for path in self.cas.keys() {
            let serial = serials(&ask(&format!("show ssl ca-file {path}")));
            view.insert(format!("ca {path}"), serial);
        }
        let rows = ask(&format!("show ssl crt-list {LIST}")).replace('\0', "");
        let rows = rows.lines().filter(|row| !row.starts_with('#'));
        let mut rows: Vec<&str> = rows.map(str::trim).filter(|row| !row.is_empty()).collect();
        rows.sort_unstable();
        view.insert("rows".to_owned(), rows.join("\n"));
        view
    }

    /// What clients get, against what they must get.
    pub(crate) fn clients(
        &self,
        names: &BTreeMap<SocketAddr, String>,
        tls: bool,
    ) -> Result<(), String> {
        let check = |what: &str, seen: &str, wanted: &str| match seen == wanted {
            true => Ok(()),
            false => Err(format!("{what}: {seen} instead of {wanted}")),
        };
        let paths = &self.maps[PATHS];
        for (at, (key, value)) in paths.iter().enumerate() {
            // The first of equal keys counts.
            if paths.iter().take(at).any(|row| row.0 == *key) {
                continue;
            }
            let answer = get_port(self.http, "any", key).map_err(|error| error.to_string())?;
            check(key, &answer.body, value)?;
        }
        for (host, backend) in &self.maps[HOSTS] {
            let servers = self.backends.get(backend);
            let up = servers.into_iter().flat_map(BTreeMap::values);
            let up: Vec<&Server> = up.filter(|server| server.serves()).collect();
            let name = |server: &&Server| names.get(&server.address).map_or("verify=0,0", |n| n);
            let mut wanted: BTreeSet<&str> = up.iter().map(name).collect();
            if wanted.is_empty() {
                wanted.insert("503");
            }
            let mut seen = BTreeSet::new();
            // Round robin: a few rounds reach every server.
            for _ in 0..wanted.len() * 3 {
                let answer = get_port(self.http, host, "/").map_err(|error| error.to_string())?;
                seen.insert(match answer.status {
                    200 => answer.body,
                    status => status.to_string(),
                });
            }
            let weights = || up.iter().map(|server| server.weight);
            let even = weights().max() <= weights().min().map(|least| least * 4);
            // Where weights are far apart, those of the small ones are long in coming.
            if even || !seen.iter().all(|name| wanted.contains(&**name)) {
                check(host, &format!("{seen:?}"), &format!("{wanted:?}"))?;
            }
        }
        if tls {
            self.tls_clients()?;
        }
        Ok(())
    }

    fn tls_clients(&self) -> Result<(), String> {
        self.handshakes()?;
        for n in 0..3 {
            let trusted = self.cas[super::world::CLIENTS].contains(&n);
            let seen = served(self.tls, "elsewhere.example", Some(n));
            if seen.body.contains("verify=0,0") != trusted {
                return Err(format!(
                    "client m{n}: {} and trusted is {trusted}",
                    seen.body
                ));
            }
        }
        Ok(())
    }

    /// Each name is served its certificate.
    pub(crate) fn handshakes(&self) -> Result<(), String> {
        let default = ("elsewhere.example".to_owned(), self.certs[DEFAULT]);
        let rows = self.rows.iter();
        let rows = rows.map(|row| (row.filter.clone(), self.certs[&row.cert]));
        for (name, n) in rows.chain([default]) {
            let seen = served(self.tls, &name, None);
            let wanted = format!("m{n}.example");
            if seen.subject != wanted {
                return Err(format!(
                    "{name} is served {} and not {wanted}",
                    seen.subject
                ));
            }
        }
        Ok(())
    }
}

fn serials(text: &str) -> String {
    let all: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("Serial: "))
        .collect();
    all.into_iter().collect::<Vec<_>>().join(" ")
}

struct Served {
    subject: String,
    body: String,
}

/// One request over TLS with that server name, as that client.
fn served(port: u16, name: &str, client: Option<usize>) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-servername", name, "-connect"]);
    command.arg(format!("127.0.0.1:{port}")).args(["-ign_eof"]);
    if let Some(n) = client {
        let file = dir.path().join("client.pem");
        std::fs::write(&file, made(n).material.pem()).unwrap();
        command.arg("-cert").arg(&file).arg("-key").arg(&file);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let done = child.wait_with_output().unwrap();
    drop(stdin);
    let text = String::from_utf8_lossy(&done.stdout);
    let subject = text.lines().find_map(|line| line.strip_prefix("subject="));
    let subject = subject.unwrap_or_default().replace(' ', "");
    let body = text
        .lines()
        .rfind(|line| line.starts_with("verify="))
        .unwrap_or_default();
    Served {
        subject: subject.trim_start_matches("CN=").to_owned(),
        body: body.to_owned(),
    }
}
