//! Reads `sandbox.policy.yaml`, compiles it, and decides actions by it.
//!
//! A [`PolicyDocument`] holds the text of a file, a [`CompiledPolicy`] its meaning. An [`EffectivePolicy`] is the
//! intersection of the [`CeilingLayer`], the [`BaseLayer`] and every [`NarrowingLayer`].
//!
//! Two rules always hold: an action that one layer denies is denied, and every decision names the file and line of its
//! rule.
//!
//! # Meaning of an absent key
//!
//! | key | in a base | in a ceiling or narrowing |
//! | --- | --- | --- |
//! | `fs.workspace` | `readonly` | no opinion |
//! | `fs.read`, `fs.write` | nothing | no opinion |
//! | `fs.deny_read`, `fs.deny_write` | recognised secrets, and globs of files that host programs run | no addition |
//! | `net.enabled` | `false` | no opinion |
//! | `net.packages` | `false` | no opinion |
//! | `net.dns` | `none` | no opinion |
//! | `net.allowlist`, `net.inject` | nothing | no opinion |
//! | `net.denylist`, `net.intercept` | the ceiling's entries | no addition |
//! | `proc.*` | small: half a CPU, 256 MiB, 64 processes, 1 minute, 1 MiB, 64 MiB, 256 files | no opinion |
//! | `degrade.*` | `enforced` | no opinion |
//! | `env.pass`, `env.set`, `path.prepend`, `models.allow`, `tools.allow` | nothing | no opinion |
//! | `toolchains` | `none` | no opinion |
//! | `models.budget_usd`, `models.max_requests` | 0 | no opinion |
//! | `models.max_tokens` | 10000000 | no opinion |
//! | `models.unpriced` | `deny` | no opinion |
//!
//! An empty policy makes the workspace `readonly`; every preset chooses `overlay`. The default values are in
//! `builtin/strictest.yaml`.
//!
//! Not here: enforcement, and reading files, clocks or the environment. Callers pass these in.

mod allow_list;
mod base_additions;
mod compile;
mod decision;
mod deny_list;
mod diff;
mod document;
mod effective;
mod evaluate;
mod explain;
mod file_denials;
mod finding;
mod grant;
mod key;
mod key_value;
mod layer;
mod limit;
mod pattern;
mod policy;
mod preset;
mod rule;
mod schema;
mod secret_files;
mod source;
mod suggestion;
mod tool_gate;
mod trust;
mod value;
mod widening;

pub use base_additions::RegistryAccess;
pub use decision::{Action, Decision, Verdict};
pub use deny_list::DenyGlobs;
pub use diff::{ChangeDirection, KeyChange, diff};
pub use document::{DnsMode, EnforcementMeans, PolicyDocument, UnpricedModels, WorkspaceMode};
pub use effective::{DegradePolicy, EffectivePolicy, FsPolicy, ModelPolicy, NetPolicy, ResourceLimits, ToolRules};
pub use explain::{Explanation, explain, warnings};
pub use file_denials::FileDenials;
pub use finding::{PolicyError, PolicyFinding};
pub use grant::{GrantContext, GrantScope, WideningGrant};
pub use key::{PolicyKey, UnknownKey};
pub use layer::{BaseLayer, CeilingLayer, NarrowingLayer, effective, narrow};
pub use pattern::{Endpoint, HeaderInjection, Host, HostError};
pub use policy::CompiledPolicy;
pub use preset::{Preset, UnknownPreset};
pub use rule::{LayerName, RuleRef, WithRule};
pub use schema::{reference, schema};
pub use secret_files::{
    SECRET_HEAD_BYTES, SECRETS_ENTRY, SecretClue, SecretContent, is_secret_directory, secret_clue, url_has_credentials,
};
pub use source::{PolicySource, SourcePosition, Spanned};
pub use suggestion::closest;
pub use trust::{FilePin, FileTrust, TrustedFiles};
pub use value::{size_from_text, size_to_text};
pub use widening::{Widening, WideningDenied, resolve};
