//! The screen model of a terminal: a terminal emulator that receives the filtered output.
//!
//! A panic of the emulator would end the session. Its input is hostile, so a panic is caught and the model starts again
//! with an empty screen; viewers that are attached do not notice.

use std::panic::{AssertUnwindSafe, catch_unwind};

use avt::Terminal;
use sandbox::WindowSize;

use super::modes::TerminalModes;

pub(super) struct ScreenModel {
    terminal: Option<Terminal>,
    modes: TerminalModes,
    size: WindowSize,
    /// The start of a character that was split between two reads.
    partial: Vec<u8>,
}

impl ScreenModel {
    pub(super) fn new(size: WindowSize) -> Self {
        Self { terminal: emulator(size), modes: TerminalModes::default(), size, partial: Vec::new() }
    }

    /// Draws filtered output.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.modes.read(bytes);
        self.partial.extend_from_slice(bytes);
        let text = take_text(&mut self.partial);
        self.change(|terminal| terminal.feed(text.as_str()));
    }

    pub(super) fn resize(&mut self, size: WindowSize) {
        self.size = size;
        self.change(|terminal| {
            // Sizes are positive.
            terminal.resize(usize::from(size.columns), usize::from(size.rows));
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Terminal)) {
        let Some(terminal) = &mut self.terminal else { return };
        if catch_unwind(AssertUnwindSafe(|| change(terminal))).is_err() {
            tracing::warn!("the terminal emulator failed; the screen model is empty until the agent draws again");
            self.terminal = emulator(self.size);
        }
    }

    /// Returns the bytes that draw the present screen on a terminal in its default state and switch on its modes.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let dump = catch_unwind(AssertUnwindSafe(|| self.terminal.as_ref().map(Terminal::dump)));
        // The modes come first: the alternate screen must be chosen before it is drawn.
        let mut bytes = b"\x1b[0m\x1b[H\x1b[2J".to_vec();
        bytes.extend(dump.ok().flatten().unwrap_or_default().into_bytes());
        bytes.extend(self.modes.enable());
        bytes
    }
}

fn emulator(size: WindowSize) -> Option<Terminal> {
    Terminal::new(usize::from(size.columns), usize::from(size.rows)).ok()
}

/// Takes the longest whole text from `bytes` and leaves the start of a split character.
pub(super) fn take_text(bytes: &mut Vec<u8>) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    let rest = bytes.split_off(whole);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: WindowSize = WindowSize { rows: 5, columns: 20 };

    fn lines(terminal: &Terminal) -> Vec<String> {
        (0..5).filter_map(|row| terminal.screen().line(row).map(|line| line.text().trim_end().to_owned())).collect()
    }

    #[test]
    fn snapshot_redraws_the_screen_on_another_terminal() {
        let mut model = ScreenModel::new(SIZE);
        for part in
            ["shell\r\n\x1b[?1049h\x1b[2J\x1b[2;3H\x1b[31mhél".as_bytes(), &[0xe6, 0xbc], &[0xa2], b"\x1b[?1002;1006h"]
        {
            model.feed(part);
        }
        let snapshot = String::from_utf8(model.snapshot()).unwrap();
        let mut other = Terminal::new(20, 5).unwrap();
        other.feed(snapshot.as_str());
        assert_eq!(lines(&other), lines(model.terminal.as_ref().unwrap()));
        assert_eq!(lines(&other)[1], "  hél漢");
        assert!(snapshot.contains("\x1b[?1047h") && snapshot.ends_with("\x1b[?1002h\x1b[?1006h"), "{snapshot:?}");
    }

    #[test]
    fn invalid_bytes_are_replaced_and_split_characters_are_kept() {
        let mut bytes = vec![b'a', 0xff, b'b', 0xe6];
        assert_eq!(take_text(&mut bytes), "a\u{fffd}b\u{fffd}");
        let mut bytes = vec![b'a', 0xe6, 0xbc];
        assert_eq!((take_text(&mut bytes).as_str(), bytes.as_slice()), ("a", &[0xe6, 0xbc][..]));
    }
}
