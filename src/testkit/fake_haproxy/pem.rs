//! As much of a PEM as `show ssl cert` tells: the leaf's serial number, and how many
//! certificates stand behind it.

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// What a certificate file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pem {
    pub(super) has_cert: bool,
    pub(super) has_key: bool,
    /// Upper-case hexadecimal; empty if the certificate is not understood.
    pub(super) serial: String,
    /// Certificates behind the first.
    pub(super) chain: usize,
}

impl Pem {
    pub(super) fn read(text: &str) -> Self {
        let blocks: Vec<&str> = text.split(BEGIN).skip(1).collect();
        let leaf = blocks.first().and_then(|rest| rest.split(END).next());
        Self {
            has_cert: !blocks.is_empty(),
            has_key: text.contains("PRIVATE KEY-----"),
            serial: leaf.and_then(serial).unwrap_or_default(),
            chain: blocks.len().saturating_sub(1),
        }
    }
}

/// The serial number of a certificate in base64: the first integer of its inner sequence,
/// behind a version in a tag of its own.
fn serial(base64: &str) -> Option<String> {
    let der = decode(base64)?;
    let outer = open(&der, 0x30)?.0;
    let mut inner = open(outer, 0x30)?.0;
    if inner.first() == Some(&0xa0) {
        inner = open(inner, 0xa0)?.1;
    }
    let number = open(inner, 0x02)?.0;
    let number = match number {
        // The sign of a number whose first bit is set.
        [0, rest @ ..] if !rest.is_empty() => rest,
        number => number,
    };
    Some(number.iter().map(|byte| format!("{byte:02X}")).collect())
}

/// What an element of that tag holds, and what follows it.
fn open(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let value = digits.iter().try_fold(0usize, |sum, digit| {
                sum.checked_mul(256)?.checked_add(usize::from(*digit))
            })?;
            (value, rest)
        }
    };
    (*first == tag).then(|| rest.split_at_checked(length))?
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_integer_behind_the_version() {
        // SEQUENCE { SEQUENCE { [0] { INTEGER 2 }, INTEGER 0x00C0FFEE } }
        let der: [u8; 15] = [
            0x30, 13, 0x30, 11, 0xa0, 3, 2, 1, 2, 2, 4, 0, 0xc0, 0xff, 0xee,
        ];
        let mut text = String::new();
        for chunk in der.chunks(3) {
            let group = u32::from(chunk[0]) << 16 | u32::from(chunk[1]) << 8 | u32::from(chunk[2]);
            for shift in [18, 12, 6, 0] {
                let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
                text.push(char::from(digits[(group >> shift & 63) as usize]));
            }
        }
        let pem = Pem::read(&format!("{BEGIN}\n{text}\n{END}\n{BEGIN}\nx\n{END}\n"));
        assert_eq!((pem.serial.as_str(), pem.chain), ("C0FFEE", 1));
        assert!(pem.has_cert && !pem.has_key);
        assert_eq!(Pem::read("").serial, "");
        assert_eq!(Pem::read(&format!("{BEGIN}\nAAAA\n{END}\n")).serial, "");
    }
}
