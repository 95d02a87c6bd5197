//! What a file is for, by its name and content.

use crate::wire::manifest::FileKind;
use crate::wire::path::ManifestPath;

/// As the manifest writes it.
pub(super) fn name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Config => "config",
        FileKind::Map => "map",
        FileKind::Cert => "cert",
        FileKind::Ca => "ca",
        FileKind::Crtlist => "crtlist",
        FileKind::General => "general",
    }
}

/// The first rule that fits. `has` knows the other files of the set.
pub(super) fn by_rule(
    path: &ManifestPath,
    content: &[u8],
    is_config: bool,
    has: &dyn Fn(&str) -> bool,
) -> FileKind {
    if is_config {
        return FileKind::Config;
    }
    // Also where the block is indented or glued to another: rather too few may read it.
    if has_line(content, |line| line.ends_with(b"PRIVATE KEY-----")) {
        return FileKind::Cert;
    }
    let text = path.as_str();
    let file = text.rsplit('/').next().unwrap_or(text);
    if file.ends_with(".map")
        || path
            .ancestors()
            .any(|dir| dir == "maps" || dir.ends_with("/maps"))
    {
        return FileKind::Map;
    }
    if has_line(content, |line| {
        line.starts_with(b"-----BEGIN ") && line.ends_with(b"CERTIFICATE-----")
    }) {
        return match has(&format!("{text}.key")) {
            true => FileKind::Cert,
            false => FileKind::Ca,
        };
    }
    let stem = file.split('.').next().unwrap_or(file);
    if file.ends_with(".crtlist")
        || stem.starts_with("crt-list")
        || stem.ends_with("crt-list")
        || file.ends_with(".crt-list")
    {
        return FileKind::Crtlist;
    }
    FileKind::General
}

fn has_line(content: &[u8], fits: impl Fn(&[u8]) -> bool) -> bool {
    let lines = content.split(|&b| b == b'\n');
    lines.map(<[u8]>::trim_ascii_end).any(fits)
}
