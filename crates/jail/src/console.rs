//! A terminal that init makes inside a container with its own kernel, which cannot pass descriptors out.
//!
//! Init keeps the master end and copies between it and the input and output pipes of the host.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::relay::spawn;

/// Both ends of a terminal.
pub(crate) struct Console {
    master: OwnedFd,
    slave: OwnedFd,
}

impl Console {
    /// Opens a terminal with `window` rows and columns.
    pub(crate) fn open(window: (u16, u16)) -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        resize(&master, window)?;
        Ok(Self { master, slave })
    }

    /// Returns the three standard streams of a command.
    pub(crate) fn streams(&self) -> io::Result<[OwnedFd; 3]> {
        Ok([self.slave.try_clone()?, self.slave.try_clone()?, self.slave.try_clone()?])
    }

    /// Copies `input` to the terminal, and the terminal's output to `output`, until the returned end is dropped.
    pub(crate) fn connect(self, input: OwnedFd, output: OwnedFd) -> io::Result<ConsoleEnd> {
        let (mut input, mut master) = (File::from(input), File::from(self.master.try_clone()?));
        spawn(move || drop(io::copy(&mut input, &mut master)))?;
        let (source, closed) = (self.master.try_clone()?, Arc::new(AtomicBool::new(false)));
        let is_closed = Arc::clone(&closed);
        spawn(move || drop(copy_output(&source, &mut File::from(output), &is_closed)))?;
        Ok(ConsoleEnd { master: self.master, closed })
    }
}

/// Init's end of a terminal. Output that was written before it is dropped is still copied.
pub(crate) struct ConsoleEnd {
    master: OwnedFd,
    closed: Arc<AtomicBool>,
}

impl ConsoleEnd {
    /// Sets the window size. Send SIGWINCH to the programs afterwards: not every kernel does.
    pub(crate) fn resize(&self, window: (u16, u16)) -> io::Result<()> {
        resize(&self.master, window)
    }
}

impl Drop for ConsoleEnd {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// Copies output until the terminal is closed and all of it is copied. Not every kernel reports the end of a terminal.
fn copy_output(source: &OwnedFd, output: &mut File, closed: &AtomicBool) -> io::Result<()> {
    const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut bytes = [0; 4096];
    loop {
        // Read before the poll, so that output written before the close is still found.
        let was_closed = closed.load(Ordering::Acquire);
        let mut ready = [PollFd::new(source, PollFlags::IN)];
        if poll(&mut ready, Some(&POLL_INTERVAL))? > 0 {
            let count = rustix::io::read(source, &mut bytes)?;
            output.write_all(&bytes[..count])?;
            if count > 0 {
                continue;
            }
        }
        if was_closed {
            return Ok(());
        }
    }
}

fn resize(master: impl AsFd, (rows, columns): (u16, u16)) -> io::Result<()> {
    Ok(tcsetwinsize(master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?)
}
