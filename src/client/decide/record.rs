//! The plan blob: what a set was made of, for the decision after it.

use crate::client::fileset::FileSet;

/// The blob's format, `plan_schema_version` of the manifest.
pub const PLAN_SCHEMA_VERSION: i64 = 1;

pub(crate) fn encode(_set: &FileSet) -> Option<Vec<u8>> {
    None
}
