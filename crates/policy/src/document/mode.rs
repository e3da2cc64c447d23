//! Enumerations of the policy file.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the workspace is mounted.
///
/// Ordered by the effect on the host. With `readonly` nothing changes. With `overlay` the host changes only when a
/// person applies the changes. With `bind` the host changes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceMode {
    /// No changes.
    Readonly,
    /// Changes go to a layer above the workspace. A person applies or discards them.
    Overlay,
    /// Changes are written to the host at once.
    Bind,
}

impl WorkspaceMode {
    /// Returns the name in the policy file.
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

/// Whether a DNS server runs inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DnsMode {
    /// No DNS.
    None,
    /// A server inside the sandbox answers every allowed name with one placeholder address and sends no queries.
    Stub,
}

impl DnsMode {
    /// Returns the name in the policy file.
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

/// Whether a model without a known price can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnpricedModels {
    /// Calls are refused.
    Deny,
    /// Calls are allowed. Requests and tokens are limited in place of dollars.
    Allow,
}

impl UnpricedModels {
    /// Returns the name in the policy file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

impl fmt::Display for UnpricedModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The weakest acceptable means to enforce a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementMeans {
    /// Full enforcement only: cgroups for limits, Landlock for files.
    Enforced,
    /// A limit for each process instead of all processes together.
    Rlimit,
    /// No enforcement.
    None,
}

impl EnforcementMeans {
    /// Returns the name in the policy file.
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
