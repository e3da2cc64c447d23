//! Writing a body that arrives in pieces.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base::Digest;
use protocol::BodyRef;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{BodyError, FileBodyStore, create_shard};
use crate::lock_file;

/// A body that is being written. Dropping it before [`BodyWriter::finish`] removes the file.
#[derive(Debug)]
pub struct BodyWriter {
    bodies: FileBodyStore,
    temporary: TemporaryFile,
    file: File,
    hasher: Sha256,
    bytes: u64,
}

impl BodyWriter {
    /// Returns a writer for a body of `bodies`.
    pub(super) fn new(bodies: &FileBodyStore) -> Result<Self, BodyError> {
        let path = bodies.root.join(format!(".{}.part", Uuid::new_v4()));
        let file = lock_file::create(&path).map_err(BodyError::io("create", &path))?;
        Ok(Self { bodies: bodies.clone(), temporary: TemporaryFile(path), file, hasher: Sha256::new(), bytes: 0 })
    }

    /// Appends `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        self.file.write_all(bytes).map_err(BodyError::io("write", &self.temporary.0))?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Moves the file to its final path and returns the reference of the body.
    pub fn finish(self) -> Result<BodyRef, BodyError> {
        let digest = Digest::finish(self.hasher.clone());
        let bytes = self.bytes;
        if !self.bodies.contains(digest, bytes) {
            let path = self.bodies.path(digest);
            self.rename_to(&path)?;
        }
        Ok(BodyRef::Stored { sha256: digest.to_string(), bytes })
    }

    pub(super) fn rename_to(self, path: &Path) -> Result<(), BodyError> {
        create_shard(path)?;
        std::fs::rename(&self.temporary.0, path).map_err(BodyError::io("rename", path))
    }
}

/// The file of an incomplete body; removed on drop unless it was renamed.
#[derive(Debug)]
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
