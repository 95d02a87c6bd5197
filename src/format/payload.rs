//! How much fits into one command at HAProxy's runtime socket.

use super::version::HaproxyVersion;
use crate::wire::limits::MAX_PAYLOAD_BYTES;

/// One line of a payload. A line larger than HAProxy's buffer never completes on 3.4
/// and keeps a thread busy for ever.
pub const MAX_PAYLOAD_LINE_BYTES: usize = 12 * 1024;
/// A payload command from 3.4 on, below its own limit of 128 KiB
/// (`tune.cli.max-payload-size`).
pub const MAX_PAYLOAD_BYTES_3_4: usize = 120 * 1024;
/// Room in a payload for its command line beside the path, and its terminator.
const PAYLOAD_FRAME_BYTES: usize = 64;

/// What one payload command may have in all, line and terminator included.
#[must_use]
pub fn payload_budget(version: &HaproxyVersion) -> usize {
    if version.at_least(3, 4) {
        MAX_PAYLOAD_BYTES_3_4
    } else {
        MAX_PAYLOAD_BYTES
    }
}

/// What a payload's body may have for a certificate of that name.
#[must_use]
pub fn pem_room(path: &str, version: &HaproxyVersion) -> usize {
    payload_budget(version).saturating_sub(path.len() + PAYLOAD_FRAME_BYTES)
}

/// What a payload's body may have where content can be cut anywhere between its items:
/// entries of a map, certificates of a bundle. No piece needs more than what one segment
/// of the socket carries, whatever the version.
#[must_use]
pub fn piece_room(path: &str) -> usize {
    MAX_PAYLOAD_BYTES.saturating_sub(path.len() + PAYLOAD_FRAME_BYTES)
}
