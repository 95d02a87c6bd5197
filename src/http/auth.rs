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

pub use super::basic::{base64, basic_header};

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

#[cfg(test)]
mod tests {
    use super::*;

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
