//! How much fits into one command at HAProxy's runtime socket.

use crate::wire::limits::MAX_PAYLOAD_BYTES;

/// One line of a payload. A line larger than HAProxy's buffer never completes on 3.4
/// and keeps a thread busy for ever.
pub const MAX_PAYLOAD_LINE_BYTES: usize = 12 * 1024;
/// Room in a payload for its command line beside the path, and its terminator.
const PAYLOAD_FRAME_BYTES: usize = 64;

/// What a payload's body may have for an object of that name, on every version. 3.4
/// would take more, but enlarges its buffer when 16 KiB are full, overlooks a terminator
/// that comes with the next read, and waits for another one until the session's end.
#[must_use]
pub fn room(path: &str) -> usize {
    MAX_PAYLOAD_BYTES.saturating_sub(path.len() + PAYLOAD_FRAME_BYTES)
}
