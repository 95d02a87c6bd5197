//! What both ends of Basic authentication share: the header's value, and base64.

/// The `Authorization` value that a client sends for these credentials.
#[must_use]
pub fn basic_header(user: &str, password: &str) -> String {
    format!("Basic {}", base64(format!("{user}:{password}").as_bytes()))
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
}
