//! The permissions with which changes land on the host.
//!
//! The sandbox chooses whether a file can be executed. It cannot make a file or directory writable for the group or for
//! everybody, and it gives no permission that the umask of the applying user takes away.

use crate::review::{FileStamp, SavedChange, SavedEntry};

/// Permissions that a new file or directory can have.
const WIDEST: u32 = 0o755;
const EXECUTE: u32 = 0o111;
/// The permission of the owner to execute, which stands for all three, as in git.
const OWNER_EXECUTES: u32 = 0o100;
const OTHERS_WRITE: u32 = 0o022;
/// The umask of most systems, for a kernel that does not show it.
const USUAL_UMASK: u32 = 0o022;

/// Returns the umask of this process, without changing it.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(USUAL_UMASK)
}

/// Returns the change with the permissions that it gets on the host.
pub(crate) fn with_landing_mode(change: &SavedChange, umask: u32) -> SavedChange {
    let mut landed = change.clone();
    match &mut landed.entry {
        Some(SavedEntry::Regular { mode, .. }) => *mode = file_mode(*mode, change.base.as_ref(), umask),
        Some(SavedEntry::Directory { mode }) => *mode = directory_mode(*mode, change.base.as_ref(), umask),
        _ => {}
    }
    landed
}

/// Returns the mode of a file. An existing file keeps its own, except that it may become executable or cease to be.
fn file_mode(mode: u32, base: Option<&FileStamp>, umask: u32) -> u32 {
    let Some(base) = base.filter(|base| base.kind() == rustix::fs::FileType::RegularFile) else {
        return mode & WIDEST & !umask;
    };
    let before = base.permissions() & 0o777;
    match (before & OWNER_EXECUTES != 0, mode & OWNER_EXECUTES != 0) {
        (true, false) => before & !EXECUTE,
        // Users who can read the file may execute it.
        (false, true) => before | ((before & 0o444) >> 2 & !umask) | OWNER_EXECUTES,
        _ => before,
    }
}

/// Returns the mode of a directory. An existing one keeps the write permissions that it has.
fn directory_mode(mode: u32, base: Option<&FileStamp>, umask: u32) -> u32 {
    match base.filter(|base| base.is_directory()) {
        None => mode & WIDEST & !umask,
        Some(base) => mode & 0o777 & !(OTHERS_WRITE & !base.mode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(mode: u32) -> FileStamp {
        FileStamp { dev: 1, ino: 1, size: 0, mode, mtime_nanos: 0, ctime_nanos: 0 }
    }

    #[test]
    fn new_files_are_never_writable_for_others() {
        for (mode, umask, expected) in [
            (0o666, 0o022, 0o644),
            (0o777, 0o022, 0o755),
            (0o666, 0o000, 0o644),
            (0o664, 0o002, 0o644),
            (0o644, 0o077, 0o600),
            (0o600, 0o022, 0o600),
            (0o444, 0o022, 0o444),
        ] {
            assert_eq!(file_mode(mode, None, umask), expected, "{mode:o} with umask {umask:o}");
            assert_eq!(directory_mode(mode, None, umask), expected);
        }
    }

    #[test]
    fn existing_files_keep_their_mode_unless_they_become_executable() {
        let mode = |before: u32, mode: u32| file_mode(mode, Some(&stamp(0o100_000 | before)), 0o022);
        assert_eq!(mode(0o664, 0o666), 0o664);
        assert_eq!(mode(0o600, 0o644), 0o600);
        assert_eq!(mode(0o644, 0o755), 0o755);
        assert_eq!(mode(0o640, 0o777), 0o750);
        assert_eq!(mode(0o755, 0o644), 0o644);
        let link = stamp(0o120_777);
        assert_eq!(file_mode(0o666, Some(&link), 0o022), 0o644);
    }

    #[test]
    fn existing_directories_get_no_new_writers() {
        let mode = |before: u32, mode: u32| directory_mode(mode, Some(&stamp(0o040_000 | before)), 0o022);
        assert_eq!((mode(0o755, 0o777), mode(0o775, 0o770), mode(0o755, 0o500)), (0o755, 0o770, 0o500));
    }

    #[test]
    fn umask_of_this_process_is_read() {
        assert!(umask() <= 0o777);
    }
}
