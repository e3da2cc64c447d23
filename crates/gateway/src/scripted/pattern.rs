//! Simple patterns on text, and what they capture. No regular expressions: a script is read by people.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::template::{self, Piece};

/// Texts by name, for the answer.
pub(super) type Captures = BTreeMap<String, String>;

/// What a text must look like.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pattern {
    Equals(String),
    /// Captures `rest`.
    Prefix(String),
    /// Captures `before` and `after`.
    Contains(String),
    /// Literal text with `${name}` holes, each as short as it can be; the last one takes the rest.
    Like(String),
}

impl Pattern {
    /// What it captures.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Equals(_) => Vec::new(),
            Self::Prefix(_) => vec!["rest".to_owned()],
            Self::Contains(_) => vec!["before".to_owned(), "after".to_owned()],
            Self::Like(text) => template::names(text).map(str::to_owned).collect(),
        }
    }

    /// Whether `text` fits; puts what it captured into `captures`.
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
            Self::Like(pattern) => fill(pattern, text, captures).is_some(),
        }
    }
}

/// Fills the holes of `pattern` from `text`, or nothing if it does not fit.
fn fill(pattern: &str, text: &str, captures: &mut Captures) -> Option<()> {
    let mut rest = text;
    let mut hole: Option<&str> = None;
    for piece in template::pieces(pattern) {
        match (piece, hole.take()) {
            (Piece::Name(name), _) => hole = Some(name),
            (Piece::Literal(literal), None) => rest = rest.strip_prefix(literal)?,
            (Piece::Literal(literal), Some(name)) => {
                let (held, after) = rest.split_once(literal)?;
                captures.insert(name.to_owned(), held.to_owned());
                rest = after;
            }
        }
    }
    match hole {
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
    fn check(pattern: Pattern, text: &str, expected: Option<&[(&str, &str)]>) {
        let mut captures = Captures::new();
        let matched = pattern.matches(text, &mut captures);
        let expected_captures = expected.map(|pairs| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
        assert_eq!(matched.then_some(captures), expected_captures);
    }

    #[test]
    fn each_pattern_captures_what_it_left_open() {
        check(Pattern::Equals("hi".into()), "hi", Some(&[]));
        check(Pattern::Equals("hi".into()), "hi!", None);
        check(Pattern::Prefix("run ".into()), "run ls -l", Some(&[("rest", "ls -l")]));
        check(Pattern::Prefix("run ".into()), "please run ls", None);
        check(Pattern::Contains(" to ".into()), "move a to b to c", Some(&[("before", "move a"), ("after", "b to c")]));
    }

    #[test]
    fn a_like_pattern_fills_its_holes_in_order() {
        let like = || Pattern::Like("write ${path}: ${content}".into());
        check(like(), "write a.txt: one: two", Some(&[("path", "a.txt"), ("content", "one: two")]));
        check(like(), "write a.txt", None);
        check(Pattern::Like("say ${what}!".into()), "say hi!", Some(&[("what", "hi")]));
        check(Pattern::Like("say ${what}!".into()), "say hi! now", None);
    }
}
