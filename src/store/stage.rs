//! Receiving content before anything is changed: each file of a request goes to a
//! name of its own on the mount of its target, hashed while it is written.
//!
//! Staging runs outside the apply lock, in as many threads as there are uploads. A
//! [`StageRequest`] owns `<mount>/.haptic-tmp/<request>/` on every mount that it needs
//! and removes what is left of it when it is dropped, so a refused or broken upload
//! costs nothing. Memory is one buffer of 64 KiB a request, whatever a peer sends;
//! disk is bounded by the sizes that the manifest declares, because a part that is
//! longer is stopped at its first byte too many. Digests are compared by the caller.
//!
//! Nothing is waited for while parts come in: with full durability the kernel is asked
//! to begin writing each of them, and [`StageRequest::seal`] waits for all of them at
//! once. A sync a file as it comes would cost a journal commit a file.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write as _};

use crate::wire::digest::{ContentHash, ContentHasher};
use crate::wire::path::ManifestPath;

use super::context::Store;
use super::error::{Op, StoreError};
use super::fs::join;
use super::mounts::{PRIVATE_DIR_MODE, tmp_dir};
use super::transfer::{BUFFER_BYTES, read_some};

/// The longest request id.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// After so many bytes of one file the disk begins with them: it works while the rest
/// of the file comes in, and what [`StageRequest::seal`] waits for is short.
const SYNC_AHEAD_BYTES: usize = 1024 * 1024;

/// Content that waits on its target's mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    /// Where it is meant to go.
    pub path: ManifestPath,
    /// Where it is now, relative to the base.
    pub staged: String,
    /// Size and digests of what was written.
    pub hash: ContentHash,
    /// The time of last change that tells a later write; see
    /// [`FileOut::mark`](super::fs::FileOut::mark).
    pub mark: Option<i128>,
    /// Its permission bits; an existing target's own mode takes precedence later.
    pub mode: u32,
}

/// Content that no manifest path is for, in a staging area of its own. Dropped, it is
/// removed.
#[derive(Debug)]
pub struct StagedBlob {
    request: StageRequest,
    /// Where it is now, relative to the base.
    pub(super) staged: String,
    /// Size and digests of what was written.
    pub hash: ContentHash,
}

impl StagedBlob {
    /// Receives at most `limit` bytes on the base's own mount. `id` as for [`StageRequest::new`].
    ///
    /// # Errors
    /// See [`StageError`]; after one, nothing is left on disk.
    pub fn receive(
        store: &Store,
        id: impl Into<String>,
        content: &mut dyn Read,
        limit: u64,
    ) -> Result<Self, StageError> {
        let mut request = StageRequest::new(store, id)?;
        let dir = request.directory("")?;
        let (staged, Filled { hash, .. }) = request.receive(&dir, BLOB_MODE, content, limit)?;
        if hash.size > limit {
            request.discard(&staged);
            return Err(StageError::Size {
                path: BLOB_NAME.to_owned(),
                declared: limit,
                got: hash.size,
            });
        }
        request.files.push(staged.clone());
        Ok(Self {
            request,
            staged,
            hash,
        })
    }

    /// See [`StageRequest::seal`].
    ///
    /// # Errors
    /// The disk's.
    pub fn seal(&self) -> Result<(), StoreError> {
        self.request.seal()
    }

    /// Ends it after its file was moved away.
    pub(super) fn finish(self) {
        self.request.finish();
    }
}

/// Mode of the blob: it is the agent's own.
const BLOB_MODE: u32 = 0o600;

/// What the blob is called in a refusal.
const BLOB_NAME: &str = "plan";

/// Why a part could not be staged.
#[derive(Debug)]
pub enum StageError {
    /// The part is not as long as declared.
    Size {
        /// The target path.
        path: String,
        /// The declared size in bytes.
        declared: u64,
        /// The size that arrived; if it is larger, the part was not read further than one byte beyond.
        got: u64,
    },
    /// The sender's stream broke.
    Source(io::Error),
    /// The disk refused.
    Store(StoreError),
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size {
                path,
                declared,
                got,
            } if got > declared => {
                write!(f, "{path}: more than the declared {declared} bytes arrived")
            }
            Self::Size {
                path,
                declared,
                got,
            } => write!(f, "{path}: {declared} bytes are declared and {got} arrived"),
            Self::Source(_) => write!(f, "the part's content broke off"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Size { .. } => None,
            Self::Source(error) => Some(error),
            Self::Store(error) => error.source(),
        }
    }
}

impl From<StoreError> for StageError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// One request's staging area. Dropped, it removes everything that is still in it.
#[derive(Debug)]
pub struct StageRequest {
    store: Store,
    id: String,
    /// Mounts whose request directory exists.
    mounts: BTreeSet<String>,
    files: Vec<String>,
    next: u64,
    buffer: Vec<u8>,
    at_end: AtEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtEnd {
    RemoveAll,
    RemoveDirectories,
    Leave,
}

impl StageRequest {
    /// A staging area that touches the disk when the first file comes. `id` must not be
    /// in use by another request, nor named by an intent that is still to be replayed.
    ///
    /// # Errors
    /// `id` is not 1 to 64 of `A-Z a-z 0-9 _ -`.
    pub fn new(store: &Store, id: impl Into<String>) -> Result<Self, StoreError> {
        let id = id.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if id.is_empty() || id.len() > MAX_REQUEST_ID_BYTES || !id.bytes().all(plain) {
            return Err(StoreError::BadName { name: id });
        }
        Ok(Self {
            store: store.clone(),
            id,
            mounts: BTreeSet::new(),
            files: Vec::new(),
            next: 0,
            buffer: Vec::new(),
            at_end: AtEnd::RemoveAll,
        })
    }

    /// Writes a part's content beside its target and hashes it. Exactly `declared` bytes
    /// must come. The content survives a power loss only after [`seal`](Self::seal).
    ///
    /// # Errors
    /// See [`StageError`]; after one, nothing of this part is left on disk.
    pub fn stage(
        &mut self,
        path: &ManifestPath,
        mode: u32,
        content: &mut dyn Read,
        declared: u64,
    ) -> Result<StagedFile, StageError> {
        let mount = self.store.mounts().mount_of(path).to_owned();
        let dir = self.directory(&mount)?;
        let (staged, Filled { hash, mark }) = self.receive(&dir, mode, content, declared)?;
        if hash.size != declared {
            self.discard(&staged);
            return Err(StageError::Size {
                path: path.as_str().to_owned(),
                declared,
                got: hash.size,
            });
        }
        self.files.push(staged.clone());
        Ok(StagedFile {
            path: path.clone(),
            staged,
            hash,
            mark,
            mode,
        })
    }

    /// Writes what comes, at most one byte more than `most`, to the next free name.
    fn receive(
        &mut self,
        dir: &str,
        mode: u32,
        content: &mut dyn Read,
        most: u64,
    ) -> Result<(String, Filled), StageError> {
        let staged = join(dir, &self.next.to_string());
        self.next += 1;
        self.buffer.resize(BUFFER_BYTES, 0);
        let filled = fill(&self.store, &staged, mode, content, most, &mut self.buffer);
        match filled {
            Ok(filled) => Ok((staged, filled)),
            Err(error) => {
                self.discard(&staged);
                Err(error)
            }
        }
    }

    /// [`stage`](Self::stage) for content at hand.
    ///
    /// # Errors
    /// The disk's.
    pub fn stage_bytes(
        &mut self,
        path: &ManifestPath,
        mode: u32,
        content: &[u8],
    ) -> Result<StagedFile, StageError> {
        let mut rest = content;
        self.stage(path, mode, &mut rest, content.len() as u64)
    }

    /// With full durability, makes content and names survive a power loss. Call it once
    /// all parts are in, before an intent names them: many files synced at once cost a
    /// fraction of each on its own.
    ///
    /// # Errors
    /// The disk's. The request is then only good to be dropped.
    pub fn seal(&self) -> Result<(), StoreError> {
        self.store.sync_files(&self.files)?;
        for mount in &self.mounts {
            let tmp = tmp_dir(mount);
            let dir = join(&tmp, &self.id);
            self.store.sync_dirs([dir.as_str(), tmp.as_str()])?;
        }
        Ok(())
    }

    /// Ends a request whose files were all moved to their targets: only the empty
    /// directories are removed.
    pub fn finish(mut self) {
        self.at_end = AtEnd::RemoveDirectories;
    }

    /// Ends a request and leaves its files, because an intent names them that a restart
    /// will replay.
    pub fn leave(mut self) {
        self.at_end = AtEnd::Leave;
    }

    /// The request's directory on a mount, made if this is its first file there.
    fn directory(&mut self, mount: &str) -> Result<String, StoreError> {
        let tmp = tmp_dir(mount);
        let dir = join(&tmp, &self.id);
        if self.mounts.contains(mount) {
            return Ok(dir);
        }
        self.store.anchor(&tmp)?;
        self.store
            .fs()
            .mkdir(&dir, PRIVATE_DIR_MODE)
            .map_err(|e| StoreError::io(Op::Mkdir, &dir, e))?;
        self.mounts.insert(mount.to_owned());
        Ok(dir)
    }

    /// Removes a file that failed; what cannot be removed now is removed with the rest.
    fn discard(&mut self, staged: &str) {
        if self.store.unlink_if_there(staged).is_err() {
            self.files.push(staged.to_owned());
        }
    }
}

impl Drop for StageRequest {
    /// Best effort: what stays is swept at the next start.
    fn drop(&mut self) {
        match self.at_end {
            AtEnd::Leave => return,
            AtEnd::RemoveDirectories => {}
            AtEnd::RemoveAll => {
                for file in &self.files {
                    if let Err(error) = self.store.unlink_if_there(file) {
                        log::debug!(file, error:%; "a staged file stays until the next start");
                    }
                }
            }
        }
        for mount in &self.mounts {
            let dir = join(&tmp_dir(mount), &self.id);
            if let Err(error) = self.store.fs().rmdir(&dir) {
                log::debug!(dir, error:%; "a staging directory stays until the next start");
            }
        }
    }
}

/// What was written.
struct Filled {
    hash: ContentHash,
    mark: Option<i128>,
}

/// Creates `staged` and writes what comes, at most one byte more than declared.
fn fill(
    store: &Store,
    staged: &str,
    mode: u32,
    content: &mut dyn Read,
    declared: u64,
    buffer: &mut [u8],
) -> Result<Filled, StageError> {
    let mut file = store.create(staged, mode)?;
    let mut hasher = ContentHasher::new();
    let mut filled = 0;
    let mut since_sync = 0;
    loop {
        let room = buffer.len() - filled;
        let wanted = declared - hasher.size() + 1;
        let take = usize::try_from(wanted).map_or(room, |wanted| wanted.min(room));
        let count =
            read_some(content, &mut buffer[filled..filled + take]).map_err(StageError::Source)?;
        hasher.update(&buffer[filled..filled + count]);
        filled += count;
        if hasher.size() > declared {
            let hash = hasher.finish();
            return Ok(Filled { hash, mark: None });
        }
        if count == 0 || filled == buffer.len() {
            file.write_all(&buffer[..filled])
                .map_err(|e| StoreError::io(Op::Write, staged, e))?;
            since_sync += filled;
            filled = 0;
            if since_sync >= SYNC_AHEAD_BYTES && store.durability().syncs() {
                file.begin_sync();
                since_sync = 0;
            }
        }
        if count == 0 {
            break;
        }
    }
    let mark = file.mark();
    if store.durability().syncs() {
        file.begin_sync();
    }
    let hash = hasher.finish();
    Ok(Filled { hash, mark })
}
