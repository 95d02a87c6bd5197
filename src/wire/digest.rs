//! Content digests: SHA-256, which the agent trusts, and XXH64, which existing
//! controllers send.
//!
//! XXH64 collides at will, so nothing here decides on it alone: [`ContentHash`]
//! always carries the SHA-256 of the bytes beside it, and a manifest's digest is
//! only ever *compared* with what the agent hashed itself.

use std::fmt;
use std::hash::Hasher as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash64;

use super::text::parsed;

/// The digest of a file as a manifest states it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Digest {
    /// 64 lower-case hex digits on the wire.
    Sha256([u8; 32]),
    /// 16 lower-case hex digits on the wire, most significant first, seed 0.
    Xxh64(u64),
}

/// Which digest a path is spoken of with; the last manifest that named it decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DigestKind {
    /// SHA-256.
    Sha256,
    /// XXH64 with seed 0.
    Xxh64,
}

/// The string has neither the shape of a SHA-256 nor that of an XXH64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestError;

impl fmt::Display for DigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a digest is 64 (SHA-256) or 16 (XXH64) lower-case hex digits without a prefix"
        )
    }
}

impl std::error::Error for DigestError {}

impl Digest {
    /// Reads the wire form.
    ///
    /// # Errors
    /// Any other length, an upper-case digit, a prefix.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        match text.len() {
            64 => {
                let mut bytes = [0u8; 32];
                unhex(text.as_bytes(), &mut bytes)?;
                Ok(Self::Sha256(bytes))
            }
            16 => {
                let mut bytes = [0u8; 8];
                unhex(text.as_bytes(), &mut bytes)?;
                Ok(Self::Xxh64(u64::from_be_bytes(bytes)))
            }
            _ => Err(DigestError),
        }
    }

    /// Which of the two it is.
    #[must_use]
    pub fn kind(&self) -> DigestKind {
        match self {
            Self::Sha256(_) => DigestKind::Sha256,
            Self::Xxh64(_) => DigestKind::Xxh64,
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(bytes) => f.write_str(&hex(bytes)),
            Self::Xxh64(value) => write!(f, "{value:016x}"),
        }
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, Self::parse)
    }
}

/// Size and both digests of bytes that the agent hashed itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentHash {
    /// SHA-256, the one that decides.
    pub sha256: [u8; 32],
    /// XXH64, only ever for talking to controllers that use it.
    pub xxh64: u64,
    /// Length in bytes.
    pub size: u64,
}

impl ContentHash {
    /// Hashes bytes at hand.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = ContentHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Whether `digest`, of either kind, is the digest of these bytes.
    #[must_use]
    pub fn matches(&self, digest: &Digest) -> bool {
        match digest {
            Digest::Sha256(bytes) => *bytes == self.sha256,
            Digest::Xxh64(value) => *value == self.xxh64,
        }
    }

    /// The digest of the kind asked for.
    #[must_use]
    pub fn digest(&self, kind: DigestKind) -> Digest {
        match kind {
            DigestKind::Sha256 => Digest::Sha256(self.sha256),
            DigestKind::Xxh64 => Digest::Xxh64(self.xxh64),
        }
    }
}

/// Computes a [`ContentHash`] over a stream.
#[derive(Clone)]
pub struct ContentHasher {
    sha256: Sha256,
    xxh64: XxHash64,
    size: u64,
}

impl ContentHasher {
    /// Starts with no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sha256: Sha256::new(),
            xxh64: XxHash64::with_seed(0),
            size: 0,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.xxh64.write(bytes);
        self.size = self.size.saturating_add(bytes.len() as u64);
    }

    /// Bytes taken so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Ends the stream.
    #[must_use]
    pub fn finish(self) -> ContentHash {
        ContentHash {
            sha256: self.sha256.finalize().into(),
            xxh64: self.xxh64.finish(),
            size: self.size,
        }
    }
}

impl Default for ContentHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ContentHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentHasher")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    out
}

/// A SHA-256 in lower-case hexadecimal, without an allocation.
#[must_use]
pub fn hex_of(bytes: &[u8; 32]) -> [u8; 64] {
    let mut out = [0; 64];
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
    out
}

/// What a byte is worth as a digit, [`NO_DIGIT`] if it is none.
const WORTH: [u8; 256] = {
    let mut worth = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        worth[DIGITS[digit as usize] as usize] = digit;
        digit += 1;
    }
    worth
};

/// A bit that no digit's worth has.
const NO_DIGIT: u8 = 0x80;

fn unhex(text: &[u8], out: &mut [u8]) -> Result<(), DigestError> {
    let mut seen = 0;
    for (pair, byte) in text.chunks_exact(2).zip(out.iter_mut()) {
        let &[high, low] = pair else {
            return Err(DigestError);
        };
        let [high, low] = [high, low].map(|digit| WORTH[usize::from(digit)]);
        seen |= high | low;
        *byte = (high << 4) | (low & 0x0f);
    }
    if seen & NO_DIGIT == 0 {
        Ok(())
    } else {
        Err(DigestError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_hexadecimal_agree() {
        let mut bytes = [0_u8; 32];
        for (at, byte) in (0_u8..).zip(&mut bytes) {
            *byte = at.wrapping_mul(17) ^ (at << 3);
        }
        assert_eq!(hex_of(&bytes), hex(&bytes).as_bytes());
    }

    #[test]
    fn the_contract_s_own_examples() {
        assert_eq!(
            ContentHash::of(b"").digest(DigestKind::Xxh64).to_string(),
            "ef46db3751d8e999"
        );
        assert_eq!(
            ContentHash::of(b"global\n")
                .digest(DigestKind::Xxh64)
                .to_string(),
            "f72338a7e0367f8f"
        );
        assert_eq!(
            ContentHash::of(b"abc")
                .digest(DigestKind::Sha256)
                .to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn only_the_two_shapes_parse() {
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for good in [sha, "ef46db3751d8e999", "0000000000000001"] {
            assert_eq!(Digest::parse(good).unwrap().to_string(), good);
        }
        for bad in [
            "",
            "ef46db3751d8e99",
            "EF46DB3751D8E999",
            "0x46db3751d8e999",
            &sha[1..],
            "é6db3751d8e9991",
        ] {
            assert_eq!(Digest::parse(bad), Err(DigestError), "{bad}");
        }
        assert_eq!(Digest::parse(&format!("sha256:{sha}")), Err(DigestError));
    }

    #[test]
    fn a_stream_in_pieces_hashes_like_the_whole() {
        let bytes: Vec<u8> = (0..=255u8).cycle().take(10_000).collect();
        let mut hasher = ContentHasher::new();
        for piece in bytes.chunks(7) {
            hasher.update(piece);
        }
        assert_eq!(hasher.finish(), ContentHash::of(&bytes));
    }
}
