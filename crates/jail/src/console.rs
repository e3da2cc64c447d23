//! A terminal that is made inside, for a sandbox whose own kernel lets no descriptor out.
//!
//! Its other end stays with init, which carries what is typed and shown through the pipes that the host has given.

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
    /// Makes one of `window` rows and columns.
    pub(crate) fn open(window: (u16, u16)) -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        resize(&master, window)?;
        Ok(Self { master, slave })
    }

    /// The three streams of a command.
    pub(crate) fn streams(&self) -> io::Result<[OwnedFd; 3]> {
        Ok([self.slave.try_clone()?, self.slave.try_clone()?, self.slave.try_clone()?])
    }

    /// Carries what comes by `typed` to the command and what it shows to `shown`, while the end that stays is held.
    pub(crate) fn connect(self, typed: OwnedFd, shown: OwnedFd) -> io::Result<ConsoleEnd> {
        let (mut typed, mut sink) = (File::from(typed), File::from(self.master.try_clone()?));
        spawn(move || drop(io::copy(&mut typed, &mut sink)))?;
        let (source, over) = (self.master.try_clone()?, Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&over);
        spawn(move || drop(show(&source, &mut File::from(shown), &told)))?;
        Ok(ConsoleEnd { master: self.master, over })
    }
}

/// The end of a terminal that stays with init. When it is dropped, what was shown until then still goes out.
pub(crate) struct ConsoleEnd {
    master: OwnedFd,
    over: Arc<AtomicBool>,
}

impl ConsoleEnd {
    /// Gives the window another size. The programs must be told by a signal: not every kernel does.
    pub(crate) fn resize(&self, window: (u16, u16)) -> io::Result<()> {
        resize(&self.master, window)
    }
}

impl Drop for ConsoleEnd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Until the command is over and all of it was shown: not every kernel ends the reading by itself.
fn show(source: &OwnedFd, shown: &mut File, over: &AtomicBool) -> io::Result<()> {
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut bytes = [0; 4096];
    loop {
        // Asked first: what was written before it was over is then there to be read.
        let was_over = over.load(Ordering::Acquire);
        let mut ready = [PollFd::new(source, PollFlags::IN)];
        if poll(&mut ready, Some(&LOOK))? > 0 {
            let count = rustix::io::read(source, &mut bytes)?;
            shown.write_all(&bytes[..count])?;
            if count > 0 {
                continue;
            }
        }
        if was_over {
            return Ok(());
        }
    }
}

fn resize(master: impl AsFd, (rows, columns): (u16, u16)) -> io::Result<()> {
    Ok(tcsetwinsize(master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?)
}
