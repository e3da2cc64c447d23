//! The store of saved file contents, by digest.
//!
//! A file in the store is complete or absent: it is written under another name and renamed. Paths with the same content
//! share one file.

use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::Digest;
use sha2::{Digest as _, Sha256};

use super::manifest::sync_directory;

/// Up to this many new files are synced one by one. For more, one syncfs is faster.
const SYNCED_ONE_BY_ONE: usize = 64;
const CHUNK_BYTES: usize = 128 << 10;

/// The directory of contents.
#[derive(Debug)]
pub(crate) struct ContentStore {
    directory: PathBuf,
    written: usize,
}

impl ContentStore {
    /// Returns the store below `saved`, making its directory.
    pub(crate) fn create(saved: &Path) -> io::Result<Self> {
        let this = Self::of(saved);
        DirBuilder::new().recursive(true).mode(0o700).create(&this.directory)?;
        Ok(this)
    }

    pub(crate) fn of(saved: &Path) -> Self {
        Self { directory: saved.join("contents"), written: 0 }
    }

    /// Saves the content of `source`; returns its length and digest. Returns `None` when it is over `limit` bytes.
    pub(crate) fn keep(&mut self, source: &mut File, limit: u64) -> io::Result<Option<(u64, String)>> {
        let temporary = self.directory.join("new");
        let mut file = File::create(&temporary)?;
        let Some((size, sha256)) = copy(source, &mut file, limit)? else {
            std::fs::remove_file(&temporary)?;
            return Ok(None);
        };
        self.written += 1;
        if self.written <= SYNCED_ONE_BY_ONE {
            file.sync_all()?;
        }
        std::fs::rename(&temporary, self.directory.join(&sha256))?;
        Ok(Some((size, sha256)))
    }

    pub(crate) fn holds(&self, sha256: &str) -> bool {
        self.directory.join(sha256).is_file()
    }

    pub(crate) fn open(&self, sha256: &str) -> io::Result<File> {
        File::open(self.directory.join(sha256))
    }

    /// Copies a content to `target`. Fails when the content in the store is not the one that its name says.
    pub(crate) fn copy_to(&self, sha256: &str, target: &mut File) -> io::Result<()> {
        match copy(&mut self.open(sha256)?, target, u64::MAX)? {
            Some((_, found)) if found == sha256 => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the saved content `{sha256}` is damaged"))),
        }
    }

    /// Returns how many contents were written since the store was opened.
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    /// Returns the length of all contents in bytes.
    pub(crate) fn total_bytes(&self) -> io::Result<u64> {
        let mut total = 0_u64;
        for entry in std::fs::read_dir(&self.directory)? {
            total = total.saturating_add(entry?.metadata()?.len());
        }
        Ok(total)
    }

    /// Gives a saved content another name, on the same file system.
    pub(crate) fn link(&self, sha256: &str, to: &Path) -> io::Result<()> {
        std::fs::hard_link(self.directory.join(sha256), to)
    }

    /// Writes all saved contents to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if self.written > SYNCED_ONE_BY_ONE {
            rustix::fs::syncfs(File::open(&self.directory)?)?;
        }
        sync_directory(&self.directory)
    }

    /// Removes contents whose digest is not in `named`.
    pub(crate) fn retain(&self, named: &HashSet<String>) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_str().is_none_or(|name| !named.contains(name)) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Copies a file; returns its length and digest, or `None` when it is over `limit` bytes. Runs of zeros become holes, so a
/// sparse file stays sparse.
pub(crate) fn copy(source: &mut File, target: &mut File, limit: u64) -> io::Result<Option<(u64, String)>> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut hasher, mut size) = (Sha256::new(), 0_u64);
    loop {
        let count = fill(source, &mut chunk)?;
        let (Some(read), false) = (chunk.get(..count), count == 0) else { break };
        size += read.len() as u64;
        if size > limit {
            return Ok(None);
        }
        hasher.update(read);
        if read.iter().all(|byte| *byte == 0) {
            target.seek(SeekFrom::Start(size))?;
        } else {
            target.write_all(read)?;
        }
    }
    target.set_len(size)?;
    Ok(Some((size, Digest::finish(hasher).to_string())))
}

/// Returns the digest of the rest of `source`.
pub(crate) fn digest(source: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match source.read(&mut chunk)? {
            0 => return Ok(Digest::finish(hasher).to_string()),
            count => hasher.update(chunk.get(..count).unwrap_or_default()),
        }
    }
}

/// Returns whether the rest of both files is the same.
pub(crate) fn are_equal(one: &mut File, other: &mut File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let (count, others) = (fill(one, &mut left)?, fill(other, &mut right)?);
        if left.get(..count) != right.get(..others) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the chunk is full or the file ends.
fn fill(source: &mut File, chunk: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while let Some(rest) = chunk.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
