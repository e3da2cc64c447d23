//! `sandbox.policy.yaml`: document → compiled policy → decision with the rule that decided.
//!
//! A [`Document`] is what was written; a [`Policy`] is what it means; an [`Effective`] policy is what is left
//! when the [`Ceiling`], the [`Base`] and every [`Narrowing`] met. The rule that must stay true: nothing is
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
pub use diff::{Change, Direction, diff};
pub use document::{Document, Means, NameService, WorkspaceMode};
pub use effective::{Degrade, Effective, Fs, Limits, Models, Net, ToolRules};
pub use explain::{Sentence, explain, notes};
pub use finding::{Finding, PolicyError};
pub use grant::{Grant, GrantContext, GrantScope};
pub use key::{Key, UnknownKey};
pub use layer::{Base, Ceiling, Narrowing, effective, narrow};
pub use pattern::{Endpoint, Host, HostError, Injection};
pub use policy::Policy;
pub use preset::{Preset, UnknownPreset};
pub use rule::{LayerName, RuleRef, Ruled};
pub use schema::{reference, schema};
pub use source::{Place, Source, Written};
pub use trust::{Pin, Trust, TrustedFiles};
pub use widening::{Widening, WideningDenied, resolve};
