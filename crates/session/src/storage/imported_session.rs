//! Files of an imported session beside its journal.
//!
//! Its changes can be read but not applied, because a bundle has no copies of the changed files. Its directory is a
//! path of another host and is never opened. Its cost is not in the ledger, but in its journal.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::{EventBody, LlmCall, SessionId};
use sandbox::{ChangeStat, visible};
use store::{DataDir, Journal, UsageRow};

use crate::SessionError;

/// The list of changed paths, in a bundle and here.
pub(crate) const LIST: &str = "changes.json";
/// The changes as one patch.
pub(crate) const DIFF: &str = "changes.diff";
/// Events read at a time.
const PAGE: usize = 1000;

/// A session that was imported from a bundle.
#[derive(Debug, Clone)]
pub struct ImportedSession {
    directory: PathBuf,
}

impl ImportedSession {
    /// Returns the session `id` if it was imported.
    pub fn find(directory: &DataDir, id: &SessionId) -> Option<Self> {
        let directory = directory.imported(id);
        directory.is_dir().then_some(Self { directory })
    }

    /// Moves the unpacked files at `from` to their place in the data directory.
    pub(crate) fn install(from: tempfile::TempDir, directory: &DataDir, id: &SessionId) -> io::Result<()> {
        let to = directory.imported(id);
        Self::remove(directory, id)?;
        let folder = to.parent().unwrap_or(&to);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        std::fs::rename(from.path(), &to)?;
        // The folder was moved, so there is nothing left to remove.
        let _ = from.keep();
        Ok(())
    }

    /// Removes all files of an imported session.
    pub(crate) fn remove(directory: &DataDir, id: &SessionId) -> io::Result<()> {
        ignore_not_found(std::fs::remove_dir_all(directory.imported(id)))
    }

    /// Returns every changed path with its line counts.
    pub fn stat(&self) -> io::Result<Vec<ChangeStat>> {
        match std::fs::read(self.directory.join(LIST)) {
            Ok(list) => Ok(serde_json::from_slice(&list)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Returns the changes as one patch that is safe to print.
    pub fn patch(&self) -> io::Result<String> {
        match std::fs::read(self.directory.join(DIFF)) {
            Ok(diff) => Ok(visible(&String::from_utf8_lossy(&diff))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// Deletes the list of changes and the patch.
    pub fn discard(&self) -> io::Result<()> {
        [LIST, DIFF].into_iter().try_for_each(|name| ignore_not_found(std::fs::remove_file(self.directory.join(name))))
    }
}

/// Writes a new file that only its owner can read.
pub(crate) fn write_private_file(path: &Path, from: &mut impl Read) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    io::copy(from, &mut file).map(drop)
}

/// Returns the usage of all model calls in the journal of `id`.
pub(crate) fn recorded_usage(journal: &dyn Journal, id: &SessionId) -> Result<UsageRow, SessionError> {
    let name = id.to_string();
    let mut row = UsageRow { name, ..UsageRow::default() };
    let mut seen = 0;
    loop {
        let page = journal.after(seen, PAGE)?;
        let Some(last) = page.last() else { return Ok(row) };
        seen = last.sequence;
        for event in &page {
            if let EventBody::LlmCall(call) = &event.draft.body {
                add(&mut row, call);
            }
        }
    }
}

/// Adds the usage of a call. The numbers come from another host, so the sum saturates.
fn add(row: &mut UsageRow, call: &LlmCall) {
    let (sum, used) = (&mut row.usage, &call.usage);
    for (sum, used) in [
        (&mut row.calls, 1),
        (&mut row.estimated, u64::from(call.estimated)),
        (&mut row.unpriced, u64::from(call.unpriced.is_some())),
        (&mut row.spent_picos, u64::try_from(call.cost_picos).unwrap_or(0)),
        (&mut sum.input_tokens, used.input_tokens),
        (&mut sum.output_tokens, used.output_tokens),
        (&mut sum.cache_read_tokens, used.cache_read_tokens),
        (&mut sum.cache_write_tokens, used.cache_write_tokens),
        (&mut sum.cache_write_1h_tokens, used.cache_write_1h_tokens),
    ] {
        *sum = sum.saturating_add(used);
    }
}

/// Treats a missing file as success.
fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
