//! A bundle while it is written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use base::{Digest, DigestReader};

use super::failed;
use super::manifest::{FILES, Manifest, NAME};
use crate::SessionError;

/// A bundle while it is written.
pub(super) struct Packing {
    archive: tar::Builder<File>,
    files: BTreeMap<String, Digest>,
}

impl Packing {
    /// Nothing is in it.
    pub(super) fn to(file: File) -> Self {
        Self { archive: tar::Builder::new(file), files: BTreeMap::new() }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), SessionError> {
        self.append(name, bytes.len() as u64, bytes)
    }

    /// Adds the journal up to its last whole line, for a session may be writing it now; tells how many lines that are.
    pub(super) fn add_journal(&mut self, path: &Path) -> Result<u64, SessionError> {
        let file = File::open(path).map_err(failed("read the journal for"))?;
        let length = whole(&file).map_err(failed("read the journal for"))?;
        let mut lines = Lines { source: file.take(length), count: 0 };
        self.append("journal.jsonl", length, &mut lines)?;
        Ok(lines.count)
    }

    /// Adds the manifest, and gives the file back, at its beginning.
    pub(super) fn finish(mut self) -> Result<File, SessionError> {
        if self.files.len() > FILES {
            let why = format!("a bundle has at most {FILES} files");
            return Err(failed("write")(io::Error::other(why)));
        }
        let manifest = Manifest::of(std::mem::take(&mut self.files));
        self.add(NAME, &serde_json::to_vec_pretty(&manifest).unwrap_or_default())?;
        let mut file = self.archive.into_inner().map_err(failed("write"))?;
        file.seek(SeekFrom::Start(0)).map_err(failed("write"))?;
        Ok(file)
    }

    fn append(&mut self, name: &str, length: u64, from: impl Read) -> Result<(), SessionError> {
        let mut header = tar::Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o600);
        let mut from = DigestReader::new(from);
        self.archive.append_data(&mut header, name, &mut from).map_err(failed("write"))?;
        self.files.insert(name.to_owned(), from.finish());
        Ok(())
    }
}

/// Counts the lines that are read through it.
struct Lines<R> {
    source: R,
    count: u64,
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.count += buffer[..read].split(|byte| *byte == b'\n').skip(1).count() as u64;
        Ok(read)
    }
}

/// Bytes up to the last newline.
fn whole(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut piece = [0; 4096];
    while end > 0 {
        let start = end.saturating_sub(piece.len() as u64);
        let piece = &mut piece[..usize::try_from(end - start).unwrap_or_default()];
        file.read_exact_at(piece, start)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
