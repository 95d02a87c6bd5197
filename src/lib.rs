//! haptic-agent: the agent beside an HAProxy.
//!
//! It owns one HAProxy's file tree and sockets. A controller sends the complete
//! desired file set; the agent writes it in one transaction, runs runtime commands
//! or reloads, and reports what happened. The controller decides, the agent
//! applies: nothing in this crate parses an HAProxy configuration.
//!
//! Data flows one way: [`http`] → [`wire`] (manifest) → fence → staging →
//! transaction → [`haproxy`] → answer. Each layer may call only what is below it:
//!
//! | layer | may use | never |
//! |---|---|---|
//! | `wire` | std, serde | sockets, files, clock |
//! | `format` | std, `wire` | sockets, files, clock |
//! | `http` | `sys`, `clock`, `metrics` | `apply`, `haproxy` |
//! | `store` | `sys`, `wire` | `haproxy`, `http` |
//! | `haproxy` | `sys`, `clock`, `wire`, `format` | `store`, `http` |
//! | `apply` | `store`, `haproxy`, `wire` | `http` |
//! | `api` | `apply`, `http`, `wire` | `store`, `haproxy` |
//! | `responder` | `http`, `haproxy` listings, `sys`, `clock`, `metrics` | `apply`, `store` |
//! | `client` | `http::client`, `wire`, `format` | everything of the agent |
//! | `testkit` | `wire`, `format`, `client`, `clock` | everything else of the agent |
//! | `cli`, `ctl`, `bin` | all | decisions |
//!
//! A controller takes only the feature `client`, its tests `testkit` as well; the
//! default feature `agent` has all but the fakes.

#[cfg(feature = "agent")]
pub mod api;
#[cfg(feature = "agent")]
pub mod apply;
#[cfg(feature = "agent")]
pub mod cli;
#[cfg(feature = "client")]
pub mod client;
#[cfg(any(feature = "agent", feature = "testkit"))]
pub mod clock;
#[cfg(feature = "agent")]
pub mod ctl;
#[cfg(feature = "agent")]
pub mod daemon;
#[cfg(feature = "agent")]
pub mod error;
pub mod format;
#[cfg(feature = "agent")]
pub mod haproxy;
pub mod http;
#[cfg(feature = "agent")]
pub mod log;
#[cfg(feature = "agent")]
pub mod metrics;
#[cfg(feature = "agent")]
pub mod respond;
#[cfg(feature = "agent")]
pub mod responder;
#[cfg(feature = "agent")]
pub mod store;
#[cfg(feature = "agent")]
pub mod sys;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod wire;
