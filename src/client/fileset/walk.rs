//! One pass over a directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::error::FileSetError;
use crate::wire::limits::{MAX_FILES, MAX_FILES_BYTES};
use crate::wire::path::ManifestPath;

/// Directories of one walk. Links between directories of one tree could multiply them
/// without end.
const MAX_DIRECTORIES: usize = 16_384;

/// Names kept of what was skipped.
const MAX_SKIPPED: usize = 4096;

pub(super) struct Walked {
    pub(super) files: BTreeMap<ManifestPath, Vec<u8>>,
    pub(super) skipped: Vec<String>,
}

pub(super) fn walk(directory: &Path) -> Result<Walked, FileSetError> {
    let root = fs::canonicalize(directory).map_err(|source| FileSetError::Unreadable {
        path: directory.to_path_buf(),
        source,
    })?;
    if !root.is_dir() {
        return Err(FileSetError::NoDirectory {
            path: directory.to_path_buf(),
        });
    }
    let mut walk = Walk {
        shown: directory,
        root: root.clone(),
        above: Vec::new(),
        directories: 0,
        bytes: 0,
        found: Walked {
            files: BTreeMap::new(),
            skipped: Vec::new(),
        },
    };
    walk.directory(&root, "")?;
    Ok(walk.found)
}

struct Walk<'a> {
    /// As the caller names it, for messages.
    shown: &'a Path,
    root: PathBuf,
    /// Where the walk stands, without links, outermost first.
    above: Vec<PathBuf>,
    directories: usize,
    bytes: u64,
    found: Walked,
}

impl Walk<'_> {
    /// `real` is the directory without links, `prefix` its name in the set with a slash
    /// behind it, or empty.
    fn directory(&mut self, real: &Path, prefix: &str) -> Result<(), FileSetError> {
        let shown = self.shown.join(prefix);
        self.directories += 1;
        if self.directories > MAX_DIRECTORIES {
            return Err(FileSetError::TooManyDirectories { path: shown });
        }
        let unreadable = |source| FileSetError::Unreadable {
            path: shown.clone(),
            source,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(real).map_err(unreadable)? {
            names.push(entry.map_err(unreadable)?.file_name());
        }
        names.sort();
        self.above.push(real.to_path_buf());
        for name in names {
            let Some(name) = name.to_str() else {
                return Err(FileSetError::NotUtf8 {
                    path: shown.join(name),
                });
            };
            let path = format!("{prefix}{name}");
            if name.starts_with('.') {
                if self.found.skipped.len() < MAX_SKIPPED {
                    self.found.skipped.push(path);
                }
                continue;
            }
            self.entry(&real.join(name), path)?;
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, place: &Path, path: String) -> Result<(), FileSetError> {
        let shown = self.shown.join(&path);
        let path = match ManifestPath::parse(path.as_str()) {
            Ok(path) => path,
            Err(rule) => return Err(FileSetError::Path { path, rule }),
        };
        let unreadable = |source| FileSetError::Unreadable {
            path: shown.clone(),
            source,
        };
        let mut real = place.to_path_buf();
        let mut meta = fs::symlink_metadata(place).map_err(unreadable)?;
        if meta.is_symlink() {
            real = self.target(place, &shown)?;
            meta = fs::symlink_metadata(&real).map_err(unreadable)?;
        }
        if meta.is_dir() {
            if self.above.contains(&real) {
                return Err(FileSetError::LinkLoop {
                    link: shown,
                    target: real,
                });
            }
            return self.directory(&real, &format!("{path}/"));
        }
        if !meta.is_file() {
            return Err(FileSetError::Special { path: shown });
        }
        if self.found.files.len() > MAX_FILES {
            return Err(FileSetError::TooManyFiles {
                count: self.found.files.len(),
            });
        }
        let left = MAX_FILES_BYTES.saturating_sub(self.bytes);
        let mut content = Vec::new();
        fs::File::open(&real)
            .and_then(|file| file.take(left.saturating_add(1)).read_to_end(&mut content))
            .map_err(unreadable)?;
        self.bytes = self.bytes.saturating_add(content.len() as u64);
        if self.bytes > MAX_FILES_BYTES {
            return Err(FileSetError::TooManyBytes { bytes: self.bytes });
        }
        self.found.files.insert(path, content);
        Ok(())
    }

    /// Where a link leads, which must be inside the directory.
    fn target(&self, link: &Path, shown: &Path) -> Result<PathBuf, FileSetError> {
        let says = fs::read_link(link).unwrap_or_default();
        let Ok(target) = fs::canonicalize(link) else {
            return Err(FileSetError::LinkBroken {
                link: shown.to_path_buf(),
                target: says,
            });
        };
        if !target.starts_with(&self.root) {
            return Err(FileSetError::LinkOut {
                link: shown.to_path_buf(),
                target: says,
            });
        }
        Ok(target)
    }
}
