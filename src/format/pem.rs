//! PEM files cut into what payload commands hold.
//!
//! Only the payload is normalised, never a file: what stands outside of blocks, blank
//! lines and CRs are left out, because older releases end a certificate chain at a
//! blank line without a word. Blocks keep their order and their bytes. Whether a
//! certificate is any good is HAProxy's to say.

use super::{Fault, base64};

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// A certificate with its chain and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertPem {
    /// All in one payload.
    Whole(Vec<u8>),
    /// Chain, then key: together they are above what one command holds.
    Split {
        /// Everything but the key.
        chain: Vec<u8>,
        /// The key.
        key: Vec<u8>,
    },
}

/// Certificates in pieces that one command holds each; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaBundle {
    /// Whole certificates each, in the file's order.
    pub pieces: Vec<Vec<u8>>,
}

struct Block<'a> {
    label: &'a str,
    text: String,
}

impl Block<'_> {
    fn is_certificate(&self) -> bool {
        self.label.ends_with("CERTIFICATE")
    }

    fn is_key(&self) -> bool {
        self.label.ends_with("PRIVATE KEY")
    }

    fn der(&self) -> Option<Vec<u8>> {
        let lines = self.text.lines();
        let body: String = lines.filter(|line| !line.starts_with(DASHES)).collect();
        base64::decode(&body)
    }
}

/// A file with a certificate and its key, for commands whose payload bodies have at most
/// `room` bytes.
///
/// # Errors
///
/// It is no PEM file, one of the two is missing, or it does not fit.
pub fn certificate(file: &[u8], room: usize) -> Result<CertPem, Fault> {
    let blocks = blocks(file)?;
    if !blocks.iter().any(Block::is_certificate) || !blocks.iter().any(Block::is_key) {
        return Err(Fault::invalid(
            "the file must hold a certificate and its private key",
        ));
    }
    let whole: String = blocks.iter().map(|block| block.text.as_str()).collect();
    if whole.len() <= room {
        return Ok(CertPem::Whole(whole.into_bytes()));
    }
    let join = |keys: bool| -> String {
        let chosen = blocks.iter().filter(|block| block.is_key() == keys);
        chosen.map(|block| block.text.as_str()).collect()
    };
    let (chain, key) = (join(false), join(true));
    match chain.len().max(key.len()) <= room {
        true => Ok(CertPem::Split {
            chain: chain.into_bytes(),
            key: key.into_bytes(),
        }),
        false => Err(too_big(chain.len().max(key.len()), room)),
    }
}

/// As [`certificate`], for a file of CA certificates.
///
/// # Errors
///
/// It is no PEM file, has no certificate, or one of them does not fit.
pub fn bundle(file: &[u8], room: usize) -> Result<CaBundle, Fault> {
    let blocks = blocks(file)?;
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    for block in blocks.iter().filter(|block| block.is_certificate()) {
        let bytes = block.text.as_bytes();
        if bytes.len() > room {
            return Err(too_big(bytes.len(), room));
        }
        match pieces.last_mut() {
            Some(open) if open.len() + bytes.len() <= room => open.extend_from_slice(bytes),
            Some(_) | None => pieces.push(bytes.to_vec()),
        }
    }
    match pieces.is_empty() {
        true => Err(Fault::invalid("the file holds no certificate")),
        false => Ok(CaBundle { pieces }),
    }
}

/// How many blocks of which sort a file has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Certificates.
    pub certificates: usize,
    /// Private keys.
    pub keys: usize,
    /// All others: parameters, revocation lists.
    pub others: usize,
}

/// Counts a file's blocks.
///
/// # Errors
///
/// It is no PEM file: blocks that do not end, or that are glued together.
pub fn contents(file: &[u8]) -> Result<Contents, Fault> {
    let mut seen = Contents::default();
    for block in blocks(file)? {
        match (block.is_certificate(), block.is_key()) {
            (true, _) => seen.certificates += 1,
            (false, true) => seen.keys += 1,
            (false, false) => seen.others += 1,
        }
    }
    Ok(seen)
}

/// The blocks' text as it is sent: no blank lines, no CRs, nothing between them.
///
/// # Errors
///
/// As [`contents`].
pub fn texts(file: &[u8]) -> Result<Vec<String>, Fault> {
    let blocks = blocks(file)?;
    Ok(blocks.into_iter().map(|block| block.text).collect())
}

/// What a certificate's file says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The first certificate's serial number, see [`serial_digits`].
    pub serial: String,
    /// Certificates after the first.
    pub chain: usize,
}

/// `None` when the file or its first certificate is not understood.
#[must_use]
pub fn summary(file: &[u8]) -> Option<Summary> {
    let blocks = blocks(file).ok()?;
    let certificates: Vec<&Block<'_>> = blocks.iter().filter(|b| b.is_certificate()).collect();
    let (leaf, chain) = certificates.split_first()?;
    Some(Summary {
        serial: serial(&leaf.der()?)?,
        chain: chain.len(),
    })
}

/// When the first certificate of a file ends, as `YYYYMMDDhhmmss`, UTC; `None` when it is
/// not understood.
#[must_use]
pub fn ends(file: &[u8]) -> Option<String> {
    let blocks = blocks(file).ok()?;
    let leaf = blocks.iter().find(|block| block.is_certificate())?;
    let der = leaf.der()?;
    let (_, rest) = to_be_signed(&der)?;
    // Signature algorithm, issuer, validity.
    let (_, _, rest) = element(rest)?;
    let (_, _, rest) = element(rest)?;
    let (_, validity, _) = element(rest)?;
    let (_, _, rest) = element(validity)?;
    let (tag, moment, _) = element(rest)?;
    let digits = std::str::from_utf8(moment).ok()?.strip_suffix('Z')?;
    let whole = match (tag, digits.len()) {
        // Two digits of the year: 1950 to 2049.
        (0x17, 12) if digits >= "50" => format!("19{digits}"),
        (0x17, 12) => format!("20{digits}"),
        (0x18, 14) => digits.to_owned(),
        _ => return None,
    };
    let all_digits = whole.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then_some(whole)
}

/// Hex digits as they are compared: upper case, without zeros in front.
#[must_use]
pub fn serial_digits(hex: &str) -> String {
    let digits = hex.trim_start_matches('0').to_ascii_uppercase();
    match digits.is_empty() {
        true => "0".to_owned(),
        false => digits,
    }
}

fn serial(der: &[u8]) -> Option<String> {
    let (value, _) = to_be_signed(der)?;
    let hex: String = value.iter().map(|byte| format!("{byte:02X}")).collect();
    Some(serial_digits(&hex))
}

/// `Certificate ::= SEQUENCE { SEQUENCE { [0] version?, INTEGER serial, … } … }`: the serial
/// number, never empty, and what follows.
fn to_be_signed(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, certificate, _) = element(der)?;
    let (inner, to_be_signed, _) = element(certificate)?;
    if (tag, inner) != (0x30, 0x30) {
        return None;
    }
    let (tag, value, rest) = element(to_be_signed)?;
    let (tag, value, rest) = match tag {
        0xa0 => element(rest)?,
        tag => (tag, value, rest),
    };
    (tag == 0x02 && !value.is_empty()).then_some((value, rest))
}

/// One DER element: tag, content, what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            let length = bytes.iter().fold(0, |all, &b| all << 8 | usize::from(b));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn too_big(bytes: usize, room: usize) -> Fault {
    Fault::too_big(format!(
        "the certificate has {bytes} bytes and {room} fit into one command"
    ))
}

fn blocks(file: &[u8]) -> Result<Vec<Block<'_>>, Fault> {
    let text = std::str::from_utf8(file)
        .map_err(|_| Fault::invalid("the file is no PEM file: it is not UTF-8"))?;
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut open = false;
    for (number, line) in text.split('\n').enumerate() {
        let broken =
            |what: &str| Fault::invalid(format!("line {} of the PEM file {what}", number + 1));
        let line = line.trim_end_matches(['\r', ' ', '\t']);
        if line.contains(['\r', '\0']) {
            return Err(broken("holds a CR or NUL in its middle"));
        }
        match (open, line.strip_prefix(BEGIN), line.strip_prefix(END)) {
            (false, Some(rest), _) => {
                let label = label(rest).ok_or_else(|| broken("has more behind a block's start"))?;
                blocks.push(Block {
                    label,
                    text: format!("{line}\n"),
                });
                open = true;
            }
            (false, None, Some(_)) => return Err(broken("ends a block that was not begun")),
            (false, None, None) if line.contains(BEGIN) => {
                return Err(broken("begins a block in its middle"));
            }
            (false, None, None) => {}
            (true, Some(_), _) => return Err(broken("begins a block inside of another")),
            (true, None, end) => {
                let block = blocks
                    .last_mut()
                    .filter(|block| end.is_none() || end.and_then(label) == Some(block.label));
                let block = block.ok_or_else(|| {
                    broken("ends another block than is open, or has more behind its end")
                })?;
                if !line.is_empty() {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                open = end.is_none();
            }
        }
    }
    match open {
        true => Err(Fault::invalid("the PEM file ends in the middle of a block")),
        false => Ok(blocks),
    }
}

/// `LABEL-----` and nothing else.
fn label(rest: &str) -> Option<&str> {
    rest.strip_suffix(DASHES)
        .filter(|label| !label.is_empty() && !label.contains(DASHES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FaultKind;

    const CERT: &str = "-----BEGIN CERTIFICATE-----\nAAAA\nBBBB\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nKKKK\n-----END EC PRIVATE KEY-----\n";

    fn whole(file: &str) -> Result<String, Fault> {
        match certificate(file.as_bytes(), 10_000)? {
            CertPem::Whole(bytes) => Ok(String::from_utf8(bytes).unwrap()),
            CertPem::Split { .. } => panic!("fits"),
        }
    }

    #[test]
    fn only_blocks_are_sent_without_blank_lines_and_crs() {
        let plain = format!("{CERT}{CERT}{KEY}");
        for file in [
            plain.clone(),
            format!("{CERT}\n{CERT}\n\n{KEY}\n"),
            plain.replace('\n', "\r\n"),
            format!("# made by hand\nsubject=x\n{CERT}E_O_F\n{CERT}{KEY}"),
            plain.replace("AAAA\n", "AAAA\n\n"),
            plain.trim_end().to_owned(),
        ] {
            assert_eq!(whole(&file).unwrap(), plain, "{file:?}");
        }
        let turned = format!("{KEY}{CERT}");
        assert_eq!(whole(&turned).unwrap(), turned);
    }

    #[test]
    fn what_is_no_certificate_with_key_is_invalid() {
        let glued = format!("{}{KEY}", CERT.trim_end());
        for file in [
            "",
            "x",
            CERT,
            KEY,
            &glued,
            &format!(
                "{CERT}{}",
                KEY.trim_end_matches("-----END EC PRIVATE KEY-----\n")
            ),
            &format!("{CERT}{}", KEY.replace("END EC", "END RSA")),
            &format!("{CERT}x{KEY}"),
            &format!("{CERT}-----END X-----\n{KEY}"),
            &format!("{}{KEY}", CERT.replace("AAAA", "AA\rAA")),
        ] {
            assert_eq!(
                whole(file).unwrap_err().kind,
                FaultKind::Invalid,
                "{file:?}"
            );
        }
        assert!(certificate(b"\xff", 100).is_err());
    }

    #[test]
    fn a_long_chain_goes_apart_from_its_key() {
        let file = format!("{CERT}{KEY}{CERT}");
        let size = |len| certificate(file.as_bytes(), len);
        assert!(matches!(size(file.len()).unwrap(), CertPem::Whole(_)));
        let split = CertPem::Split {
            chain: format!("{CERT}{CERT}").into_bytes(),
            key: KEY.into(),
        };
        assert_eq!(size(file.len() - 1).unwrap(), split);
        assert_eq!(size(2 * CERT.len()).unwrap(), split);
        assert_eq!(
            size(2 * CERT.len() - 1).unwrap_err().kind,
            FaultKind::TooBig
        );
    }

    #[test]
    fn bundles_are_cut_between_certificates() {
        let file = format!("# ca\n{CERT}\n{CERT}{CERT}");
        let pieces = |room| {
            let bundle = bundle(file.as_bytes(), room).unwrap();
            bundle.pieces.iter().map(Vec::len).collect::<Vec<_>>()
        };
        let one = CERT.len();
        assert_eq!(pieces(1000), [3 * one]);
        assert_eq!(pieces(2 * one), [2 * one, one]);
        assert_eq!(pieces(2 * one - 1), [one, one, one]);
        assert_eq!(
            bundle(file.as_bytes(), one - 1).unwrap_err().kind,
            FaultKind::TooBig
        );
        assert!(bundle(KEY.as_bytes(), 1000).is_err());
    }

    #[test]
    fn serials_are_read_from_the_certificate() {
        // SEQ { SEQ { [0] { INT 2 }, INT 00 9a bc } }, and without the version.
        let long = [0x30, 0x0b, 0x30, 0x09, 0xa0, 3, 2, 1, 2, 2, 2, 0x0a, 0xbc];
        assert_eq!(serial(&long).as_deref(), Some("ABC"));
        assert_eq!(
            serial(&[0x30, 0x07, 0x30, 0x05, 2, 3, 0, 0x9a, 0xbc]).as_deref(),
            Some("9ABC")
        );
        for cut in 0..long.len() {
            assert_eq!(serial(&long[..cut]), None);
        }
        assert_eq!(serial_digits("00"), "0");
        assert_eq!(summary(CERT.as_bytes()), None, "no DER inside");
    }
}
