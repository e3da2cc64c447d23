//! Standard input for the command of `viv exec`: our own stdin.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat, major, minor};
use tokio::io::AsyncRead;

/// Returns our stdin, read by a thread of its own because a read may block.
///
/// For `/dev/null`, the usual stdin of a program that runs unattended, no thread is started.
pub(super) fn open() -> Box<dyn AsyncRead + Send + Unpin> {
    if is_null(io::stdin()) { Box::new(tokio::io::empty()) } else { Box::new(tokio::io::stdin()) }
}

fn is_null(descriptor: impl AsFd) -> bool {
    fstat(descriptor).is_ok_and(|stat| {
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        is_device && (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_dev_null_counts_as_empty() {
        assert!(is_null(File::open("/dev/null").unwrap()));
        for other in ["/dev/zero", "/dev/ptmx", "/proc/self/exe"] {
            assert!(!is_null(File::open(other).unwrap()), "{other}");
        }
        let (read, _write) = io::pipe().unwrap();
        assert!(!is_null(read));
    }
}
