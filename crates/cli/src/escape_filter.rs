//! Output of programs that are not trusted, on its way to a person's terminal.
//!
//! A terminal obeys what it is sent: an escape sequence can rewrite the screen, set the clipboard or type
//! for the person. Colours pass, everything else that commands the terminal does not. The controls of C1
//! (U+0080 to U+009F) are escapes of two bytes in one: they are read as such, alone or encoded as UTF-8.

/// Lets text and colours through, and nothing that commands the terminal.
#[derive(Debug, Default)]
pub(crate) struct EscapeFilter {
    state: FilterState,
    pending: Vec<u8>,
    /// How many bytes of a letter are still to come.
    letter_rest: u8,
    /// Whether a program may draw.
    screens: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FilterState {
    #[default]
    Text,
    /// After the byte that begins both a letter of Latin-1 and a control of C1.
    Latin,
    /// After ESC.
    Escape,
    /// After ESC ( or ESC ): which letters.
    Letters(u8),
    /// After ESC [: parameters of a control sequence.
    Control,
    /// Inside a string for the terminal (title, clipboard): dropped up to its end.
    Command,
    /// After ESC inside such a string.
    CommandEscape,
}

/// First byte of U+0080 to U+00BF in UTF-8.
const LATIN: u8 = 0xc2;
/// A colour has few parameters; whatever is longer is no colour.
const LONGEST_COLOUR: usize = 32;

impl EscapeFilter {
    /// For programs that draw on a whole screen: they may move the cursor, clear, scroll and choose modes too. What
    /// reaches beyond the screen (titles, the clipboard, the window, the printer, strings of any kind) still does not
    /// pass, nor does anything a terminal answers with what it was told before.
    pub(crate) fn for_screens() -> Self {
        Self { screens: true, ..Self::default() }
    }

    /// What of `bytes` may be shown. State is kept: a sequence may be cut anywhere.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
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
            (FilterState::Escape, b'7' | b'8' | b'=' | b'>' | b'D' | b'E' | b'M' | b'H') if self.screens => {
                shown.extend([0x1b, byte]);
                FilterState::Text
            }
            // One more byte says which letters are meant.
            (FilterState::Escape, b'(' | b')') if self.screens => FilterState::Letters(byte),
            (FilterState::Letters(which), b'0' | b'A' | b'B') => {
                shown.extend([0x1b, which, byte]);
                FilterState::Text
            }
            (FilterState::Letters(_), 0x1b) => FilterState::Escape,
            (FilterState::Letters(_), _) => FilterState::Text,
            // ESC and a letter from `@` to `_` is one of C1.
            (FilterState::Escape, b'@'..=b'_') => self.control(byte + 0x40),
            (FilterState::Control, b'0'..=b'9' | b';' | b':') if self.pending.len() < LONGEST_COLOUR => {
                self.pending.push(byte);
                FilterState::Control
            }
            (FilterState::Control, b'?') if self.screens && self.pending.is_empty() => {
                self.pending.push(byte);
                FilterState::Control
            }
            (FilterState::Control, _) if self.screens && draws(byte) && self.pending.len() < LONGEST_COLOUR => {
                shown.extend_from_slice(b"\x1b[");
                shown.append(&mut self.pending);
                shown.push(byte);
                FilterState::Text
            }
            (FilterState::Control, b'm') if self.pending.len() < LONGEST_COLOUR => {
                shown.extend_from_slice(b"\x1b[");
                shown.append(&mut self.pending);
                shown.push(b'm');
                FilterState::Text
            }
            (FilterState::Control, 0x20..=0x3f) => {
                // Some other sequence: dropped whole, up to its final byte.
                self.pending.resize(LONGEST_COLOUR, b' ');
                FilterState::Control
            }
            (FilterState::Command, 0x07 | 0x9c) | (FilterState::CommandEscape, b'\\') => FilterState::Text,
            (FilterState::Command | FilterState::CommandEscape, 0x1b) => FilterState::CommandEscape,
            (FilterState::Command | FilterState::CommandEscape, _) => FilterState::Command,
            (FilterState::Escape | FilterState::Control, _) => FilterState::Text,
        };
    }

    /// A byte that is not part of a sequence.
    fn text(&mut self, byte: u8, shown: &mut Vec<u8>) -> FilterState {
        if self.letter_rest > 0 && (0x80..=0xbf).contains(&byte) {
            self.letter_rest -= 1;
            shown.push(byte);
            return FilterState::Text;
        }
        self.letter_rest = match byte {
            0xc3..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => 0,
        };
        match byte {
            LATIN => return FilterState::Latin,
            0x80..=0x9f => return self.control(byte),
            b'\n' | b'\r' | b'\t' | 0x20..=0x7e | 0xa0.. => shown.push(byte),
            // Back, and the two that choose between letters.
            0x08 | 0x0e | 0x0f if self.screens => shown.push(byte),
            _ => {}
        }
        FilterState::Text
    }

    /// What a control of C1 begins.
    fn control(&mut self, control: u8) -> FilterState {
        self.letter_rest = 0;
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

/// Whether a control sequence that ends in `last` does something to the screen and nothing else: the cursor, erasing,
/// scrolling, inserting, colours, modes, and where the cursor is.
fn draws(last: u8) -> bool {
    matches!(last, b'@'..=b'H' | b'J'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`' | b'a' | b'd'..=b'h')
        || matches!(last, b'l' | b'm' | b'n' | b'r' | b's' | b'u')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_can_be_drawn_and_nothing_beyond_it() {
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
        // Cut anywhere, the same comes out.
        for at in 0..given.len() {
            let mut outlet = EscapeFilter::default();
            let mut shown = outlet.pass(&given[..at]);
            shown.extend(outlet.pass(&given[at..]));
            assert_eq!(shown, expected, "cut at {at}");
        }
    }

    #[test]
    fn text_and_colours_pass() {
        check("plain é 漢\n".as_bytes(), "plain é 漢\n".as_bytes());
        check(b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m");
    }

    #[test]
    fn what_commands_the_terminal_does_not() {
        check(b"a\x1b]0;title\x07b", b"ab");
        check(b"a\x1b]52;c;c2VjcmV0\x1b\\b", b"ab");
        check(b"a\x1b[2Jb\x1b[10;10Hc", b"abc");
        check(b"a\x1b[?1049hb", b"ab");
        check(b"a\x1bcb\x08\x07\x00", b"ab");
        check(b"a\x1bP$q\"p\x1b\\b", b"ab");
        check(b"\x1b[6n\x1b[c", b"");
    }

    #[test]
    fn the_one_byte_forms_of_escapes_do_not_either() {
        check(b"a\xc2\x9b6nb", b"ab");
        check(b"a\xc2\x9d52;c;c2VjcmV0\xc2\x9cb", b"ab");
        check(b"a\x9b6nb\x9d0;title\x9cc\x85", b"abc");
        check(b"\xc2\x9b1;31mred", b"\x1b[1;31mred");
        // Bytes of the same value inside letters are letters.
        check("Û œ € ᛛ 𛛛 Â« «".as_bytes(), "Û œ € ᛛ 𛛛 Â« «".as_bytes());
    }
}
