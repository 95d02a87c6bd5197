//! What HAProxy's loader makes of a file, as a digest: two files that differ in comments
//! and blanks alone mean the same.

use sha2::{Digest as _, Sha256};

use crate::client::fileset::Entry;
use crate::format::{crt_list, map_file, pem};
use crate::wire::digest::hex;
use crate::wire::manifest::FileKind;

/// Bytes that are hashed in one go.
const PIECE_BYTES: usize = 16 * 1024;

/// `None` for content that its reader refuses, and for files of which every byte counts.
pub(super) fn means(entry: &Entry<'_>) -> Option<String> {
    let mut hash = Sha256::new();
    // Fields are short and many; the hash is quick in long pieces.
    let mut piece = Vec::with_capacity(2 * PIECE_BYTES);
    let mut field = |bytes: &[u8]| {
        // With its length in front, so that no two lists of fields are the same bytes.
        piece.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        piece.extend_from_slice(bytes);
        if piece.len() >= PIECE_BYTES {
            hash.update(&piece);
            piece.clear();
        }
    };
    match entry.kind {
        FileKind::Map => {
            field(b"map");
            for line in map_file::parse(entry.content).ok()? {
                field(line.key);
                field(line.value);
            }
        }
        FileKind::Cert | FileKind::Ca => {
            field(b"pem");
            for block in pem::texts(entry.content).ok()? {
                field(block.as_bytes());
            }
        }
        FileKind::Crtlist => {
            field(b"crt-list");
            for row in crt_list::parse(entry.content).ok()? {
                field(row.cert);
                for words in [&row.options, &row.filters, &row.dropped] {
                    field(&(words.len() as u64).to_le_bytes());
                    words.iter().for_each(|word| field(word));
                }
            }
        }
        FileKind::Config | FileKind::General => return None,
    }
    hash.update(&piece);
    Some(hex(&hash.finalize()))
}
