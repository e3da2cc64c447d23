//! Removal of the reminders that agents add around a prompt, such as the date or the working directory.
//!
//! Reminders are elements like `<system-reminder>…</system-reminder>` before or after the prompt. They change with every
//! version of an agent, so scripts match the prompt without them.

/// Returns `text` without leading and trailing reminders; empty if there is nothing else.
pub(super) fn strip_reminders(text: &str) -> &str {
    let mut rest = text.trim();
    while let Some(shorter) = strip_leading_element(rest).or_else(|| strip_trailing_element(rest)) {
        rest = shorter.trim();
    }
    rest
}

/// Returns the text after the element at the start of `text`, if there is one.
fn strip_leading_element(text: &str) -> Option<&str> {
    let name = element_name(text.strip_prefix('<')?)?;
    let (_, rest) = text.split_once(&format!("</{name}>"))?;
    Some(rest)
}

/// Returns the text before the element at the end of `text`, if there is one.
fn strip_trailing_element(text: &str) -> Option<&str> {
    let (before, closing) = text.strip_suffix('>')?.rsplit_once("</")?;
    let name = element_name(closing).filter(|name| *name == closing)?;
    let start = before.rfind(&format!("<{name}>"))?;
    Some(&before[..start])
}

/// Returns the element name at the start of `tag` if it has more than three characters.
///
/// Reminders have long names. Short names such as `<b>` are markup of the user.
fn element_name(tag: &str) -> Option<&str> {
    let end = tag.find(|letter: char| !(letter.is_ascii_alphanumeric() || "_-".contains(letter))).unwrap_or(tag.len());
    Some(&tag[..end]).filter(|name| name.len() > 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reminders_around_the_prompt_are_removed() {
        for (text, prompt) in [
            ("hello", "hello"),
            ("<system-reminder>\nbe good\n</system-reminder>\n\nhello", "hello"),
            ("<current_datetime>now</current_datetime>\n\nhello\n\n<reminder>a > b</reminder>", "hello"),
            ("<note-a>1</note-a><note-b kind=\"x\">2</note-b> do this ", "do this"),
            ("<b>bold</b> words", "<b>bold</b> words"),
            ("<environment>only this</environment>", ""),
            ("<unclosed> words", "<unclosed> words"),
            ("explain List<String>", "explain List<String>"),
            ("words </unopened>", "words </unopened>"),
            ("", ""),
        ] {
            assert_eq!(strip_reminders(text), prompt, "{text}");
        }
    }
}
