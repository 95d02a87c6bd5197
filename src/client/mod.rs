//! What a controller links: the contract's client end, file sets and decisions.
