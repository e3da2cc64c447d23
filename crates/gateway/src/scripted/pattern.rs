//! Text patterns of script conditions and the texts that they capture.
//!
//! Regular expressions are not supported, so that scripts stay easy to read.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::template::{self, TemplatePiece};

/// Captured texts by name, for use in the answer.
pub(super) type Captures = BTreeMap<String, String>;

/// A pattern that a text must match.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TextPattern {
    Equals(String),
    /// Captures `rest`.
    Prefix(String),
    /// Captures `before` and `after`.
    Contains(String),
    /// Literal text with `${name}` placeholders. Each captures as little as possible; a final one captures the rest.
    Like(String),
}

impl TextPattern {
    /// Returns the names that the pattern captures.
    pub(super) fn capture_names(&self) -> Vec<String> {
        match self {
            Self::Equals(_) => Vec::new(),
            Self::Prefix(_) => vec!["rest".to_owned()],
            Self::Contains(_) => vec!["before".to_owned(), "after".to_owned()],
            Self::Like(text) => template::placeholder_names(text).map(str::to_owned).collect(),
        }
    }

    /// Returns whether `text` matches, and adds the captured texts to `captures`.
    pub(super) fn matches(&self, text: &str, captures: &mut Captures) -> bool {
        match self {
            Self::Equals(wanted) => text == wanted,
            Self::Prefix(wanted) => {
                text.strip_prefix(&**wanted).map(|rest| captures.insert("rest".to_owned(), rest.to_owned())).is_some()
            }
            Self::Contains(wanted) => text.split_once(&**wanted).is_some_and(|(before, after)| {
                captures.insert("before".to_owned(), before.to_owned());
                captures.insert("after".to_owned(), after.to_owned());
                true
            }),
            Self::Like(pattern) => match_template(pattern, text, captures).is_some(),
        }
    }
}

/// Captures the placeholders of `pattern` from `text`; `None` if the text does not match.
fn match_template(pattern: &str, text: &str, captures: &mut Captures) -> Option<()> {
    let mut rest = text;
    let mut placeholder: Option<&str> = None;
    for piece in template::split(pattern) {
        match (piece, placeholder.take()) {
            (TemplatePiece::Name(name), _) => placeholder = Some(name),
            (TemplatePiece::Literal(literal), None) => rest = rest.strip_prefix(literal)?,
            (TemplatePiece::Literal(literal), Some(name)) => {
                let (value, after) = rest.split_once(literal)?;
                captures.insert(name.to_owned(), value.to_owned());
                rest = after;
            }
        }
    }
    match placeholder {
        Some(name) => {
            captures.insert(name.to_owned(), rest.to_owned());
            Some(())
        }
        None => rest.is_empty().then_some(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: TextPattern, text: &str, expected: Option<&[(&str, &str)]>) {
        let mut captures = Captures::new();
        let matched = pattern.matches(text, &mut captures);
        let expected_captures = expected.map(|pairs| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
        assert_eq!(matched.then_some(captures), expected_captures);
    }

    #[test]
    fn each_pattern_captures_the_text_around_its_literal() {
        check(TextPattern::Equals("hi".into()), "hi", Some(&[]));
        check(TextPattern::Equals("hi".into()), "hi!", None);
        check(TextPattern::Prefix("run ".into()), "run ls -l", Some(&[("rest", "ls -l")]));
        check(TextPattern::Prefix("run ".into()), "please run ls", None);
        check(
            TextPattern::Contains(" to ".into()),
            "move a to b to c",
            Some(&[("before", "move a"), ("after", "b to c")]),
        );
    }

    #[test]
    fn like_pattern_captures_its_placeholders_in_order() {
        let like = || TextPattern::Like("write ${path}: ${content}".into());
        check(like(), "write a.txt: one: two", Some(&[("path", "a.txt"), ("content", "one: two")]));
        check(like(), "write a.txt", None);
        check(TextPattern::Like("say ${text}!".into()), "say hi!", Some(&[("text", "hi")]));
        check(TextPattern::Like("say ${text}!".into()), "say hi! now", None);
    }
}
