//! Tools and their arguments: `Read`, `Bash(git *)`, `mcp__files__*`.
//!
//! An argument pattern is a convenience for people, not a wall: the sandbox is the wall. It still errs to
//! the strict side: a command line is cut at every character a shell might begin another command with, one
//! cut piece suffices to be asked about or denied, and all pieces must be allowed.

use std::fmt;

use super::{Pattern, wildcard};
use crate::value::BadValue;

/// The tool whose argument is a command line.
pub(crate) const SHELL: &str = "Bash";

/// A tool call as it is judged.
#[derive(Debug, Clone)]
pub(crate) struct ToolCall<'a> {
    name: &'a str,
    pieces: Vec<&'a str>,
}

impl<'a> ToolCall<'a> {
    pub(crate) fn new(name: &'a str, argument: &'a str) -> Self {
        let mut pieces = vec![argument.trim()];
        if name == SHELL {
            let starts_a_command = |c: char| ";|&\n`(){}".contains(c);
            let cut = argument.split(starts_a_command).map(str::trim).filter(|piece| !piece.is_empty());
            pieces.extend(cut.filter(|piece| *piece != argument.trim()));
        }
        Self { name, pieces }
    }

    /// Whether the call as a whole, or any command in it, is meant by one of the patterns.
    pub(crate) fn hit_by(&self, pattern: &ToolPattern) -> bool {
        self.pieces.iter().any(|piece| pattern.matches_piece(self.name, piece))
    }

    /// The pieces that must each be allowed: every command of a line, or the whole argument.
    fn commands(&self) -> &[&'a str] {
        if self.pieces.len() > 1 { &self.pieces[1..] } else { &self.pieces }
    }

    /// The first pattern that allows the call, when every command in it is allowed by some pattern.
    pub(crate) fn allowed_by<'p, T>(&self, patterns: &'p [T], pattern: impl Fn(&T) -> &ToolPattern) -> Option<&'p T> {
        let allows = |piece: &&str| patterns.iter().find(|entry| pattern(entry).matches_piece(self.name, piece));
        let commands = self.commands();
        if commands.iter().all(|piece| allows(piece).is_some()) { commands.first().and_then(allows) } else { None }
    }
}

/// A tool by name, and perhaps by what its argument looks like.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ToolPattern {
    name: String,
    argument: Option<String>,
}

impl ToolPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| {
            BadValue::new(format!("`{text}` is not a tool pattern: {why}")).with_help("as in `Read` or `Bash(git *)`")
        };
        let (name, argument) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => {
                let argument = rest.strip_suffix(')').ok_or_else(|| bad("a `)` is missing at its end"))?;
                (name, Some(wildcard::simplify(argument.trim())))
            }
        };
        if name.is_empty() {
            return Err(bad("the tool has no name"));
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:/*".contains(&byte)) {
            return Err(bad("a tool name has letters, digits and `_-.:/` only"));
        }
        Ok(Self { name: wildcard::simplify(name), argument: argument.filter(|argument| argument != "*") })
    }

    fn matches_piece(&self, name: &str, piece: &str) -> bool {
        wildcard::matches(&self.name, name)
            && self.argument.as_deref().is_none_or(|argument| wildcard::matches(argument, piece))
    }
}

impl Pattern for ToolPattern {
    type Subject = (String, String);

    fn matches(&self, (name, argument): &(String, String)) -> bool {
        self.matches_piece(name, argument)
    }

    fn covers(&self, other: &Self) -> bool {
        wildcard::matches(&self.name, &other.name)
            && match (&self.argument, &other.argument) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(wide), Some(narrow)) => wildcard::matches(wide, narrow),
            }
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.argument {
            Some(argument) => write!(f, "({argument})"),
            None => Ok(()),
        }
    }
}
