//! From keys and a copy to one reply line.
