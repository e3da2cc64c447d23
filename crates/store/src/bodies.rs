//! Bodies of model calls, each under the name of its content.
//!
//! A body is named in a record only once it is whole, and it is read back only if it still has the digest it is
//! named by. The same bytes are kept once. What a killed writer left under a name is shorter than its name says,
//! and is replaced by whoever keeps the same bytes next.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::BodyRef;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{DataDir, Digest, lock_file};

/// Why a body could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The disk said no.
    #[error("cannot {doing} the body `{path}`")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No body of that content is kept.
    #[error("no body `{0}` is kept")]
    NotFound(Digest),
    /// What is kept is not what was kept.
    #[error("the body `{0}` was changed or cut")]
    Damaged(PathBuf),
    /// The reference names no content.
    #[error("`{0}` names no body")]
    Name(String),
}

impl BodyError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

/// Where bodies are kept.
#[derive(Debug, Clone)]
pub struct Bodies {
    root: PathBuf,
}

impl Bodies {
    /// The bodies of a data directory.
    pub fn new(directory: &DataDir) -> Self {
        Self { root: directory.bodies() }
    }

    /// Keeps `bytes`.
    pub fn put(&self, bytes: &[u8]) -> Result<BodyRef, BodyError> {
        let digest = Digest::of(bytes);
        let body = BodyRef { sha256: digest.to_string(), bytes: bytes.len() as u64 };
        if !self.put_new(digest, bytes)? && !self.holds(digest, body.bytes) {
            let mut writer = self.writer()?;
            writer.write(bytes)?;
            writer.finish()?;
        }
        Ok(body)
    }

    /// Writes a body under its name, in one go; false: there is something of that name.
    ///
    /// Renaming it into place would cost more than all the rest: the name is given first, and nobody knows it yet.
    fn put_new(&self, digest: Digest, bytes: &[u8]) -> Result<bool, BodyError> {
        let path = self.path(digest);
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let created = match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_shard(&path)?;
                create()
            }
            created => created,
        };
        let mut file = match created {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(BodyError::io("make", &path)(error)),
        };
        file.write_all(bytes).map_err(|error| {
            // Half a body under its name is only untidy, but it takes room where there may be none.
            let _ = std::fs::remove_file(&path);
            BodyError::io("write", &path)(error)
        })?;
        Ok(true)
    }

    /// Keeps a body that comes piece by piece.
    pub fn writer(&self) -> Result<BodyWriter, BodyError> {
        let path = self.root.join(format!(".{}.part", Uuid::new_v4()));
        let file = lock_file::create(&path).map_err(BodyError::io("make", &path))?;
        Ok(BodyWriter { bodies: self.clone(), part: Part(path), file, hasher: Sha256::new(), bytes: 0 })
    }

    /// The bytes of `body`, if they are still what they were.
    pub fn get(&self, body: &BodyRef) -> Result<Vec<u8>, BodyError> {
        let digest: Digest = body.sha256.parse().map_err(|_| BodyError::Name(body.sha256.clone()))?;
        let path = self.path(digest);
        match std::fs::read(&path) {
            Ok(bytes) if Digest::of(&bytes) == digest => Ok(bytes),
            Ok(_) => Err(BodyError::Damaged(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(BodyError::NotFound(digest)),
            Err(error) => Err(BodyError::io("read", &path)(error)),
        }
    }

    /// Returns when `body` is on disk.
    pub fn sync(&self, body: &BodyRef) -> Result<(), BodyError> {
        let digest: Digest = body.sha256.parse().map_err(|_| BodyError::Name(body.sha256.clone()))?;
        let path = self.path(digest);
        let shard = path.parent().unwrap_or(&self.root);
        let outcome = File::open(&path).and_then(|file| file.sync_all());
        let outcome = outcome.and_then(|()| File::open(shard)?.sync_all());
        outcome.map_err(BodyError::io("sync", &path))
    }

    /// Removes what killed writers left, and says how many that were.
    pub fn sweep(&self) -> usize {
        lock_file::sweep(&self.root, "part")
    }

    /// After a power cut, or a kill at the wrong moment, a name may stand without its bytes: such a body is
    /// written again.
    fn holds(&self, digest: Digest, bytes: u64) -> bool {
        self.path(digest).metadata().is_ok_and(|metadata| metadata.len() == bytes)
    }

    fn path(&self, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        self.root.join(&name[..2]).join(name)
    }
}

/// Makes the directory of a body.
fn make_shard(path: &Path) -> Result<(), BodyError> {
    let Some(shard) = path.parent() else { return Ok(()) };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(shard);
    made.map_err(BodyError::io("make the directory of", path))
}

/// A body that is still coming. Dropped before [`BodyWriter::finish`], it leaves nothing.
#[derive(Debug)]
pub struct BodyWriter {
    bodies: Bodies,
    part: Part,
    file: File,
    hasher: Sha256,
    bytes: u64,
}

impl BodyWriter {
    /// Adds `bytes` at the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        self.file.write_all(bytes).map_err(BodyError::io("write", &self.part.0))?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Gives the body its name.
    pub fn finish(self) -> Result<BodyRef, BodyError> {
        let digest = Digest::finish(self.hasher);
        let body = BodyRef { sha256: digest.to_string(), bytes: self.bytes };
        if self.bodies.holds(digest, body.bytes) {
            return Ok(body);
        }
        let path = self.bodies.path(digest);
        make_shard(&path)?;
        std::fs::rename(&self.part.0, &path).map_err(BodyError::io("name", &path))?;
        Ok(body)
    }
}

/// The file of a body that has no name yet; removed unless it was renamed.
#[derive(Debug)]
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
