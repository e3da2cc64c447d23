//! `viv.toml`, key by key. Unknown keys are errors, with their line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secret::Secret;
use serde::{Deserialize, Deserializer, Serialize};

use crate::backend::BackendName;

/// `viv.toml` in the data directory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// The account that sessions are charged to; each session is its own when absent.
    pub(crate) account: Option<String>,
    /// The person whose sessions they are.
    pub(crate) user: Option<String>,
    /// A directory that every session sees at `/deps`, read-only.
    pub(crate) dependencies: Option<PathBuf>,
    /// The model behind the gateway.
    pub(crate) model: ModelSection,
    /// Where models are, by name.
    pub(crate) upstreams: BTreeMap<String, UpstreamSection>,
    /// What models cost, in place of the built-in table, by model.
    pub(crate) prices: BTreeMap<String, PriceSection>,
    /// What a call's entry in the ledger survives.
    pub(crate) ledger: LedgerSection,
    /// What all calls of the data directory must fit into, whatever their session may spend.
    pub(crate) budgets: BudgetsSection,
    /// What is kept of model calls.
    pub(crate) record: RecordSection,
    /// What is put aside when a recorded session is played again.
    pub(crate) replay: ReplaySection,
    /// Where agents come from.
    pub(crate) agents: AgentsSection,
    /// Where commands run.
    pub(crate) sandbox: SandboxSection,
    /// The way to everything that is not a model.
    pub(crate) egress: EgressSection,
    /// How long a person is waited for.
    pub(crate) ask: AskSection,
    /// What `net.inject` of a policy may name.
    pub(crate) credentials: BTreeMap<String, CredentialSection>,
}

/// A credential that the proxy sets in headers, and nobody inside sees. One of the four says where it is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CredentialSection {
    /// Written here.
    #[serde(deserialize_with = "secret")]
    pub(crate) key: Option<Secret>,
    /// A file with nothing else in it.
    pub(crate) key_file: Option<PathBuf>,
    /// A shell command that prints it.
    pub(crate) key_command: Option<String>,
    /// The environment variable that holds it.
    pub(crate) key_env: Option<String>,
    /// The variable inside that holds a placeholder; that of its own name in capitals when absent, none when empty.
    pub(crate) variable: Option<String>,
}

/// How long a person is waited for; then the answer is no.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AskSection {
    /// For a permission; 15 minutes when absent.
    #[serde(deserialize_with = "duration")]
    pub(crate) permission_timeout: Option<Duration>,
    /// For an answer to a question; an hour when absent.
    #[serde(deserialize_with = "duration")]
    pub(crate) question_timeout: Option<Duration>,
}

/// The way to everything that is not a model.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EgressSection {
    /// A file of certificates in PEM that are trusted beside the system's, where TLS is opened.
    pub(crate) roots: Option<PathBuf>,
}

/// Where commands run. All but `backend` is for container engines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxSection {
    /// Which sandbox; the first that works when absent.
    pub(crate) backend: Option<BackendName>,
    /// What containers are made of.
    pub(crate) image: Option<String>,
    /// Runs once in each new container, before anything else.
    pub(crate) entrypoint: Vec<String>,
    /// The OCI runtime, by the name the engine knows it by.
    pub(crate) runtime: Option<String>,
    /// Where the engine listens.
    pub(crate) socket: Option<PathBuf>,
    /// Whether an image that is not there is fetched.
    pub(crate) pull: bool,
}

/// Budgets in dollars, written as text so that no digit is lost: `"20.00"`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BudgetsSection {
    /// All calls of a day, in UTC.
    #[serde(deserialize_with = "dollars")]
    pub(crate) day_usd: Option<u64>,
    /// All calls of an account.
    #[serde(deserialize_with = "dollars")]
    pub(crate) account_usd: Option<u64>,
    /// All calls of an account in a day, in UTC.
    #[serde(deserialize_with = "dollars")]
    pub(crate) account_day_usd: Option<u64>,
    /// Calls of a session in a minute.
    pub(crate) session_requests_per_minute: Option<u64>,
}

/// What is kept of model calls.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RecordSection {
    /// How much of their bodies.
    pub(crate) content: ContentWord,
    /// Regular expressions of what is a secret, beside the built-in ones.
    pub(crate) redact: Vec<String>,
    /// Whether what is kept is compressed.
    pub(crate) zstd: bool,
}

/// How much of the bodies of model calls is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ContentWord {
    /// Every byte.
    #[default]
    Full,
    /// Everything but secrets.
    Redacted,
    /// Length and hash alone.
    None,
}

/// What is put aside when a recorded session is played again.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReplaySection {
    /// Regular expressions of what differs between two runs, beside times, ids and their like.
    pub(crate) ignore: Vec<String>,
}

/// How agents are installed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentsSection {
    /// Where npm keeps what it downloaded; its own place when absent.
    pub(crate) npm_cache: Option<PathBuf>,
}

/// Which model sessions talk to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelSection {
    /// A script of your own for the built-in model; the built-in one when absent.
    pub(crate) script: Option<PathBuf>,
    /// One of `upstreams`; the built-in model when absent.
    pub(crate) upstream: Option<String>,
}

/// What a call's entry in the ledger survives.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LedgerSection {
    /// Power cuts, or processes only.
    pub(crate) durability: DurabilityWord,
}

/// What a call's entry in the ledger survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DurabilityWord {
    /// The process and the power.
    #[default]
    Full,
    /// The same, with fewer waits.
    Lease,
    /// The process.
    Normal,
}

/// One way to a model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamSection {
    /// Whose API it speaks.
    pub(crate) kind: UpstreamKind,
    /// Where it is; the vendor's own address when absent.
    pub(crate) base_url: Option<String>,
    /// Its key, written here.
    #[serde(default, deserialize_with = "secret")]
    pub(crate) key: Option<Secret>,
    /// A file with nothing but the key in it.
    pub(crate) key_file: Option<PathBuf>,
    /// A shell command that prints the key.
    pub(crate) key_command: Option<String>,
    /// The environment variable that holds the key.
    pub(crate) key_env: Option<String>,
    /// Whether the key is the one that `viv credentials` finds for this kind.
    #[serde(default)]
    pub(crate) key_found: bool,
    /// Models that are called by another name here: ours = theirs.
    #[serde(default)]
    pub(crate) aliases: BTreeMap<String, String>,
    /// The model that answers for every name that is no alias.
    pub(crate) model: Option<String>,
    /// A recorded session, for kind `replay`: its id, its name, or the beginning of its id.
    pub(crate) session: Option<String>,
    /// A script, for kind `scripted`.
    pub(crate) script: Option<PathBuf>,
    /// A file of certificates in PEM that are trusted beside the system's.
    pub(crate) roots: Option<PathBuf>,
    /// How often a connection that could not be made is tried again.
    pub(crate) retries: Option<u32>,
    /// Until the connection stands.
    #[serde(default, deserialize_with = "duration")]
    pub(crate) connect_timeout: Option<Duration>,
    /// From the request to the beginning of the answer.
    #[serde(default, deserialize_with = "duration")]
    pub(crate) first_byte_timeout: Option<Duration>,
    /// Between two pieces of the answer.
    #[serde(default, deserialize_with = "duration")]
    pub(crate) idle_timeout: Option<Duration>,
}

/// Whose API an upstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UpstreamKind {
    /// The Anthropic API.
    Anthropic,
    /// The `OpenAI` API.
    Openai,
    /// The Gemini API.
    Gemini,
    /// A server that takes chat completions.
    OpenaiCompatible,
    /// A `LiteLLM` proxy.
    Litellm,
    /// The built-in model.
    Scripted,
    /// A recorded session.
    Replay,
}

/// What a model costs, in dollars a million tokens.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceSection {
    /// Prompt tokens that no cache served.
    pub(crate) input: f64,
    /// Tokens the model writes.
    pub(crate) output: f64,
    /// Prompt tokens read from the cache; as `input` when absent.
    pub(crate) cache_read: Option<f64>,
    /// Prompt tokens written to the cache; as `input` when absent.
    pub(crate) cache_write: Option<f64>,
    /// Prompt tokens written to the one-hour cache; as `cache_write` when absent.
    pub(crate) cache_write_1h: Option<f64>,
    /// The longest answer.
    pub(crate) max_output_tokens: Option<u64>,
}

fn dollars<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(value)?;
    crate::money::parse_usd(&text).map(Some).map_err(serde::de::Error::custom)
}

fn secret<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Secret>, D::Error> {
    String::deserialize(value).map(|text| Some(Secret::new(text)))
}

fn duration<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(value)?;
    crate::args::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
}
