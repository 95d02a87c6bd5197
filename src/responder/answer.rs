//! From keys and a copy to one reply line.

/// Whether replies carry a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// Always: 100% where no key asks for another.
    Set,
    /// Never: weights belong to someone else.
    Keep,
}
