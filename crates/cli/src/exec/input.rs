//! What the command of `viv exec` reads: our own stdin.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat, major, minor};
use tokio::io::AsyncRead;

/// Our stdin. Reading it may block, even a file, so a thread of its own does; where there is nothing to read it is not
/// started, and most commands that nobody sits before have `/dev/null`.
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
    fn only_null_is_null() {
        assert!(is_null(File::open("/dev/null").unwrap()));
        for other in ["/dev/zero", "/dev/ptmx", "/proc/self/exe"] {
            assert!(!is_null(File::open(other).unwrap()), "{other}");
        }
        let (read, _write) = io::pipe().unwrap();
        assert!(!is_null(read));
    }
}
