//! The built-in policies. They are YAML files, so that each of their rules has a line.

use std::fmt;
use std::str::FromStr;

use crate::rule::RuleRef;
use crate::source::PolicySource;
use crate::suggestion::closest;

/// A built-in policy with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preset {
    /// No network, small limits, approval for every command.
    Strict,
    /// For daily work: network only to the model gateway, changes are reviewed.
    Balanced,
    /// For work that needs the network: any public host over HTTP and HTTPS.
    Open,
}

impl Preset {
    /// All presets, strictest first.
    pub const ALL: [Self; 3] = [Self::Strict, Self::Balanced, Self::Open];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Balanced => "balanced",
            Self::Open => "open",
        }
    }

    /// Returns a summary in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Strict => "no network, small limits, approval for every command and change",
            Self::Balanced => "daily work: network only to the model gateway, changes are reviewed",
            Self::Open => "any public host over HTTP and HTTPS, generous limits, changes are reviewed",
        }
    }

    /// Returns the YAML text.
    pub fn source(self) -> PolicySource {
        let text = match self {
            Self::Strict => include_str!("../builtin/strict.yaml"),
            Self::Balanced => include_str!("../builtin/balanced.yaml"),
            Self::Open => include_str!("../builtin/open.yaml"),
        };
        PolicySource::new(self.name(), text)
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no preset has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown preset `{name}`{}", suggestion.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
pub struct UnknownPreset {
    name: String,
    suggestion: Option<&'static str>,
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        Self::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| UnknownPreset {
            name: name.to_owned(),
            suggestion: closest(name, Self::ALL.map(Self::name)),
        })
    }
}

/// Returns the built-in rules of the ceiling.
pub(crate) fn ceiling() -> PolicySource {
    PolicySource::new(RuleRef::BUILT_IN, include_str!("../builtin/ceiling.yaml"))
}

/// Returns the values of absent keys in a base layer.
pub(crate) fn strictest() -> PolicySource {
    PolicySource::new(RuleRef::DEFAULT, include_str!("../builtin/strictest.yaml"))
}
