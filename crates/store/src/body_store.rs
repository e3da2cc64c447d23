//! Bodies of model calls in files that are named by the digest of their content.
//!
//! A journal record refers to a body only after the body is complete, and a body is returned only if its digest
//! matches. A file that a killed writer left is too short, and the next write of the same bytes replaces it. Equal
//! bodies are stored once. A body that is similar to a recent one is stored as a delta: an agent sends its whole
//! conversation at every turn, and only the new part takes space. A short text is not stored here but in its journal
//! record.

mod delta;
mod packed;
mod writer;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::{Digest, lock};
use protocol::BodyRef;

use crate::{DataDir, StorageExceeded, StorageMeter, lock_file};
use packed::{DeltaBase, PackHeader};

pub use writer::BodyWriter;

/// Number of recent bodies that the next body is compared with: two concurrent conversations.
const MAX_RECENT: usize = 2;
/// A request of fewer bytes is stored in its record. A file would occupy at least this much.
const SHORT_BYTES: usize = 4 << 10;
/// A response of fewer bytes is stored in its record. A longer one would slow down reading the journal.
const SHORT_RESPONSE_BYTES: usize = 64 << 10;
/// Sizes of bodies that are compared: a smaller body is cheaper to store, a larger one needs too much memory.
const COMPARED_BYTES: std::ops::RangeInclusive<usize> = SHORT_BYTES..=4 << 20;

/// Whether a body is a request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// A request, which repeats most of the previous one.
    Request,
    /// A response, which repeats nothing. Creating a file for it takes longer than the rest of a call.
    Response,
}

/// A body could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// A system call failed.
    #[error("cannot {doing} the body `{path}`")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// No body has that digest.
    #[error("body `{0}` not found")]
    NotFound(Digest),
    /// The content does not match the digest.
    #[error("the body `{0}` is damaged")]
    Damaged(PathBuf),
    /// The session has no disk space left for the body.
    #[error("cannot store the body: {0}")]
    StorageLimit(#[source] StorageExceeded),
    /// The reference does not contain a digest.
    #[error("invalid body digest `{0}`")]
    Name(String),
}

impl BodyError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

/// The bodies of a data directory.
#[derive(Debug, Clone)]
pub struct FileBodyStore {
    root: PathBuf,
    compress: bool,
    recent: Arc<Mutex<VecDeque<RecentBody>>>,
    storage: Option<Arc<StorageMeter>>,
}

/// A body that was stored recently.
#[derive(Debug)]
struct RecentBody {
    digest: Digest,
    /// The chain of bodies that this body is a delta of, nearest first.
    bases: Vec<Digest>,
    bytes: Vec<u8>,
}

impl FileBodyStore {
    /// Returns the body store of a data directory.
    pub fn new(directory: &DataDir) -> Self {
        Self { root: directory.bodies(), compress: false, recent: Arc::default(), storage: None }
    }

    /// Counts the bodies that are stored from now on, and refuses those that `storage` does not admit.
    #[must_use]
    pub fn with_storage_meter(self, storage: Option<Arc<StorageMeter>>) -> Self {
        Self { storage, ..self }
    }

    /// Returns the bytes on disk of the body with this digest; zero if it is not stored.
    pub fn stored_bytes(&self, digest: Digest) -> u64 {
        let length = |path: PathBuf| path.metadata().map(|metadata| metadata.len());
        length(self.path(digest)).or_else(|_| length(self.packed_path(digest))).unwrap_or(0)
    }

    fn admit(&self, bytes: usize) -> Result<(), BodyError> {
        let storage = self.storage.as_ref();
        storage.map_or(Ok(()), |storage| storage.admit_body(bytes as u64)).map_err(BodyError::StorageLimit)
    }

    /// Sets whether bodies are compressed from now on.
    #[must_use]
    pub fn with_compression(self, compress: bool) -> Self {
        Self { compress, ..self }
    }

    /// Stores `bytes` and returns their reference. A short text is stored in the reference itself, anything else in a
    /// file.
    pub fn put<'a>(&self, kind: BodyKind, bytes: impl Into<Cow<'a, [u8]>>) -> Result<BodyRef, BodyError> {
        let bytes = bytes.into();
        if !self.is_short(kind, bytes.len()) {
            return self.put_file(&bytes);
        }
        match String::from_utf8(bytes.into_owned()) {
            Ok(text) => Ok(BodyRef::Inline { text }),
            Err(error) => self.put_file(error.as_bytes()),
        }
    }

    /// Returns whether a text of this length is stored in its record.
    pub fn is_short(&self, kind: BodyKind, bytes: usize) -> bool {
        match kind {
            // With compression, small storage matters more than fast writes.
            BodyKind::Response if !self.compress => bytes < SHORT_RESPONSE_BYTES,
            BodyKind::Response | BodyKind::Request => bytes < SHORT_BYTES,
        }
    }

    /// Stores `bytes` in a file, whatever their length.
    pub fn put_file(&self, bytes: &[u8]) -> Result<BodyRef, BodyError> {
        let digest = Digest::of(bytes);
        let length = bytes.len() as u64;
        // Many requests repeat, and then nothing is written.
        let bases = if self.contains(digest, length) { None } else { Some(self.write_new(digest, bytes)?) };
        self.remember(digest, bases, bytes);
        Ok(BodyRef::Stored { sha256: digest.to_string(), bytes: length })
    }

    /// Writes a body in its smallest form; returns the chain of bodies that it is a delta of.
    fn write_new(&self, digest: Digest, bytes: &[u8]) -> Result<Vec<Digest>, BodyError> {
        let packed = {
            let recent = lock(&self.recent);
            // A body that was deleted and is stored again must not become a delta of itself.
            let depends_on_body = |recent: &&RecentBody| recent.digest == digest || recent.bases.contains(&digest);
            let comparable =
                recent.iter().filter(|recent| COMPARED_BYTES.contains(&bytes.len()) && !depends_on_body(recent));
            let candidates: Vec<DeltaBase<'_>> = comparable
                .map(|recent| DeltaBase { digest: recent.digest, bases: &recent.bases, bytes: &recent.bytes })
                .collect();
            packed::pack(bytes, &candidates, self.compress)
        };
        self.admit(packed.as_ref().map_or(bytes.len(), |(file, _)| file.len()))?;
        if let Some((file, bases)) = packed {
            let mut writer = self.writer()?;
            writer.write(&file)?;
            writer.rename_to(&self.packed_path(digest))?;
            return Ok(bases);
        }
        if !self.create(digest, bytes)? {
            let mut writer = self.writer()?;
            writer.write(bytes)?;
            writer.finish()?;
        }
        Ok(Vec::new())
    }

    /// Remembers a body for the comparison with the next ones. `bases` is `None` for a body that was stored before.
    fn remember(&self, digest: Digest, bases: Option<Vec<Digest>>, bytes: &[u8]) {
        if !COMPARED_BYTES.contains(&bytes.len()) {
            return;
        }
        let mut recent = lock(&self.recent);
        if let Some(index) = recent.iter().position(|recent| recent.digest == digest) {
            recent.rotate_left(index);
            return;
        }
        let bases = bases.unwrap_or_else(|| self.read_bases(digest));
        recent.truncate(MAX_RECENT - 1);
        recent.push_front(RecentBody { digest, bases, bytes: bytes.to_vec() });
    }

    /// Returns the chain of bodies that a stored body is a delta of, nearest first.
    fn read_bases(&self, digest: Digest) -> Vec<Digest> {
        let base = |digest: &Digest| {
            let mut file = File::open(self.packed_path(*digest)).ok()?;
            read_header(&mut file).ok()??.base()
        };
        std::iter::successors(base(&digest), base).take(packed::MAX_CHAIN + 1).collect()
    }

    /// Writes a body directly to its final path; returns false if the file exists.
    ///
    /// Renaming a temporary file would cost more than the write, and no reader knows the digest yet.
    fn create(&self, digest: Digest, bytes: &[u8]) -> Result<bool, BodyError> {
        let path = self.path(digest);
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let created = match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_shard(&path)?;
                create()
            }
            created => created,
        };
        let mut file = match created {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(BodyError::io("create", &path)(error)),
        };
        file.write_all(bytes).map_err(|error| {
            // An incomplete body would do no harm, but it occupies space on a disk that may be full.
            let _ = std::fs::remove_file(&path);
            BodyError::io("write", &path)(error)
        })?;
        Ok(true)
    }

    /// Returns a writer for a body that arrives in pieces.
    pub fn writer(&self) -> Result<BodyWriter, BodyError> {
        BodyWriter::new(self)
    }

    /// Returns the bytes of `body`. Fails if a stored body is missing or damaged.
    pub fn get(&self, body: &BodyRef) -> Result<Vec<u8>, BodyError> {
        match body {
            BodyRef::Inline { text } => Ok(text.clone().into_bytes()),
            BodyRef::Stored { sha256, .. } => self.read(parse_digest(sha256)?),
        }
    }

    fn read(&self, digest: Digest) -> Result<Vec<u8>, BodyError> {
        let path = self.path(digest);
        match std::fs::read(&path) {
            Ok(bytes) if Digest::of(&bytes) == digest => Ok(bytes),
            Ok(_) => Err(BodyError::Damaged(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.read_packed(digest),
            Err(error) => Err(BodyError::io("read", &path)(error)),
        }
    }

    /// Reads a packed body and the chain of its bases, and applies the deltas from the last base up.
    fn read_packed(&self, digest: Digest) -> Result<Vec<u8>, BodyError> {
        let mut chain = Vec::new();
        let mut next = Some(digest);
        let mut bytes: Option<Vec<u8>> = None;
        while let Some(wanted) = next {
            let path = self.packed_path(wanted);
            let file = match std::fs::read(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !chain.is_empty() => {
                    // The last base is not packed.
                    let plain = self.path(wanted);
                    bytes = Some(std::fs::read(&plain).map_err(|_| BodyError::NotFound(wanted))?);
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(BodyError::NotFound(digest)),
                Err(error) => return Err(BodyError::io("read", &path)(error)),
            };
            let damaged = || BodyError::Damaged(path.clone());
            let head = PackHeader::read(&file).ok_or_else(damaged)?;
            // Longer than any chain that is written: a damaged file that refers to itself.
            if chain.len() > packed::MAX_CHAIN {
                return Err(damaged());
            }
            next = head.base();
            chain.push((path, file));
        }
        for (path, file) in chain.into_iter().rev() {
            bytes = Some(packed::unpack(&file, bytes.as_deref()).ok_or(BodyError::Damaged(path))?);
        }
        match bytes {
            Some(bytes) if Digest::of(&bytes) == digest => Ok(bytes),
            _ => Err(BodyError::Damaged(self.packed_path(digest))),
        }
    }

    /// Returns when `body` and its bases are on disk.
    pub fn sync(&self, body: &BodyRef) -> Result<(), BodyError> {
        let BodyRef::Stored { sha256, .. } = body else { return Ok(()) };
        let mut next = Some(parse_digest(sha256)?);
        while let Some(digest) = next.take() {
            let plain = self.path(digest);
            let path = if plain.exists() { plain } else { self.packed_path(digest) };
            let shard = path.parent().unwrap_or(&self.root);
            let outcome = File::open(&path).and_then(|mut file| {
                file.sync_all()?;
                next = read_header(&mut file)?.and_then(|head| head.base());
                File::open(shard)?.sync_all()
            });
            outcome.map_err(BodyError::io("sync", &path))?;
        }
        Ok(())
    }

    /// Removes the temporary files of killed writers; returns their number.
    pub fn remove_abandoned(&self) -> usize {
        lock_file::remove_abandoned(&self.root, "part")
    }

    /// Returns whether a complete file of that length exists. A kill or a power cut may leave an incomplete file, which
    /// is written again.
    fn contains(&self, digest: Digest, bytes: u64) -> bool {
        if self.path(digest).metadata().is_ok_and(|metadata| metadata.len() == bytes) {
            return true;
        }
        let packed = || {
            let mut file = File::open(self.packed_path(digest)).ok()?;
            Some((file.metadata().ok()?.len(), read_header(&mut file).ok()??))
        };
        packed().is_some_and(|(length, head)| head.length == bytes && head.file_length() == length)
    }

    fn path(&self, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        self.root.join(&name[..2]).join(name)
    }

    fn packed_path(&self, digest: Digest) -> PathBuf {
        self.path(digest).with_extension("pack")
    }
}

/// Parses the digest of a body.
fn parse_digest(sha256: &str) -> Result<Digest, BodyError> {
    sha256.parse().map_err(|_| BodyError::Name(sha256.to_owned()))
}

/// Reads the header of a packed body; returns `None` if it is not valid.
fn read_header(file: &mut File) -> io::Result<Option<PackHeader>> {
    let mut bytes = Vec::new();
    file.take(64).read_to_end(&mut bytes)?;
    Ok(PackHeader::read(&bytes))
}

/// Creates the directory of a body.
fn create_shard(path: &Path) -> Result<(), BodyError> {
    let Some(shard) = path.parent() else { return Ok(()) };
    let created = DirBuilder::new().recursive(true).mode(0o700).create(shard);
    created.map_err(BodyError::io("create the directory of", path))
}
