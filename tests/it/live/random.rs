//! Random applies against the model: after each one the worker, the disk, the state and
//! what clients get agree with it, while requests run. A failing seed is in the message.
//!
//! Some applies reload, some have an op that the worker refuses and end in a reload, some
//! meet deletes that still wait, and now and then the agent is killed in between.

use super::rig::Live;
use super::world::{
    Admin, CLIENTS, DEFAULT, HOSTS, PATHS, Row, STEADY, Server, Servers, World, op,
};
use crate::support::dice::Dice;
use crate::support::haproxy::Version;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Of each version; three of them are 30.
const SEQUENCES: u64 = 10;
/// The same of the long run: more than 500.
const SOAK_SEQUENCES: u64 = 170;
const APPLIES: usize = 8;
const MOST_CHANGES: usize = 12;

const VALUES: [&str; 8] = [
    "v",
    "",
    "two words",
    "a;b \\ c",
    "\"q\"",
    "ü 漢",
    "# x",
    "<<E_O_F",
];

/// One batch on its way.
struct Composer<'a> {
    world: &'a mut World,
    dice: &'a mut Dice,
    upstreams: &'a [SocketAddr],
    version: Version,
    /// Replaced from its file, which is as it will be at the end.
    replaced: BTreeSet<&'static str>,
    /// Deleted in this batch: a server that comes again has to make way at once.
    gone: BTreeSet<String>,
    /// Some of those came again.
    pressed: bool,
}

impl Composer<'_> {
    /// One change, as its ops.
    fn change(&mut self) -> Vec<Value> {
        match self.dice.roll(12) {
            0..=3 => self.map(),
            4..=7 => self.server(),
            8 | 9 => self.certificate(),
            10 if self.version == Version::V3_4 => self.backend(),
            _ => self.authority(),
        }
    }

    fn map(&mut self) -> Vec<Value> {
        if self.replaced.contains(PATHS) {
            return Vec::new();
        }
        let key = format!("/map/k{}", self.dice.roll(12));
        let there = self.world.maps[PATHS].iter().any(|row| row.0 == key);
        let value = *self.dice.pick(&VALUES);
        match self.dice.roll(8) {
            0..=3 => vec![self.world.map_add(PATHS, &key, value)],
            4 | 5 if there => {
                let value = format!("set{}", self.dice.roll(100));
                vec![self.world.map_set(PATHS, &key, &value)]
            }
            6 => {
                self.replaced.insert(PATHS);
                let rows =
                    (0..self.dice.roll(40)).map(|n| (format!("/map/k{n}"), value.to_owned()));
                let rows = rows.collect();
                vec![self.world.map_replace(PATHS, rows)]
            }
            _ => vec![self.world.map_del(PATHS, &key)],
        }
    }

    fn server(&mut self) -> Vec<Value> {
        let names: Vec<String> = self.world.backends.keys().cloned().collect();
        let backend = self.dice.pick(&names).clone();
        let mut known: Vec<String> = self.world.backends[&backend].keys().cloned().collect();
        known.retain(|name| name != "keep");
        let to = *self.dice.pick(self.upstreams);
        let weight = u16::try_from(self.dice.roll(257)).unwrap();
        if known.is_empty() || self.dice.once_in(3) {
            let name = format!("n{}", self.dice.roll(5));
            if known.contains(&name) {
                return Vec::new();
            }
            self.pressed |= self.gone.contains(&format!("{backend}/{name}"));
            let server = Server {
                weight,
                check: self.dice.once_in(4),
                ..Server::to(to)
            };
            let mut ops = vec![self.world.server_add(&backend, &name, server)];
            if !self.dice.once_in(4) {
                ops.push(self.world.server_enable(&backend, &name));
            }
            return ops;
        }
        let name = self.dice.pick(&known).clone();
        vec![match self.dice.roll(8) {
            0 => self.world.server_enable(&backend, &name),
            1 => self.world.server_disable(&backend, &name),
            2 => self.world.server_set_addr(&backend, &name, to),
            3 => self.world.server_set_weight(&backend, &name, weight),
            4 | 5 => {
                let admin = *self.dice.pick(&[Admin::Ready, Admin::Maint, Admin::Drain]);
                self.world.server_set_state(&backend, &name, admin)
            }
            _ => {
                self.gone.insert(format!("{backend}/{name}"));
                let wait = self.world.wait_server(&backend, &name);
                return vec![wait, self.world.server_del(&backend, &name)];
            }
        }]
    }

    fn backend(&mut self) -> Vec<Value> {
        let name = format!("d{}", self.dice.roll(3));
        if !self.world.backends.contains_key(&name) {
            self.pressed |= self.gone.contains(&name);
            let mut servers = Servers::new();
            for n in 0..1 + self.dice.roll(3) {
                let mut server = Server::to(*self.dice.pick(self.upstreams));
                if !self.dice.once_in(3) {
                    server = server.ready();
                }
                servers.insert(format!("n{n}"), server);
            }
            return self.world.backend_comes(&name, &servers);
        }
        self.gone.insert(name.clone());
        let servers = self.world.backends[&name].keys();
        self.gone
            .extend(servers.map(|server| format!("{name}/{server}")));
        self.world.backend_goes(&name)
    }

    fn certificate(&mut self) -> Vec<Value> {
        let (cert, n) = (
            format!("certs/c{}.pem", self.dice.roll(4)),
            self.dice.roll(4),
        );
        if self.dice.once_in(4) {
            return vec![self.world.cert_set(DEFAULT, n)];
        }
        if self.world.certs.contains_key(&cert) {
            // The file of one that is sent in this batch is needed.
            let sent = !self.gone.insert(cert.clone());
            return vec![match self.dice.once_in(2) && !sent {
                true => self.world.row_del(&cert),
                false => self.world.cert_set(&cert, n),
            }];
        }
        let stored = self.world.stored.contains(&cert);
        if stored && self.version == Version::V3_0 {
            // A commit that updates nothing looks like one that was lost, and reloads.
            return Vec::new();
        }
        let first = match stored {
            true => self.world.cert_set(&cert, n),
            false => self.world.cert_new(&cert, n),
        };
        self.gone.insert(cert.clone());
        let row = Row {
            filter: format!("c{n}.example"),
            alpn: self.dice.once_in(2),
            cert,
        };
        vec![first, self.world.row_add(row)]
    }

    fn authority(&mut self) -> Vec<Value> {
        match self.version {
            // It cannot, and certificates would suffer.
            Version::V3_0 => self.map(),
            Version::V3_2 | Version::V3_4 => {
                let all = [vec![1], vec![1, 2], vec![2], vec![3, 1]];
                vec![self.world.ca_set(CLIENTS, self.dice.pick(&all).clone())]
            }
        }
    }

    /// An op that the worker refuses and that changes nothing of the model.
    fn refused(&mut self) -> Value {
        let server = |kind: &str, name: &str, more: Value| {
            let mut fields = more;
            fields["backend"] = json!(STEADY);
            fields["server"] = json!(name);
            op(kind, fields)
        };
        match self.dice.roll(4) {
            0 => op(
                "map_set",
                json!({"path": HOSTS, "key": "nowhere.example", "value": "x"}),
            ),
            1 => server("server_set_weight", "nobody", json!({"weight": 1})),
            2 => server(
                "server_add",
                "keep",
                json!({"address": "127.0.0.1", "port": 1}),
            ),
            _ => op(
                "crtlist_add",
                json!({"path": super::world::LIST, "cert": "certs/nowhere.pem"}),
            ),
        }
    }
}

/// One of them, from a fresh world.
pub(super) fn sequence(live: &mut Live, seed: u64) {
    let mut dice = Dice::new(seed);
    let upstreams: Vec<SocketAddr> = (0..4).map(|n| live.upstream(n)).collect();
    live.fresh();
    for number in 0..APPLIES {
        let version = live.haproxy.version();
        if dice.once_in(16) {
            live.restart_agent();
        }
        let mut composer = Composer {
            world: &mut live.world,
            dice: &mut dice,
            upstreams: &upstreams,
            version,
            replaced: BTreeSet::new(),
            gone: BTreeSet::new(),
            pressed: false,
        };
        let mut ops = Vec::new();
        for _ in 0..1 + composer.dice.roll(MOST_CHANGES) {
            ops.extend(composer.change());
        }
        let bad = composer.dice.once_in(10).then(|| {
            let at = composer.dice.roll(ops.len() + 1);
            ops.insert(at, composer.refused());
            at
        });
        let pressed = composer.pressed;
        let case = format!("seed {seed}, apply {number}: {}", json!(ops));
        let reload = ops.is_empty() || dice.once_in(10);
        let mode = if reload { "reload" } else { "auto" };
        let answer = live.apply(mode, &ops).send(&live.agent).json();
        let told = format!("{version}, {case}: {answer:#}");
        assert_eq!(answer["ok"], true, "{told}");
        let failed = answer["op_results"].as_array().and_then(|results| {
            let failed = results.iter().enumerate();
            failed.into_iter().find(|(_, result)| result["ok"] == false)
        });
        match (reload, failed) {
            (true, _) => assert_eq!(answer["mode"], "reload", "{told}"),
            (false, None) => {
                assert_eq!(answer["mode"], "runtime", "{told}");
                assert_eq!(bad, None, "{told}");
            }
            (false, Some((at, result))) => {
                assert_eq!(answer["mode"], "reload", "{told}");
                // A request may hold up a server that has to make way at once.
                let busy = pressed && result["output"].to_string().contains("still has");
                assert!(bad == Some(at) || busy, "{told}");
            }
        }
        if answer["mode"] == "reload" {
            live.world.reloaded();
        }
        // Now and then the next apply meets the deletes of this one.
        if !dice.once_in(4) || number + 1 == APPLIES {
            live.agrees(&case);
            live.serves(&case, false);
        }
    }
}

fn sequences(seeds: std::ops::Range<u64>) {
    for version in Version::ALL {
        let mut live = Live::start(version);
        let load = live.load();
        for seed in seeds.clone() {
            sequence(&mut live, seed);
        }
        let seen = load.stop();
        assert_eq!(seen.failed, 0, "{version}: {seen:?}");
    }
}

#[test]
fn random_applies_leave_what_the_model_says() {
    sequences(1..1 + SEQUENCES);
}

#[test]
#[ignore = "long; make soak runs it"]
fn hundreds_of_random_sequences_of_applies() {
    sequences(1000..1000 + SOAK_SEQUENCES);
}
