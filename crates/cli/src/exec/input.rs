//! What the command of `viv exec` reads: our own stdin.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::{FileType, fstat, major, minor};
use tokio::io::{AsyncRead, ReadBuf};

/// Our stdin, by the shortest way: a thread that may block on it is started only where it can block.
pub(super) fn open() -> Box<dyn AsyncRead + Send + Unpin> {
    let stdin = io::stdin();
    match stdin.as_fd().try_clone_to_owned() {
        Ok(descriptor) if never_blocks(&descriptor) => Box::new(AtOnce(File::from(descriptor))),
        _ => Box::new(tokio::io::stdin()),
    }
}

/// Files answer at once, and so does `/dev/null`, which is what most commands without a person read.
fn never_blocks(descriptor: impl AsFd) -> bool {
    let Ok(stat) = fstat(descriptor) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => true,
        FileType::CharacterDevice => (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3),
        _ => false,
    }
}

/// A file that is read where it is asked for.
struct AtOnce(File);

impl AsyncRead for AtOnce {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = (&self.0).read(buffer.initialize_unfilled())?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_block_is_told_from_what_cannot() {
        assert!(never_blocks(File::open("/dev/null").unwrap()));
        assert!(never_blocks(File::open("/proc/self/exe").unwrap()));
        assert!(!never_blocks(File::open("/dev/ptmx").unwrap()));
        let (read, _write) = io::pipe().unwrap();
        assert!(!never_blocks(read));
    }
}
