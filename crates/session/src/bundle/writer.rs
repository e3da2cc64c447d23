//! Writes a bundle.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use base::{Digest, DigestReader};

use super::failed;
use super::manifest::{BundleManifest, MAX_FILES, NAME};
use crate::SessionError;

/// Writes the files of a bundle and collects their digests.
pub(super) struct BundleWriter {
    archive: tar::Builder<File>,
    files: BTreeMap<String, Digest>,
}

impl BundleWriter {
    /// Returns a writer of an empty bundle.
    pub(super) fn new(file: File) -> Self {
        Self { archive: tar::Builder::new(file), files: BTreeMap::new() }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), SessionError> {
        self.append(name, bytes.len() as u64, bytes)
    }

    /// Adds the journal up to its last whole line, because the session may be writing it. Returns the number of lines.
    pub(super) fn add_journal(&mut self, path: &Path) -> Result<u64, SessionError> {
        let file = File::open(path).map_err(failed("read the journal for"))?;
        let length = whole_lines_length(&file).map_err(failed("read the journal for"))?;
        let mut lines = LineCounter { source: file.take(length), count: 0 };
        self.append("journal.jsonl", length, &mut lines)?;
        Ok(lines.count)
    }

    /// Adds the manifest. Returns the file, positioned at its start.
    pub(super) fn finish(mut self) -> Result<File, SessionError> {
        if self.files.len() > MAX_FILES {
            let why = format!("a bundle has at most {MAX_FILES} files");
            return Err(failed("write")(io::Error::other(why)));
        }
        let manifest = BundleManifest::of(std::mem::take(&mut self.files));
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

/// A reader that counts lines.
struct LineCounter<R> {
    source: R,
    count: u64,
}

impl<R: Read> Read for LineCounter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.count += buffer[..read].split(|byte| *byte == b'\n').skip(1).count() as u64;
        Ok(read)
    }
}

/// Returns the number of bytes up to the last newline.
fn whole_lines_length(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut buffer = [0; 4096];
    while end > 0 {
        let start = end.saturating_sub(buffer.len() as u64);
        let chunk = &mut buffer[..usize::try_from(end - start).unwrap_or_default()];
        file.read_exact_at(chunk, start)?;
        if let Some(at) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
