//! A list of keys as Consul sends it: JSON in, entries out, all or nothing. Pure.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};

use crate::format::base64;
use crate::responder::copy::Entry;
use crate::responder::key::{MAX_KEY_BYTES, Prefix};
use crate::responder::kv::Weights;
use crate::responder::stamp::Stamp;
use crate::responder::value::{InvalidValue, MAX_VALUE_BYTES};

/// One key as it is stored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Row<'a> {
    /// Its full name.
    #[serde(borrow)]
    pub key: Cow<'a, str>,
    /// Its value in base64; `null` for an empty one, and never left out.
    #[serde(borrow, deserialize_with = "present")]
    pub value: Option<Cow<'a, str>>,
    /// A number that belongs to whoever wrote it.
    #[serde(default)]
    pub flags: u64,
    /// The index of the last write.
    #[serde(default)]
    pub modify_index: u64,
}

/// Fails where the field is missing, unlike what an `Option` does by itself.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    Option::<Cow<'de, str>>::deserialize(value)
}

/// A list of so many rows at most.
struct Rows {
    max: usize,
}

impl<'de> DeserializeSeed<'de> for Rows {
    type Value = Vec<Row<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows {
    type Value = Vec<Row<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} keys", self.max)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut rows = Vec::new();
        while let Some(row) = list.next_element()? {
            if rows.len() == self.max {
                return Err(A::Error::custom(format!(
                    "more than {} keys; delete what is no override, or raise --kv-max-keys",
                    self.max
                )));
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

/// The rows of a body, all of them or none; with more than `max` it is none.
///
/// # Errors
///
/// In words, what is wrong with it.
pub fn rows(body: &[u8], max: usize) -> Result<Vec<Row<'_>>, String> {
    let mut from = serde_json::Deserializer::from_slice(body);
    let rows = Rows { max }.deserialize(&mut from);
    let rows = rows.and_then(|rows| from.end().map(|()| rows));
    rows.map_err(|error| error.to_string())
}

/// What a list has below a prefix.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) entries: Vec<(Box<str>, Entry)>,
    /// Whether the marker was among them; it is no entry.
    pub(super) marked: bool,
}

/// Reads a list. Folder entries (a key that ends in a slash, without a value) are left
/// out; a row outside the prefix, or a value that is no base64, spoils the whole.
pub(super) fn listed(
    body: &[u8],
    prefix: &Prefix,
    marker: Option<&str>,
    weights: Weights,
    max: usize,
) -> Result<Listed, String> {
    let below = prefix.with_slash();
    let rows = rows(body, max)?;
    let mut entries = Vec::with_capacity(rows.len());
    let mut marked = false;
    for row in rows {
        let key = row
            .key
            .strip_prefix(&below)
            .ok_or_else(|| format!("a key outside {below}"))?;
        let stored = match &row.value {
            Some(text) if text.len() > MAX_VALUE_BYTES.div_ceil(3) * 4 => {
                Err(InvalidValue::TooLong)
            }
            Some(text) => {
                let bytes = decode(text).ok_or("a value that is no base64")?;
                weights.parse(&bytes)
            }
            None if key.is_empty() || key.ends_with('/') => continue,
            None => Err(InvalidValue::Empty),
        };
        if marker == Some(key) {
            marked = true;
            continue;
        }
        let stored = if key.len() > MAX_KEY_BYTES {
            Err(InvalidValue::KeyTooLong)
        } else {
            stored
        };
        entries.push((
            Box::from(key),
            Entry::new(stored, Stamp::of_flags(row.flags)),
        ));
    }
    Ok(Listed { entries, marked })
}

/// Base64 of the standard alphabet with its padding; `None` for anything else.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if text.len() % 4 != 0 {
        return None;
    }
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('='));
    let digits = digits.unwrap_or(text);
    match digits.contains('=') {
        true => None,
        false => base64::decode(digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::basic;
    use crate::responder::value::Value;

    const MAX: usize = 1000;

    fn read(body: &str) -> Result<Listed, String> {
        let prefix = Prefix::new("p/q").unwrap();
        listed(body.as_bytes(), &prefix, Some(".mark"), Weights::Set, MAX)
    }

    fn row(key: &str, value: Option<&str>) -> String {
        let value = value.map_or("null".to_owned(), |v| {
            format!("\"{}\"", basic::base64(v.as_bytes()))
        });
        format!(
            "{{\"LockIndex\":0,\"Key\":\"{key}\",\"Flags\":0,\"Value\":{value},\"CreateIndex\":3,\"ModifyIndex\":4}}"
        )
    }

    fn list(rows: &[String]) -> String {
        format!("[\n{}\n]\n", rows.join(",\n"))
    }

    fn entry(value: Value) -> Entry {
        Entry::new(Ok(value), None)
    }

    #[test]
    fn a_list_of_every_kind() {
        let body = list(&[
            row("p/q/", None),
            row("p/q/.mark", Some("1")),
            row("p/q/canary", Some("drain")),
            row("p/q/canary/", None),
            row("p/q/empty", None),
            row("p/q/odd/", Some("maint")),
            row("p/q/web/s1", Some("50%\\n".replace("\\n", "\n").as_str())),
            row("p/q/word", Some("down")),
        ]);
        let listed = read(&body).unwrap();
        assert!(listed.marked);
        let invalid = |why| Entry::new(Err(why), None);
        assert_eq!(
            listed.entries,
            [
                ("canary".into(), entry(Value::Drain)),
                ("empty".into(), invalid(InvalidValue::Empty)),
                ("odd/".into(), entry(Value::Maint)),
                ("web/s1".into(), entry(Value::Weight(50))),
                ("word".into(), invalid(InvalidValue::Health("down".into()))),
            ]
        );
    }

    #[test]
    fn names_are_taken_as_they_are() {
        let body = list(&[row("p/q/\\u0041 %2F?#\\\\\\u00fc\\ufffd", Some("drain"))]);
        let listed = read(&body).unwrap();
        assert_eq!(&*listed.entries[0].0, "A %2F?#\\ü\u{fffd}");
        assert!(!listed.marked);
    }

    #[test]
    fn an_end_is_read_from_flags() {
        let end = Stamp::at(1_800_000_000).unwrap();
        let body = |flags: u64| {
            format!("[{{\"Key\":\"p/q/a\",\"Flags\":{flags},\"Value\":\"ZHJhaW4=\"}}]")
        };
        let until = |flags| read(&body(flags)).unwrap().entries[0].1.until();
        assert_eq!(until(end.to_flags()), Some(end));
        assert_eq!(until(u64::MAX), None);
        assert_eq!(until(0), None);
    }

    #[test]
    fn long_values_and_keys_are_invalid_and_not_decoded() {
        let long = "x".repeat(100_000);
        let body = list(&[
            row("p/q/a", Some(&long)),
            row(&format!("p/q/{}", "k".repeat(513)), Some("drain")),
        ]);
        let entries = read(&body).unwrap().entries;
        assert_eq!(entries[0].1.stored(), Err(&InvalidValue::TooLong));
        assert_eq!(entries[1].1.stored(), Err(&InvalidValue::KeyTooLong));
        let edge = list(&[
            row("p/q/a", Some(&" ".repeat(64))),
            row("p/q/b", Some(&" ".repeat(65))),
        ]);
        let entries = read(&edge).unwrap().entries;
        assert_eq!(entries[0].1.stored(), Err(&InvalidValue::Empty));
        assert_eq!(entries[1].1.stored(), Err(&InvalidValue::TooLong));
    }

    #[test]
    fn weights_may_belong_to_others() {
        let body = list(&[row("p/q/a", Some("50%")), row("p/q/b", Some("drain"))]);
        let prefix = Prefix::new("p/q").unwrap();
        let listed = listed(body.as_bytes(), &prefix, None, Weights::Keep, MAX).unwrap();
        assert_eq!(
            listed.entries[0].1.stored(),
            Err(&InvalidValue::WeightsKept)
        );
        assert_eq!(listed.entries[1].1.stored(), Ok(Value::Drain));
    }

    #[test]
    fn one_bad_row_spoils_the_list() {
        let good = row("p/q/a", Some("drain"));
        let whole = list(std::slice::from_ref(&good));
        for cut in 0..whole.trim_end().len() {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for body in [
            String::new(),
            "null".to_owned(),
            "{}".to_owned(),
            format!("{whole}x"),
            format!("{whole}{whole}"),
            list(&[good.clone(), row("p/qr/a", Some("drain"))]),
            list(&[good.clone(), row("p/q", Some("drain"))]),
            "[{\"Key\":\"p/q/a\"}]".to_owned(),
            "[{\"Value\":null}]".to_owned(),
            "[{\"Key\":\"p/q/a\",\"Value\":\"drain\"}]".to_owned(),
            "[{\"Key\":\"p/q/a\",\"Value\":\"ZHJhaW4\"}]".to_owned(),
            "[{\"Key\":\"p/q/a\",\"Value\":1}]".to_owned(),
            "[{\"Key\":\"p/q/a\",\"Flags\":-1,\"Value\":null}]".to_owned(),
            "[{\"Key\":\"p/q/a\",\"Key\":\"p/q/b\",\"Value\":null}]".to_owned(),
            "[null]".to_owned(),
        ] {
            assert!(read(&body).is_err(), "{body}");
        }
        assert!(read(&whole).is_ok());
        assert_eq!(read("[]").unwrap().entries, []);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let rows: Vec<_> = (0..=MAX)
            .map(|n| row(&format!("p/q/{n}"), Some("drain")))
            .collect();
        assert!(
            read(&list(&rows))
                .unwrap_err()
                .contains("more than 1000 keys")
        );
        assert_eq!(read(&list(&rows[1..])).unwrap().entries.len(), MAX);
    }

    #[test]
    fn base64_is_read_strictly() {
        for bytes in [&b""[..], b"f", b"fo", b"foo", b"\xff\xfe\xfd\0"] {
            assert_eq!(decode(&basic::base64(bytes)).unwrap(), bytes);
        }
        for text in [
            "Z", "Zg", "Zg=", "Z===", "=", "====", "Zg==Zg==", "Zm9v\n", "Zm-v", "Zm 9",
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
