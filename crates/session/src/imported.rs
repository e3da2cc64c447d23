//! What is kept of a session that was taken in from a bundle, beside its record.
//!
//! What it changed is told as the bundle tells it, and nothing of it can be applied: the files are where they were
//! made. Its directory is one of that host, so it is told and never opened here. What it cost was paid there, so the
//! ledger does not know it; its own record does.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::{EventBody, LlmCall, SessionId, Usage};
use sandbox::{ChangeStat, visible};
use store::{DataDir, Journal, UsageRow};

use crate::SessionError;

/// Every path that was changed, in a bundle and here.
pub(crate) const LIST: &str = "changes.json";
/// The same as one patch.
pub(crate) const DIFF: &str = "changes.diff";
/// So many events are read at a time.
const PAGE: usize = 1000;

/// A session that was taken in from a bundle.
#[derive(Debug, Clone)]
pub struct ImportedSession {
    directory: PathBuf,
}

impl ImportedSession {
    /// The session `id`, if it was taken in from a bundle.
    pub fn find(directory: &DataDir, id: &SessionId) -> Option<Self> {
        let directory = directory.imported(id);
        directory.is_dir().then_some(Self { directory })
    }

    /// Puts what was unpacked at `from` where it belongs.
    pub(crate) fn settle(from: tempfile::TempDir, directory: &DataDir, id: &SessionId) -> io::Result<()> {
        let to = directory.imported(id);
        Self::remove(directory, id)?;
        let folder = to.parent().unwrap_or(&to);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        std::fs::rename(from.path(), &to)?;
        // It is gone from where it was: there is nothing left to remove.
        let _ = from.keep();
        Ok(())
    }

    /// Removes all of it.
    pub(crate) fn remove(directory: &DataDir, id: &SessionId) -> io::Result<()> {
        or_nothing(std::fs::remove_dir_all(directory.imported(id)))
    }

    /// Every path it changed, with how much of it.
    pub fn stat(&self) -> io::Result<Vec<ChangeStat>> {
        match std::fs::read(self.directory.join(LIST)) {
            Ok(list) => Ok(serde_json::from_slice(&list)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The same as one patch, safe to print.
    pub fn patch(&self) -> io::Result<String> {
        match std::fs::read(self.directory.join(DIFF)) {
            Ok(diff) => Ok(visible(&String::from_utf8_lossy(&diff))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// Forgets what it changed.
    pub fn discard(&self) -> io::Result<()> {
        [LIST, DIFF].into_iter().try_for_each(|name| or_nothing(std::fs::remove_file(self.directory.join(name))))
    }
}

/// Writes a file that only its user can read.
pub(crate) fn keep(path: &Path, from: &mut impl Read) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    io::copy(from, &mut file).map(drop)
}

/// What the record of `id` tells that its calls used.
pub(crate) fn usage(journal: &dyn Journal, id: &SessionId) -> Result<UsageRow, SessionError> {
    let name = id.to_string();
    let mut row = UsageRow { name, calls: 0, usage: Usage::default(), spent_picos: 0, held_picos: 0, unknown: 0 };
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

/// The numbers are another host's, and may be any.
fn add(row: &mut UsageRow, call: &LlmCall) {
    let (sum, used) = (&mut row.usage, &call.usage);
    for (sum, used) in [
        (&mut row.calls, 1),
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

/// What was not there need not be removed.
fn or_nothing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
