//! Text that is safe to print on a terminal.
//!
//! Agents, models, repositories and imported files can contain any characters. Some of them drive a terminal (escape
//! sequences, carriage return), hide text (zero-width characters) or reorder it (bidirectional overrides). A
//! [`PrintableText`] contains none of them. Every text that a person reads passes this type.
//!
//! *Exact* text shows such characters in escaped form, so that nothing is hidden: commands, paths, names, table cells.
//! *Clean* text leaves them out: messages and output of programs.

use std::fmt::{self, Write as _};

use crate::EscapeFilter;

/// Text without characters that drive a terminal, hide text or change the writing direction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrintableText(String);

impl PrintableText {
    /// Returns `text` on one line; unsafe characters, line ends and tabs are escaped.
    pub fn exact_line(text: &str) -> Self {
        Self(escape(text, |_| false))
    }

    /// Returns `text` with its line ends and tabs; other unsafe characters are escaped.
    pub fn exact(text: &str) -> Self {
        Self(escape(text, |sign| matches!(sign, '\n' | '\t')))
    }

    /// Returns `text` on one line; line ends and tabs become spaces, and unsafe characters are left out.
    pub fn clean_line(text: &str) -> Self {
        let lines = Self::clean(text).0;
        Self(lines.trim_end_matches('\n').replace(['\n', '\t'], " "))
    }

    /// Returns `text` with its line ends and tabs; escape sequences and other unsafe characters are left out. A carriage
    /// return ends the line.
    pub fn clean(text: &str) -> Self {
        let passed = EscapeFilter::for_text().pass(text.as_bytes());
        let text = String::from_utf8_lossy(&passed).replace("\r\n", "\n").replace('\r', "\n");
        Self(text.chars().filter(|sign| is_plain(*sign) || matches!(sign, '\n' | '\t')).collect())
    }

    /// Returns a text that the program put together: line ends, tabs and the styles of our own output pass, and other
    /// unsafe characters are escaped. Foreign parts must be exact or clean before they are put in.
    pub fn composed(text: &str) -> Self {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\x1b') {
            let (before, sequence) = rest.split_at(at);
            shown.push_str(&Self::exact(before).0);
            let style = STYLES.iter().find(|style| sequence.starts_with(**style)).copied().unwrap_or_default();
            shown.push_str(if style.is_empty() { "^[" } else { style });
            rest = &sequence[style.len().max(1)..];
        }
        shown.push_str(&Self::exact(rest).0);
        Self(shown)
    }

    /// Returns JSON text with the same meaning, in which unsafe characters are written as `\u` escapes.
    pub fn json(text: &str) -> Self {
        let mut shown = String::with_capacity(text.len());
        for sign in text.chars() {
            if is_plain(sign) || matches!(sign, '\n' | '\t') {
                shown.push(sign);
                continue;
            }
            for unit in sign.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
        Self(shown)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrintableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<PrintableText> for String {
    fn from(text: PrintableText) -> Self {
        text.0
    }
}

/// Text that arrives in pieces, made clean like [`PrintableText::clean`]. An escape sequence may be split between pieces.
#[derive(Debug)]
pub struct PrintableStream {
    filter: EscapeFilter,
    after_return: bool,
}

impl Default for PrintableStream {
    fn default() -> Self {
        Self { filter: EscapeFilter::for_text(), after_return: false }
    }
}

impl PrintableStream {
    /// Returns the printable part of the next piece.
    pub fn push(&mut self, piece: &str) -> PrintableText {
        let passed = self.filter.pass(piece.as_bytes());
        let mut shown = String::with_capacity(passed.len());
        for sign in String::from_utf8_lossy(&passed).chars() {
            match sign {
                '\n' if self.after_return => {}
                '\r' | '\n' => shown.push('\n'),
                sign if is_plain(sign) || sign == '\t' => shown.push(sign),
                _ => {}
            }
            self.after_return = sign == '\r';
        }
        PrintableText(shown)
    }
}

/// Styles that our own output uses: reset, bold, dim, italic and the basic colours.
const STYLES: &[&str] = &[
    "\x1b[0m",
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[3m",
    "\x1b[31m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[34m",
    "\x1b[35m",
    "\x1b[36m",
    "\x1b[1;31m",
    "\x1b[1;33m",
];

fn escape(text: &str, passes: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            sign if is_plain(sign) || passes(sign) => shown.push(sign),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            sign if sign.is_ascii_control() => {
                let letter = u8::try_from(u32::from(sign)).unwrap_or_default() ^ 0x40;
                shown.extend(['^', char::from(letter)]);
            }
            sign => {
                let _ = write!(shown, "<U+{:04X}>", u32::from(sign));
            }
        }
    }
    shown
}

/// Returns whether a character is displayed as itself: not a control, direction or invisible character.
pub fn is_plain(sign: char) -> bool {
    let invisible = matches!(
        sign,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !sign.is_control() && !invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str =
        "a\x1b]52;c;eA==\x07b\r\x1b[2Kc\u{202e}d\u{2066}e\u{200b}f\x1b[8mg\u{9b}6nh\x7fi\nj\tk\u{e0041}l\u{feff}";

    /// Returns whether a terminal shows every character of `text` as itself, in order.
    fn is_safe(text: &str) -> bool {
        text.chars().all(|sign| is_plain(sign) || matches!(sign, '\n' | '\t'))
    }

    #[test]
    fn exact_text_shows_everything() {
        let line = PrintableText::exact_line(HOSTILE);
        assert_eq!(
            line.as_str(),
            "a^[]52;c;eA==^Gb^M^[[2Kc<U+202E>d<U+2066>e<U+200B>f^[[8mg<U+009B>6nh^?i\\nj\\tk<U+E0041>l<U+FEFF>"
        );
        assert!(PrintableText::exact(HOSTILE).as_str().contains("i\nj\tk"));
        assert!(is_safe(PrintableText::exact(HOSTILE).as_str()));
    }

    #[test]
    fn clean_text_leaves_unsafe_characters_out() {
        assert_eq!(PrintableText::clean(HOSTILE).as_str(), "ab\ncdefghi\nj\tkl");
        assert_eq!(PrintableText::clean_line(HOSTILE).as_str(), "ab cdefghi j kl");
        assert_eq!(PrintableText::clean_line("one\r\n").as_str(), "one");
        assert_eq!(PrintableText::clean("é 漢 عربي עברית 👍🏽 ❤️").as_str(), "é 漢 عربي עברית 👍🏽 ❤️");
    }

    #[test]
    fn composed_text_keeps_our_styles_only() {
        let ours = "\x1b[1;31merror\x1b[0m: \x1b[2mx\x1b[0m\n";
        assert_eq!(PrintableText::composed(ours).as_str(), ours);
        let shown = PrintableText::composed(HOSTILE);
        assert!(is_safe(shown.as_str()), "{shown}");
        assert_eq!(PrintableText::composed("\x1b[8mx\x1b").as_str(), "^[[8mx^[");
    }

    #[test]
    fn json_means_the_same_and_is_safe() {
        let text = serde_json_text(HOSTILE);
        let shown = PrintableText::json(&text);
        assert!(is_safe(shown.as_str()));
        assert!(shown.as_str().contains("c\\u202ed") && shown.as_str().contains("k\\udb40\\udc41l"), "{shown}");
    }

    /// Returns a JSON string in which only the characters that JSON demands are escaped.
    fn serde_json_text(text: &str) -> String {
        let escaped = text.chars().map(|sign| match sign {
            '\x00'..='\x1f' => format!("\\u{:04x}", u32::from(sign)),
            sign => sign.to_string(),
        });
        format!("\"{}\"", escaped.collect::<String>())
    }

    #[test]
    fn a_stream_gives_the_same_text_for_every_split() {
        let whole = PrintableText::clean(HOSTILE);
        for at in (0..HOSTILE.len()).filter(|at| HOSTILE.is_char_boundary(*at)) {
            let mut stream = PrintableStream::default();
            let shown = format!("{}{}", stream.push(&HOSTILE[..at]), stream.push(&HOSTILE[at..]));
            assert_eq!(shown, whole.as_str(), "split at {at}");
        }
        let mut stream = PrintableStream::default();
        assert_eq!(format!("{}{}", stream.push("a\r"), stream.push("\nb")), "a\nb");
    }
}
