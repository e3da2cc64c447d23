//! Bodies of model calls, each under the name of its content.
//!
//! A body is named in a record only once it is whole, and it is read back only if it still has the digest it is
//! named by. What a killed writer left under a name is shorter than its name says, and is replaced by whoever keeps
//! the same bytes next. The same bytes are kept once, and what a body has in common with one that was kept shortly
//! before is not kept again: an agent sends its whole conversation at every turn, and room is taken only by what is
//! new in it. A short text is not kept here at all: the record that names it carries it.

mod delta;
mod packed;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::{Digest, lock};
use protocol::BodyRef;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{DataDir, lock_file};
use packed::{Base, Head};

/// Bodies to compare the next one with: a conversation, and one beside it.
const RECENT: usize = 2;
/// A text of fewer bytes stands in its record: a file of its own would take up as much as this.
const SHORT_BYTES: usize = 4 << 10;
/// So does an answer of fewer bytes. A longer one would be a burden to whoever reads the records.
const SHORT_ANSWER_BYTES: usize = 64 << 10;
/// A smaller body is cheaper to keep than to compare, a larger one too large to hold.
const COMPARED: std::ops::RangeInclusive<usize> = SHORT_BYTES..=4 << 20;

/// What a body is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// Repeats most of what was asked before.
    Request,
    /// Repeats nothing: a file of its own saves no room, and takes longer to make than all the rest of a call.
    Response,
}

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
pub struct FileBodyStore {
    root: PathBuf,
    compress: bool,
    recent: Arc<Mutex<VecDeque<Recent>>>,
}

/// A body that was kept shortly before.
#[derive(Debug)]
struct Recent {
    digest: Digest,
    /// The bodies it stands on, nearest first.
    below: Vec<Digest>,
    bytes: Vec<u8>,
}

impl FileBodyStore {
    /// The bodies of a data directory.
    pub fn new(directory: &DataDir) -> Self {
        Self { root: directory.bodies(), compress: false, recent: Arc::default() }
    }

    /// The same, with what is kept from now on compressed or not.
    #[must_use]
    pub fn with_compression(self, compress: bool) -> Self {
        Self { compress, ..self }
    }

    /// Keeps `bytes`: in what is returned, where they are text and few, else in a file.
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

    /// Whether a text of so many bytes stands in its record.
    pub fn is_short(&self, kind: BodyKind, bytes: usize) -> bool {
        match kind {
            // Who has bodies compressed wants them small.
            BodyKind::Response if !self.compress => bytes < SHORT_ANSWER_BYTES,
            BodyKind::Response | BodyKind::Request => bytes < SHORT_BYTES,
        }
    }

    /// Keeps `bytes` in a file, however few they are.
    pub fn put_file(&self, bytes: &[u8]) -> Result<BodyRef, BodyError> {
        let digest = Digest::of(bytes);
        let length = bytes.len() as u64;
        // Most requests repeat: they cost a look, not a write.
        let below = if self.holds(digest, length) { None } else { Some(self.keep(digest, bytes)?) };
        self.remember(digest, below, bytes);
        Ok(BodyRef::Stored { sha256: digest.to_string(), bytes: length })
    }

    /// Writes a body in the form that takes the least room; says which others it stands on.
    fn keep(&self, digest: Digest, bytes: &[u8]) -> Result<Vec<Digest>, BodyError> {
        let packed = {
            let recent = lock(&self.recent);
            // One that was kept and is gone must not come to stand on itself.
            let is_above = |recent: &&Recent| recent.digest == digest || recent.below.contains(&digest);
            let comparable = recent.iter().filter(|recent| COMPARED.contains(&bytes.len()) && !is_above(recent));
            let bases: Vec<Base<'_>> = comparable
                .map(|recent| Base { digest: recent.digest, below: &recent.below, bytes: &recent.bytes })
                .collect();
            packed::pack(bytes, &bases, self.compress)
        };
        if let Some((file, below)) = packed {
            let mut writer = self.writer()?;
            writer.write(&file)?;
            writer.stand_at(&self.packed_path(digest))?;
            return Ok(below);
        }
        if !self.put_new(digest, bytes)? {
            let mut writer = self.writer()?;
            writer.write(bytes)?;
            writer.finish()?;
        }
        Ok(Vec::new())
    }

    /// Has `bytes` ready for the next body to be compared with; `below` is none for one that was there before.
    fn remember(&self, digest: Digest, below: Option<Vec<Digest>>, bytes: &[u8]) {
        if !COMPARED.contains(&bytes.len()) {
            return;
        }
        let mut recent = lock(&self.recent);
        if let Some(place) = recent.iter().position(|recent| recent.digest == digest) {
            recent.rotate_left(place);
            return;
        }
        let below = below.unwrap_or_else(|| self.below(digest));
        recent.truncate(RECENT - 1);
        recent.push_front(Recent { digest, below, bytes: bytes.to_vec() });
    }

    /// The bodies that one on disk stands on, nearest first.
    fn below(&self, digest: Digest) -> Vec<Digest> {
        let base = |digest: &Digest| {
            let mut file = File::open(self.packed_path(*digest)).ok()?;
            head(&mut file).ok()??.base()
        };
        std::iter::successors(base(&digest), base).take(packed::DEEPEST + 1).collect()
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

    /// The bytes of `body`; of one that is named, if they are still what they were.
    pub fn get(&self, body: &BodyRef) -> Result<Vec<u8>, BodyError> {
        match body {
            BodyRef::Inline { text } => Ok(text.clone().into_bytes()),
            BodyRef::Stored { sha256, .. } => self.read(name(sha256)?),
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

    /// Reads a body and those it stands on, from the lowest up.
    fn read_packed(&self, digest: Digest) -> Result<Vec<u8>, BodyError> {
        let mut chain = Vec::new();
        let mut next = Some(digest);
        let mut bytes: Option<Vec<u8>> = None;
        while let Some(wanted) = next {
            let path = self.packed_path(wanted);
            let file = match std::fs::read(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !chain.is_empty() => {
                    // The lowest stands as it is.
                    let plain = self.path(wanted);
                    bytes = Some(std::fs::read(&plain).map_err(|_| BodyError::NotFound(wanted))?);
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(BodyError::NotFound(digest)),
                Err(error) => return Err(BodyError::io("read", &path)(error)),
            };
            let damaged = || BodyError::Damaged(path.clone());
            let head = Head::read(&file).ok_or_else(damaged)?;
            // Longer than any chain we write: a damaged file that leads to itself.
            if chain.len() > packed::DEEPEST {
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

    /// Returns when `body` is on disk.
    pub fn sync(&self, body: &BodyRef) -> Result<(), BodyError> {
        let BodyRef::Stored { sha256, .. } = body else { return Ok(()) };
        let mut next = Some(name(sha256)?);
        while let Some(digest) = next.take() {
            let plain = self.path(digest);
            let path = if plain.exists() { plain } else { self.packed_path(digest) };
            let shard = path.parent().unwrap_or(&self.root);
            let outcome = File::open(&path).and_then(|mut file| {
                file.sync_all()?;
                next = head(&mut file)?.and_then(|head| head.base());
                File::open(shard)?.sync_all()
            });
            outcome.map_err(BodyError::io("sync", &path))?;
        }
        Ok(())
    }

    /// Removes what killed writers left, and says how many that were.
    pub fn remove_abandoned(&self) -> usize {
        lock_file::sweep(&self.root, "part")
    }

    /// After a power cut, or a kill at the wrong moment, a name may stand without its bytes: such a body is
    /// written again.
    fn holds(&self, digest: Digest, bytes: u64) -> bool {
        if self.path(digest).metadata().is_ok_and(|metadata| metadata.len() == bytes) {
            return true;
        }
        let packed = || {
            let mut file = File::open(self.packed_path(digest)).ok()?;
            Some((file.metadata().ok()?.len(), head(&mut file).ok()??))
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

/// The name of a body.
fn name(sha256: &str) -> Result<Digest, BodyError> {
    sha256.parse().map_err(|_| BodyError::Name(sha256.to_owned()))
}

/// The head of a packed body.
fn head(file: &mut File) -> io::Result<Option<Head>> {
    let mut beginning = Vec::new();
    file.take(64).read_to_end(&mut beginning)?;
    Ok(Head::read(&beginning))
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
    bodies: FileBodyStore,
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
        let digest = Digest::finish(self.hasher.clone());
        let bytes = self.bytes;
        if !self.bodies.holds(digest, bytes) {
            let path = self.bodies.path(digest);
            self.stand_at(&path)?;
        }
        Ok(BodyRef::Stored { sha256: digest.to_string(), bytes })
    }

    fn stand_at(self, path: &Path) -> Result<(), BodyError> {
        make_shard(path)?;
        std::fs::rename(&self.part.0, path).map_err(BodyError::io("name", path))
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
