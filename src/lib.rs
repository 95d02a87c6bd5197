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
//! | `http` | `sys`, `clock`, `metrics` | `apply`, `haproxy` |
//! | `store` | `sys`, `wire` | `haproxy`, `http` |
//! | `haproxy` | `sys`, `clock`, `wire` | `store`, `http` |
//! | `apply` | `store`, `haproxy`, `wire` | `http` |
//! | `api` | `apply`, `http`, `wire` | `store`, `haproxy` |
//! | `cli`, `bin` | all | decisions |

pub mod api;
pub mod apply;
pub mod cli;
pub mod clock;
pub mod daemon;
pub mod error;
pub mod haproxy;
pub mod http;
pub mod log;
pub mod metrics;
pub mod store;
pub mod sys;
pub mod wire;
