//! A filter for the terminal UI of a sandboxed agent on its way to people's terminals.
//!
//! The UI draws the whole screen, so this filter passes more than [`EscapeFilter`](crate::EscapeFilter). It is a list of
//! what passes: text, drawing, the modes of keyboard, mouse and paste, the title as printable text, and queries whose
//! answers the sandbox cannot choose. All else is removed, such as the clipboard (unless allowed), reports of title or
//! window, answers that repeat text, the printer, files and images, and every string of an unknown kind.
//!
//! Queries are kept apart, because only one terminal may answer them.

/// The longest sequence that passes. Longer sequences are removed.
const LONGEST: usize = 4096;
/// The longest clipboard content that passes, in its Base64 form.
const LONGEST_CLIPBOARD: usize = 1 << 20;
/// The longest title that passes, in bytes.
const LONGEST_TITLE: usize = 256;

/// Private modes that pass: cursor keys, origin, wrap, cursor, keypad, mouse, focus, alternate screen, paste, synchronized
/// output, grapheme clusters, colour scheme reports and in-band resize.
const MODES: [u16; 26] = [
    1, 6, 7, 12, 25, 45, 47, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047, 1048, 1049, 2004, 2026,
    2027, 2031, 2048, 9,
];

/// Filters the output of one terminal UI.
#[derive(Debug, Default)]
pub struct TerminalFilter {
    state: State,
    sequence: Vec<u8>,
    /// Whether the pending sequence is too long, and is removed at its end.
    overlong: bool,
    clipboard: bool,
    /// Missing bytes of a UTF-8 character.
    missing: u8,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After the first byte of U+0080 to U+00BF.
    Latin,
    Escape,
    /// After ESC and an intermediate byte.
    Intermediate,
    Control,
    /// Inside an OSC string.
    Osc,
    /// After ESC inside an OSC string.
    OscEscape,
    /// Inside a string that is always removed.
    Removed,
    RemovedEscape,
}

/// The part of an output that may be shown.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FilteredOutput {
    /// Without queries, for every viewer.
    pub drawing: Vec<u8>,
    /// With queries, for the one terminal that answers.
    pub with_queries: Vec<u8>,
}

impl FilteredOutput {
    fn both(&mut self, bytes: &[u8]) {
        self.drawing.extend_from_slice(bytes);
        self.with_queries.extend_from_slice(bytes);
    }
}

/// The treatment of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Draws,
    Asks,
    Removed,
}

impl TerminalFilter {
    /// Returns a filter that passes writes to the clipboard (OSC 52) if `clipboard` is true. Reading the clipboard never
    /// passes.
    pub fn new(clipboard: bool) -> Self {
        Self { clipboard, ..Self::default() }
    }

    /// Returns the part of `bytes` that may be shown. A sequence may be split between two calls.
    pub fn pass(&mut self, bytes: &[u8]) -> FilteredOutput {
        let mut shown = FilteredOutput::default();
        for byte in bytes {
            self.byte(*byte, &mut shown);
        }
        shown
    }

    #[expect(clippy::match_same_arms, reason = "one row for each state")]
    fn byte(&mut self, byte: u8, shown: &mut FilteredOutput) {
        self.state = match (self.state, byte) {
            // CAN and SUB abort a sequence; terminals differ in what else they do.
            (State::Escape | State::Intermediate | State::Control, 0x18 | 0x1a) => State::Text,
            (State::Osc | State::OscEscape | State::Removed | State::RemovedEscape, 0x18 | 0x1a) => State::Text,
            (State::Text | State::Latin | State::Escape | State::Intermediate | State::Control, 0x1b) => self.begin(),
            (State::Latin, 0x80..=0x9f) => self.c1(byte),
            (State::Latin, 0xa0..=0xbf) => {
                shown.both(&[0xc2, byte]);
                State::Text
            }
            (State::Text | State::Latin, _) => self.text(byte, shown),
            (State::Escape, 0x20..=0x2f) => self.collect(byte, State::Intermediate),
            (State::Escape, b'@'..=b'_') if is_introducer(byte) => self.c1(byte + 0x40),
            (State::Escape | State::Intermediate, 0x30..=0x7e) => self.end_escape(byte, shown),
            (State::Control, 0x20..=0x3f) => self.collect(byte, State::Control),
            (State::Control, 0x40..=0x7e) => self.end_control(byte, shown),
            (State::Osc, 0x07 | 0x9c) if byte == 0x07 || self.missing == 0 => self.end_osc(shown),
            (State::OscEscape, b'\\') => self.end_osc(shown),
            (State::Osc, 0x1b) => State::OscEscape,
            (State::Osc, _) => self.collect_text(byte),
            // ESC inside a string ends it without effect and begins the next sequence.
            (State::OscEscape | State::RemovedEscape, _) => {
                self.state = self.begin();
                if byte == b'\\' {
                    self.state = State::Text;
                    return;
                }
                return self.byte(byte, shown);
            }
            (State::Removed, 0x07 | 0x9c) => State::Text,
            (State::Removed, 0x1b) => State::RemovedEscape,
            (State::Removed, _) => State::Removed,
            // A control byte inside a sequence: terminals execute it, so the sequence is not what it seems.
            (State::Escape | State::Intermediate | State::Control, _) => State::Text,
        };
    }

    fn begin(&mut self) -> State {
        self.sequence.clear();
        self.overlong = false;
        self.missing = 0;
        State::Escape
    }

    fn collect(&mut self, byte: u8, next: State) -> State {
        let longest = if self.clipboard { LONGEST_CLIPBOARD } else { LONGEST };
        self.overlong |= self.sequence.len() >= longest;
        if !self.overlong {
            self.sequence.push(byte);
        }
        next
    }

    /// Collects a byte of an OSC string, and follows UTF-8, in which 0x9c may be part of a character.
    fn collect_text(&mut self, byte: u8) -> State {
        self.missing = match byte {
            0x80..=0xbf => self.missing.saturating_sub(1),
            0xc2..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => 0,
        };
        self.collect(byte, State::Osc)
    }

    fn text(&mut self, byte: u8, shown: &mut FilteredOutput) -> State {
        if self.missing > 0 && (0x80..=0xbf).contains(&byte) {
            self.missing -= 1;
            shown.both(&[byte]);
            return State::Text;
        }
        self.missing = match byte {
            0xc3..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => 0,
        };
        match byte {
            0xc2 => return State::Latin,
            0x80..=0x9f => return self.c1(byte),
            // ENQ makes a terminal send its answerback text.
            0x07..=0x0f | 0x20..=0x7e | 0xa0.. => shown.both(&[byte]),
            _ => {}
        }
        State::Text
    }

    fn c1(&mut self, control: u8) -> State {
        self.begin();
        match control {
            0x9b => State::Control,
            0x9d => State::Osc,
            0x90 | 0x98 | 0x9e | 0x9f => State::Removed,
            _ => State::Text,
        }
    }

    fn end_escape(&mut self, last: u8, shown: &mut FilteredOutput) -> State {
        let sequence = std::mem::take(&mut self.sequence);
        let draws = match sequence.as_slice() {
            // Save and restore the cursor, keypad modes, index, next line, tab stop, reverse index, full reset.
            [] => b"78=>DEHMc".contains(&last),
            [b'(' | b')' | b'*' | b'+'] => b"0AB".contains(&last),
            _ => false,
        };
        if draws && !self.overlong {
            shown.both(&[&[0x1b], sequence.as_slice(), &[last]].concat());
        }
        State::Text
    }

    fn end_control(&mut self, last: u8, shown: &mut FilteredOutput) -> State {
        let sequence = std::mem::take(&mut self.sequence);
        let verdict = if self.overlong { Verdict::Removed } else { judge_control(&sequence, last) };
        let whole = [b"\x1b[".as_slice(), &sequence, &[last]].concat();
        show(shown, verdict, &whole);
        State::Text
    }

    fn end_osc(&mut self, shown: &mut FilteredOutput) -> State {
        let string = std::mem::take(&mut self.sequence);
        let text = String::from_utf8_lossy(&string);
        let (command, rest) = text.split_once(';').unwrap_or((&text, ""));
        let verdict = match command {
            _ if self.overlong => Verdict::Removed,
            "0" | "2" => {
                let title = crate::PrintableText::clean_line(rest);
                let title = title.as_str().chars().filter(|c| !c.is_control()).take(LONGEST_TITLE);
                let title: String = title.collect();
                shown.both(format!("\x1b]{command};{title}\x07").as_bytes());
                return State::Text;
            }
            // Colours of text, background and cursor: to ask, or to set to a colour.
            "10" | "11" | "12" if rest == "?" => Verdict::Asks,
            "4" if is_palette_query(rest) => Verdict::Asks,
            "10" | "11" | "12" if is_colour(rest) => Verdict::Draws,
            "110" | "111" | "112" if rest.is_empty() => Verdict::Draws,
            "52" if self.clipboard && is_clipboard_write(rest) => Verdict::Draws,
            _ => Verdict::Removed,
        };
        show(shown, verdict, format!("\x1b]{text}\x07").as_bytes());
        State::Text
    }
}

fn show(shown: &mut FilteredOutput, verdict: Verdict, bytes: &[u8]) {
    match verdict {
        Verdict::Draws => shown.both(bytes),
        Verdict::Asks => shown.with_queries.extend_from_slice(bytes),
        Verdict::Removed => {}
    }
}

fn is_introducer(byte: u8) -> bool {
    matches!(byte, b'[' | b']' | b'P' | b'X' | b'^' | b'_')
}

#[expect(clippy::match_same_arms, reason = "one row for each family of sequences")]
fn judge_control(sequence: &[u8], last: u8) -> Verdict {
    let (mark, rest) = match sequence {
        [mark @ b'<'..=b'?', rest @ ..] => (Some(*mark), rest),
        rest => (None, rest),
    };
    let plain = rest.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
    let draws = |yes: bool| if yes { Verdict::Draws } else { Verdict::Removed };
    let asks = |yes: bool| if yes { Verdict::Asks } else { Verdict::Removed };
    match (mark, last) {
        (None, b'@'..=b'H' | b'J'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`' | b'a' | b'b' | b'd'..=b'g') => {
            draws(plain)
        }
        (None, b'm' | b'r' | b's' | b'u') => draws(plain),
        // Insert mode and newline mode.
        (None, b'h' | b'l') => draws(rest == b"4" || rest == b"20"),
        // Shape of the cursor, and soft reset.
        (None, b'q') => draws(rest.last() == Some(&b' ') && is_plain(&rest[..rest.len() - 1])),
        (None, b'p') => draws(rest == b"!"),
        // Status, position, device attributes, sizes in pixels.
        (None, b'n') => asks(rest == b"5" || rest == b"6"),
        (None, b'c') => asks(rest.is_empty() || rest == b"0"),
        (None, b't') => asks(matches!(rest, b"14" | b"16" | b"18")),
        (Some(b'?'), b'h' | b'l' | b's' | b'r') => draws(plain && are_known_modes(rest)),
        (Some(b'?'), b'J' | b'K') => draws(plain),
        (Some(b'?'), b'n') => asks(rest == b"6" || rest == b"996"),
        (Some(b'?'), b'u') => asks(rest.is_empty()),
        (Some(b'?'), b'p') => asks(rest.last() == Some(&b'$') && is_plain(&rest[..rest.len() - 1])),
        // Keyboard protocols.
        (Some(b'>' | b'<' | b'='), b'u') => draws(plain),
        (Some(b'>'), b'm') => draws(plain && rest.first() == Some(&b'4')),
        (Some(b'>'), b'q' | b'c') => asks(rest.is_empty() || rest == b"0"),
        _ => Verdict::Removed,
    }
}

fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_digit)
}

fn are_known_modes(rest: &[u8]) -> bool {
    let text = String::from_utf8_lossy(rest);
    text.split(';').all(|mode| mode.parse().is_ok_and(|mode: u16| MODES.contains(&mode)))
}

fn is_palette_query(rest: &str) -> bool {
    let parts: Vec<&str> = rest.split(';').collect();
    parts.len().is_multiple_of(2) && parts.chunks(2).all(|pair| is_plain(pair[0].as_bytes()) && pair[1] == "?")
}

fn is_colour(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit() || c == '/');
    text.strip_prefix('#').is_some_and(digits) || text.strip_prefix("rgb:").is_some_and(digits)
}

/// Returns whether an OSC 52 string writes. `?` reads, which would hand the clipboard to the sandbox.
fn is_clipboard_write(rest: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    rest.split_once(';').is_some_and(|(targets, content)| {
        targets.chars().all(|c| c.is_ascii_alphanumeric()) && content.chars().all(allowed)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawing(bytes: &[u8]) -> String {
        String::from_utf8_lossy(&TerminalFilter::new(false).pass(bytes).drawing).into_owned()
    }

    #[test]
    fn drawing_and_modes_of_agents_pass() {
        for text in [
            "\x1b[?1049h",
            "\x1b[?1000;1002;1006h",
            "\x1b[?2004h",
            "\x1b[38;2;1;2;3mx\x1b[0m",
            "\x1b[>5u",
            "\x1b[<u",
            "\x1b[=1;1u",
            "\x1b[>4;2m",
            "\x1b[2J\x1b[H",
            "\x1b[3 q",
            "\x1b]0;title\x07",
            "\x1b[?25l",
            "\x1b7\x1b8",
            "│ é 漢 🦀",
            "\x1b]112\x07",
        ] {
            assert_eq!(drawing(text.as_bytes()), text);
        }
    }

    #[test]
    fn sequences_that_reach_beyond_the_screen_are_removed() {
        for text in [
            "\x1b]52;c;cm0gLXJm\x07",
            "\x1b]52;c;?\x07",
            "\x1b[21t",
            "\x1b[20t",
            "\x1b[8;1;1t",
            "\x1b[22;0t",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1b_Gi=1;AAAA\x1b\\",
            "\x1b]1337;File=:AAAA\x07",
            "\x1b[5i",
            "\x05",
            "\x1b]7501;?\x07",
            "\u{9d}52;c;AA\x07",
            "\x1b[?1337h",
            "\x1b]50;?\x07",
            "\x1b]8;;file:///etc/passwd\x1b\\",
            "\x1b]10;rgb:0/0/0;?\x07",
            "\x1b#8",
            "\x1b]4;1;red\x07",
        ] {
            let shown = TerminalFilter::new(false).pass(text.as_bytes());
            assert_eq!((drawing(text.as_bytes()).as_str(), shown.with_queries.len()), ("", 0), "{text:?}");
        }
    }

    #[test]
    fn queries_go_only_to_the_terminal_that_answers() {
        for text in [
            "\x1b[c",
            "\x1b[6n",
            "\x1b[?u",
            "\x1b]11;?\x07",
            "\x1b[?2026$p",
            "\x1b[>0q",
            "\x1b[16t",
            "\x1b]4;0;?;1;?\x07",
        ] {
            let shown = TerminalFilter::new(false).pass(text.as_bytes());
            assert_eq!((shown.drawing.len(), String::from_utf8_lossy(&shown.with_queries).as_ref()), (0, text));
        }
    }

    #[test]
    fn clipboard_is_written_only_where_it_is_allowed_and_never_read() {
        let write = b"\x1b]52;c;aGk=\x07";
        assert_eq!(TerminalFilter::new(true).pass(write).drawing, write);
        assert_eq!(TerminalFilter::new(true).pass(b"\x1b]52;c;?\x07"), FilteredOutput::default());
        assert_eq!(TerminalFilter::new(false).pass(write), FilteredOutput::default());
    }

    #[test]
    fn title_is_printable_text_of_bounded_length() {
        let long = format!("\x1b]2;{}\x07", "x".repeat(1000));
        assert_eq!(drawing(long.as_bytes()).len(), LONGEST_TITLE + 5);
        assert!(!drawing("\x1b]0;a\u{202e}b\x07".as_bytes()).contains('\u{202e}'));
    }

    #[test]
    fn text_after_an_unfinished_string_does_not_pass_as_part_of_it() {
        assert_eq!(drawing(b"\x1b]52;c;AA\x1b[31mred"), "\x1b[31mred");
        assert_eq!(drawing(b"\x1bPabc\x1b\\ok"), "ok");
    }

    proptest! {
        #[test]
        fn split_input_gives_the_same_output(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
            let whole = TerminalFilter::new(true).pass(&bytes);
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            let mut filter = TerminalFilter::new(true);
            let (mut joined, rest) = (filter.pass(first), filter.pass(second));
            joined.drawing.extend(rest.drawing);
            joined.with_queries.extend(rest.with_queries);
            prop_assert_eq!(joined, whole);
        }

        #[test]
        fn filtered_output_passes_a_second_filter_unchanged(text in "[\x1b\\[\\]?;0-9a-zA-Z>$\x07\\\\ é]{0,60}") {
            let once = TerminalFilter::new(true).pass(text.as_bytes()).drawing;
            prop_assert_eq!(&TerminalFilter::new(true).pass(&once).drawing, &once);
        }
    }
}
