//! A reader of the few statements that the sites of these tests are made of: what a fake
//! HAProxy loads at a reload, or why it refuses. No more a parser of configurations than
//! these tests need.

use super::kit;
use haptic_agent::testkit::fake_haproxy::{Backend, Bind, Model, Server};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What HAProxy would have loaded from `base/haproxy.cfg`, or its alerts.
pub(super) fn load(base: &Path) -> Result<Model, String> {
    let text = fs::read_to_string(base.join(kit::CONFIG))
        .map_err(|error| format!("config : Could not open configuration file : {error}"))?;
    let mut reader = Reader::default();
    for (at, line) in text.lines().enumerate() {
        reader
            .line(line)
            .map_err(|what| format!("config : parsing [haproxy.cfg:{}] : {what}", at + 1))?;
    }
    reader.model(base)
}

#[derive(Default)]
struct Reader {
    section: String,
    frontends: Vec<String>,
    defaults: Vec<String>,
    backends: Vec<(String, Vec<Server>)>,
    referenced: BTreeSet<String>,
    maps: BTreeSet<String>,
    binds: Vec<Bind>,
    certs: BTreeSet<String>,
    cas: BTreeSet<String>,
    lists: BTreeSet<String>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        for part in line.split("map(").skip(1) {
            let name = part.split([',', ')']).next().unwrap();
            self.maps.insert(name.to_owned());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] | ["#", ..] => {}
            ["global"] => "global".clone_into(&mut self.section),
            ["defaults", name @ ..] => {
                "defaults".clone_into(&mut self.section);
                self.defaults
                    .extend(name.iter().map(|name| (*name).to_owned()));
            }
            ["frontend", name] => {
                "frontend".clone_into(&mut self.section);
                self.frontends.push((*name).to_owned());
            }
            ["backend", name] => {
                "backend".clone_into(&mut self.section);
                self.backends.push(((*name).to_owned(), Vec::new()));
            }
            ["default_backend", name] => {
                self.referenced.insert((*name).to_owned());
            }
            ["server", name, address, rest @ ..] => self.server(name, address, rest),
            ["bind", _, options @ ..] => self.bind(options),
            [word, ..] if *word == kit::BAD => {
                return Err(format!(
                    "unknown keyword '{word}' in '{}' section",
                    self.section
                ));
            }
            [_, ..] => {}
        }
        Ok(())
    }

    fn server(&mut self, name: &str, address: &str, rest: &[&str]) {
        let (ip, port) = address.split_once(':').unwrap();
        let mut server = Server::new(name, ip, port.parse().unwrap());
        if let ["weight", weight] = rest {
            server = server.weight(weight.parse().unwrap());
        }
        self.backends.last_mut().unwrap().1.push(server);
    }

    fn bind(&mut self, options: &[&str]) {
        let mut bind = Bind::new();
        for pair in options.windows(2) {
            match *pair {
                ["crt", name] => {
                    bind = bind.crt(name);
                    self.certs.insert(name.to_owned());
                }
                ["crt-list", name] => {
                    bind = bind.crt_list(name);
                    self.lists.insert(name.to_owned());
                }
                ["ca-file", name] => {
                    bind = bind.ca_file(name);
                    self.cas.insert(name.to_owned());
                }
                _ => {}
            }
        }
        self.binds.push(bind);
    }

    fn model(self, base: &Path) -> Result<Model, String> {
        let read = |name: &String| {
            fs::read_to_string(base.join(name))
                .map_err(|error| format!("config : unable to load '{name}': {error}"))
        };
        let mut model = Model::new();
        for name in &self.frontends {
            model = model.frontend(name);
        }
        for name in &self.defaults {
            model = model.defaults(name);
        }
        for (name, servers) in self.backends {
            let mut backend = Backend::new(&name);
            if self.referenced.contains(&name) {
                backend = backend.referenced();
            }
            for server in servers {
                backend = backend.server(server);
            }
            model = model.backend(backend);
        }
        for name in &self.maps {
            model = model.map(name, &read(name)?);
        }
        let mut certs = self.certs;
        for name in &self.lists {
            let text = read(name)?;
            certs.extend(
                text.lines()
                    .filter_map(|row| Some(row.split(' ').next()?.to_owned())),
            );
            model = model.crt_list(name, &text);
        }
        for name in &certs {
            model = model.cert(name, &read(name)?);
        }
        for name in &self.cas {
            model = model.ca(name, read(name)?.matches("BEGIN CERTIFICATE").count());
        }
        for bind in self.binds {
            model = model.bind(bind);
        }
        Ok(model)
    }
}
