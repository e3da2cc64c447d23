//! The modes that a terminal UI has switched on: mouse, paste, focus, keyboard, shape of the cursor and title.
//!
//! A viewer that attaches later gets them with its first screen. The emulator keeps only those that affect drawing.

use std::collections::BTreeSet;

/// Bytes that bring a person's terminal back to its ordinary state. Agents do not switch off all modes, also at a normal
/// exit.
pub const RESTORE_TERMINAL: &str = "\x1b[?2026l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?2004l\
    \x1b[?1004l\x1b[?2031l\x1b[?2048l\x1b[?1l\x1b>\x1b[<u\x1b[=0;1u\x1b[>4m\x1b[?1049l\x1b[r\x1b[?7h\x1b[4l\x1b(B\x1b[?25h\x1b[0 q\
    \x1b]112\x07\x1b[0m\x1b]0;\x07";

/// Private modes that the emulator does not keep.
const TRACKED: [u16; 13] = [9, 1000, 1002, 1003, 1004, 1006, 1007, 1015, 1016, 2004, 2027, 2031, 2048];
/// The longest part of a sequence that is kept between two reads.
const LONGEST: usize = 512;

/// The modes that are on.
#[derive(Debug, Default)]
pub(super) struct TerminalModes {
    private: BTreeSet<u16>,
    keyboard: Vec<String>,
    modify_other_keys: Option<String>,
    cursor_shape: Option<String>,
    title: Option<String>,
    hidden_cursor: bool,
    partial: String,
}

impl TerminalModes {
    /// Reads filtered output, in which a sequence may be split between two calls.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mut text = std::mem::take(&mut self.partial);
        text.push_str(&String::from_utf8_lossy(bytes));
        let mut parts = text.split('\x1b');
        parts.next();
        let parts: Vec<&str> = parts.collect();
        for (index, part) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            if !self.sequence(part) && is_last && part.len() < LONGEST {
                self.partial = format!("\x1b{part}");
            }
        }
    }

    /// Reads the sequence at the start of `part`. Returns false if it has no end yet.
    fn sequence(&mut self, part: &str) -> bool {
        if let Some(rest) = part.strip_prefix('[') {
            let Some(end) = rest.find(|c: char| ('@'..='~').contains(&c)) else { return false };
            self.control(&rest[..end], rest.as_bytes()[end]);
            return true;
        }
        if let Some(rest) = part.strip_prefix("]0;").or_else(|| part.strip_prefix("]2;")) {
            let Some((title, _)) = rest.split_once('\x07') else { return false };
            self.title = (!title.is_empty()).then(|| title.to_owned());
            return true;
        }
        if part == "c" {
            *self = Self::default();
        }
        !part.is_empty()
    }

    fn control(&mut self, parameters: &str, last: u8) {
        match (parameters.chars().next(), last) {
            (Some('?'), b'h' | b'l') => {
                for mode in parameters[1..].split(';').filter_map(|mode| mode.parse().ok()) {
                    self.set(mode, last == b'h');
                }
            }
            (Some('>'), b'u') => self.keyboard.push(parameters[1..].to_owned()),
            (Some('<'), b'u') => {
                let count = parameters[1..].parse().unwrap_or(1_usize);
                self.keyboard.truncate(self.keyboard.len().saturating_sub(count));
            }
            (Some('='), b'u') => {
                let flags = parameters[1..].split(';').next().unwrap_or("0").to_owned();
                self.keyboard.pop();
                self.keyboard.push(flags);
            }
            (Some('>'), b'm') => {
                let level = parameters[1..].strip_prefix("4;").filter(|level| *level != "0");
                self.modify_other_keys = level.map(str::to_owned);
            }
            (_, b'q') => self.cursor_shape = parameters.strip_suffix(' ').map(str::to_owned),
            _ => {}
        }
        // The sandbox chooses how often it pushes.
        self.keyboard.truncate(16);
    }

    fn set(&mut self, mode: u16, on: bool) {
        if mode == 25 {
            self.hidden_cursor = !on;
        } else if TRACKED.contains(&mode) {
            if on {
                self.private.insert(mode)
            } else {
                self.private.remove(&mode)
            };
        }
    }

    /// Returns the bytes that switch the modes on.
    pub(super) fn enable(&self) -> Vec<u8> {
        let mut bytes = String::new();
        if let Some(title) = &self.title {
            bytes.push_str(&format!("\x1b]0;{title}\x07"));
        }
        if let Some(shape) = &self.cursor_shape {
            bytes.push_str(&format!("\x1b[{shape} q"));
        }
        if let Some(flags) = self.keyboard.last() {
            bytes.push_str(&format!("\x1b[>{flags}u"));
        }
        if let Some(level) = &self.modify_other_keys {
            bytes.push_str(&format!("\x1b[>4;{level}m"));
        }
        if self.hidden_cursor {
            bytes.push_str("\x1b[?25l");
        }
        for mode in &self.private {
            bytes.push_str(&format!("\x1b[?{mode}h"));
        }
        bytes.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_are_on_are_switched_on_again() {
        let mut modes = TerminalModes::default();
        for part in
            ["\x1b[?1000;1006;2004h\x1b[>5", "u\x1b]0;work", "ing\x07text\x1b[?1000l\x1b[>4;2m\x1b[?25l\x1b[3 q"]
        {
            modes.read(part.as_bytes());
        }
        let expected = "\x1b]0;working\x07\x1b[3 q\x1b[>5u\x1b[>4;2m\x1b[?25l\x1b[?1006h\x1b[?2004h";
        assert_eq!(String::from_utf8(modes.enable()).unwrap(), expected);
    }

    #[test]
    fn popped_keyboard_modes_and_a_full_reset_leave_nothing() {
        let mut modes = TerminalModes::default();
        modes.read(b"\x1b[>5u\x1b[<u\x1b[>4;2m\x1b[>4;0m");
        assert_eq!(modes.enable(), b"");
        modes.read(b"\x1b[?2004h\x1bc");
        assert_eq!(modes.enable(), b"");
    }
}
