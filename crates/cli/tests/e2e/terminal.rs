//! A pseudo-terminal for tests, with a terminal emulator that draws what a person sees.

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
    /// All output of the program, as bytes for the terminal.
    pub(crate) shown: String,
    screen: avt::Terminal,
    /// The start of a character that was split between two reads.
    partial: Vec<u8>,
}

/// Columns and rows of the emulator. It is tall, so that nothing scrolls away.
const SCREEN: (usize, usize) = (80, 400);

fn empty_screen() -> avt::Terminal {
    avt::Terminal::new(SCREEN.0, SCREEN.1).unwrap()
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
        Self { master: File::from(master), child, shown: String::new(), screen: empty_screen(), partial: Vec::new() }
    }

    /// Reads until `text` is shown or the program ends.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) {
        while !self.shown.contains(text) {
            assert!(self.read(), "`{text}` was never shown:\n{}", self.shown);
        }
    }

    /// Reads until the screen, as a person sees it, satisfies `wanted`. Fails when the program ends before.
    #[track_caller]
    pub(crate) fn until_screen(&mut self, wanted: impl Fn(&str) -> bool) {
        while !wanted(&self.screen()) {
            assert!(self.read(), "the program ended before the screen was as expected:\n{}", self.screen());
        }
    }

    /// Returns the text on the screen. Rows that the terminal wrapped are one line.
    pub(crate) fn screen(&self) -> String {
        let mut text = String::new();
        for row in (0..SCREEN.1).filter_map(|row| self.screen.screen().line(row)) {
            text.push_str(&row.text());
            if !row.is_wrapped() {
                text.truncate(text.trim_end_matches(' ').len());
                text.push('\n');
            }
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Clears the screen, as a person does who waits for the next output.
    pub(crate) fn clear(&mut self) {
        self.shown.clear();
        self.screen = empty_screen();
    }

    /// Reads a piece of output; returns false after the end. Reading fails with EIO after the other end is closed.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let Ok(count @ 1..) = self.master.read(&mut buffer) else { return false };
        self.partial.extend_from_slice(&buffer[..count]);
        let whole = match std::str::from_utf8(&self.partial) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.partial.len(),
        };
        let rest = self.partial.split_off(whole);
        let text = String::from_utf8_lossy(&self.partial).into_owned();
        self.partial = rest;
        self.screen.feed(text.as_str());
        self.shown.push_str(&text);
        true
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

    /// Reads to the end, waits for the program, and returns the text on the screen.
    pub(crate) fn finish_on_screen(mut self) -> (ExitStatus, String) {
        self.drain();
        (wait_for_exit(&mut self.child), self.screen())
    }

    fn drain(&mut self) {
        while self.read() {}
    }
}
