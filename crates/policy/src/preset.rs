//! The policies that come with the program. They are files like any other, so that every rule has a line.

use std::fmt;
use std::str::FromStr;

use crate::rule::RuleRef;
use crate::source::PolicySource;
use crate::suggest::closest;

/// A policy that can be used by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preset {
    /// No network, small limits, every command is asked about.
    Strict,
    /// For daily work: no network but the model gateway, changes are reviewed.
    Balanced,
    /// For work that needs the network: any public host over HTTP and HTTPS.
    Open,
}

impl Preset {
    /// All of them, strictest first.
    pub const ALL: [Self; 3] = [Self::Strict, Self::Balanced, Self::Open];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Balanced => "balanced",
            Self::Open => "open",
        }
    }

    /// What it is for, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Strict => "no network, small limits, every command and change is asked about",
            Self::Balanced => "daily work: no network but the model gateway, changes are reviewed",
            Self::Open => "any public host over HTTP and HTTPS, generous limits, changes are reviewed",
        }
    }

    /// Its text.
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

/// A name no preset has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset `{name}`{}", suggestion.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
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

/// The rules nothing passes.
pub(crate) fn ceiling() -> PolicySource {
    PolicySource::new(RuleRef::BUILT_IN, include_str!("../builtin/ceiling.yaml"))
}

/// What an absent key means in a base.
pub(crate) fn strictest() -> PolicySource {
    PolicySource::new("default", include_str!("../builtin/strictest.yaml"))
}
