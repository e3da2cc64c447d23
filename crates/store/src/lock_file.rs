//! Files that are locked by whoever made them, so that what a killed process left can be told and removed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes the file `path`, locked for as long as the returned file is open.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    // Locked under another name first: whoever sweeps must never find one that is not locked yet.
    let unlocked = path.with_extension("new");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unlocked)?;
    file.try_lock()?;
    std::fs::rename(&unlocked, path)?;
    Ok(file)
}

/// Removes the files of `directory` with that extension whose makers are gone, and says how many that were.
/// One that cannot be removed is only untidy.
pub(crate) fn sweep(directory: &Path, extension: &str) -> usize {
    let paths = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    let abandoned = files.filter(|path| File::open(path).is_ok_and(|file| file.try_lock().is_ok()));
    abandoned.filter(|path| std::fs::remove_file(path).is_ok()).count()
}
