//! The content of a policy file, before it is compiled.
//!
//! Every key is optional. An absent key means "strictest" or "no opinion", depending on the layer; the document does
//! not know its layer. Values keep their text and position; `compile` parses them.

mod assignment;
mod mode;
mod parse;
mod value_schema;
mod word_or_list;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use word_or_list::WordOrList;

pub use mode::{DnsMode, EnforcementMeans, UnpricedModels, WorkspaceMode};

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
    #[schemars(with = "Option<value_schema::Version>")]
    pub(crate) version: Option<Spanned<String>>,
    /// A preset that this policy is based on: `strict`, `balanced` or `open`. Lists of this file are added to those of the
    /// preset; single values replace them. Only the policy that a person chose can have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::PresetName>")]
    pub(crate) extends: Option<Spanned<String>>,
    /// Files: the workspace, and host paths that are visible outside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fs: Option<FsSection>,
    /// Network access in addition to the model gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) net: Option<NetSection>,
    /// Resource limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proc: Option<ProcSection>,
    /// Weaker ways to enforce a limit that are acceptable on a machine without better ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) degrade: Option<DegradeSection>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<EnvSection>,
    /// The search path of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<PathSection>,
    /// Toolchains of the host that are shown read-only: `auto` for all that are found, `none`, or a list of names. Their
    /// caches get a private writable layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Toolchains>")]
    pub(crate) toolchains: Option<Spanned<WordOrList>>,
    /// Models and budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) models: Option<ModelsSection>,
    /// Rules for tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<ToolsSection>,
}

/// A list of texts with their positions.
pub(crate) type TextList = Spanned<Vec<Spanned<String>>>;

/// Files: the workspace, and host paths that are visible outside it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Fs")]
pub(crate) struct FsSection {
    /// How the workspace is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<Spanned<WorkspaceMode>>,
    /// Absolute host paths, mounted read-only with everything below them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::AbsolutePath>>")]
    pub(crate) read: Option<TextList>,
    /// Absolute host paths, mounted writable, outside the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::AbsolutePath>>")]
    pub(crate) write: Option<TextList>,
    /// Hidden files. `<secrets>` stands for private keys, env files and credentials that git does not track. Globs are
    /// relative to the workspace and also hide files that git tracks. `**/.env` also matches at the top. A directory that
    /// matches is hidden completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::Glob>>")]
    pub(crate) deny_read: Option<TextList>,
    /// Globs of files that cannot be created or changed, relative to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::Glob>>")]
    pub(crate) deny_write: Option<TextList>,
}

/// Network access in addition to the model gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Net")]
pub(crate) struct NetSection {
    /// `false`: only the model gateway is reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) enabled: Option<Spanned<bool>>,
    /// Hosts that can be reached. The default port is 443; `:*` means every port. Methods before a host and a path
    /// after it limit the entry to those requests; this works for plain HTTP and for hosts in `intercept`. `raw` before
    /// a host allows any protocol; other entries allow TLS only. An empty list allows no host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::AllowedHost>>")]
    pub(crate) allowlist: Option<TextList>,
    /// Hosts and networks that are always denied, in addition to the built-in ones. The default is every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::DeniedHost>>")]
    pub(crate) denylist: Option<TextList>,
    /// Hosts whose TLS the proxy decrypts, so that rules can match the method and path of each request. Only HTTP
    /// passes. The default port is 443. The proxy's certificate is trusted only inside this sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::InterceptedHost>>")]
    pub(crate) intercept: Option<TextList>,
    /// Headers that the proxy adds to requests to a host. The value contains a credential from the host's
    /// configuration, which the sandbox never sees. The host must be in `intercept`, or the port must use plain HTTP.
    /// The default port is 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::InjectedHeader>>")]
    pub(crate) inject: Option<TextList>,
    /// `true`: the package registries that the tools of this host are configured for (npm, pip, cargo, go, maven, apt) can
    /// be reached, with GET and HEAD only. In a base this also enables the network for them. It cannot be granted to a
    /// running session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) packages: Option<Spanned<bool>>,
    /// `stub`: a DNS server inside the sandbox answers every name of `allowlist` with one placeholder address, for
    /// programs that resolve names before they use the proxy. It sends no query to the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dns: Option<Spanned<DnsMode>>,
}

/// Resource limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Proc")]
pub(crate) struct ProcSection {
    /// Number of CPUs, with at most three decimals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Processors>")]
    pub(crate) cpus: Option<Spanned<String>>,
    /// Memory of all processes together, at least 8MiB. There is no swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Size>")]
    pub(crate) memory: Option<Spanned<String>>,
    /// Number of processes and threads at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Count>")]
    pub(crate) pids: Option<Spanned<String>>,
    /// Wall-clock time of a command or turn. All processes are killed when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Duration>")]
    pub(crate) timeout: Option<Spanned<String>>,
    /// Bytes of output that are kept, for stdout and stderr each. A command whose output is not kept but streamed is
    /// killed when it writes more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Size>")]
    pub(crate) output: Option<Spanned<String>>,
    /// Bytes that can be written to the workspace layer and to `/tmp`. They are held in memory and also count towards
    /// an enforced `memory` limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Size>")]
    pub(crate) disk: Option<Spanned<String>>,
    /// Open files per process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Count>")]
    pub(crate) nofile: Option<Spanned<String>>,
    /// Memory of the socket buffers of all processes together. A cgroup enforces it: of version 1 by its own counter, of
    /// version 2 as a part of `memory`. If `degrade.memory` accepts a limit for each process, sockets have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Size>")]
    pub(crate) sockets: Option<Spanned<String>>,
}

/// Weaker ways to enforce a limit that are acceptable on a machine without better ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Degrade")]
pub(crate) struct DegradeSection {
    /// The weakest acceptable means for `proc.cpus`: `enforced` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<Spanned<EnforcementMeans>>,
    /// The weakest acceptable means for `proc.memory` and `proc.sockets`. `rlimit` limits the private memory of each
    /// process; shared memory, files in memory (memfd, tmpfs) and socket buffers are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<Spanned<EnforcementMeans>>,
    /// The weakest acceptable means for `proc.pids`. `rlimit` counts the processes and threads of a user; before Linux
    /// 5.14 this includes other processes of the same user on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pids: Option<Spanned<EnforcementMeans>>,
    /// Always `enforced`: `proc.disk` works on every machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disk: Option<Spanned<EnforcementMeans>>,
    /// `enforced`, or `none`: on a kernel without Landlock, only the mounts protect files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) landlock: Option<Spanned<EnforcementMeans>>,
}

/// Environment variables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Env")]
pub(crate) struct EnvSection {
    /// Names of variables that are passed from the host. Model API keys are rejected: the agent never holds one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::VariableName>>")]
    pub(crate) pass: Option<TextList>,
    /// Variables with their values, such as `CC=clang`. They replace those of the host and of toolchains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::Assignment>>")]
    pub(crate) set: Option<TextList>,
}

/// The search path of programs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Path")]
pub(crate) struct PathSection {
    /// Directories inside the sandbox that are searched before all others, in alphabetical order. `fs.read` or a toolchain
    /// must show them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::AbsolutePath>>")]
    pub(crate) prepend: Option<TextList>,
}

/// Models and budget.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Models")]
pub(crate) struct ModelsSection {
    /// Names of models that can be called; `*` matches any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::NamePattern>>")]
    pub(crate) allow: Option<TextList>,
    /// The most that a session can spend, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Dollars>")]
    pub(crate) budget_usd: Option<Spanned<String>>,
    /// The maximum number of model calls of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Count>")]
    pub(crate) max_requests: Option<Spanned<String>>,
    /// The maximum number of tokens of a session's calls to models without a known price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<value_schema::Count>")]
    pub(crate) max_tokens: Option<Spanned<String>>,
    /// Whether a model without a known price can be called. Then `max_requests` and `max_tokens` limit it, not dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<UnpricedModels>")]
    pub(crate) unpriced: Option<Spanned<UnpricedModels>>,
}

/// Rules for tool calls. `deny` takes precedence over `ask`, and `ask` over `allow`. Other calls are denied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tools")]
pub(crate) struct ToolsSection {
    /// Calls that are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::ToolPattern>>")]
    pub(crate) allow: Option<TextList>,
    /// Calls that need a person's approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::ToolPattern>>")]
    pub(crate) ask: Option<TextList>,
    /// Calls that are always denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<value_schema::ToolPattern>>")]
    pub(crate) deny: Option<TextList>,
}
