//! What a controller links: the contract's client end, file sets and decisions.
//!
//! Blocking, over std; nothing of the daemon. Lowest first:
//!
//! | module | job |
//! |---|---|
//! | [`mod@client`] | [`Client`]: one agent's state and applies, retries, limits, cancel |
//! | [`fileset`], [`backends`] | [`FileSet`]: a directory as the complete desired set |
//! | [`mod@decide`] | [`decide()`]: what a change needs, and why; pure |
//! | [`mod@push`] | [`push()`]: read, decide, apply, react; at most three rounds |
//! | [`fleet`] | [`Fleet`]: the same to many agents, an outcome for each |
//! | [`mod@doctor`] | [`doctor()`]: what can never be changed at runtime, and why |
//!
//! # A controller
//!
//! The shortest one pushes a directory, and is what `hapticctl push` does:
//!
//! ```no_run
//! use haptic_agent::client::*;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let credentials = Credentials::new("controller", &std::env::var("HAPTIC_PASSWORD")?)?;
//!     let client = Client::new(ClientConfig::new("http://127.0.0.1:5555", credentials)?);
//!     let set = FileSet::from_dir("site".as_ref(), &FileSetOptions::default())?;
//!     println!("{:?}", push(&client, &set, &PushOptions::default())?.outcome);
//!     Ok(())
//! }
//! ```
//!
//! One that renders what it pushes, again whenever the world has changed, and knows when
//! to stand down:
//!
#![cfg_attr(feature = "testkit", doc = "```")]
#![cfg_attr(not(feature = "testkit"), doc = "```no_run")]
//! use haptic_agent::client::*;
//!
//! const CONFIG: &str = "defaults\n  mode http\nfrontend f\n  bind :80\n  use_backend %[req.hdr(host),map(maps/host.map)]\n";
//!
//! /// What one look at the world came to.
//! enum Turn {
//!     Converged,
//!     Again,
//!     StandDown,
//! }
//!
//! /// Brings every agent to these routes.
//! fn turn(fleet: &Fleet, epoch: u64, routes: &[(&str, &str)]) -> Turn {
//!     let map: String = routes.iter().map(|(host, backend)| format!("{host} {backend}\n")).collect();
//!     let files = [("haproxy.cfg", CONFIG.into()), ("maps/host.map", map.into_bytes())];
//!     let set = match FileSet::from_files(files, &FileSetOptions::default()) {
//!         Ok(set) => set,
//!         Err(error) => {
//!             eprintln!("the render is no file set: {error}");
//!             return Turn::Again;
//!         }
//!     };
//!     let epoch = Epoch::Exactly(epoch);
//!     let options = PushOptions { epoch, by: Some("routes".into()), overwrite: true, ..PushOptions::default() };
//!     let mut turn = Turn::Converged;
//!     for (client, outcome) in fleet.clients().iter().zip(fleet.push(&set, &options, |_, _| ())) {
//!         match outcome {
//!             Ok(pushed) if pushed.is_converged() => {}
//!             Ok(pushed) => {
//!                 println!("{}: {:?}", client.origin(), pushed.outcome);
//!                 turn = Turn::Again;
//!             }
//!             // Somebody leads with a higher epoch.
//!             Err(PushError::Stale { .. }) => return Turn::StandDown,
//!             // HAProxy's words, a lost connection: the next turn tries again.
//!             Err(error) => {
//!                 eprintln!("{}: {error}", client.origin());
//!                 turn = Turn::Again;
//!             }
//!         }
//!     }
//!     turn
//! }
//! # #[cfg(feature = "testkit")] {
//! # use haptic_agent::testkit::FakeAgent;
//! # let agents = [FakeAgent::start()?, FakeAgent::start()?];
//! # let clients = agents.iter().map(|agent| {
//! #     let credentials = Credentials::new(agent.username(), agent.password()).unwrap();
//! #     Client::new(ClientConfig::new(&agent.url(), credentials).unwrap())
//! # });
//! # let fleet = Fleet::new(clients.collect());
//! # assert!(matches!(turn(&fleet, 2, &[("a.example", "a")]), Turn::Converged));
//! # assert!(matches!(turn(&fleet, 2, &[("a.example", "b")]), Turn::Converged));
//! # assert_eq!(agents[0].map("maps/host.map").unwrap(), [("a.example".into(), "b".into())]);
//! # use haptic_agent::wire::manifest::{FileKind, Token};
//! # let token = Token { leader_epoch: 9, render_seq: 1 };
//! # agents[1].push_behind("theirs", token, [("haproxy.cfg", FileKind::Config, &b"x"[..])])?;
//! # assert!(matches!(turn(&fleet, 2, &[]), Turn::StandDown));
//! # assert_eq!(agents[1].state().applied_plan_id, "theirs");
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Against the fakes of the feature `testkit` the hard cases of such a loop are easy to
//! provoke: an answer that is lost, a reload that is refused or put off, a rival.

pub mod backends;
#[allow(clippy::module_inception)] // What matters of it is named below.
pub mod client;
pub mod config;
pub mod decide;
pub mod doctor;
pub mod error;
pub mod fileset;
pub mod fleet;
mod form;
mod pool;
pub mod push;
pub(crate) mod socket;
mod state;

pub use crate::http::client::{Cancel, Origin, OriginError};
pub use client::{Client, Part, StateRead};
pub use config::{ClientConfig, Credentials, CredentialsError, Timeouts};
pub use decide::{Decision, decide};
pub use doctor::doctor;
pub use error::{Error, Refused, Transport};
pub use fileset::{FileSet, FileSetError, FileSetOptions};
pub use fleet::Fleet;
pub use push::{
    Epoch, Outcome, PushError, PushOptions, Pushed, Refusal, Reverted, Step, push, push_watched,
    revert,
};

pub use socket::stats_socket_line;

use crate::wire::path::ManifestPath;
use crate::wire::state::State;

/// A file of the set whose name the agent keeps for itself, its sockets above all: no
/// manifest may have it.
#[must_use]
pub fn reserved<'s>(set: &'s FileSet, state: &State) -> Option<&'s ManifestPath> {
    let reserved = crate::wire::manifest::ReservedPaths::new(state.reserved_paths.iter().cloned());
    let mut files = set.files();
    files.find_map(|entry| reserved.conflict(entry.path.as_str()).then_some(entry.path))
}
