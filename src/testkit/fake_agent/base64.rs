//! Base64 with padding, for credentials and the plan blob.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |n: usize| u32::from(chunk.get(n).copied().unwrap_or_default());
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let index = group >> (18 - 6 * digit) & 63;
            let shown = digit <= chunk.len();
            out.push(match (shown, usize::try_from(index)) {
                (true, Ok(index)) => char::from(DIGITS[index]),
                (true, Err(_)) | (false, _) => '=',
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn the_standard_s_own_examples() {
        for (plain, wanted) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), wanted);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfb]), "//77");
    }
}
