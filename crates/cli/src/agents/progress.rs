//! Progress of an installation: a live line on a terminal, a single line elsewhere.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::output::{self, message};

/// Interval between two updates of the line.
const TICK: Duration = Duration::from_millis(250);
const FRAMES: [char; 8] = ['⣾', '⣽', '⣻', '⢿', '⡿', '⣟', '⣯', '⣷'];

/// Progress display of one installation.
pub(super) struct InstallProgress {
    what: String,
    started: Instant,
}

impl InstallProgress {
    /// Starts the display; `what` is the name and version.
    pub(super) fn begin(what: String) -> Self {
        if !output::stderr_is_terminal() {
            message!("installing {what} …");
        }
        Self { what, started: Instant::now() }
    }

    /// Runs `work` and shows the growing size of `folder` meanwhile.
    pub(super) fn during<T>(&self, folder: &Path, work: impl FnOnce() -> T) -> T {
        if !output::stderr_is_terminal() {
            return work();
        }
        std::thread::scope(|scope| {
            let (done, waiting) = mpsc::channel::<()>();
            scope.spawn(move || {
                let mut frames = FRAMES.iter().cycle();
                // A timeout means that the work goes on; a closed channel means that it is done.
                while waiting.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    self.show(*frames.next().unwrap_or(&' '), size(folder));
                }
                output::replace_line("");
            });
            let outcome = work();
            drop(done);
            outcome
        })
    }

    fn show(&self, frame: char, bytes: u64) {
        let (what, seconds) = (&self.what, self.started.elapsed().as_secs());
        output::replace_line(&format!("{frame} installing {what} · {} · {seconds} s", megabytes(bytes)));
    }
}

/// Formats bytes as megabytes.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}

/// Returns the bytes in a folder; files that vanish meanwhile are not counted.
pub(super) fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
