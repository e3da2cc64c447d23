//! `sandbox.policy.yaml`: document → compiled policy → decision with the rule that decided.
//!
//! A [`PolicyDocument`] is what was written; a [`CompiledPolicy`] is what it means; an [`EffectivePolicy`] policy is what is left
//! when the [`CeilingLayer`], the [`BaseLayer`] and every [`NarrowingLayer`] met. The rule that must stay true: nothing is
//! ever allowed that one of the layers denies, and every answer names the file and line that gave it.
//!
//! # What an absent key means
//!
//! | key | in a base | in a ceiling or narrowing |
//! | --- | --- | --- |
//! | `fs.workspace` | `readonly` | no opinion |
//! | `fs.read`, `fs.write` | nothing | no opinion |
//! | `fs.deny_read`, `fs.deny_write` | what is secret, or run by others, in any repository | nothing more |
//! | `net.enabled` | `false` | no opinion |
//! | `net.dns` | `none` | no opinion |
//! | `net.allowlist`, `net.inject` | nothing | no opinion |
//! | `net.denylist`, `net.intercept` | the ceiling's | nothing more |
//! | `proc.*` | small: half a processor, 256 MiB, 64 processes, 1 minute, 1 MiB, 64 MiB, 256 files | no opinion |
//! | `degrade.*` | `enforced` | no opinion |
//! | `env.pass`, `models.allow`, `tools.allow` | nothing | no opinion |
//! | `models.budget_usd`, `models.max_requests` | 0 | no opinion |
//!
//! The workspace of an empty policy is `readonly`, not the `overlay` every preset chooses: a file that says
//! nothing has not said that anything may be written. The values stand in `builtin/strictest.yaml`.
//!
//! Not here: reading files, clocks, the environment (callers hand everything in), and enforcement.

mod allow;
mod bound;
mod compile;
mod decision;
mod denials;
mod deny;
mod diff;
mod document;
mod effective;
mod evaluate;
mod explain;
mod finding;
mod gate;
mod grant;
mod inspect;
mod key;
mod layer;
mod pattern;
mod policy;
mod preset;
mod rule;
mod schema;
mod source;
mod suggest;
mod trust;
mod value;
mod widening;

pub use decision::{Action, Decision, Verdict};
pub use denials::FileDenials;
pub use deny::DenyGlobs;
pub use diff::{ChangeDirection, KeyChange, diff};
pub use document::{DnsMode, EnforcementMeans, PolicyDocument, WorkspaceMode};
pub use effective::{DegradePolicy, EffectivePolicy, FsPolicy, ModelPolicy, NetPolicy, ResourceLimits, ToolRules};
pub use explain::{Explanation, explain, warnings};
pub use finding::{PolicyError, PolicyFinding};
pub use grant::{GrantContext, GrantScope, WideningGrant};
pub use key::{PolicyKey, UnknownKey};
pub use layer::{BaseLayer, CeilingLayer, NarrowingLayer, effective, narrow};
pub use pattern::{Endpoint, Host, HostError, HeaderInjection};
pub use policy::CompiledPolicy;
pub use preset::{Preset, UnknownPreset};
pub use rule::{LayerName, RuleRef, WithRule};
pub use schema::{reference, schema};
pub use source::{PolicySource, SourcePosition, Spanned};
pub use trust::{FilePin, FileTrust, TrustedFiles};
pub use widening::{Widening, WideningDenied, resolve};
