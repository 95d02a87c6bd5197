//! Base64 as PEM blocks and the state's plan blob carry it, without line ends.

/// Decodes the standard alphabet; padding may be there or not. `None` for any other
/// byte.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_optional_and_other_bytes_are_refused() {
        assert_eq!(decode("AAEC/w==").unwrap(), [0, 1, 2, 255]);
        assert_eq!(decode("AAEC/w").unwrap(), [0, 1, 2, 255]);
        assert!(decode("").unwrap().is_empty());
        assert_eq!(decode("A*"), None);
    }
}
