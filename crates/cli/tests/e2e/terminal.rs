//! A pseudo-terminal for tests.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::server::pid_of;
use testkit::wait_for_exit;

/// A program on a pseudo-terminal.
pub(crate) struct Terminal {
    master: File,
    child: Child,
    /// All output of the program.
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
        // The command holds our copies of the other end. Reading ends only after they are closed.
        drop(command);
        Self { master: File::from(master), child, shown: String::new() }
    }

    /// Reads until `text` is shown or the program ends.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.shown.contains(text) {
            match self.master.read(&mut buffer) {
                Ok(count) if count > 0 => self.shown.push_str(&String::from_utf8_lossy(&buffer[..count])),
                // Reading fails with EIO after the other end is closed.
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

    pub(crate) fn type_keys(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    /// Resizes the window, which sends a signal to the program.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.master, size).unwrap();
    }

    /// Returns whether the terminal is in canonical mode with echo.
    pub(crate) fn is_cooked(&self) -> bool {
        use rustix::termios::LocalModes;
        let modes = rustix::termios::tcgetattr(&self.master).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Like `finish`; also returns whether the terminal was restored.
    pub(crate) fn finish_and_look(mut self) -> (ExitStatus, bool, String) {
        self.drain();
        let cooked = self.is_cooked();
        (wait_for_exit(&mut self.child), cooked, self.shown)
    }

    /// Reads to the end and waits for the program.
    pub(crate) fn finish(mut self) -> (ExitStatus, String) {
        self.drain();
        (wait_for_exit(&mut self.child), self.shown)
    }

    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(count) = self.master.read(&mut buffer) {
            if count == 0 {
                break;
            }
            self.shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
}
