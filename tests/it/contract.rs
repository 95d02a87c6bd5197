//! The wire contract, version 1, row by row: what is sent is bytes, what is compared is
//! the answer, and a refusal is followed by a look at everything it must not have
//! touched.

mod encodings;
mod endpoints;
mod fence;
mod kit;
mod manifest;
mod order;
mod parts;
mod shapes;
