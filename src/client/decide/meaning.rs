//! What HAProxy's loader makes of a file, as a digest: two files that differ in comments
//! and blanks alone mean the same.

use sha2::{Digest as _, Sha256};

use crate::client::fileset::Entry;
use crate::format::{crt_list, map_file, pem};
use crate::wire::digest::hex;
use crate::wire::manifest::FileKind;

/// `None` for content that its reader refuses, and for files of which every byte counts.
pub(super) fn means(entry: &Entry<'_>) -> Option<String> {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        // With its length in front, so that no two lists of fields are the same bytes.
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
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
    Some(hex(&hash.finalize()))
}
