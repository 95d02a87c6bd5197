//! What the responder counts.

use crate::metrics::Family;

/// Every family, in the order of the exposition.
pub const FAMILIES: &[&Family] = &[];
