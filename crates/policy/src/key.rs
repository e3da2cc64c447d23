//! Every key a policy can set, by its dotted name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::suggest::closest;

macro_rules! keys {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A key of the policy file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum PolicyKey { $($(#[$doc])* $variant,)* }

        impl PolicyKey {
            /// All of them, in the order of the file.
            pub const ALL: &[PolicyKey] = &[$(PolicyKey::$variant,)*];

            /// Its dotted name.
            pub fn name(self) -> &'static str {
                match self { $(PolicyKey::$variant => $name,)* }
            }
        }
    };
}

keys! {
    /// How the workspace is shown.
    FsWorkspace = "fs.workspace";
    /// Host paths shown read-only.
    FsRead = "fs.read";
    /// Host paths shown writable.
    FsWrite = "fs.write";
    /// What in the workspace is hidden.
    FsDenyRead = "fs.deny_read";
    /// What in the workspace is never changed.
    FsDenyWrite = "fs.deny_write";
    /// Whether anything but the model gateway can be reached.
    NetEnabled = "net.enabled";
    /// What can be reached.
    NetAllowlist = "net.allowlist";
    /// What can never be reached.
    NetDenylist = "net.denylist";
    /// Where TLS is opened, so that each request is judged.
    NetIntercept = "net.intercept";
    /// Headers with credentials that the proxy sets.
    NetInject = "net.inject";
    /// Whether names are answered inside.
    NetDns = "net.dns";
    /// Processors.
    ProcCpus = "proc.cpus";
    /// Memory of all processes together.
    ProcMemory = "proc.memory";
    /// Processes and threads.
    ProcPids = "proc.pids";
    /// Wall time.
    ProcTimeout = "proc.timeout";
    /// Bytes of output kept.
    ProcOutput = "proc.output";
    /// Bytes written.
    ProcDisk = "proc.disk";
    /// Open files of a process.
    ProcNofile = "proc.nofile";
    /// How `proc.cpus` may be enforced at the weakest.
    DegradeCpus = "degrade.cpus";
    /// How `proc.memory` may be enforced at the weakest.
    DegradeMemory = "degrade.memory";
    /// How `proc.pids` may be enforced at the weakest.
    DegradePids = "degrade.pids";
    /// How `proc.disk` may be enforced at the weakest.
    DegradeDisk = "degrade.disk";
    /// Whether Landlock may be missing under the mounts.
    DegradeLandlock = "degrade.landlock";
    /// Variables passed from the host.
    EnvPass = "env.pass";
    /// Models that may be called.
    ModelsAllow = "models.allow";
    /// What a session may spend.
    ModelsBudgetUsd = "models.budget_usd";
    /// Model calls of a session.
    ModelsMaxRequests = "models.max_requests";
    /// Tool calls that pass.
    ToolsAllow = "tools.allow";
    /// Tool calls a person is asked about.
    ToolsAsk = "tools.ask";
    /// Tool calls that never pass.
    ToolsDeny = "tools.deny";
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a key of a policy{}", suggestion.map(|key| format!(", did you mean `{key}`?")).unwrap_or_default())]
pub struct UnknownKey {
    name: String,
    pub(crate) suggestion: Option<&'static str>,
}

impl FromStr for PolicyKey {
    type Err = UnknownKey;

    fn from_str(name: &str) -> Result<Self, UnknownKey> {
        Self::ALL.iter().copied().find(|key| key.name() == name).ok_or_else(|| UnknownKey {
            name: name.to_owned(),
            suggestion: closest(name, Self::ALL.iter().map(|key| key.name())),
        })
    }
}

impl Serialize for PolicyKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for PolicyKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
