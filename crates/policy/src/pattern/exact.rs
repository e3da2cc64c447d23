//! Entries that match only themselves: assigned variables, directories of `PATH`, and names of toolchains.

use std::fmt;

use super::{Intersect, Pattern, VariableName};
use crate::suggestion::closest;
use crate::value::InvalidValue;

/// The toolchains that a policy can name.
pub(crate) const TOOLCHAINS: [&str; 12] =
    ["asdf", "bun", "conda", "deno", "dotnet", "go", "java", "local", "mise", "node", "python", "rust"];
/// The entry that stands for all toolchains.
const AUTO: &str = "auto";

/// A text that matches only itself; as a toolchain, `auto` matches every name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExactText(String);

impl ExactText {
    /// Parses an entry of `env.set`, such as `CC=clang`.
    pub(crate) fn parse_assignment(text: &str) -> Result<Self, InvalidValue> {
        let Some((name, _)) = text.split_once('=') else {
            return Err(InvalidValue::new(format!("`{text}` is not `NAME=value`")).with_help("as in `CC=clang`"));
        };
        VariableName::parse(name)?;
        Ok(Self(text.to_owned()))
    }

    /// Parses an entry of `path.prepend`, an absolute path inside the sandbox.
    pub(crate) fn parse_directory(text: &str) -> Result<Self, InvalidValue> {
        let is_plain = text.starts_with('/') && !text.contains(':') && !text.split('/').any(|part| part == "..");
        if is_plain {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidValue::new(format!("`{text}` cannot be a directory of PATH"))
            .with_help("write an absolute path without `..` and `:`"))
    }

    /// Parses an entry of `toolchains`.
    pub(crate) fn parse_toolchain(text: &str) -> Result<Self, InvalidValue> {
        if text == AUTO || TOOLCHAINS.contains(&text) {
            return Ok(Self(text.to_owned()));
        }
        let help = match closest(text, TOOLCHAINS) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write `auto`, `none` or a list of: {}", TOOLCHAINS.join(", ")),
        };
        Err(InvalidValue::new(format!("unknown toolchain `{text}`")).with_help(help))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Pattern for ExactText {
    type Candidate = str;

    fn matches(&self, text: &str) -> bool {
        self.0 == text || self.0 == AUTO
    }

    fn covers(&self, other: &Self) -> bool {
        self == other || self.0 == AUTO
    }
}

impl Intersect for ExactText {
    fn intersect(&self, other: &Self) -> Option<Self> {
        if self.covers(other) { Some(other.clone()) } else { other.covers(self).then(|| self.clone()) }
    }
}

impl fmt::Display for ExactText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
