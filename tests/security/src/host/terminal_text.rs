//! Attacks on the person at the terminal, by text that comes out of a sandbox.

use crate::attack::{Place, Verdict, Walls};
use crate::stage::{Stage, command};

/// Escape sequences that change a terminal: title, clipboard, answers as input, screen, printer, C1 forms.
const ESCAPES: [&[u8]; 12] = [
    b"\x1b]0;title\x07",
    b"\x1b]52;c;cm0gLXJm\x07",
    b"\x1b[6n",
    b"\x1b[c",
    b"\x1b[2J\x1b[H",
    b"\x1bP$q\"p\x1b\\",
    b"\x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\",
    b"\x1b[?1049h",
    b"\x1bc",
    b"\xc2\x9b6n",
    b"\xc2\x9d52;c;cm0gLXJm\xc2\x9c",
    b"\x9b6n\x9d0;title\x9c",
];

/// Returns the sequences in `bytes` that a terminal would execute: everything but text and colours.
fn commands(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let raw_control = std::str::from_utf8(bytes).is_err() && bytes.iter().any(|byte| (0x80..0xa0).contains(byte));
    raw_control || text.chars().any(|letter| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t'))
}

pub(super) fn escapes(stage: &Stage, place: Place) -> Verdict {
    let scene = stage.scene();
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let mut spec = command(&[]);
    spec.command = vec!["cat".into()];
    let mut obeyed = Vec::new();
    for escape in ESCAPES {
        let mut spec = spec.clone();
        spec.stdin = Some(escape.to_vec());
        let printed = stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut |_, _| {})).expect("run").stdout;
        let shown = match place {
            Place::Inside => base::EscapeFilter::default().pass(&printed),
            Place::Outside => printed,
        };
        if commands(&shown) {
            obeyed.push(String::from_utf8_lossy(&shown).escape_debug().to_string());
        }
    }
    stage.destroy(&*sandbox);
    let all = place == Place::Outside && obeyed.len() == ESCAPES.len();
    Verdict::when(all || (place == Place::Inside && !obeyed.is_empty()), format!("{obeyed:?}"))
}

/// Text that drives a terminal or deceives its reader: hidden beginnings, direction, invisible and concealed text.
const DECEIT: [&str; 8] = [
    "harmless\r\x1b[2Krm -rf /",
    "a\u{202e}b\u{202c}",
    "a\u{2066}b\u{2069}",
    "a\u{200b}b\u{feff}",
    "\x1b[8mconcealed",
    "\u{9b}8mconcealed",
    "a\u{e0041}b",
    "bell\x07 delete\x7f back\x08",
];

/// Returns whether a terminal would do anything but show the characters of `text` in their order.
fn deceives(text: &str) -> bool {
    let is_direction =
        |sign: char| matches!(sign, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    let is_invisible = |sign: char| matches!(sign, '\u{200b}'..='\u{200d}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    text.chars()
        .any(|sign| (sign.is_control() && sign != '\n' && sign != '\t') || is_direction(sign) || is_invisible(sign))
}

/// Every form in which `viv` prints foreign text. A part of a stream may split a sequence.
fn printed_forms(text: &str) -> Vec<String> {
    let mut stream = base::PrintableStream::default();
    let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let streamed = format!("{}{}", stream.push(&text[..middle]), stream.push(&text[middle..]));
    let forms = [
        base::PrintableText::exact_line,
        base::PrintableText::exact,
        base::PrintableText::clean_line,
        base::PrintableText::clean,
        base::PrintableText::composed,
        base::PrintableText::json,
    ];
    forms.iter().map(|form| form(text).into()).chain([streamed]).collect()
}

pub(super) fn deceit(stage: &Stage, place: Place) -> Verdict {
    let scene = stage.scene();
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let mut obeyed = Vec::new();
    let texts = DECEIT.iter().map(|text| text.as_bytes()).chain(ESCAPES);
    let mut tried = 0;
    for text in texts {
        tried += 1;
        let mut spec = command(&[]);
        spec.command = vec!["cat".into()];
        spec.stdin = Some(text.to_vec());
        let printed = stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut |_, _| {})).expect("run").stdout;
        let shown = match place {
            Place::Inside => printed_forms(&String::from_utf8_lossy(&printed)),
            // A byte that is not UTF-8 may be a C1 control.
            Place::Outside => vec![
                printed.iter().map(|byte| char::from(*byte)).collect(),
                String::from_utf8_lossy(&printed).into_owned(),
            ],
        };
        obeyed.extend(shown.iter().find(|shown| deceives(shown)).map(|shown| shown.escape_debug().to_string()));
    }
    stage.destroy(&*sandbox);
    let all = place == Place::Outside && obeyed.len() == tried;
    Verdict::when(all || (place == Place::Inside && !obeyed.is_empty()), format!("{obeyed:?}"))
}
