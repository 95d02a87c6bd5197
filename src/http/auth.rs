//! Basic authentication against one pair of credentials.
//!
//! What the header must say is computed once; each request is compared by a keyed hash
//! of both sides, in a time that does not depend on where they differ. Nothing decodes
//! what a caller sent, and nothing keeps or prints the credentials.

use std::fmt;
use std::hint::black_box;
use std::io;

use sha2::{Digest as _, Sha256};

use crate::sys;

/// One user and password.
pub struct BasicAuth {
    key: [u8; 32],
    expected: [u8; 32],
}

impl BasicAuth {
    /// Takes the credentials in. A user with a colon is the same as a shorter user with
    /// a longer password, since the header does not tell them apart.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn new(user: &str, password: &str) -> io::Result<Self> {
        let key = sys::random_bytes()?;
        let token = base64(format!("{user}:{password}").as_bytes());
        Ok(Self {
            expected: keyed(&key, token.as_bytes()),
            key,
        })
    }

    /// Whether an `Authorization` header carries exactly these credentials.
    #[must_use]
    pub fn check(&self, authorization: Option<&[u8]>) -> bool {
        let Some(token) = authorization.and_then(basic_token) else {
            return false;
        };
        let given = keyed(&self.key, token);
        let difference = given
            .iter()
            .zip(&self.expected)
            .fold(0u8, |sum, (a, b)| black_box(sum | (a ^ b)));
        black_box(difference) == 0
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BasicAuth")
    }
}

/// The `Authorization` value that a client sends for these credentials.
#[must_use]
pub fn basic_header(user: &str, password: &str) -> String {
    format!("Basic {}", base64(format!("{user}:{password}").as_bytes()))
}

/// What follows the scheme and its spaces; the scheme's case does not matter.
fn basic_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(5)?;
    if !scheme.eq_ignore_ascii_case(b"basic") || rest.first() != Some(&b' ') {
        return None;
    }
    Some(rest.trim_ascii_start())
}

fn keyed(key: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(key);
    hash.update(bytes);
    hash.finalize().into()
}

/// The standard alphabet, padded.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4usize {
            let sextet = (bits >> (18 - 6 * place)) & 63;
            let letter = usize::try_from(sextet).ok().and_then(|at| ALPHABET.get(at));
            text.push(match letter {
                Some(&letter) if place <= group.len() => char::from(letter),
                _ => '=',
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_padding() {
        let table: [(&[u8], &str); 7] = [
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"\xff\xfe\xfd", "//79"),
            (b"admin:s3cr\xc3\xa9t", "YWRtaW46czNjcsOpdA=="),
        ];
        for (bytes, text) in table {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn only_the_exact_credentials_pass() {
        let auth = BasicAuth::new("admin", "s3crét").unwrap();
        let table: [(&str, bool); 12] = [
            ("Basic YWRtaW46czNjcsOpdA==", true),
            ("bAsIc   YWRtaW46czNjcsOpdA==", true),
            ("Basic YWRtaW46czNjcsOpdA", false),
            ("Basic YWRtaW46czNjcsOpdA=", false),
            ("Basic YWRtaW46czNjcsOpdB==", false),
            ("Basic YWRtaW46czNjcsOpdA==x", false),
            ("Basic ", false),
            ("Basic", false),
            ("BasicYWRtaW46czNjcsOpdA==", false),
            ("Bearer YWRtaW46czNjcsOpdA==", false),
            ("YWRtaW46czNjcsOpdA==", false),
            ("", false),
        ];
        for (value, passes) in table {
            assert_eq!(auth.check(Some(value.as_bytes())), passes, "{value:?}");
        }
        assert!(!auth.check(None));
        assert!(auth.check(Some(basic_header("admin", "s3crét").as_bytes())));
    }

    #[test]
    fn nothing_prints_the_credentials() {
        let auth = BasicAuth::new("admin", "geheim").unwrap();
        assert_eq!(format!("{auth:?}"), "BasicAuth");
    }
}
