//! The enforcement of each policy key in one sandbox: the field `keys` of `policy.effective`.
//!
//! A row that an earlier or later build wrote keeps its unknown fields, so that a journal reads the same everywhere.
//!
//! Not here: how a backend enforces a key (`sandbox`), or what a key means (`policy`).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The enforcement of each policy key, by the name of the key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyEnforcements(BTreeMap<String, KeyEnforcement>);

/// The enforcement of one policy key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyEnforcement {
    /// Whether the key is enforced: `enforced`, `weaker` or `absent`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "enforced"))]
    pub state: EnforcementState,
    /// The means of enforcement, or the reason why there is none.
    pub by: String,
    /// The value in force, for keys that have one: a number, the network access, or the limits of the host by key.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<EnforcedValue>,
    /// Number of hidden files and directories of the workspace; only for `fs.deny_read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>, minimum = 0))]
    pub hidden: Option<u64>,
    /// Files that the sandbox sees without their credentials, or not at all: git configurations for `fs.deny_read`, files of
    /// toolchains for `toolchains`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_credentials: Vec<String>,
    /// Directories of toolchains that are not shown, because the workspace contains them; only for `toolchains`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_workspace: Vec<String>,
    /// Hard-linked files that were replaced by private copies; only for `fs.workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_links: Option<CopiedLinks>,
    /// Fields of another build.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub other: Map<String, Value>,
}

/// Whether a policy key is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementState {
    /// Enforced in full.
    Enforced,
    /// Enforced by a weaker means, which the policy accepts by name.
    Weaker,
    /// Not enforced, which the policy accepts by name.
    Absent,
    /// A state of another build.
    #[serde(untagged)]
    Other(String),
}

/// The value of a policy key as it is enforced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EnforcedValue {
    /// A limit, in the unit of its key.
    Number(u64),
    /// The network access; only for `net`.
    Network(NetworkAccess),
    /// The directories that are shown, by the name of the toolchain; only for `toolchains`.
    Toolchains(BTreeMap<String, Vec<String>>),
    /// The host budget by its keys, as text; only for `limits`.
    HostBudget(BTreeMap<String, String>),
    /// A value of another build.
    Other(Value),
}

/// The network access of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkAccess {
    /// Whether any host except the model gateway can be reached.
    pub enabled: bool,
    /// Allowed hosts, as in the policy file.
    pub allowlist: Vec<String>,
    /// Hosts with intercepted TLS.
    pub intercept: Vec<String>,
}

/// Hard-linked files of a `bind` workspace that were replaced by private copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CopiedLinks {
    /// Number of files.
    #[cfg_attr(feature = "openapi", schema(value_type = i64, minimum = 0))]
    pub files: u64,
    /// The size of these files in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = i64, minimum = 0))]
    pub bytes: u64,
}

impl KeyEnforcements {
    /// Returns the enforcement of a key; `None` when the sandbox says nothing about the key.
    pub fn get(&self, key: &str) -> Option<&KeyEnforcement> {
        self.0.get(key)
    }

    /// Returns the enforcement of a key, to add details to it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut KeyEnforcement> {
        self.0.get_mut(key)
    }

    /// Sets the enforcement of a key.
    pub fn set(&mut self, key: impl Into<String>, enforcement: KeyEnforcement) {
        self.0.insert(key.into(), enforcement);
    }

    /// Returns each key with its enforcement, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &KeyEnforcement)> {
        self.0.iter().map(|(key, enforcement)| (key.as_str(), enforcement))
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether `key` is enforced in full.
    pub fn is_enforced(&self, key: &str) -> bool {
        self.get(key).is_some_and(|found| found.state == EnforcementState::Enforced)
    }
}

impl FromIterator<(String, KeyEnforcement)> for KeyEnforcements {
    fn from_iter<I: IntoIterator<Item = (String, KeyEnforcement)>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl KeyEnforcement {
    /// Returns the row of a key with state `state`, by the means `by`.
    pub fn new(state: EnforcementState, by: impl Into<String>) -> Self {
        Self {
            state,
            by: by.into(),
            value: None,
            hidden: None,
            without_credentials: Vec::new(),
            in_workspace: Vec::new(),
            copied_links: None,
            other: Map::new(),
        }
    }

    /// Returns the row of a key that `by` enforces in full.
    pub fn enforced(by: impl Into<String>) -> Self {
        Self::new(EnforcementState::Enforced, by)
    }

    /// Returns this row with the value in force.
    #[must_use]
    pub fn with_value(self, value: EnforcedValue) -> Self {
        Self { value: Some(value), ..self }
    }
}

impl fmt::Display for EnforcementState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enforced => "enforced",
            Self::Weaker => "weaker",
            Self::Absent => "absent",
            Self::Other(state) => state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_round_trip(text: &str) -> KeyEnforcements {
        let value: Value = serde_json::from_str(text).unwrap();
        let keys: KeyEnforcements = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&keys).unwrap(), value);
        keys
    }

    #[test]
    fn rows_of_this_build_are_typed() {
        let keys = check_round_trip(
            r#"{
                "proc.memory": {"state": "weaker", "by": "rlimit", "value": 4294967296},
                "net": {"state": "enforced", "by": "proxy", "value": {"enabled": true, "allowlist": ["a:443"], "intercept": []}},
                "limits": {"state": "enforced", "by": "the host process", "value": {"journal": "1MiB"}},
                "toolchains": {"state": "enforced", "by": "mounts", "value": {"rust": ["/home/you/.cargo"]}, "in_workspace": ["/p/.npm"]},
                "fs.deny_read": {"state": "enforced", "by": "whiteout layer", "hidden": 2, "without_credentials": [".git/config"]},
                "fs.workspace": {"state": "enforced", "by": "bind mount", "copied_links": {"files": 1, "bytes": 9}}
            }"#,
        );
        assert!(!keys.is_enforced("proc.memory") && keys.is_enforced("net"));
        assert_eq!(keys.get("proc.memory").unwrap().value, Some(EnforcedValue::Number(1 << 32)));
        assert!(matches!(keys.get("net").unwrap().value, Some(EnforcedValue::Network(_))));
        assert!(matches!(keys.get("limits").unwrap().value, Some(EnforcedValue::HostBudget(_))));
    }

    #[test]
    fn rows_of_another_build_are_kept() {
        let keys = check_round_trip(
            r#"{"net": {"state": "partial", "by": "x", "value": {"enabled": true, "ports": [1]}, "since": {"a": [null]}}}"#,
        );
        let net = keys.get("net").unwrap();
        assert_eq!(net.state, EnforcementState::Other("partial".to_owned()));
        assert!(matches!(net.value, Some(EnforcedValue::Other(_))));
        assert_eq!(net.other.len(), 1);
    }
}
