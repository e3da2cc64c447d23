//! Files that their creator keeps locked, so that files of killed processes can be found and removed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates the file `path` and returns it locked. The lock lasts until the file is closed.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    // The file is created and locked under another name first, so that `remove_abandoned` never sees it unlocked.
    let unlocked = path.with_extension("new");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unlocked)?;
    file.try_lock()?;
    std::fs::rename(&unlocked, path)?;
    Ok(file)
}

/// Removes the files of `directory` with that extension whose creators are gone; returns their number.
///
/// A file that cannot be removed is ignored.
pub(crate) fn remove_abandoned(directory: &Path, extension: &str) -> usize {
    let paths = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    let abandoned = files.filter(|path| File::open(path).is_ok_and(|file| file.try_lock().is_ok()));
    abandoned.filter(|path| std::fs::remove_file(path).is_ok()).count()
}
