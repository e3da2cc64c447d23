//! How far an installation is, on a terminal; one line where there is none.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Often enough to look alive, seldom enough to cost nothing.
const TICK: Duration = Duration::from_millis(250);
const FRAMES: [char; 8] = ['⣾', '⣽', '⣻', '⢿', '⡿', '⣟', '⣯', '⣷'];

/// What is told while something is installed.
pub(super) struct InstallProgress {
    what: String,
    started: Instant,
}

impl InstallProgress {
    /// Says what begins.
    pub(super) fn begin(what: String) -> Self {
        if !std::io::stderr().is_terminal() {
            eprintln!("installing {what} …");
        }
        Self { what, started: Instant::now() }
    }

    /// Shows what is in `folder` meanwhile.
    pub(super) fn during<T>(&self, folder: &Path, work: impl FnOnce() -> T) -> T {
        if !std::io::stderr().is_terminal() {
            return work();
        }
        std::thread::scope(|scope| {
            let (done, waiting) = mpsc::channel::<()>();
            scope.spawn(move || {
                let mut frames = FRAMES.iter().cycle();
                // An error means that time is up; the other end going away means that the work is done.
                while waiting.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    self.show(*frames.next().unwrap_or(&' '), size(folder));
                }
                let _ = write!(std::io::stderr(), "\r\x1b[K");
            });
            let outcome = work();
            drop(done);
            outcome
        })
    }

    fn show(&self, frame: char, bytes: u64) {
        let (what, seconds) = (&self.what, self.started.elapsed().as_secs());
        // Nobody is left to tell when standard error is closed.
        let _ = write!(std::io::stderr(), "\r\x1b[K{frame} installing {what} · {} · {seconds} s", megabytes(bytes));
    }
}

/// Bytes as people read them.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}

/// Bytes in a folder. What comes and goes meanwhile is not counted.
pub(super) fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
