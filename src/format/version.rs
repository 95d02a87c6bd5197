//! HAProxy's version as it prints it.
//!
//! Only the leading numbers are ordered or compared; what distributions and
//! snapshots append is kept for people and means nothing here.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// A version such as `3.4.7-1`, `3.2.4-98813a1`, `2.6.12-1+deb12u4` or `3.5-dev5`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HaproxyVersion {
    full: String,
    digits: usize,
    major: u32,
    minor: u32,
    patch: u32,
}

impl HaproxyVersion {
    /// As HAProxy prints it, suffix included.
    #[must_use]
    pub fn full(&self) -> &str {
        &self.full
    }

    /// The leading numbers only: `3.4.7`; `3.5` for `3.5-dev5`, which has no third.
    #[must_use]
    pub fn short(&self) -> &str {
        self.full.get(..self.digits).unwrap_or(&self.full)
    }

    /// First number.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Second number.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// Third number, 0 when there is none.
    #[must_use]
    pub fn patch(&self) -> u32 {
        self.patch
    }

    /// Whether this is of the branch `major.minor` or a later one.
    #[must_use]
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl FromStr for HaproxyVersion {
    type Err = VersionError;

    /// # Errors
    ///
    /// [`VersionError`] unless the text is printable ASCII without blanks and starts
    /// with two or three numbers joined by dots.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let error = || VersionError {
            text: text.chars().take(80).collect(),
        };
        if text.len() > MAX_VERSION_BYTES || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(error());
        }
        let digits = text
            .bytes()
            .position(|b| !b.is_ascii_digit() && b != b'.')
            .unwrap_or(text.len());
        let mut numbers = [0; 3];
        let mut count = 0;
        for word in text.get(..digits).unwrap_or_default().split('.') {
            let slot = numbers.get_mut(count).ok_or_else(error)?;
            *slot = word.parse().map_err(|_| error())?;
            count += 1;
        }
        if count < 2 {
            return Err(error());
        }
        let [major, minor, patch] = numbers;
        Ok(Self {
            full: text.to_owned(),
            digits,
            major,
            minor,
            patch,
        })
    }
}

impl fmt::Display for HaproxyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

/// Longer texts are no version: the longest that a distribution prints has 30 bytes.
const MAX_VERSION_BYTES: usize = 128;

/// A text that is not a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionError {
    text: String,
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an HAProxy version", self.text)
    }
}

impl Error for VersionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_haproxy_and_distributions_print_them() {
        let table = [
            ("3.4.7-1", "3.4.7", (3, 4, 7)),
            ("3.2.4-98813a1", "3.2.4", (3, 2, 4)),
            ("2.6.12-1+deb12u4", "2.6.12", (2, 6, 12)),
            ("3.0.11-1~bpo13+1", "3.0.11", (3, 0, 11)),
            ("3.5-dev5", "3.5", (3, 5, 0)),
            ("3.5-dev5-1a2b3c-42", "3.5", (3, 5, 0)),
            ("3.2.0", "3.2.0", (3, 2, 0)),
        ];
        for (text, short, numbers) in table {
            let version: HaproxyVersion = text.parse().unwrap();
            assert_eq!(version.full(), text);
            assert_eq!(version.short(), short);
            let seen = (version.major(), version.minor(), version.patch());
            assert_eq!(seen, numbers, "{text}");
        }
    }

    #[test]
    fn branches_are_compared_as_numbers() {
        let version: HaproxyVersion = "3.10.0".parse().unwrap();
        assert!(version.at_least(3, 2));
        assert!(version.at_least(3, 10));
        assert!(!version.at_least(3, 11));
        assert!(!version.at_least(4, 0));
    }

    #[test]
    fn what_is_no_version_is_refused() {
        let long = format!("3.0.1-{}", "x".repeat(200));
        for text in [
            "",
            "3",
            "3.",
            ".3",
            "3..1",
            "v3.4",
            "3.4.7.1",
            "3.4 7",
            "99999999999.1",
            "3.4.\n",
            &long,
        ] {
            assert!(text.parse::<HaproxyVersion>().is_err(), "{text:?}");
        }
    }
}
