//! The store's parts one by one, on the model.

mod prepare;
mod small;
mod stage;
mod state;
mod unreplaceable;

use super::model::ModelFs;
use super::mounts::Mounts;
use super::{Durability, Store};
use crate::wire::path::ManifestPath;

fn path(text: &str) -> ManifestPath {
    ManifestPath::parse(text).unwrap()
}

fn store(fs: &ModelFs) -> Store {
    let mounts = Mounts::find(fs, &[]).unwrap();
    Store::new(fs.shared(), mounts, Durability::Full)
}
