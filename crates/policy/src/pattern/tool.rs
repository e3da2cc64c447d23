//! Patterns of tool calls: `Read`, `Bash(git *)`, `mcp__files__*`.
//!
//! Argument patterns are a convenience; the sandbox is the security boundary. Matching is strict nevertheless: a
//! command line is split at every character that may start another command. One fragment is enough to ask or deny, and
//! all fragments must be allowed.

use std::fmt;

use super::{Pattern, wildcard};
use crate::value::InvalidValue;

/// The tool whose argument is a command line.
pub(crate) const SHELL: &str = "Bash";

/// A tool call, split into fragments.
#[derive(Debug, Clone)]
pub(crate) struct ToolCall<'a> {
    name: &'a str,
    fragments: Vec<&'a str>,
}

impl<'a> ToolCall<'a> {
    pub(crate) fn new(name: &'a str, argument: &'a str) -> Self {
        let mut fragments = vec![argument.trim()];
        if name == SHELL {
            let starts_a_command = |c: char| ";|&\n`(){}".contains(c);
            let cut = argument.split(starts_a_command).map(str::trim).filter(|piece| !piece.is_empty());
            fragments.extend(cut.filter(|piece| *piece != argument.trim()));
        }
        Self { name, fragments }
    }

    /// Returns whether `pattern` matches the whole call or any command in it.
    pub(crate) fn is_matched_by(&self, pattern: &ToolPattern) -> bool {
        self.fragments.iter().any(|piece| pattern.matches_fragment(self.name, piece))
    }

    /// Returns the fragments that must each be allowed: every command of a line, or the whole argument.
    fn commands(&self) -> &[&'a str] {
        if self.fragments.len() > 1 { &self.fragments[1..] } else { &self.fragments }
    }

    /// Returns the first pattern that allows the call, if every command in it is allowed by some pattern.
    pub(crate) fn allowed_by<'p, T>(&self, patterns: &'p [T], pattern: impl Fn(&T) -> &ToolPattern) -> Option<&'p T> {
        let allows = |piece: &&str| patterns.iter().find(|entry| pattern(entry).matches_fragment(self.name, piece));
        let commands = self.commands();
        if commands.iter().all(|piece| allows(piece).is_some()) { commands.first().and_then(allows) } else { None }
    }
}

/// The name of a tool, and optionally a pattern of its argument.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ToolPattern {
    name: String,
    argument: Option<String>,
}

impl ToolPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let bad = |why: &str| {
            InvalidValue::new(format!("`{text}` is not a tool pattern: {why}"))
                .with_help("as in `Read` or `Bash(git *)`")
        };
        let (name, argument) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => {
                let argument = rest.strip_suffix(')').ok_or_else(|| bad("the closing `)` is missing"))?;
                (name, Some(wildcard::simplify(argument.trim())))
            }
        };
        if name.is_empty() {
            return Err(bad("the tool has no name"));
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:/*".contains(&byte)) {
            return Err(bad("a tool name contains only letters, digits and `_-.:/`"));
        }
        Ok(Self { name: wildcard::simplify(name), argument: argument.filter(|argument| argument != "*") })
    }

    fn matches_fragment(&self, name: &str, piece: &str) -> bool {
        wildcard::matches(&self.name, name)
            && self.argument.as_deref().is_none_or(|argument| wildcard::matches(argument, piece))
    }
}

impl Pattern for ToolPattern {
    type Candidate = (String, String);

    fn matches(&self, (name, argument): &(String, String)) -> bool {
        self.matches_fragment(name, argument)
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
