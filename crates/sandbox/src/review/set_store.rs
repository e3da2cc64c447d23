//! The files of the change sets, `sets/<number>.json` beside the manifest.
//!
//! The manifest names the current set. The file of a set is complete on disk before the manifest names it, so after a crash
//! the current set is the old or the new one. A file with a higher number was never shown to anybody, and is removed.
//! Contents that any kept set names stay in the store.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::Digest;

use super::SavedChange;
use super::apply_journal::ApplyJournal;
use super::change_set::{SetHeader, SetNote, SetOrigin, SetRecord, SetSummary};
use super::content_store::ContentStore;
use super::manifest::{Manifest, read_json, sync_directory, write_json};
use super::save::now_nanos;

/// With more sets than this, the oldest are removed.
const MAX_SETS: usize = 100;
/// The number of sets that stay then, so that not every save removes one.
const KEPT_SETS: usize = 75;

/// The sets in a directory of saved changes.
#[derive(Debug)]
pub(crate) struct SetStore {
    saved: PathBuf,
    directory: PathBuf,
}

/// The number and digest of the current set before an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CurrentSet {
    pub(crate) number: u64,
    pub(crate) digest: Digest,
}

impl CurrentSet {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self { number: manifest.set, digest: manifest.digest() }
    }

    /// Returns the current set where nothing was saved yet.
    pub(crate) fn none() -> Self {
        Self { number: 0, digest: SetSummary::nothing().digest }
    }
}

impl SetStore {
    pub(crate) fn of(saved: &Path) -> Self {
        Self { saved: saved.to_owned(), directory: saved.join("sets") }
    }

    /// Writes the file of the current set if it is missing, as in directories of earlier builds.
    pub(crate) fn adopt(&self, manifest: &Manifest) -> io::Result<()> {
        if manifest.set == 0 || self.path(manifest.set).exists() {
            return Ok(());
        }
        self.write(&SetRecord::of(manifest, SetSummary::of(manifest, manifest.digest())))
    }

    /// Writes the manifest. When its changes differ from the set `before`, they become the next set first.
    pub(crate) fn commit(
        &self,
        manifest: &mut Manifest,
        before: CurrentSet,
        origin: SetOrigin,
        note: &SetNote,
    ) -> io::Result<()> {
        manifest.sort();
        manifest.set = before.number;
        let digest = manifest.digest();
        if digest != before.digest {
            self.remove_above(before.number)?;
            manifest.set = before.number + 1;
            let now = u64::try_from(now_nanos() / 1_000_000).unwrap_or_default();
            let summary = SetSummary {
                made_unix_millis: now,
                origin,
                turn: note.turn.clone(),
                left_processes: note.left_processes.clone(),
                ..SetSummary::of(manifest, digest)
            };
            self.write(&SetRecord::of(manifest, summary))?;
        }
        manifest.write(&self.saved)
    }

    /// Returns the summaries of all kept sets up to `current`, oldest first.
    pub(crate) fn list(&self, current: u64) -> io::Result<Vec<SetSummary>> {
        let numbers = self.numbers()?.into_iter().filter(|number| *number <= current);
        numbers.map(|number| self.summary(number)).collect()
    }

    /// Returns the summary of a set; fails with `NotFound` when it is not kept.
    pub(crate) fn summary(&self, number: u64) -> io::Result<SetSummary> {
        Ok(read_json::<SetHeader>(&self.path(number))?.summary)
    }

    /// Reads a set; fails with `NotFound` when it is not kept, and when the file is not what its digest says.
    pub(crate) fn read(&self, number: u64) -> io::Result<SetRecord> {
        let record: SetRecord = read_json(&self.path(number))?;
        let whole = record.version == SetRecord::VERSION
            && record.summary.number == number
            && record.summary.digest == record.digest();
        if whole {
            return Ok(record);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("change set {number} is damaged")))
    }

    /// Removes the oldest sets when there are too many, or when their contents are over `limit` bytes together. Removes
    /// contents that nothing names, if `unnamed` says that there may be some.
    pub(crate) fn prune(
        &self,
        manifest: &Manifest,
        contents: &ContentStore,
        limit: u64,
        unnamed: bool,
    ) -> io::Result<()> {
        let mut numbers = self.numbers()?;
        numbers.retain(|number| *number != manifest.set);
        let mut unnamed = unnamed;
        if numbers.len() >= MAX_SETS {
            let oldest: Vec<u64> = numbers.drain(..numbers.len() + 1 - KEPT_SETS).collect();
            self.remove(&oldest)?;
            unnamed = true;
        }
        while contents.written() > 0 && contents.total_bytes()? > limit && !numbers.is_empty() {
            let oldest: Vec<u64> = numbers.drain(..numbers.len().div_ceil(2)).collect();
            self.remove(&oldest)?;
            self.forget(manifest, contents)?;
            unnamed = false;
        }
        if unnamed { self.forget(manifest, contents) } else { Ok(()) }
    }

    /// Removes contents that no kept set, no manifest and no apply needs.
    fn forget(&self, manifest: &Manifest, contents: &ContentStore) -> io::Result<()> {
        let mut named: HashSet<String> = HashSet::new();
        let mut name = |change: &SavedChange| named.extend(change.sha256().map(str::to_owned));
        manifest.changes.iter().for_each(|record| name(&record.change));
        for number in self.numbers()? {
            read_json::<SetRecord>(&self.path(number))?.changes.iter().for_each(&mut name);
        }
        if let Some(journal) = ApplyJournal::read(&self.saved)? {
            journal.changes().for_each(&mut name);
        }
        contents.retain(&named)
    }

    /// Returns the numbers of all files, lowest first.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let listed = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        let mut numbers = Vec::new();
        for entry in listed {
            let name = entry?.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_suffix(".json")).and_then(|name| name.parse::<u64>().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn write(&self, record: &SetRecord) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        write_json(&self.directory, &file_name(record.summary.number), record)
    }

    fn remove(&self, numbers: &[u64]) -> io::Result<()> {
        for number in numbers {
            std::fs::remove_file(self.path(*number))?;
        }
        if numbers.is_empty() { Ok(()) } else { sync_directory(&self.directory) }
    }

    /// Removes files of sets that no manifest ever named.
    fn remove_above(&self, number: u64) -> io::Result<()> {
        let above: Vec<u64> = self.numbers()?.into_iter().filter(|found| *found > number).collect();
        self.remove(&above)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(file_name(number))
    }
}

fn file_name(number: u64) -> String {
    format!("{number}.json")
}
