//! The keys whose values are words.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the workspace is shown.
///
/// Ordered by what the agent can do to the host: `readonly` changes nothing, not even in its own view;
/// `overlay` changes its view, and the host only when a person applies it; `bind` changes the host at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceMode {
    /// No changes.
    Readonly,
    /// Changes land in a layer above it, and are applied or discarded by a person.
    Overlay,
    /// Changes land at once.
    Bind,
}

impl WorkspaceMode {
    /// As it stands in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Readonly => "readonly",
            Self::Overlay => "overlay",
            Self::Bind => "bind",
        }
    }
}

impl fmt::Display for WorkspaceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether names are answered inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DnsMode {
    /// There is nobody to ask.
    None,
    /// A server inside gives every listed name one address that leads nowhere, and asks nobody.
    Stub,
}

impl DnsMode {
    /// As it stands in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stub => "stub",
        }
    }
}

impl fmt::Display for DnsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The weakest means by which a key may be enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementMeans {
    /// The full means only: cgroups for limits, Landlock for Landlock.
    Enforced,
    /// A limit on each process instead of on all together.
    Rlimit,
    /// Nothing at all.
    None,
}

impl EnforcementMeans {
    /// As it stands in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Rlimit => "rlimit",
            Self::None => "none",
        }
    }
}

impl fmt::Display for EnforcementMeans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
