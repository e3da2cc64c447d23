//! A step that replaces, makes or removes one file or link of the host, and can be finished or undone from any point.
//!
//! The original is always complete in exactly one of three entries: the target, a temporary entry beside it, or the kept
//! originals. The progress of a step is derived from these entries and not recorded:
//!
//! ```text
//!            target      beside it        kept
//! before     original    –  or a part     –
//! swapped    new         original         –
//! after      new         –                original
//! ```
//!
//! The two names are exchanged in one call, and the file that was swapped out is compared with the one that was checked. A
//! file that another process wrote in between is put back.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::context::{ApplyContext, StepError};
use super::directory_entry::DirectoryEntry;
use super::refusal::HostDifference;
use crate::beneath;
use crate::review::{FileStamp, SavedEntry};

/// A file or link before and after.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replace<'a> {
    /// The number of this step.
    pub(crate) number: usize,
    pub(crate) path: &'a Path,
    pub(crate) before: Option<FileStamp>,
    pub(crate) after: Option<&'a SavedEntry>,
}

/// The three entries of a step.
struct StepEntries {
    target: DirectoryEntry,
    beside: DirectoryEntry,
    kept: DirectoryEntry,
}

impl Replace<'_> {
    /// Writes the new file beside the target, unless that was done before. It must be on disk before `swap`.
    pub(crate) fn stage(&self, context: &ApplyContext<'_>) -> Result<Option<File>, StepError> {
        let Some(entries) = self.entries_unless_done(context)? else { return Ok(None) };
        let taken = self.is_taken(&entries)?;
        if !taken && self.restore_foreign_file(context, &entries)? {
            return Err(StepError::Conflict(HostDifference::Changed));
        }
        let Some(after) = self.after else { return Ok(None) };
        if taken || (self.before.is_none() && entries.target.holds(after)?) {
            return Ok(None);
        }
        context.next();
        entries.beside.remove()?;
        context.next();
        Ok(entries.beside.write(after, &context.contents, &entries.target)?)
    }

    /// Moves the new file to the target, and the original to the kept originals.
    pub(crate) fn swap(&self, context: &ApplyContext<'_>) -> Result<(), StepError> {
        let Some(entries) = self.entries_unless_done(context)? else { return Ok(()) };
        match (self.before, self.after) {
            (None, None) => Ok(()),
            (None, Some(_)) => move_into_place(context, &entries),
            (Some(before), after) => {
                if !self.is_taken(&entries)? {
                    match after {
                        Some(_) => exchange(context, &entries, |out| is_file(out, &before))?,
                        None => move_aside(context, &entries, &before)?,
                    }
                }
                keep(context, &entries)
            }
        }
    }

    /// Restores the original, however far `stage` and `swap` came.
    pub(crate) fn revert(&self, context: &ApplyContext<'_>) -> Result<(), StepError> {
        let entries = match DirectoryEntry::find(&context.workspace, self.path) {
            Ok(target) => self.entries(context, target)?,
            // Without its directory, the new file does not exist.
            Err(error) if beneath::is_absence(error) && self.before.is_none() => return Ok(()),
            Err(error) if beneath::is_absence(error) => return Err(StepError::Conflict(HostDifference::Gone)),
            Err(error) => return Err(error.into()),
        };
        match self.before {
            None => self.remove_new(context, &entries),
            Some(before) if self.is_taken(&entries)? => self.restore(context, &entries, &before),
            Some(_) if self.restore_foreign_file(context, &entries)? => Ok(()),
            Some(_) => {
                context.next();
                Ok(entries.beside.remove()?)
            }
        }
    }

    /// Returns why `revert` would stop, as far as that is known before later steps are undone.
    pub(crate) fn obstacle(&self, context: &ApplyContext<'_>) -> io::Result<Option<HostDifference>> {
        let Ok(target) = DirectoryEntry::find(&context.workspace, self.path) else { return Ok(None) };
        let entries = self.entries(context, target)?;
        // A directory belongs to another step, which is undone before this one.
        let now = entries.target.stamp()?.filter(|now| !now.is_directory());
        if self.before.is_some() && (!self.is_taken(&entries)? || entries.target.equals(&entries.kept)?) {
            return Ok(None);
        }
        Ok(match (self.after, now) {
            (None, now) => now.map(|_| HostDifference::Appeared),
            (Some(_), None) => self.before.map(|_| HostDifference::Gone),
            (Some(after), Some(_)) => (!entries.target.holds(after)?).then_some(HostDifference::Changed),
        })
    }

    /// Returns the entries; `None` when the original is kept and its directory was removed or replaced since.
    fn entries_unless_done(&self, context: &ApplyContext<'_>) -> Result<Option<StepEntries>, StepError> {
        match DirectoryEntry::find(&context.workspace, self.path) {
            Ok(target) => Ok(Some(self.entries(context, target)?)),
            Err(error) if beneath::is_absence(error) && context.kept(self.number)?.stamp()?.is_some() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn entries(&self, context: &ApplyContext<'_>, target: DirectoryEntry) -> io::Result<StepEntries> {
        let beside = target.beside(context.temporary(self.number))?;
        Ok(StepEntries { target, beside, kept: context.kept(self.number)? })
    }

    /// Returns whether the original was moved away from the target.
    fn is_taken(&self, entries: &StepEntries) -> io::Result<bool> {
        let Some(before) = self.before else { return Ok(false) };
        Ok(entries.kept.stamp()?.is_some() || is_file(&entries.beside, &before)?)
    }

    /// Puts back a file of another process that lies beside the target, after a crash between an exchange and its check.
    /// Returns whether there was one.
    fn restore_foreign_file(&self, context: &ApplyContext<'_>, entries: &StepEntries) -> Result<bool, StepError> {
        if self.before.is_none() || entries.beside.stamp()?.is_none() {
            return Ok(false);
        }
        match self.after {
            Some(after) if !entries.target.holds(after)? => return Ok(false),
            Some(_) => {
                context.next();
                entries.beside.exchange(&entries.target)?;
                entries.beside.remove()?;
            }
            None => {
                context.next();
                entries.beside.move_to(&entries.target)?;
            }
        }
        Ok(true)
    }

    /// Removes the new file. A file with other content belongs to another process and stays.
    fn remove_new(&self, context: &ApplyContext<'_>, entries: &StepEntries) -> Result<(), StepError> {
        context.next();
        entries.beside.remove()?;
        let ours = entries.target.stamp()?.is_some_and(|now| !now.is_directory());
        let Some(after) = self.after.filter(|_| ours) else { return Ok(()) };
        context.next();
        entries.target.move_to(&entries.beside)?;
        if !entries.beside.holds(after)? {
            return Ok(entries.beside.move_to(&entries.target)?);
        }
        context.next();
        Ok(entries.beside.remove()?)
    }

    fn restore(&self, context: &ApplyContext<'_>, entries: &StepEntries, before: &FileStamp) -> Result<(), StepError> {
        // When the original had to be copied, an earlier undo may have come this far.
        if !entries.target.equals(&entries.kept)? {
            if let Some(difference) = self.obstacle(context)? {
                return Err(StepError::Conflict(difference));
            }
            if !is_file(&entries.beside, before)? {
                context.next();
                entries.beside.remove()?;
                context.next();
                move_or_copy(&entries.kept, &entries.beside)?;
            }
            match self.after {
                Some(after) => exchange(context, entries, |out| out.holds(after))?,
                None => move_into_place(context, entries)?,
            }
        }
        context.next();
        entries.beside.remove()?;
        context.next();
        Ok(entries.kept.remove()?)
    }
}

fn is_file(place: &DirectoryEntry, stamp: &FileStamp) -> io::Result<bool> {
    Ok(place.stamp()?.is_some_and(|now| stamp.is_same_file(&now)))
}

/// Exchanges the target with the entry beside it, and back again if the swapped-out file is not the expected one.
fn exchange(
    context: &ApplyContext<'_>,
    entries: &StepEntries,
    expected: impl Fn(&DirectoryEntry) -> io::Result<bool>,
) -> Result<(), StepError> {
    context.next();
    entries.beside.exchange(&entries.target).map_err(|error| match error {
        Errno::NOENT => StepError::Conflict(HostDifference::Gone),
        error => error.into(),
    })?;
    context.next();
    if expected(&entries.beside)? {
        return Ok(());
    }
    entries.beside.exchange(&entries.target)?;
    entries.beside.remove()?;
    Err(StepError::Conflict(HostDifference::Changed))
}

/// Moves the target aside, and back again if it is not the expected file.
fn move_aside(context: &ApplyContext<'_>, entries: &StepEntries, before: &FileStamp) -> Result<(), StepError> {
    context.next();
    entries.target.move_to(&entries.beside).map_err(|error| match error {
        Errno::NOENT => StepError::Conflict(HostDifference::Gone),
        error => error.into(),
    })?;
    context.next();
    if is_file(&entries.beside, before)? {
        return Ok(());
    }
    entries.beside.move_to(&entries.target)?;
    Err(StepError::Conflict(HostDifference::Changed))
}

/// Moves the new file to the target, which must not exist.
fn move_into_place(context: &ApplyContext<'_>, entries: &StepEntries) -> Result<(), StepError> {
    if entries.beside.stamp()?.is_none() {
        return Ok(());
    }
    context.next();
    entries.beside.move_to(&entries.target).map_err(occupied)
}

/// Moves the original, which lies beside the target, to the kept originals.
fn keep(context: &ApplyContext<'_>, entries: &StepEntries) -> Result<(), StepError> {
    if entries.kept.stamp()?.is_none() {
        context.next();
        move_or_copy(&entries.beside, &entries.kept)?;
    }
    context.next();
    Ok(entries.beside.remove()?)
}

/// Moves an entry within a file system, or copies it to another one. The copy appears only when complete.
fn move_or_copy(from: &DirectoryEntry, to: &DirectoryEntry) -> Result<(), StepError> {
    match from.move_to(to) {
        Err(Errno::XDEV) => {}
        other => return Ok(other?),
    }
    let mut partial = to.name.clone();
    partial.push(".part");
    let partial = to.beside(partial)?;
    partial.remove()?;
    partial.copy_of(from)?;
    partial.move_to(to)?;
    Ok(to.sync_directory()?)
}

fn occupied(error: Errno) -> StepError {
    match error {
        Errno::EXIST => StepError::Conflict(HostDifference::Appeared),
        error => error.into(),
    }
}
