//! A filter for the output of untrusted programs on its way to a terminal.
//!
//! An escape sequence can rewrite the screen, set the clipboard or insert input. Colours pass, except the attribute that
//! conceals text; other escape sequences are removed. C1 controls (U+0080 to U+009F) are one-byte forms of escape
//! sequences. They are treated as such, both as raw bytes and encoded as UTF-8.
//!
//! Not here: characters that are invisible or change the writing direction (`printable_text`).

/// Passes text and colours, and removes other escape sequences.
#[derive(Debug, Default)]
pub struct EscapeFilter {
    state: FilterState,
    pending: Vec<u8>,
    /// Missing bytes of a UTF-8 character.
    missing_bytes: u8,
    passing: Passing,
}

/// The escape sequences that a filter passes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// None.
    Nothing,
    /// Colours and other attributes of text.
    #[default]
    Colours,
    /// Everything that a full-screen program needs to draw.
    Screens,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FilterState {
    #[default]
    Text,
    /// After the first byte of either a Latin-1 letter or a C1 control.
    Latin,
    /// After ESC.
    Escape,
    /// After ESC ( or ESC ), which select a character set.
    CharacterSet(u8),
    /// After ESC [: parameters of a control sequence.
    Control,
    /// Inside a string for the terminal, such as a title. It is dropped up to its end.
    Command,
    /// After ESC inside such a string.
    CommandEscape,
}

/// First byte of U+0080 to U+00BF in UTF-8.
const LATIN: u8 = 0xc2;
/// Longest parameters of a colour sequence; longer sequences are dropped.
const LONGEST_COLOUR: usize = 32;

impl EscapeFilter {
    /// Returns a filter for full-screen programs, which may also move the cursor, clear, scroll and choose modes.
    ///
    /// Sequences that reach beyond the screen are still removed: titles, clipboard, window, printer, strings of any kind,
    /// and queries that the terminal answers with earlier input.
    pub fn for_screens() -> Self {
        Self { passing: Passing::Screens, ..Self::default() }
    }

    /// Returns a filter that removes all escape sequences, also colours.
    pub fn for_text() -> Self {
        Self { passing: Passing::Nothing, ..Self::default() }
    }

    fn screens(&self) -> bool {
        self.passing == Passing::Screens
    }

    /// Returns the part of `bytes` that may be shown. A sequence may be split between two calls.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.byte(*byte, &mut shown);
        }
        shown
    }

    #[expect(clippy::match_same_arms, reason = "the arms are a table of states, read from top to bottom")]
    fn byte(&mut self, byte: u8, shown: &mut Vec<u8>) {
        self.state = match (self.state, byte) {
            (FilterState::Latin, 0x80..=0x9f) => self.control(byte),
            (FilterState::Latin, 0xa0..=0xbf) => {
                shown.extend([LATIN, byte]);
                FilterState::Text
            }
            (FilterState::Text | FilterState::Latin | FilterState::Escape | FilterState::Control, 0x1b) => {
                FilterState::Escape
            }
            (FilterState::Text | FilterState::Latin, _) => self.text(byte, shown),
            (FilterState::Escape, b'7' | b'8' | b'=' | b'>' | b'D' | b'E' | b'M' | b'H') if self.screens() => {
                shown.extend([0x1b, byte]);
                FilterState::Text
            }
            // The next byte selects the character set.
            (FilterState::Escape, b'(' | b')') if self.screens() => FilterState::CharacterSet(byte),
            (FilterState::CharacterSet(which), b'0' | b'A' | b'B') => {
                shown.extend([0x1b, which, byte]);
                FilterState::Text
            }
            (FilterState::CharacterSet(_), 0x1b) => FilterState::Escape,
            (FilterState::CharacterSet(_), _) => FilterState::Text,
            // ESC and a byte from `@` to `_` is a C1 control.
            (FilterState::Escape, b'@'..=b'_') => self.control(byte + 0x40),
            (FilterState::Control, b'0'..=b'9' | b';' | b':') if self.pending.len() < LONGEST_COLOUR => {
                self.pending.push(byte);
                FilterState::Control
            }
            (FilterState::Control, b'?') if self.screens() && self.pending.is_empty() => {
                self.pending.push(byte);
                FilterState::Control
            }
            (FilterState::Control, b'm') if self.pending.len() < LONGEST_COLOUR => {
                self.attributes(shown);
                FilterState::Text
            }
            (FilterState::Control, _) if self.screens() && draws(byte) && self.pending.len() < LONGEST_COLOUR => {
                shown.extend_from_slice(b"\x1b[");
                shown.append(&mut self.pending);
                shown.push(byte);
                FilterState::Text
            }
            (FilterState::Control, 0x20..=0x3f) => {
                // Any other sequence is dropped up to its final byte.
                self.pending.resize(LONGEST_COLOUR, b' ');
                FilterState::Control
            }
            (FilterState::Command, 0x07 | 0x9c) | (FilterState::CommandEscape, b'\\') => FilterState::Text,
            (FilterState::Command | FilterState::CommandEscape, 0x1b) => FilterState::CommandEscape,
            (FilterState::Command | FilterState::CommandEscape, _) => FilterState::Command,
            (FilterState::Escape | FilterState::Control, _) => FilterState::Text,
        };
    }

    /// Passes the pending attributes of text, except those that conceal the text.
    fn attributes(&mut self, shown: &mut Vec<u8>) {
        let pending = std::mem::take(&mut self.pending);
        if self.passing == Passing::Nothing {
            return;
        }
        if let Some(kept) = without_conceal(&String::from_utf8_lossy(&pending)) {
            shown.extend_from_slice(b"\x1b[");
            shown.extend_from_slice(kept.as_bytes());
            shown.push(b'm');
        }
    }

    /// Handles a byte outside of a sequence.
    fn text(&mut self, byte: u8, shown: &mut Vec<u8>) -> FilterState {
        if self.missing_bytes > 0 && (0x80..=0xbf).contains(&byte) {
            self.missing_bytes -= 1;
            shown.push(byte);
            return FilterState::Text;
        }
        self.missing_bytes = match byte {
            0xc3..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => 0,
        };
        match byte {
            LATIN => return FilterState::Latin,
            0x80..=0x9f => return self.control(byte),
            b'\n' | b'\r' | b'\t' | 0x20..=0x7e | 0xa0.. => shown.push(byte),
            // Backspace, and shift out and in, which select a character set.
            0x08 | 0x0e | 0x0f if self.screens() => shown.push(byte),
            _ => {}
        }
        FilterState::Text
    }

    /// Returns the state after a C1 control.
    fn control(&mut self, control: u8) -> FilterState {
        self.missing_bytes = 0;
        match control {
            0x9b => {
                self.pending.clear();
                FilterState::Control
            }
            0x90 | 0x98 | 0x9d..=0x9f => FilterState::Command,
            _ => FilterState::Text,
        }
    }
}

/// Returns the attributes without `8`, which conceals text; `None` if no attribute is left. The number in `38;5;8` is a
/// colour.
fn without_conceal(attributes: &str) -> Option<String> {
    let all: Vec<&str> = attributes.split(';').collect();
    let (mut kept, mut rest) = (Vec::new(), all.as_slice());
    while let Some((first, after)) = rest.split_first() {
        let number = first.split(':').next().unwrap_or_default().trim_start_matches('0');
        let length = match (number, after.first().copied()) {
            ("38" | "48" | "58", Some("5")) => 3,
            ("38" | "48" | "58", Some("2")) => 5,
            _ => 1,
        };
        let (group, others) = rest.split_at(length.min(rest.len()));
        if number != "8" {
            kept.extend_from_slice(group);
        }
        rest = others;
    }
    // An empty list would reset all attributes.
    (!kept.is_empty()).then(|| kept.join(";"))
}

/// Returns whether a control sequence with the final byte `last` affects only the screen: cursor, erasing, scrolling,
/// inserting, colours, modes, and the cursor position report.
fn draws(last: u8) -> bool {
    matches!(last, b'@'..=b'H' | b'J'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`' | b'a' | b'd'..=b'h')
        || matches!(last, b'l' | b'm' | b'n' | b'r' | b's' | b'u')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screen_mode_allows_drawing_and_nothing_else() {
        let pass = |given: &[u8]| EscapeFilter::for_screens().pass(given);
        let drawn =
            b"\x1b[2J\x1b[10;10Hx\x1b[?1049h\x1b[?25l\x1b7\x1b8\x1b(0\x1b(B\x1bM\x1b[K\x1b[1;24r\x08\x1b[6n\x1b[31m";
        assert_eq!(pass(drawn), drawn);
        for commanding in [
            &b"\x1b]0;title\x07"[..],
            b"\x1b]52;c;c2VjcmV0\x1b\\",
            b"\x1bP$q\"p\x1b\\",
            b"\x1b[21t",
            b"\x1b[8;1;1t",
            b"\x1b[5i",
            b"\x1b[>4;2m",
            b"\x1b[!p",
            b"\x1b[0c",
            b"\x05",
            b"\x1bc",
            b"\x1b_string\x1b\\",
        ] {
            assert_eq!(pass(commanding), b"", "{commanding:?}");
        }
    }

    #[track_caller]
    fn check(given: &[u8], expected: &[u8]) {
        assert_eq!(EscapeFilter::default().pass(given), expected);
        // The result does not depend on where the input is split.
        for at in 0..given.len() {
            let mut filter = EscapeFilter::default();
            let mut shown = filter.pass(&given[..at]);
            shown.extend(filter.pass(&given[at..]));
            assert_eq!(shown, expected, "cut at {at}");
        }
    }

    #[test]
    fn text_and_colours_pass() {
        check("plain é 漢\n".as_bytes(), "plain é 漢\n".as_bytes());
        check(b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m");
    }

    #[test]
    fn concealed_text_is_shown() {
        check(b"\x1b[8mhidden\x1b[0m", b"hidden\x1b[0m");
        check(b"\x1b[1;8;31mhidden", b"\x1b[1;31mhidden");
        check(b"\x1b[08m\x1b[8:1mhidden", b"hidden");
        check(b"\x1b[38;5;8m\x1b[48;2;8;8;8;8m\x1b[38:5:8m\x1b[m", b"\x1b[38;5;8m\x1b[48;2;8;8;8m\x1b[38:5:8m\x1b[m");
        assert_eq!(EscapeFilter::for_screens().pass(b"\x1b[8mhidden"), b"hidden");
    }

    #[test]
    fn text_mode_removes_colours_too() {
        assert_eq!(EscapeFilter::for_text().pass(b"\x1b[31mred\x1b[0m\x1b]0;t\x07 \xc2\x9b1mb"), b"red b");
    }

    #[test]
    fn other_escape_sequences_are_removed() {
        check(b"a\x1b]0;title\x07b", b"ab");
        check(b"a\x1b]52;c;c2VjcmV0\x1b\\b", b"ab");
        check(b"a\x1b[2Jb\x1b[10;10Hc", b"abc");
        check(b"a\x1b[?1049hb", b"ab");
        check(b"a\x1bcb\x08\x07\x00", b"ab");
        check(b"a\x1bP$q\"p\x1b\\b", b"ab");
        check(b"\x1b[6n\x1b[c", b"");
    }

    #[test]
    fn one_byte_forms_of_escape_sequences_are_removed() {
        check(b"a\xc2\x9b6nb", b"ab");
        check(b"a\xc2\x9d52;c;c2VjcmV0\xc2\x9cb", b"ab");
        check(b"a\x9b6nb\x9d0;title\x9cc\x85", b"abc");
        check(b"\xc2\x9b1;31mred", b"\x1b[1;31mred");
        // The same byte values inside UTF-8 characters pass.
        check("Û œ € ᛛ 𛛛 Â« «".as_bytes(), "Û œ € ᛛ 𛛛 Â« «".as_bytes());
    }
}
