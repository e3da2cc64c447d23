//! The keys of `viv.toml`. Unknown keys are errors that name their line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secret::Secret;
use serde::{Deserialize, Deserializer, Serialize};

use super::limits::LimitsSection;
use crate::backend::BackendName;
use crate::notification::NotificationMode;

/// `viv.toml` in the data directory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// Account that pays for sessions; by default each session is its own account.
    pub(crate) account: Option<String>,
    /// Person whose sessions these are.
    pub(crate) user: Option<String>,
    /// Directory that every session sees at `/deps`, read-only.
    pub(crate) dependencies: Option<PathBuf>,
    /// Default model of the gateway.
    pub(crate) model: ModelSection,
    /// Upstreams by name.
    pub(crate) upstreams: BTreeMap<String, UpstreamSection>,
    /// Prices by model; they replace those of the built-in table.
    pub(crate) prices: BTreeMap<String, PriceSection>,
    /// Durability of ledger entries.
    pub(crate) ledger: LedgerSection,
    /// Budgets for all calls of the data directory, in addition to those of policies.
    pub(crate) budgets: BudgetsSection,
    /// The most that this process spends for its sessions.
    pub(crate) limits: LimitsSection,
    /// How long sessions and their agents live.
    pub(crate) sessions: SessionsSection,
    /// Recording of model calls.
    pub(crate) record: RecordSection,
    /// Differences to ignore in a replay.
    pub(crate) replay: ReplaySection,
    /// Installation and settings of agents.
    pub(crate) agents: AgentsSection,
    /// Sandbox backend.
    pub(crate) sandbox: SandboxSection,
    /// Egress proxy.
    pub(crate) egress: EgressSection,
    /// Deadlines for answers of a person.
    pub(crate) ask: AskSection,
    /// Credentials that `net.inject` of a policy can name.
    pub(crate) credentials: BTreeMap<String, CredentialSection>,
    /// Terminal UIs of agents.
    pub(crate) terminal: TerminalSection,
}

/// Terminal UIs of agents.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TerminalSection {
    /// Key that begins a command to `viv`, such as `ctrl-\\`; with `d` it detaches.
    pub(crate) detach_prefix: Option<String>,
    /// How the terminal is told that an agent waits; default: a message and the bell.
    pub(crate) notify: NotificationMode,
}

/// A credential that the egress proxy sets in headers and the sandbox never sees. Exactly one `key*` is set.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CredentialSection {
    /// The credential itself.
    #[serde(deserialize_with = "secret")]
    pub(crate) key: Option<Secret>,
    /// File that contains only the credential.
    pub(crate) key_file: Option<PathBuf>,
    /// Shell command that prints the credential.
    pub(crate) key_command: Option<String>,
    /// Environment variable with the credential.
    pub(crate) key_env: Option<String>,
    /// Variable in the sandbox with a placeholder. Default: the credential's name in capitals; empty: no variable.
    pub(crate) variable: Option<String>,
}

/// Deadlines for answers of a person. Unanswered requests are denied at the deadline.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AskSection {
    /// Deadline for a permission; default 15 minutes.
    #[serde(deserialize_with = "duration")]
    pub(crate) permission_timeout: Option<Duration>,
    /// Deadline for a question; default one hour.
    #[serde(deserialize_with = "duration")]
    pub(crate) question_timeout: Option<Duration>,
}

/// How long sessions and their agents live. Zero means without limit.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionsSection {
    /// Most time for running turns to end when the server stops.
    #[serde(deserialize_with = "duration")]
    pub(crate) drain: Option<Duration>,
    /// Time after which an agent without a turn is stopped.
    #[serde(deserialize_with = "duration")]
    pub(crate) idle_stop: Option<Duration>,
    /// Time from its creation until a session ends.
    #[serde(deserialize_with = "duration")]
    pub(crate) ttl: Option<Duration>,
}

/// Egress proxy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EgressSection {
    /// PEM file of additional root certificates for intercepted TLS.
    pub(crate) roots: Option<PathBuf>,
}

/// Sandbox settings. All keys except `backend` are for container engines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxSection {
    /// Sandbox backend; default: the first that works.
    pub(crate) backend: Option<BackendName>,
    /// Image of the containers.
    pub(crate) image: Option<String>,
    /// Command that runs once in each new container, before all others.
    pub(crate) entrypoint: Vec<String>,
    /// Name of the OCI runtime.
    pub(crate) runtime: Option<String>,
    /// Socket of the engine.
    pub(crate) socket: Option<PathBuf>,
    /// Whether a missing image is pulled.
    pub(crate) pull: bool,
}

/// Budgets in dollars, written as strings so that no digit is lost: `"20.00"`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BudgetsSection {
    /// All calls of a UTC day.
    #[serde(deserialize_with = "dollars")]
    pub(crate) day_usd: Option<u64>,
    /// All calls of an account.
    #[serde(deserialize_with = "dollars")]
    pub(crate) account_usd: Option<u64>,
    /// All calls of an account in a UTC day.
    #[serde(deserialize_with = "dollars")]
    pub(crate) account_day_usd: Option<u64>,
    /// Calls of a session in a minute.
    pub(crate) session_requests_per_minute: Option<u64>,
}

/// Recording of model calls.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RecordSection {
    /// Recorded part of the bodies.
    pub(crate) content: ContentWord,
    /// Regular expressions of secrets, in addition to the built-in ones.
    pub(crate) redact: Vec<String>,
    /// Whether recorded bodies are compressed.
    pub(crate) zstd: bool,
}

/// Recorded part of the bodies of model calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ContentWord {
    /// Every byte.
    #[default]
    Full,
    /// Everything but secrets.
    Redacted,
    /// Only length and hash.
    None,
}

/// Differences to ignore in a replay.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReplaySection {
    /// Regular expressions of text that differs between two runs, in addition to times and ids.
    pub(crate) ignore: Vec<String>,
}

/// Installation and settings of agents. A flattened map accepts every section; `Config::read` checks the names.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AgentsSection {
    /// Download cache of npm; default: npm's own.
    pub(crate) npm_cache: Option<PathBuf>,
    /// Settings of single agents, by name.
    #[serde(flatten)]
    pub(crate) by_name: BTreeMap<String, AgentSection>,
}

/// Settings of one agent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentSection {
    /// Upstream for sessions of this agent; default: `model.upstream`.
    pub(crate) upstream: Option<String>,
    /// Model for sessions of this agent; default: the agent's own choice.
    pub(crate) model: Option<String>,
}

/// Default model of sessions.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelSection {
    /// Script for the scripted model; default: the built-in script.
    pub(crate) script: Option<PathBuf>,
    /// Name of one of `upstreams`; default: the scripted model.
    pub(crate) upstream: Option<String>,
}

/// Durability of ledger entries.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LedgerSection {
    /// Failures that an entry survives.
    pub(crate) durability: DurabilityWord,
}

/// Durability of ledger entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DurabilityWord {
    /// Process crash and power loss.
    #[default]
    Full,
    /// Process crash and power loss, with fewer waits for the disk.
    Lease,
    /// Process crash.
    Normal,
}

/// One upstream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamSection {
    /// API of the upstream.
    pub(crate) kind: UpstreamKind,
    /// Base URL; default: the vendor's own.
    pub(crate) base_url: Option<String>,
    /// API key.
    #[serde(default, deserialize_with = "secret")]
    pub(crate) key: Option<Secret>,
    /// File that contains only the key.
    pub(crate) key_file: Option<PathBuf>,
    /// Shell command that prints the key.
    pub(crate) key_command: Option<String>,
    /// Environment variable with the key.
    pub(crate) key_env: Option<String>,
    /// Whether to use the key that `viv credentials` finds for this kind.
    #[serde(default)]
    pub(crate) key_found: bool,
    /// Model names: requested name = upstream's name.
    #[serde(default)]
    pub(crate) aliases: BTreeMap<String, String>,
    /// Model for every name that is not an alias.
    pub(crate) model: Option<String>,
    /// Recorded session for kind `replay`: id, name, or prefix of an id.
    pub(crate) session: Option<String>,
    /// Script for kind `scripted`.
    pub(crate) script: Option<PathBuf>,
    /// PEM file of additional root certificates.
    pub(crate) roots: Option<PathBuf>,
    /// Retries of a failed connection.
    pub(crate) retries: Option<u32>,
    /// Time limit for the connection.
    #[serde(default, deserialize_with = "duration")]
    pub(crate) connect_timeout: Option<Duration>,
    /// Time limit from the request to the first byte of the answer.
    #[serde(default, deserialize_with = "duration")]
    pub(crate) first_byte_timeout: Option<Duration>,
    /// Time limit between two pieces of the answer.
    #[serde(default, deserialize_with = "duration")]
    pub(crate) idle_timeout: Option<Duration>,
}

/// API of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UpstreamKind {
    /// The Anthropic API.
    Anthropic,
    /// The `OpenAI` API.
    Openai,
    /// The Gemini API.
    Gemini,
    /// A server with the chat completions API.
    OpenaiCompatible,
    /// A `LiteLLM` proxy.
    Litellm,
    /// The scripted model.
    Scripted,
    /// A recorded session.
    Replay,
}

/// Price of a model in dollars per million tokens.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceSection {
    /// Prompt tokens that were not read from a cache.
    pub(crate) input: f64,
    /// Output tokens.
    pub(crate) output: f64,
    /// Prompt tokens read from the cache; default `input`.
    pub(crate) cache_read: Option<f64>,
    /// Prompt tokens written to the cache; default `input`.
    pub(crate) cache_write: Option<f64>,
    /// Prompt tokens written to the one-hour cache; default `cache_write`.
    pub(crate) cache_write_1h: Option<f64>,
    /// Maximum output tokens of one answer.
    pub(crate) max_output_tokens: Option<u64>,
    /// Whether the model bills reasoning that its answer does not show; default true.
    pub(crate) reasoning: Option<bool>,
}

fn dollars<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(value)?;
    crate::money::parse_usd(&text).map(Some).map_err(serde::de::Error::custom)
}

fn secret<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Secret>, D::Error> {
    String::deserialize(value).map(|text| Some(Secret::new(text)))
}

pub(super) fn duration<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(value)?;
    crate::args::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
}
