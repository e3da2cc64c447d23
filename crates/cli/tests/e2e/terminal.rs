//! A pseudo-terminal with a person at it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::place::wait;
use crate::server::pid_of;

/// A program on a terminal.
pub(crate) struct Terminal {
    master: File,
    child: Child,
    /// Everything the program has shown.
    pub(crate) shown: String,
}

impl Terminal {
    /// Starts `command` with its three streams on a new terminal.
    pub(crate) fn start(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(rustix::fs::open(name, flags, Mode::empty()).unwrap());
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let child = command.spawn().unwrap();
        // The command holds our copies of the other end; while one is open the terminal never ends.
        drop(command);
        Self { master: File::from(master), child, shown: String::new() }
    }

    /// Reads until `text` has been shown, or until the program is gone.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.shown.contains(text) {
            match self.master.read(&mut buffer) {
                Ok(count) if count > 0 => self.shown.push_str(&String::from_utf8_lossy(&buffer[..count])),
                // A terminal whose other end is closed says EIO.
                _ => panic!("`{text}` was never shown:\n{}", self.shown),
            }
        }
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.master, "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(pid_of(&self.child), signal).unwrap();
    }

    /// Reads to the end and waits for the program.
    pub(crate) fn finish(mut self) -> (ExitStatus, String) {
        let mut buffer = [0; 4096];
        while let Ok(count) = self.master.read(&mut buffer) {
            if count == 0 {
                break;
            }
            self.shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        (wait(&mut self.child), self.shown)
    }
}
