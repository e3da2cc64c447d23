//! The daybook: every step of every call in the order in which they were taken, by all processes of a data directory.
//!
//! A step is taken when its line is in the file. That costs one write and no wait, and the line outlives the process;
//! the tables, which are what people ask, follow. Whoever takes a step holds the file's lock, and has read what
//! others wrote before: so two processes never grant the same money.
//!
//! The file begins with its generation. One whose lines are all in the tables is replaced by the next, empty one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::entry::Line;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Heading {
    generation: u64,
}

/// How long the first line may be.
const HEADING_BYTES: usize = 64;

/// The daybook, as far as this process has read it.
#[derive(Debug)]
pub(super) struct Daybook {
    path: PathBuf,
    file: File,
    generation: u64,
    /// Bytes that were read, or written by us.
    seen: u64,
}

/// Where a line stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) generation: u64,
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// The right to write. Dropped, it is the next one's turn.
pub(super) struct Turn<'a>(&'a mut Daybook);

/// A daybook in the order of its lines.
pub(super) struct Pages {
    file: File,
    pub(super) generation: u64,
    /// Where the first line after the heading begins.
    pub(super) first: u64,
    /// Bytes there are.
    length: u64,
}

impl Daybook {
    /// Opens the daybook at `path`, or makes it, then as the generation after `last`.
    pub(super) fn open(path: &Path, last: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        file.lock()?;
        let opened = Self::begin(path, file, last + 1);
        if let Ok(book) = &opened {
            let _ = book.file.unlock();
        }
        opened
    }

    /// Reads the heading of a locked file, or writes it.
    fn begin(path: &Path, mut file: File, generation: u64) -> io::Result<Self> {
        if let Some((generation, first)) = heading(&file)? {
            return Ok(Self { path: path.to_owned(), file, generation, seen: first });
        }
        // Empty, or killed while it was being made.
        file.set_len(0)?;
        let line = encode(generation)?;
        file.write_all(&line)?;
        file.sync_all()?;
        sync_directory(path)?;
        Ok(Self { path: path.to_owned(), file, generation, seen: line.len() as u64 })
    }

    /// Waits for our turn, and hands `fold` each line that others wrote since the last one, with where it stands.
    pub(super) fn turn(&mut self, mut fold: impl FnMut(Line, Place)) -> io::Result<Turn<'_>> {
        while !self.try_turn(&mut fold)? {
            *self = Self::open(&self.path, self.generation)?;
        }
        Ok(Turn(self))
    }

    /// Locks the file and reads on; false, and not locked: another has replaced it.
    fn try_turn(&mut self, fold: &mut impl FnMut(Line, Place)) -> io::Result<bool> {
        self.file.lock()?;
        let outcome = self.file.metadata().and_then(|found| {
            if found.len() > self.seen {
                self.read_on(found.len(), fold)?;
            }
            Ok(found.nlink() > 0)
        });
        if !matches!(outcome, Ok(true)) {
            let _ = self.file.unlock();
        }
        outcome
    }

    /// Reads up to `length`; a last line without its end is of one that was killed, and is cut.
    fn read_on(&mut self, length: u64, fold: &mut impl FnMut(Line, Place)) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(length - self.seen).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, self.seen)?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !line.ends_with(b"\n") {
                return self.file.set_len(self.seen);
            }
            let place = Place { generation: self.generation, start: self.seen, bytes: line.len() as u64 };
            self.seen += place.bytes;
            if let Ok(line) = serde_json::from_slice(line) {
                fold(line, place);
            }
        }
        Ok(())
    }

    /// Bytes there are, as far as is known here.
    pub(super) fn length(&self) -> u64 {
        self.seen
    }

    /// The file, to be written to the disk by who need not hold up others for it.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl Turn<'_> {
    /// Writes whole lines, all or none.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.0.file.write_all(lines) {
            // What stays of it has no end, and is cut by the next one.
            let _ = self.0.file.set_len(self.0.seen);
            return Err(error);
        }
        self.0.seen += lines.len() as u64;
        Ok(())
    }

    /// Puts an empty daybook in the place of this one, whose lines must all be in the tables, and for good.
    pub(super) fn replace(&mut self, generation: u64) -> io::Result<()> {
        let new = self.0.path.with_extension("steps.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&encode(generation)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.0.path)?;
        sync_directory(&self.0.path)
    }

    pub(super) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// Where it ends.
    pub(super) fn length(&self) -> u64 {
        self.0.seen
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // What fails here is undone when the file is closed.
        let _ = self.0.file.unlock();
    }
}

impl Pages {
    /// The daybook at `path`; none where there is none yet.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        Ok(heading(&file)?.map(|(generation, first)| Self { file, generation, first, length }))
    }

    /// Whole lines from `start` on, at most `most` bytes of them.
    pub(super) fn lines(&self, start: u64, most: u64) -> io::Result<Vec<u8>> {
        let count = self.length.saturating_sub(start).min(most);
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, start)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(whole);
        Ok(bytes)
    }
}

/// The generation of a daybook, and where its first line begins; none: it has no heading yet.
fn heading(file: &File) -> io::Result<Option<(u64, u64)>> {
    let mut bytes = [0; HEADING_BYTES];
    let count = file.read_at(&mut bytes, 0)?;
    let Some(end) = bytes[..count].iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let heading: Heading = serde_json::from_slice(&bytes[..end])?;
    Ok(Some((heading.generation, end as u64 + 1)))
}

fn encode(generation: u64) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Heading { generation })?;
    line.push(b'\n');
    Ok(line)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}
