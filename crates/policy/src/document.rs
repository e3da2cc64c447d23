//! What a policy file says, before anything is made of it.
//!
//! Every key is optional: whether an absent key means "the strictest" or "no opinion" depends on the
//! role the file plays, which is not known here. Values keep the text and the place they were written
//! with; their meaning is found in `compile`.

mod assign;
mod mode;
mod parse;
mod plain;
mod shape;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use mode::{DnsMode, EnforcementMeans, WorkspaceMode};

use crate::source::Spanned;

/// `sandbox.policy.yaml`, version 1.
///
/// An empty file is the strictest policy. Unknown and duplicate keys are errors.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "sandbox.policy.yaml", extend("$id" = "urn:viv:policy:1"))]
pub struct PolicyDocument {
    /// Version of the format; only `1` exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Version>")]
    pub(crate) version: Option<Spanned<String>>,
    /// Files: the workspace, and what of the host is shown beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fs: Option<Fs>,
    /// What can be reached over the network, beside the model gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) net: Option<Net>,
    /// What processes may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proc: Option<Proc>,
    /// Weaker means that are accepted, key by key, where a machine has nothing better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) degrade: Option<Degrade>,
    /// The environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<Env>,
    /// Models and money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) models: Option<Models>,
    /// The gate for tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Tools>,
}

/// A list of texts, each with its place.
pub(crate) type Texts = Spanned<Vec<Spanned<String>>>;

/// Files: the workspace, and what of the host is shown beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fs {
    /// How the workspace is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<Spanned<WorkspaceMode>>,
    /// Absolute host paths shown read-only, with everything below them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::AbsolutePath>>")]
    pub(crate) read: Option<Texts>,
    /// Absolute host paths shown writable, beside the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::AbsolutePath>>")]
    pub(crate) write: Option<Texts>,
    /// Globs, relative to the workspace, of what is hidden. `**/.env` matches at the top too; a matched directory is
    /// hidden whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::Glob>>")]
    pub(crate) deny_read: Option<Texts>,
    /// Globs, relative to the workspace, of what is never changed, whether it exists yet or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::Glob>>")]
    pub(crate) deny_write: Option<Texts>,
}

/// What can be reached over the network, beside the model gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Net {
    /// `false`: only the model gateway can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) enabled: Option<Spanned<bool>>,
    /// Hosts that can be reached. Without a port, 443 is meant; `:*` means every port. Methods before a host and a path
    /// after it let those requests through alone, where requests are seen: over plain HTTP, and where TLS is opened. `raw`
    /// before a host lets a tunnel carry anything, where else it carries TLS. An empty list is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::AllowedHost>>")]
    pub(crate) allowlist: Option<Texts>,
    /// Hosts and networks that are never reached, on top of the built-in ones. Without a port, every port is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::DeniedHost>>")]
    pub(crate) denylist: Option<Texts>,
    /// Hosts whose TLS is opened by the proxy, so that the methods and paths of each request are seen and judged, and
    /// nothing but HTTP goes through. Without a port, 443 is meant. The certificate is trusted in this sandbox alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::InterceptedHost>>")]
    pub(crate) intercept: Option<Texts>,
    /// Headers that the proxy sets on requests to a host, with a credential of the host's configuration that is never
    /// inside. The host's TLS must be opened, or plain HTTP spoken on the port. Without a port, 443 is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::InjectedHeader>>")]
    pub(crate) inject: Option<Texts>,
    /// `stub`: a server inside gives every name of `allowlist` one address that leads nowhere, for programs that look a
    /// name up before they speak to the proxy. It asks nobody, so no name leaves the host by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dns: Option<Spanned<DnsMode>>,
}

/// What processes may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Proc {
    /// Processors, in thousandths at the finest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Processors>")]
    pub(crate) cpus: Option<Spanned<String>>,
    /// Memory of all processes together; there is no swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Size>")]
    pub(crate) memory: Option<Spanned<String>>,
    /// Processes and threads alive at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Count>")]
    pub(crate) pids: Option<Spanned<String>>,
    /// Wall time of a command or a turn, before everything is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Duration>")]
    pub(crate) timeout: Option<Spanned<String>>,
    /// Bytes kept of each of stdout and stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Size>")]
    pub(crate) output: Option<Spanned<String>>,
    /// Bytes that can be written to the workspace layer and to `/tmp`. They lie in memory, and are counted in
    /// `memory` too where that is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Size>")]
    pub(crate) disk: Option<Spanned<String>>,
    /// Open files of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Count>")]
    pub(crate) nofile: Option<Spanned<String>>,
}

/// Weaker means that are accepted, key by key, where a machine has nothing better.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Degrade {
    /// The weakest means accepted for `proc.cpus`: `enforced` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<Spanned<EnforcementMeans>>,
    /// The weakest means accepted for `proc.memory`. `rlimit` limits the private memory of each process alone; what they
    /// share, and files in memory (memfd, tmpfs), are beside that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<Spanned<EnforcementMeans>>,
    /// The weakest means accepted for `proc.pids`. `rlimit` counts processes and threads by their user: before Linux
    /// 5.14, whatever else runs as that user counts too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pids: Option<Spanned<EnforcementMeans>>,
    /// `enforced`: `proc.disk` is kept on every machine, and nothing weaker can be accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disk: Option<Spanned<EnforcementMeans>>,
    /// `enforced`, or `none`: the mounts alone may guard the files, on a kernel without Landlock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) landlock: Option<Spanned<EnforcementMeans>>,
}

/// The environment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Env {
    /// Names of variables passed from the host. Model keys are refused: the agent never holds one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::VariableName>>")]
    pub(crate) pass: Option<Texts>,
}

/// Models and money.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Models {
    /// Models that may be called; `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::NamePattern>>")]
    pub(crate) allow: Option<Texts>,
    /// What a session may spend, in dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Dollars>")]
    pub(crate) budget_usd: Option<Spanned<String>>,
    /// Model calls of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Count>")]
    pub(crate) max_requests: Option<Spanned<String>>,
}

/// The gate for tool calls: `deny` wins over `ask`, `ask` over `allow`; what none of them names is denied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tools {
    /// Calls that pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::ToolPattern>>")]
    pub(crate) allow: Option<Texts>,
    /// Calls a person is asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::ToolPattern>>")]
    pub(crate) ask: Option<Texts>,
    /// Calls that never pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<shape::ToolPattern>>")]
    pub(crate) deny: Option<Texts>,
}
