//! The limits of the contract, each with its reason.
//!
//! Both ends assert them: the client before it sends a byte, the agent where the
//! bytes enter. Nothing here is tunable, because two ends that disagree about a
//! limit fail in the middle of a transfer instead of before it.

/// The wire contract's version, `api_version` in the state.
pub const API_VERSION: u32 = 1;

/// One apply request as sent, framing included.
pub const MAX_APPLY_BODY_BYTES: u64 = 64 * 1024 * 1024;

/// The `manifest` part. 4096 files with 255-byte paths and 1000 ops fit.
pub const MAX_MANIFEST_BYTES: usize = 8 * 1024 * 1024;

/// Files of one manifest.
pub const MAX_FILES: usize = 4096;

/// All declared file sizes of one manifest together.
pub const MAX_FILES_BYTES: u64 = 64 * 1024 * 1024;

/// The opaque plan blob.
pub const MAX_PLAN_BLOB_BYTES: u64 = 8 * 1024 * 1024;

/// One manifest path. `NAME_MAX` of every filesystem we know, and one runtime word.
pub const MAX_PATH_BYTES: usize = 255;

/// Ops of one apply; the controller chunks beyond it.
pub const MAX_OPS_PER_APPLY: usize = 1000;

/// One plan id. Longer ones would make every answer and log line carry them.
pub const MAX_PLAN_ID_BYTES: usize = 1024;

/// One command line on the worker socket, below HAProxy's 16 KiB buffer.
pub const MAX_COMMAND_LINE_BYTES: usize = 12 * 1024;

/// One payload command, below the cap that HAProxy 3.0 has.
pub const MAX_PAYLOAD_BYTES: usize = 12 * 1024;

/// Words of one runtime command; HAProxy 3.0 drops the rest silently.
pub const MAX_COMMAND_WORDS: usize = 64;

/// All inline `wait …-removable` of one apply together, in milliseconds.
pub const MAX_WAIT_BUDGET_MS: u64 = 30_000;

/// The longest that one reload may take, in milliseconds.
pub const MAX_RELOAD_MS: u64 = 60_000;

/// Server deletes waiting at one time.
pub const MAX_PENDING_SERVER_DELETES: usize = 1000;

/// Backend deletes waiting at one time.
pub const MAX_PENDING_BACKEND_DELETES: usize = 100;

/// `del map` calls for one key; HAProxy 3.4 removes one duplicate a call.
pub const MAX_MAP_DEL_REPEAT: usize = 64;

/// Rows of one kind in the runtime inventory.
pub const MAX_INVENTORY_ROWS: usize = 4096;

/// Rows of one map that a read-back lists.
pub const MAX_MAP_ROWS: usize = 262_144;

/// The longest interval between two reloads that can be asked for, in milliseconds.
pub const MAX_RELOAD_INTERVAL_MS: u64 = 60_000;
