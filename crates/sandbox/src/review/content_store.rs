//! Content of changed files, kept by digest.
//!
//! A file here is complete or absent: it is written under another name and renamed. Two paths with the same
//! content share one.

use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::Digest;
use sha2::{Digest as _, Sha256};

use super::manifest::sync_directory;

/// Up to this many new files are brought to disk one by one; from there on one call for all is quicker.
const SYNCED_ONE_BY_ONE: usize = 64;
const CHUNK_BYTES: usize = 128 << 10;

/// The directory of contents.
#[derive(Debug)]
pub(crate) struct ContentStore {
    directory: PathBuf,
    written: usize,
}

impl ContentStore {
    /// The contents below `saved`, which is made if it is not there.
    pub(crate) fn create(saved: &Path) -> io::Result<Self> {
        let this = Self::of(saved);
        DirBuilder::new().recursive(true).mode(0o700).create(&this.directory)?;
        Ok(this)
    }

    pub(crate) fn of(saved: &Path) -> Self {
        Self { directory: saved.join("contents"), written: 0 }
    }

    /// Keeps what `source` holds, if that is at most `limit` bytes; gives its length and digest.
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

    /// Returns when all that was kept is on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if self.written > SYNCED_ONE_BY_ONE {
            rustix::fs::syncfs(File::open(&self.directory)?)?;
        }
        sync_directory(&self.directory)
    }

    /// Removes what nothing names any more.
    pub(crate) fn retain(&self, named: &HashSet<&str>) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_str().is_none_or(|name| !named.contains(name)) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Copies at most `limit` bytes and gives length and digest; `None` when there are more. Runs of zeros
/// become holes: a file that claims to be huge costs no more here than there.
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

/// The digest of all that is left in `source`.
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

/// Whether both hold the same from here on; stops at the first difference.
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
