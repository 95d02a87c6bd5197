//! Runtime ops as the wire carries them: a kind and the fields of every kind.
//!
//! This module only types the JSON. Which fields a kind needs, and which bytes are
//! safe inside a command, is decided where commands are compiled. An unknown kind is
//! a legal value here, because an agent that skipped it would leave the worker in a
//! state that nobody composed.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::limits::MAX_FILES;

/// The kinds of op that version 1 of the contract knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // The wire names in `OpKind::ALL` are the documentation.
pub enum OpKind {
    BackendAdd,
    BackendPublish,
    BackendUnpublish,
    BackendDel,
    WaitBeRemovable,
    ServerAdd,
    ServerEnable,
    ServerDisable,
    ServerSetAddr,
    ServerSetWeight,
    ServerSetState,
    WaitSrvRemovable,
    ShutdownSessions,
    ServerDel,
    MapAdd,
    MapSet,
    MapDel,
    MapReplace,
    CertSet,
    CertNew,
    CaSet,
    CaNew,
    CrtlistAdd,
    CrtlistDel,
}

impl OpKind {
    /// Every kind with its wire name, in the order of the contract.
    pub const ALL: [(Self, &'static str); 24] = [
        (Self::BackendAdd, "backend_add"),
        (Self::BackendPublish, "backend_publish"),
        (Self::BackendUnpublish, "backend_unpublish"),
        (Self::BackendDel, "backend_del"),
        (Self::WaitBeRemovable, "wait_be_removable"),
        (Self::ServerAdd, "server_add"),
        (Self::ServerEnable, "server_enable"),
        (Self::ServerDisable, "server_disable"),
        (Self::ServerSetAddr, "server_set_addr"),
        (Self::ServerSetWeight, "server_set_weight"),
        (Self::ServerSetState, "server_set_state"),
        (Self::WaitSrvRemovable, "wait_srv_removable"),
        (Self::ShutdownSessions, "shutdown_sessions"),
        (Self::ServerDel, "server_del"),
        (Self::MapAdd, "map_add"),
        (Self::MapSet, "map_set"),
        (Self::MapDel, "map_del"),
        (Self::MapReplace, "map_replace"),
        (Self::CertSet, "cert_set"),
        (Self::CertNew, "cert_new"),
        (Self::CaSet, "ca_set"),
        (Self::CaNew, "ca_new"),
        (Self::CrtlistAdd, "crtlist_add"),
        (Self::CrtlistDel, "crtlist_del"),
    ];

    /// The kind of that wire name, or `None` for one this agent does not know.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(kind, _)| *kind)
    }

    /// All wire names, in the order of the contract.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(_, name)| *name)
    }
}

/// A name with arguments: a server keyword or a crt-list option.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyword {
    /// The keyword.
    pub name: String,
    /// Its arguments, in order.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub args: Vec<String>,
}

/// One op. Every field but `kind` may be absent; each kind uses its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // One line a field would repeat its name; ops are documented by kind.
pub struct Op {
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// 0 is a value: no new traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<bool>,
    #[serde(
        default,
        deserialize_with = "objects",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub keywords: Vec<Keyword>,
    /// Of a wait. One in front of a delete sets that delete's grace; without a time the
    /// agent's own stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<String>,
    #[serde(
        default,
        deserialize_with = "objects",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub options: Vec<Keyword>,
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub sni_filters: Vec<String>,
}

/// `null` where a list may be absent: some encoders write an empty list so.
pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A JSON object. serde's derived structs also take an array of their fields in order,
/// which would be a second wire format that nobody wrote down.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyMap<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer
            .deserialize_map(OnlyMap(PhantomData))
            .map(Object)
    }
}

/// One [`Object`].
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// Items of one list that are kept: one more than any list may have, so that a list that
/// is too long is still seen to be. The rest is read past, or a few bytes an item would
/// become a few hundred in memory.
const MAX_LIST: usize = MAX_FILES + 1;

struct Bounded<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < MAX_LIST {
                    match items.next_element()? {
                        Some(item) => kept.push(item),
                        None => return Ok(kept),
                    }
                }
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(kept)
            }
        }

        deserializer
            .deserialize_seq(Items(PhantomData))
            .map(Bounded)
    }
}

/// A list of [`Object`]s, or `null` for an empty one.
pub(super) fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Option::<Bounded<Object<T>>>::deserialize(deserializer)?;
    let list = list.map_or_else(Vec::new, |Bounded(list)| list);
    Ok(list.into_iter().map(|Object(value)| value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_are_24_and_each_name_leads_back_to_its_kind() {
        let mut names: Vec<_> = OpKind::names().collect();
        for (kind, name) in OpKind::ALL {
            assert_eq!(OpKind::parse(name), Some(kind));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 24);
        assert_eq!(OpKind::parse("server_rename"), None);
    }

    #[test]
    fn absent_null_and_zero_are_told_apart() {
        let op: Op =
            serde_json::from_str(r#"{"kind":"server_set_weight","weight":0,"keywords":null}"#)
                .unwrap();
        assert_eq!(op.weight, Some(0));
        assert!(op.keywords.is_empty());
        let op: Op = serde_json::from_str(r#"{"kind":"x","weight":null,"future":[1]}"#).unwrap();
        assert_eq!(op.weight, None);
        assert!(serde_json::from_str::<Op>(r#"{"kind":"x","weight":"7"}"#).is_err());
    }
}
