//! From the records that the worker runs to the wanted ones, as runtime ops.
//!
//! All or nothing: one difference that no op can bring about is a reload for all of
//! them, and every such difference is named, so that a reader sees the whole price at
//! once. A server is never renamed, an order never repaired: what the next reload would
//! make of the text is what the ops make of the worker.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::keywords::runtime_fault;
use super::record::{Address, Backend, Server, ServerState};
use super::words::{Mentions, directives};
use super::{BACKENDS_FILE, Declared, Records};
use crate::format::HaproxyVersion;
use crate::format::field;
use crate::wire::op::{Op, OpKind};
use crate::wire::state::RuntimeInventory;

/// Balancing that takes servers in and out at runtime.
const DYNAMIC: [&str; 4] = ["roundrobin", "leastconn", "first", "random"];

/// What the ops are composed for.
pub(crate) struct Context<'a> {
    pub(crate) version: &'a HaproxyVersion,
    pub(crate) declared: &'a Declared,
    pub(crate) inventory: &'a RuntimeInventory,
}

/// Ops by the place that they have among those of other files: new before old.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct BackendOps {
    /// New backends with their servers.
    pub(crate) add: Vec<Op>,
    /// Servers added to backends that are there, and changed ones.
    pub(crate) change: Vec<Op>,
    /// New backends take traffic.
    pub(crate) publish: Vec<Op>,
    /// Old backends take none.
    pub(crate) unpublish: Vec<Op>,
    /// Servers that leave traffic, or go.
    pub(crate) leave: Vec<Op>,
    /// Backends that go.
    pub(crate) remove: Vec<Op>,
    /// What they do, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// An op of that kind, without fields.
pub(crate) fn op(kind: OpKind) -> Op {
    let found = OpKind::ALL.iter().find(|(one, _)| *one == kind);
    Op {
        kind: found.map_or_else(String::new, |(_, name)| (*name).to_owned()),
        ..Op::default()
    }
}

/// # Errors
///
/// Why it takes a reload: every difference that no op brings about.
pub(crate) fn compose(old: &Records, context: &Context<'_>) -> Result<BackendOps, Vec<String>> {
    let records = context.declared.records();
    let mut composer = Composer {
        context,
        elsewhere: OnceCell::new(),
        lines: OnceCell::new(),
        ops: BackendOps::default(),
        reloads: Vec::new(),
    };
    let new = &records.0;
    for (name, backend) in new {
        match old.0.get(name) {
            None => composer.added(name, backend),
            Some(before) if !before.same_but_servers(backend) => composer.reloads.push(format!(
                "backend {name} has another profile, mode, guid, balance, hash_type or line, which only a reload changes"
            )),
            Some(before) => composer.kept(name, before, backend),
        }
    }
    for (name, backend) in old.0.iter().filter(|(name, _)| !new.contains_key(*name)) {
        composer.removed(name, backend);
    }
    match composer.reloads.is_empty() {
        true => Ok(composer.ops),
        false => Err(composer.reloads),
    }
}

impl Records {
    /// What lines and keywords say.
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.values().flat_map(|backend| {
            let keywords = backend.servers.iter().flat_map(|server| &server.keywords);
            let args = keywords.flat_map(|keyword| &keyword.args);
            backend.lines.iter().chain(args).map(String::as_bytes)
        })
    }
}

impl Backend {
    fn same_but_servers(&self, other: &Self) -> bool {
        let key = |one: &Self| {
            (
                one.profile.clone(),
                one.mode.clone(),
                one.guid.clone(),
                one.balance.clone(),
                one.hash_type.clone(),
                one.lines.clone(),
            )
        };
        key(self) == key(other)
    }

    /// Its balancing as far as it was declared.
    fn balance(&self) -> Option<(&str, bool)> {
        let (balance, hash) = match &self.balance {
            Some(own) => (own, &self.hash_type),
            None => (self.facts.balance.as_ref()?, &self.facts.hash_type),
        };
        let hash = hash.as_ref().or(self.facts.hash_type.as_ref());
        let consistent = hash.is_some_and(|hash| hash.split(' ').next() == Some("consistent"));
        Some((balance.as_str(), is_dynamic(balance, consistent)))
    }
}

fn is_dynamic(balance: &str, consistent_hash: bool) -> bool {
    let end = balance.find([' ', '\t', '(']).unwrap_or(balance.len());
    match balance.get(..end) {
        Some("static-rr") | None => false,
        Some(word) => consistent_hash || DYNAMIC.contains(&word),
    }
}

/// What stands in the configuration outside of the declared backends, wherever it is.
struct Lines {
    default_server: bool,
    /// A static balancing.
    balance: Option<String>,
}

struct Composer<'a> {
    context: &'a Context<'a>,
    /// The names outside of server lines; looked for when first asked.
    elsewhere: OnceCell<Mentions<'a>>,
    /// Lines of the skeleton that bear on every server; likewise.
    lines: OnceCell<Lines>,
    ops: BackendOps,
    reloads: Vec<String>,
}

impl<'a> Composer<'a> {
    fn elsewhere(&self) -> &Mentions<'a> {
        self.elsewhere.get_or_init(|| {
            let declared = self.context.declared;
            let texts = declared.records().texts();
            Mentions::of(declared.skeleton().into_iter().chain(texts))
        })
    }

    fn lines(&self) -> &Lines {
        self.lines.get_or_init(|| {
            let skeleton = || directives(self.context.declared.skeleton());
            let text = |rest: &[u8]| String::from_utf8_lossy(rest).into_owned();
            Lines {
                default_server: skeleton().any(|(word, _)| word == b"default-server"),
                balance: skeleton()
                    .filter(|(word, _)| *word == b"balance")
                    .map(|(_, rest)| text(rest))
                    .find(|balance| !is_dynamic(balance, false)),
            }
        })
    }

    fn reload(&mut self, why: impl Into<String>) {
        self.reloads.push(why.into());
    }

    fn added(&mut self, name: &str, backend: &Backend) {
        let before = self.reloads.len();
        self.whole_backends(name, "added");
        if backend.balance.is_some() || backend.hash_type.is_some() || !backend.lines.is_empty() {
            self.reload(format!(
                "backend {name} has a balance, hash_type or lines of its own, and HAProxy adds backends at runtime only as their profile is; put them into a defaults section and name that as its profile"
            ));
        }
        if self.elsewhere().name(name) {
            self.reload(format!(
                "the configuration mentions {name} outside of the declared backends, so HAProxy has to check it"
            ));
        }
        if !backend.servers.is_empty() {
            self.takes_servers(name, backend);
        }
        let mut ops = vec![Op {
            backend: Some(name.to_owned()),
            profile: Some(backend.profile.clone()),
            mode: Some(backend.mode.clone()),
            guid: backend.guid.clone(),
            ..op(OpKind::BackendAdd)
        }];
        for server in &backend.servers {
            if server.has("minconn") {
                self.reload(format!(
                    "server {name}/{} has a minconn, which counts for nothing in a backend added at runtime: HAProxy works out its fullconn only when it starts",
                    server.name
                ));
            }
            self.addable(name, backend, server);
            ops.extend(add(name, server));
        }
        if self.reloads.len() > before {
            return;
        }
        self.ops.add.extend(ops);
        self.ops.publish.push(of(OpKind::BackendPublish, name));
        self.ops.notes.push(format!(
            "backend {name} is added with {} server(s)",
            backend.servers.len()
        ));
    }

    fn removed(&mut self, name: &str, backend: &Backend) {
        self.whole_backends(name, "removed");
        if self.elsewhere().name(name) {
            self.reload(format!(
                "the configuration mentions {name} outside of the declared backends, so HAProxy has to check that it can go"
            ));
        }
        if !backend.servers.is_empty() {
            self.takes_servers(name, backend);
        }
        let tables = backend
            .lines
            .iter()
            .any(|line| line.trim_start().starts_with("stick-table"));
        if tables {
            self.reload(format!(
                "backend {name} has a stick-table, and HAProxy does not remove such at runtime"
            ));
        }
        self.ops.unpublish.push(of(OpKind::BackendUnpublish, name));
        for server in &backend.servers {
            self.ops.leave.extend(remove(name, server));
        }
        // How long its sessions may take is the agent's to say (`--delete-grace`).
        self.ops.remove.push(of(OpKind::WaitBeRemovable, name));
        self.ops.remove.push(of(OpKind::BackendDel, name));
        self.ops.notes.push(format!("backend {name} is removed"));
    }

    fn whole_backends(&mut self, name: &str, what: &str) {
        if !self.context.version.at_least(3, 4) {
            let version = self.context.version.short();
            self.reload(format!(
                "backend {name} is {what}, which HAProxy does at runtime from 3.4 on, and this is {version}"
            ));
        }
    }

    /// A backend that stays: its servers.
    fn kept(&mut self, name: &str, old: &Backend, new: &Backend) {
        let before: BTreeMap<&str, &Server> =
            old.servers.iter().map(|s| (s.name.as_str(), s)).collect();
        let after: BTreeSet<&str> = new.servers.iter().map(|s| s.name.as_str()).collect();
        let stays = |server: &&Server| before.contains_key(server.name.as_str());
        let order_before = old.servers.iter().map(|s| s.name.as_str());
        let order_before: Vec<&str> = order_before.filter(|n| after.contains(n)).collect();
        let order_after = new.servers.iter().filter(stays).map(|s| s.name.as_str());
        if !order_after.eq(order_before.iter().copied()) {
            self.reload(format!(
                "the servers of backend {name} stand in another order, which only a reload changes"
            ));
        }
        let gone: Vec<&Server> = old
            .servers
            .iter()
            .filter(|server| !after.contains(server.name.as_str()))
            .collect();
        let joins = new.servers.iter().any(|server| !stays(&server));
        if joins || !gone.is_empty() {
            self.takes_servers(name, new);
            if matches!(new.balance(), Some((balance, _)) if balance.starts_with("first")) {
                self.reload(format!(
                    "backend {name} balances by `first`, where the place in the list counts, and a server added at runtime comes last"
                ));
            }
        }
        for server in &new.servers {
            match before.get(server.name.as_str()) {
                None => {
                    self.addable(name, new, server);
                    self.ops.change.extend(add(name, server));
                    let label = format!("{name}/{}", server.name);
                    self.ops.notes.push(format!("server {label} is added"));
                }
                Some(before) => self.changed(name, new, before, server),
            }
        }
        let lines = new.lines.iter().map(String::as_bytes);
        let own = Mentions::of(lines);
        for server in gone {
            let label = format!("{name}/{}", server.name);
            if own.name(&server.name) || self.elsewhere().pair(name, &server.name) {
                self.reload(format!(
                    "the configuration mentions server {label} elsewhere, so HAProxy has to check that it can go"
                ));
            }
            self.ops.leave.extend(remove(name, server));
            self.ops.notes.push(format!("server {label} is removed"));
        }
    }

    /// Whether servers can come to and go from a backend at runtime.
    fn takes_servers(&mut self, name: &str, backend: &Backend) {
        match backend.balance() {
            Some((_, true)) => {}
            Some((balance, false)) => self.reload(format!(
                "backend {name} balances by `{balance}`, and HAProxy takes servers in and out at runtime only with roundrobin, leastconn, first, random or a hash with `hash-type consistent`; spare slots can change their address there"
            )),
            None => {
                if let Some(balance) = self.lines().balance.clone() {
                    self.reload(format!(
                        "the configuration has a line `balance {balance}`, and nothing says whether backend {name} has it; say `balance` in its profile in {BACKENDS_FILE}"
                    ));
                }
            }
        }
    }

    /// Whether `add server` makes of it what its line would.
    fn addable(&mut self, name: &str, backend: &Backend, server: &Server) {
        let label = format!("{name}/{}", server.name);
        if let Address::Other(text) = server.place() {
            self.reload(format!(
                "server {label} has the address {text}, which is no address literal, and HAProxy does not resolve it at runtime"
            ));
        }
        if let Address::Unix(text) = server.place() {
            if let Err(fault) = field::word("address", &text) {
                self.reload(format!("server {label}: {}", fault.words));
            }
        }
        if !backend.facts.default_server && self.lines().default_server {
            self.reload(format!(
                "the configuration has a `default-server` line, and a server added at runtime gets nothing of it; say its keywords as `default_server` in the profile {} in {BACKENDS_FILE} (`[]` if it has none)",
                backend.profile
            ));
        }
        for keyword in &server.keywords {
            if let Some(why) = runtime_fault(keyword, self.context.version) {
                self.reload(format!("server {label}: {why}"));
            }
            let held = match keyword.name.as_str() {
                "crt" => &self.context.inventory.certs,
                "ca-file" => &self.context.inventory.ca_files,
                "crl-file" => &self.context.inventory.crl_files,
                _ => continue,
            };
            for file in keyword.args.iter().filter(|file| !held.contains(file)) {
                self.reload(format!(
                    "server {label} needs {} {file}, which the running HAProxy does not hold under that name",
                    keyword.name
                ));
            }
        }
    }

    /// A server that stays.
    fn changed(&mut self, name: &str, backend: &Backend, old: &Server, new: &Server) {
        if (
            old.place(),
            old.effective_weight(),
            old.state,
            &old.keywords,
        ) == (
            new.place(),
            new.effective_weight(),
            new.state,
            &new.keywords,
        ) {
            return;
        }
        let label = format!("{name}/{}", new.name);
        if old.keywords != new.keywords {
            self.reload(format!(
                "server {label} has other keywords, which only a reload changes"
            ));
        }
        let mut settings = Vec::new();
        if old.place() != new.place() {
            match (old.place(), new.place()) {
                (Address::Ip(..), Address::Ip(ip, port)) => {
                    settings.push(Op {
                        address: Some(ip.to_string()),
                        port: Some(i64::from(port)),
                        ..on(OpKind::ServerSetAddr, name, new)
                    });
                    self.note(format!("server {label} moves to {}", new.place().text()));
                }
                (from, to) => self.reload(format!(
                    "server {label} moves from {} to {}, and only an address literal can become another one at runtime",
                    from.text(),
                    to.text()
                )),
            }
        }
        let asked = new.has("agent-check");
        if old.effective_weight() != new.effective_weight() {
            if asked {
                self.reload(format!(
                    "server {label} gets another weight, and its agent-check sets it back to a share of the one that HAProxy loaded"
                ));
            }
            if matches!(backend.balance(), Some((_, false))) {
                self.reload(format!(
                    "server {label} gets another weight, and static balancing takes it only from a file"
                ));
            }
            settings.push(Op {
                weight: Some(i64::from(new.effective_weight())),
                ..on(OpKind::ServerSetWeight, name, new)
            });
            self.note(format!(
                "server {label} gets the weight {}",
                new.effective_weight()
            ));
        }
        if old.state != new.state && asked {
            self.reload(format!(
                "server {label} changes its state, which its agent-check decides; a reload makes both begin anew"
            ));
        }
        match (old.state, new.state) {
            (ServerState::Ready, ServerState::Maint) => {
                self.ops.leave.push(on(OpKind::ServerDisable, name, new));
                self.ops.leave.extend(settings);
                self.note(format!("server {label} goes into maintenance"));
            }
            (ServerState::Maint, ServerState::Ready) => {
                self.ops.change.extend(settings);
                self.ops.change.push(enable(name, new));
                self.note(format!("server {label} leaves maintenance"));
            }
            (ServerState::Ready, ServerState::Ready) | (ServerState::Maint, ServerState::Maint) => {
                self.ops.change.extend(settings)
            }
        }
    }

    fn note(&mut self, text: String) {
        self.ops.notes.push(text);
    }
}

fn of(kind: OpKind, backend: &str) -> Op {
    Op {
        backend: Some(backend.to_owned()),
        ..op(kind)
    }
}

fn on(kind: OpKind, backend: &str, server: &Server) -> Op {
    Op {
        server: Some(server.name.clone()),
        ..of(kind, backend)
    }
}

/// With its health checks, which nothing starts by itself on a server that was added.
fn enable(backend: &str, server: &Server) -> Op {
    Op {
        health: server.has("check").then_some(true),
        ..on(OpKind::ServerEnable, backend, server)
    }
}

/// Added, and in traffic unless it is to stay in maintenance.
fn add(backend: &str, server: &Server) -> Vec<Op> {
    let (address, port) = match server.place() {
        Address::Ip(ip, port) => (ip.to_string(), Some(i64::from(port))),
        Address::Unix(text) | Address::Other(text) => (text, None),
    };
    let mut ops = vec![Op {
        address: Some(address),
        port,
        keywords: server.words(),
        ..on(OpKind::ServerAdd, backend, server)
    }];
    if server.state == ServerState::Ready {
        ops.push(enable(backend, server));
    }
    ops
}

fn remove(backend: &str, server: &Server) -> [Op; 3] {
    [
        on(OpKind::ServerDisable, backend, server),
        on(OpKind::WaitSrvRemovable, backend, server),
        on(OpKind::ServerDel, backend, server),
    ]
}
