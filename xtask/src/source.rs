//! Rust source with comments and literals blanked out.
//!
//! A rule that searches for `unsafe` must ignore comments and strings. Offsets and lines stay the same as in the original
//! text, so that a rule can go back and read a literal.
//!
//! Not here: a parser. The rules need only words and braces.

use std::ops::Range;

/// Returns `text` with comments and the content of literals replaced by blanks.
pub(crate) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut kept = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (inside, next) = match literal(bytes, at) {
            Some(found) => found,
            None => (at..at, at + 1),
        };
        for byte in &mut kept[inside] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = next;
    }
    String::from_utf8(kept).unwrap_or_default()
}

/// Returns the comments of `text`.
pub(crate) fn comments(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut comments, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let Some((inside, next)) = literal(bytes, at) else {
            at += 1;
            continue;
        };
        if bytes[at] == b'/' {
            comments.push(inside);
        }
        at = next;
    }
    comments
}

/// Returns the part to blank of the comment or literal that begins at `at`, and the offset behind it.
fn literal(bytes: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let rest = &bytes[at..];
    let end = bytes.len();
    if rest.starts_with(b"//") {
        let stop = rest.iter().position(|byte| *byte == b'\n').map_or(end, |length| at + length);
        return Some((at..stop, stop));
    }
    if rest.starts_with(b"/*") {
        let stop = block_comment_end(bytes, at);
        return Some((at..stop, stop));
    }
    if let Some(hashes) = raw_string(bytes, at) {
        let open = at + 2 + hashes;
        let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
        let length = bytes[open..].windows(close.len()).position(|window| window == close);
        let stop = length.map_or(end, |length| open + length);
        return Some((open..stop, (stop + close.len()).min(end)));
    }
    match rest[0] {
        b'"' => {
            let stop = quote_end(bytes, at + 1, b'"');
            Some((at + 1..stop, (stop + 1).min(end)))
        }
        b'\'' if is_character(rest) => {
            let stop = quote_end(bytes, at + 1, b'\'');
            Some((at + 1..stop, (stop + 1).min(end)))
        }
        _ => None,
    }
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut next) = (0_usize, at);
    while next < bytes.len() {
        match &bytes[next..bytes.len().min(next + 2)] {
            b"/*" => (depth, next) = (depth + 1, next + 2),
            b"*/" => (depth, next) = (depth - 1, next + 2),
            _ => next += 1,
        }
        if depth == 0 {
            break;
        }
    }
    next
}

/// Returns the number of hashes of the raw string at `at`; `None` when no raw string begins there.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|index| bytes[index]);
    let two_before = at.checked_sub(2).map(|index| bytes[index]);
    let prefixed = matches!(before, Some(b'b' | b'c')) && !two_before.is_some_and(is_word);
    if bytes[at] != b'r' || (before.is_some_and(is_word) && !prefixed) {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    (bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

/// Returns whether the quote opens a character literal. Otherwise it begins a lifetime.
fn is_character(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(first) => {
            let width = match first {
                0..=0x7f => 1,
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                _ => 4,
            };
            rest.get(1 + width) == Some(&b'\'')
        }
        None => false,
    }
}

fn quote_end(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the offsets of `word` in `code` as a whole word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let bytes = code.as_bytes();
        let free_before = at.checked_sub(1).is_none_or(|before| !is_word(bytes[before]));
        let ends_in_word = word.bytes().last().is_some_and(is_word);
        let free_after = bytes.get(at + word.len()).is_none_or(|after| !is_word(*after));
        free_before && (free_after || !ends_in_word)
    })
}

/// Returns the line of a byte, counted from 1.
pub(crate) fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Returns the block that opens at or after `at`, with its braces; `None` when a `;` comes first.
pub(crate) fn block(code: &str, at: usize) -> Option<Range<usize>> {
    let bytes = code.as_bytes();
    let mut nested = 0_usize;
    let open = (at..bytes.len()).find(|index| match bytes[*index] {
        b'(' | b'[' => {
            nested += 1;
            false
        }
        b')' | b']' => {
            nested = nested.saturating_sub(1);
            false
        }
        b'{' | b';' => nested == 0,
        _ => false,
    })?;
    if bytes[open] == b';' {
        return None;
    }
    let mut depth = 0_usize;
    for (index, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open..index + 1);
        }
    }
    Some(open..bytes.len())
}

/// Returns the blocks that are compiled only for tests.
pub(crate) fn test_blocks(code: &str) -> Vec<Range<usize>> {
    const MARK: &str = "#[cfg(test)]";
    code.match_indices(MARK).filter_map(|(at, _)| block(code, at + MARK.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = code(text);
        assert_eq!(found, expected);
        assert_eq!(found.len(), text.len());
    }

    #[test]
    fn comments_and_literals_are_blank() {
        check("a // unsafe\nb", "a          \nb");
        check("a /* x /* y */ z */ b", "a                   b");
        check(r#"let s = "un\"safe";"#, r#"let s = "        ";"#);
        check(r##"r#"a"b"# x"##, r##"r#"   "# x"##);
        check(r#"br"\" x"#, r#"br" " x"#);
    }

    #[test]
    fn lifetime_is_not_a_character() {
        check("&'a str; '\"'; '\\''; 'é'", "&'a str; ' '; '  '; '  '");
    }

    #[test]
    fn identifier_that_ends_in_r_does_not_open_a_raw_string() {
        check(r#"for"x"; r#type"#, r#"for" "; r#type"#);
    }

    #[test]
    fn only_whole_words_match() {
        assert_eq!(words("unsafe unsafe_code dbg!(x)", "unsafe").collect::<Vec<_>>(), [0]);
        assert_eq!(words("xdbg!(a) dbg!(b)", "dbg!").collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn block_ends_with_its_closing_brace() {
        let text = "fn f(a: [u8; 4]) { if a { } } fn g();";
        assert_eq!(&text[block(text, 0).unwrap()], "{ if a { } }");
        assert_eq!(block(text, 29), None);
    }
}
