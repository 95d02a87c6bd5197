//! Manifest paths: one string that names a file on the wire, on disk below the
//! base directory, and at HAProxy's runtime sockets.
//!
//! [`ManifestPath`] can only be made by [`ManifestPath::parse`], so whoever holds
//! one holds a path that is relative, canonical, bounded, and outside everything
//! that the agent keeps for itself (those names start with a dot). It refuses to
//! normalise: HAProxy compares the literal string, so a path that needed
//! normalising would name one file on disk and another one at runtime.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::limits::MAX_PATH_BYTES;
use super::text::parsed;

/// A path that passed every rule of the contract. A copy shares its text: one apply
/// has each path in half a dozen places.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManifestPath(Arc<str>);

/// Why a string is no manifest path. `Display` says the rule and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// The empty string.
    Empty,
    /// Longer than [`MAX_PATH_BYTES`].
    TooLong,
    /// Starts with a slash.
    Absolute,
    /// Ends with a slash.
    TrailingSlash,
    /// Has an empty component (`a//b`).
    EmptyComponent,
    /// Has a component that starts with a dot: `.`, `..`, and hidden names, where the
    /// agent keeps its state, its staging and its backups.
    DotComponent,
    /// Has a NUL or another control character.
    Control,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a path must not be empty"),
            Self::TooLong => write!(f, "a path must be at most {MAX_PATH_BYTES} bytes"),
            Self::Absolute => write!(f, "a path must be relative to the base directory"),
            Self::TrailingSlash => write!(f, "a path must name a file, without a trailing slash"),
            Self::EmptyComponent => write!(f, "a path must not have an empty component"),
            Self::DotComponent => write!(f, "no component of a path may start with a dot"),
            Self::Control => write!(f, "a path must not have control characters"),
        }
    }
}

impl std::error::Error for PathError {}

impl ManifestPath {
    /// Checks `text` against every rule of the contract.
    ///
    /// # Errors
    /// The first rule that `text` breaks.
    pub fn parse(text: impl Into<String>) -> Result<Self, PathError> {
        let text = text.into();
        check(&text)?;
        Ok(Self(text.into()))
    }

    /// The path as the wire and HAProxy spell it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory part, without a trailing slash; `""` is the base directory.
    #[must_use]
    pub fn parent(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(dir, _)| dir)
    }

    /// Every directory above the file, nearest first, without the base itself.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        let mut rest = self.as_str();
        std::iter::from_fn(move || {
            let (dir, _) = rest.rsplit_once('/')?;
            rest = dir;
            Some(dir)
        })
    }
}

fn check(text: &str) -> Result<(), PathError> {
    if text.is_empty() {
        return Err(PathError::Empty);
    }
    if text.len() > MAX_PATH_BYTES {
        return Err(PathError::TooLong);
    }
    // char::is_control covers C0, DEL and C1; of these the last is beyond ASCII.
    let control = if text.is_ascii() {
        text.bytes().any(|byte| byte.is_ascii_control())
    } else {
        text.chars().any(char::is_control)
    };
    if control {
        return Err(PathError::Control);
    }
    if text.starts_with('/') {
        return Err(PathError::Absolute);
    }
    if text.ends_with('/') {
        return Err(PathError::TrailingSlash);
    }
    for component in text.split('/') {
        if component.is_empty() {
            return Err(PathError::EmptyComponent);
        }
        if component.starts_with('.') {
            return Err(PathError::DotComponent);
        }
    }
    Ok(())
}

impl fmt::Display for ManifestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for ManifestPath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ManifestPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for ManifestPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ManifestPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            check(text)?;
            Ok::<_, PathError>(Self(text.into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_refusal() {
        let long = "x".repeat(MAX_PATH_BYTES + 1);
        let table = [
            ("", PathError::Empty),
            (long.as_str(), PathError::TooLong),
            ("/etc/passwd", PathError::Absolute),
            ("maps/", PathError::TrailingSlash),
            ("a//b", PathError::EmptyComponent),
            (".", PathError::DotComponent),
            ("..", PathError::DotComponent),
            ("a/../b", PathError::DotComponent),
            ("./a", PathError::DotComponent),
            (".haptic-lkg/0", PathError::DotComponent),
            ("general/.haptic-tmp/x", PathError::DotComponent),
            ("a\0b", PathError::Control),
            ("a\nb", PathError::Control),
            ("a\u{7f}", PathError::Control),
            ("a\u{85}", PathError::Control),
        ];
        for (text, want) in table {
            assert_eq!(ManifestPath::parse(text), Err(want), "{text:?}");
        }
    }

    #[test]
    fn ordinary_and_odd_names_pass_unchanged() {
        for text in [
            "haproxy.cfg",
            "maps/host.map",
            "a b/ü.pem",
            "a/b/c/d",
            &"x".repeat(255),
        ] {
            assert_eq!(ManifestPath::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn ancestors_run_from_near_to_far() {
        let path = ManifestPath::parse("a/b/c").unwrap();
        assert_eq!(path.ancestors().collect::<Vec<_>>(), ["a/b", "a"]);
        assert_eq!(path.parent(), "a/b");
        assert_eq!(ManifestPath::parse("x").unwrap().parent(), "");
    }
}
