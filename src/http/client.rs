//! The other end of HTTP: one connection, one request at a time, every wait bounded.
