//! Strings that have a form of their own, read from where they lie.
//!
//! A manifest of thousands of files has two of them a file; a copy of each that is thrown
//! away at once would cost as much as the reading. It refuses anything but a string.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Reads a string and makes of it what `parse` says; its error is the input's.
pub(super) fn parsed<'de, D, T, E>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: fmt::Display,
{
    struct Text<T, F>(F, PhantomData<T>);

    impl<T, E: fmt::Display, F: FnOnce(&str) -> Result<T, E>> Visitor<'_> for Text<T, F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<X: Error>(self, text: &str) -> Result<T, X> {
            (self.0)(text).map_err(X::custom)
        }
    }

    deserializer.deserialize_str(Text(parse, PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(json: &str) -> Result<u8, String> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        parsed(&mut deserializer, str::parse::<u8>).map_err(|error| error.to_string())
    }

    #[test]
    fn a_string_is_parsed_escapes_and_all_and_nothing_else_is() {
        assert_eq!(number(r#""42""#), Ok(42));
        assert_eq!(number(r#""\u0034\u0032""#), Ok(42));
        assert!(number(r#""4x""#).unwrap_err().contains("invalid digit"));
        assert!(number("42").unwrap_err().contains("expected a string"));
        assert!(number("null").unwrap_err().contains("expected a string"));
    }
}
