//! Patterns of model names, and names of environment variables.

use std::fmt;

use super::{Intersect, Pattern, wildcard};
use crate::value::InvalidValue;

/// A model name in which `*` matches any text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamePattern(String);

impl NamePattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let strange = text.chars().find(|c| c.is_control() || c.is_whitespace());
        match strange {
            _ if text.is_empty() => {
                Err(InvalidValue::new("a name pattern cannot be empty").with_help("`*` matches any name"))
            }
            Some(_) => Err(InvalidValue::new(format!("`{text}` contains a space")).with_help("names have no spaces")),
            None => Ok(Self(wildcard::simplify(text))),
        }
    }
}

impl Pattern for NamePattern {
    type Candidate = str;

    fn matches(&self, name: &str) -> bool {
        wildcard::matches(&self.0, name)
    }

    fn covers(&self, other: &Self) -> bool {
        wildcard::matches(&self.0, &other.0)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VariableName(String);

/// Variables that the agent must never see, or that the sandbox sets itself.
const NEVER_PASSED: [&str; 8] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "LITELLM_API_KEY",
    "LITELLM_MASTER_KEY",
];

/// Variables that have another meaning inside, each with a remedy.
const SET_BY_THE_SANDBOX: [(&str, &str); 3] = [
    ("PATH", "name directories under `path.prepend`, or use `toolchains: auto`"),
    ("HOME", "remove this line; the home directory inside is private"),
    ("USER", "remove this line; the user inside is `agent`"),
];

impl VariableName {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !first || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(InvalidValue::new(format!("`{text}` is not the name of a variable"))
                .with_help("name each variable; patterns are not supported, so that no secret is passed by accident"));
        }
        if NEVER_PASSED.contains(&text) || text.starts_with("VIV_") {
            return Err(InvalidValue::new(format!("`{text}` cannot be passed into a sandbox"))
                .with_help("the agent gets a session token for the gateway instead; remove this line"));
        }
        if let Some((_, help)) = SET_BY_THE_SANDBOX.iter().find(|(name, _)| *name == text) {
            let bad = InvalidValue::new(format!("`{text}` is set by the sandbox and cannot be replaced"));
            return Err(bad.with_help(*help));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Pattern for VariableName {
    type Candidate = str;

    fn matches(&self, name: &str) -> bool {
        self.0 == name
    }

    fn covers(&self, other: &Self) -> bool {
        self == other
    }
}

impl Intersect for VariableName {
    fn intersect(&self, other: &Self) -> Option<Self> {
        (self == other).then(|| self.clone())
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
