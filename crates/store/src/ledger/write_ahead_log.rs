//! The write-ahead log: every ledger operation in the order in which it was applied, by all processes of a data
//! directory.
//!
//! An operation is applied once its line is in the file. That costs one write, and the line survives the process; the
//! tables are updated later. A process that writes holds the file's lock and has read all lines of other processes, so
//! two processes never grant the same money.
//!
//! The first line of the file is its generation. A file whose lines are all in the tables is replaced by an empty file
//! of the next generation.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::log_entry::LogLine;

/// The first line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct LogHeader {
    generation: u64,
}

const MAX_HEADER_BYTES: usize = 64;

/// The log, up to the byte that this process has read or written.
#[derive(Debug)]
pub(super) struct WriteAheadLog {
    path: PathBuf,
    file: File,
    generation: u64,
    seen: u64,
}

/// The exclusive right to write to the log. Dropping it releases the file's lock.
pub(super) struct LogLock<'a>(&'a mut WriteAheadLog);

/// A read-only view of the log, for checkpoints.
pub(super) struct LogReader {
    file: File,
    pub(super) generation: u64,
    /// Offset of the first line after the header.
    pub(super) first: u64,
    length: u64,
}

impl WriteAheadLog {
    /// Opens the log at `path`, or creates it with the generation after `last_generation`.
    pub(super) fn open(path: &Path, last_generation: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        file.lock()?;
        let opened = Self::read_or_write_header(path, file, last_generation + 1);
        if let Ok(log) = &opened {
            let _ = log.file.unlock();
        }
        opened
    }

    fn read_or_write_header(path: &Path, mut file: File, generation: u64) -> io::Result<Self> {
        if let Some((generation, first)) = read_header(&file)? {
            return Ok(Self { path: path.to_owned(), file, generation, seen: first });
        }
        // The file is new, or its creator was killed.
        file.set_len(0)?;
        let line = encode_header(generation)?;
        file.write_all(&line)?;
        file.sync_all()?;
        sync_directory(path)?;
        Ok(Self { path: path.to_owned(), file, generation, seen: line.len() as u64 })
    }

    /// Waits for the file's lock, and passes each line that other processes wrote since the last lock to `on_line`.
    pub(super) fn lock(&mut self, mut on_line: impl FnMut(&LogLine)) -> io::Result<LogLock<'_>> {
        while !self.try_lock(&mut on_line)? {
            *self = Self::open(&self.path, self.generation)?;
        }
        Ok(LogLock(self))
    }

    /// Locks the file and reads new lines. Returns false, without the lock, if the file was replaced.
    fn try_lock(&mut self, on_line: &mut impl FnMut(&LogLine)) -> io::Result<bool> {
        self.file.lock()?;
        let outcome = self.file.metadata().and_then(|metadata| {
            if metadata.len() > self.seen {
                self.read_lines(metadata.len(), on_line)?;
            }
            Ok(metadata.nlink() > 0)
        });
        if !matches!(outcome, Ok(true)) {
            let _ = self.file.unlock();
        }
        outcome
    }

    /// Reads lines up to byte `length`. A last line without newline is truncated: its writer was killed.
    fn read_lines(&mut self, length: u64, on_line: &mut impl FnMut(&LogLine)) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(length - self.seen).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, self.seen)?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !line.ends_with(b"\n") {
                return self.file.set_len(self.seen);
            }
            self.seen += line.len() as u64;
            if let Ok(line) = serde_json::from_slice(line) {
                on_line(&line);
            }
        }
        Ok(())
    }

    /// Returns the length of the file in bytes, as far as this process knows.
    pub(super) fn length(&self) -> u64 {
        self.seen
    }

    /// Returns a second descriptor of the file, to sync it without holding up writers.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl LogLock<'_> {
    /// Appends all of `lines` or none.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.0.file.write_all(lines) {
            // If this fails too, the next process that locks the file truncates the incomplete line.
            let _ = self.0.file.set_len(self.0.seen);
            return Err(error);
        }
        self.0.seen += lines.len() as u64;
        Ok(())
    }

    /// Replaces the log by an empty file of `generation`. All lines must be in the tables and on disk.
    pub(super) fn replace(&mut self, generation: u64) -> io::Result<()> {
        let new = self.0.path.with_extension("steps.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&encode_header(generation)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.0.path)?;
        sync_directory(&self.0.path)
    }

    pub(super) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// Returns the length of the file in bytes.
    pub(super) fn length(&self) -> u64 {
        self.0.seen
    }
}

impl Drop for LogLock<'_> {
    fn drop(&mut self) {
        // If this fails, closing the file releases the lock.
        let _ = self.0.file.unlock();
    }
}

impl LogReader {
    /// Opens the log at `path`; returns `None` if it does not exist or has no header yet.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        Ok(read_header(&file)?.map(|(generation, first)| Self { file, generation, first, length }))
    }

    /// Returns the complete lines from byte `start` on, at most `max_bytes` bytes in all.
    pub(super) fn lines(&self, start: u64, max_bytes: u64) -> io::Result<Vec<u8>> {
        let count = self.length.saturating_sub(start).min(max_bytes);
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, start)?;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(complete);
        Ok(bytes)
    }
}

/// Returns the generation in the header and the offset of the first line after it; `None` without a header.
fn read_header(file: &File) -> io::Result<Option<(u64, u64)>> {
    let mut bytes = [0; MAX_HEADER_BYTES];
    let count = file.read_at(&mut bytes, 0)?;
    let Some(end) = bytes[..count].iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let header: LogHeader = serde_json::from_slice(&bytes[..end])?;
    Ok(Some((header.generation, end as u64 + 1)))
}

fn encode_header(generation: u64) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&LogHeader { generation })?;
    line.push(b'\n');
    Ok(line)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}
