//! Notes that agents put around what a person said: reminders, the date, where they are.
//!
//! They come as elements, `<system-reminder>…</system-reminder>`, before or after the words. A script is about
//! the words; which notes an agent adds changes with each of its versions.

/// `text` without the notes around it; all of it where nothing else is left.
pub(super) fn without(text: &str) -> &str {
    let mut rest = text.trim();
    while let Some(shorter) = after_first(rest).or_else(|| before_last(rest)) {
        rest = shorter.trim();
    }
    if rest.is_empty() { text } else { rest }
}

/// What follows the element that `text` begins with.
fn after_first(text: &str) -> Option<&str> {
    let name = name(text.strip_prefix('<')?)?;
    let (_, rest) = text.split_once(&format!("</{name}>"))?;
    Some(rest)
}

/// What comes before the element that `text` ends with.
fn before_last(text: &str) -> Option<&str> {
    let (before, closing) = text.strip_suffix('>')?.rsplit_once("</")?;
    let name = name(closing).filter(|name| *name == closing)?;
    let start = before.rfind(&format!("<{name}>"))?;
    Some(&before[..start])
}

/// The name at the beginning of a tag. A person's `<b>` is no note: those have long names.
fn name(tag: &str) -> Option<&str> {
    let end = tag.find(|letter: char| !(letter.is_ascii_alphanumeric() || "_-".contains(letter))).unwrap_or(tag.len());
    Some(&tag[..end]).filter(|name| name.len() > 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_words_are_left() {
        for (text, words) in [
            ("hello", "hello"),
            ("<system-reminder>\nbe good\n</system-reminder>\n\nhello", "hello"),
            ("<current_datetime>now</current_datetime>\n\nhello\n\n<reminder>a > b</reminder>", "hello"),
            ("<note-a>1</note-a><note-b kind=\"x\">2</note-b> do this ", "do this"),
            ("<b>bold</b> words", "<b>bold</b> words"),
            ("<environment>only this</environment>", "<environment>only this</environment>"),
            ("<unclosed> words", "<unclosed> words"),
            ("explain List<String>", "explain List<String>"),
            ("words </unopened>", "words </unopened>"),
            ("", ""),
        ] {
            assert_eq!(without(text), words, "{text}");
        }
    }
}
