//! The keys of a policy, by their dotted names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::suggestion::closest;

macro_rules! keys {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A key of the policy file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum PolicyKey { $($(#[$doc])* $variant,)* }

        impl PolicyKey {
            /// All keys, in the order of the file.
            pub const ALL: &[PolicyKey] = &[$(PolicyKey::$variant,)*];

            /// Returns the dotted name.
            pub fn name(self) -> &'static str {
                match self { $(PolicyKey::$variant => $name,)* }
            }
        }
    };
}

keys! {
    /// How the workspace is mounted.
    FsWorkspace = "fs.workspace";
    /// Host paths mounted read-only.
    FsRead = "fs.read";
    /// Host paths mounted writable.
    FsWrite = "fs.write";
    /// Hidden files of the workspace.
    FsDenyRead = "fs.deny_read";
    /// Files of the workspace that cannot be changed.
    FsDenyWrite = "fs.deny_write";
    /// Whether anything except the model gateway can be reachable.
    NetEnabled = "net.enabled";
    /// Hosts that can be reached.
    NetAllowlist = "net.allowlist";
    /// Hosts and networks that are always denied.
    NetDenylist = "net.denylist";
    /// Hosts whose TLS the proxy decrypts.
    NetIntercept = "net.intercept";
    /// Headers with credentials that the proxy adds.
    NetInject = "net.inject";
    /// Whether the package registries of the host's tools can be reached.
    NetPackages = "net.packages";
    /// Whether a DNS server runs inside the sandbox.
    NetDns = "net.dns";
    /// Number of CPUs.
    ProcCpus = "proc.cpus";
    /// Memory of all processes together.
    ProcMemory = "proc.memory";
    /// Number of processes and threads.
    ProcPids = "proc.pids";
    /// Wall-clock time.
    ProcTimeout = "proc.timeout";
    /// Bytes of output that are kept.
    ProcOutput = "proc.output";
    /// Bytes that can be written.
    ProcDisk = "proc.disk";
    /// Open files per process.
    ProcNofile = "proc.nofile";
    /// Memory of all socket buffers together.
    ProcSockets = "proc.sockets";
    /// Weakest acceptable means for `proc.cpus`.
    DegradeCpus = "degrade.cpus";
    /// Weakest acceptable means for `proc.memory`.
    DegradeMemory = "degrade.memory";
    /// Weakest acceptable means for `proc.pids`.
    DegradePids = "degrade.pids";
    /// Weakest acceptable means for `proc.disk`.
    DegradeDisk = "degrade.disk";
    /// Whether a kernel without Landlock is acceptable.
    DegradeLandlock = "degrade.landlock";
    /// Variables passed from the host.
    EnvPass = "env.pass";
    /// Variables with their values.
    EnvSet = "env.set";
    /// Directories that are searched first for programs.
    PathPrepend = "path.prepend";
    /// Toolchains of the host that are shown.
    Toolchains = "toolchains";
    /// Models that can be called.
    ModelsAllow = "models.allow";
    /// The most that a session can spend.
    ModelsBudgetUsd = "models.budget_usd";
    /// Maximum number of model calls.
    ModelsMaxRequests = "models.max_requests";
    /// Maximum number of tokens of calls to models without a known price.
    ModelsMaxTokens = "models.max_tokens";
    /// Whether a model without a known price can be called.
    ModelsUnpriced = "models.unpriced";
    /// Allowed tool calls.
    ToolsAllow = "tools.allow";
    /// Tool calls that need a person's approval.
    ToolsAsk = "tools.ask";
    /// Denied tool calls.
    ToolsDeny = "tools.deny";
}

impl PolicyKey {
    /// Returns whether the value of the key is a list.
    pub(crate) fn is_list(self) -> bool {
        matches!(
            self,
            Self::FsRead
                | Self::FsWrite
                | Self::FsDenyRead
                | Self::FsDenyWrite
                | Self::NetAllowlist
                | Self::NetDenylist
                | Self::NetIntercept
                | Self::NetInject
                | Self::EnvPass
                | Self::EnvSet
                | Self::PathPrepend
                | Self::Toolchains
                | Self::ModelsAllow
                | Self::ToolsAllow
                | Self::ToolsAsk
                | Self::ToolsDeny
        )
    }
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a policy key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy key `{name}`{}", suggestion.map(|key| format!(", did you mean `{key}`?")).unwrap_or_default())]
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
