//! Requests of a narrowing layer for more than the layers above allow.
//!
//! Such a request is denied with an error, not silently reduced: its author would rely on rights that do not exist. A
//! person can grant exactly one requested value. No grant can exceed the ceiling.

use std::fmt;

use protocol::ProblemCode;
use serde::Serialize;

use crate::decision::Verdict;
use crate::effective::EffectivePolicy;
use crate::grant::{GrantContext, WideningGrant};
use crate::key::PolicyKey;
use crate::layer::{BaseLayer, CeilingLayer, NarrowingLayer};
use crate::policy::CompiledPolicy;
use crate::rule::{RuleRef, WithRule};

/// A request for more than the layers above allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Widening {
    /// The key.
    pub key: PolicyKey,
    /// The value that applies.
    pub current: String,
    /// The requested value.
    #[serde(rename = "asked")]
    pub requested: String,
    /// The rule that requests more.
    pub rule: RuleRef,
    /// The rule that limits the key.
    pub limit: RuleRef,
}

impl fmt::Display for Widening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, current, requested, rule, limit } = self;
        let requester = if rule.file.starts_with("--") { rule.file.clone() } else { rule.location() };
        if *key == PolicyKey::NetEnabled {
            write!(f, "`{requester}` cannot enable network: ")?;
        } else if key.is_list() {
            write!(f, "`{requester}` cannot add `{requested}` to `{key}`: ")?;
        } else {
            write!(f, "`{requester}` cannot set `{key}` to `{requested}`: ")?;
        }
        match limit.file.as_str() {
            RuleRef::DEFAULT => write!(f, "the default is `{key}: {current}`"),
            _ => write!(f, "policy `{}` sets `{key}: {current}`", limit.location()),
        }
    }
}

/// A narrowing layer requests more than the policy allows, and no grant covers it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", widenings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct WideningDenied {
    /// All denied requests.
    pub widenings: Vec<Widening>,
}

impl WideningDenied {
    /// Returns the stable identifier for clients.
    pub fn code(&self) -> ProblemCode {
        ProblemCode::PolicyWideningDenied
    }
}

/// Returns the policy of a session, like [`crate::effective`]. Fails if a narrowing layer requests more than the policy
/// allows, unless one of `grants` covers exactly this value.
pub fn resolve(
    ceiling: &CeilingLayer,
    base: &BaseLayer,
    narrowings: &[NarrowingLayer],
    grants: &[WideningGrant],
    context: &GrantContext,
) -> Result<EffectivePolicy, WideningDenied> {
    let mut chosen = base.policy().clone();
    let mut denied = Vec::new();
    for narrowing in narrowings {
        let above = ceiling.policy().meet(&chosen);
        for widening in narrowing.widenings(&above) {
            let granted = grants.iter().find_map(|grant| grant.granting(&widening, context));
            match granted {
                Some(granted) if granted.widenings(ceiling.policy()).is_empty() => chosen = chosen.join(&granted),
                _ => denied.push(widening),
            }
        }
        chosen = chosen.meet(narrowing.policy());
    }
    if denied.is_empty() {
        Ok(EffectivePolicy::new(ceiling.policy().meet(&chosen), ceiling.policy().clone()))
    } else {
        Err(WideningDenied { widenings: denied })
    }
}

impl EffectivePolicy {
    /// Returns this policy with further narrowing layers. Fails if one of them requests more.
    pub fn narrowed(&self, narrowings: &[NarrowingLayer]) -> Result<Self, WideningDenied> {
        let mut chosen = self.policy().clone();
        let mut denied = Vec::new();
        for narrowing in narrowings {
            denied.extend(narrowing.widenings(&chosen));
            chosen = chosen.meet(narrowing.policy());
        }
        if denied.is_empty() {
            Ok(Self::new(chosen, self.ceiling.clone()))
        } else {
            Err(WideningDenied { widenings: denied })
        }
    }

    /// Returns the intersection with a narrowing layer. Requests for more have no effect.
    #[must_use]
    pub fn restricted_by(&self, narrowing: &NarrowingLayer) -> Self {
        Self::new(self.policy().meet(narrowing.policy()), self.ceiling.clone())
    }

    /// Returns this policy with a grant added. Fails if the grant exceeds the ceiling. Entries of deny-lists still
    /// apply.
    pub fn with_grant(&self, granted: &NarrowingLayer) -> Result<Self, WideningDenied> {
        let widenings = granted.widenings(&self.ceiling);
        if !widenings.is_empty() {
            return Err(WideningDenied { widenings });
        }
        Ok(Self::new(self.ceiling.meet(&self.policy().join(granted)), self.ceiling.clone()))
    }
}

impl NarrowingLayer {
    /// Returns the values of this layer that `above` does not allow.
    pub fn widenings(&self, above: &CompiledPolicy) -> Vec<Widening> {
        let to_widenings = |key: PolicyKey| {
            let texts = self.policy.uncovered(above, key);
            let items = self.policy.value(key).entries().into_iter().filter(move |item| texts.contains(&item.text));
            items.map(move |item| {
                let current = above.value(key);
                Widening { key, current: current.show(), requested: item.text, rule: item.rule, limit: current.rule() }
            })
        };
        self.set_keys.iter().copied().flat_map(to_widenings).collect()
    }
}

impl CompiledPolicy {
    /// Returns the entries of `key` that `above` does not cover.
    fn uncovered(&self, above: &Self, key: PolicyKey) -> Vec<String> {
        let value = |wider: bool| if wider { vec![self.show(key)] } else { Vec::new() };
        match key {
            PolicyKey::FsWorkspace => value(self.fs.workspace.value > above.fs.workspace.value),
            PolicyKey::NetEnabled => value(self.net.enabled.value && !above.net.enabled.value),
            PolicyKey::NetPackages => value(self.net.packages.value && !above.net.packages.value),
            PolicyKey::NetDns => value(self.net.dns.value > above.net.dns.value),
            PolicyKey::ModelsUnpriced => value(self.unpriced.value > above.unpriced.value),
            PolicyKey::FsRead => {
                unless(self.fs.read.entries(), |path| above.fs.read.covers(path) || above.fs.write.covers(path))
            }
            PolicyKey::FsWrite => unless(self.fs.write.entries(), |path| above.fs.write.covers(path)),
            PolicyKey::NetAllowlist => unless(self.net.allowlist.entries(), |host| above.net.allowlist.covers(host)),
            PolicyKey::NetInject => unless(self.net.inject.entries(), |header| above.net.inject.covers(header)),
            PolicyKey::EnvSet => unless(self.env_set.entries(), |one| above.env_set.covers(one)),
            PolicyKey::PathPrepend => unless(self.path_prepend.entries(), |one| above.path_prepend.covers(one)),
            PolicyKey::Toolchains => unless(self.toolchains.entries(), |one| above.toolchains.covers(one)),
            PolicyKey::EnvPass => unless(self.env.entries(), |name| above.env.covers(name)),
            PolicyKey::ModelsAllow => unless(self.models.entries(), |name| above.models.covers(name)),
            PolicyKey::ToolsAllow => unless(self.tools.allow_entries(), |tool| above.tools.covers(tool)),
            PolicyKey::ToolsAsk => unless(self.tools.ask_entries(), |tool| above.tools.covers(tool)),
            // Entries of deny-lists only take away.
            PolicyKey::FsDenyRead
            | PolicyKey::FsDenyWrite
            | PolicyKey::NetDenylist
            | PolicyKey::NetIntercept
            | PolicyKey::ToolsDeny => Vec::new(),
            PolicyKey::DegradeCpus
            | PolicyKey::DegradeMemory
            | PolicyKey::DegradePids
            | PolicyKey::DegradeDisk
            | PolicyKey::DegradeLandlock => value(larger(self.degrade.get(&key), above.degrade.get(&key))),
            limit => value(larger(self.limits.get(&limit), above.limits.get(&limit))),
        }
    }

    /// Returns this policy with everything that `granted` sets allowed in addition.
    fn join(&self, granted: &NarrowingLayer) -> Self {
        let mut wider = self.clone();
        let more = &granted.policy;
        for key in granted.keys() {
            match key {
                PolicyKey::FsWorkspace => wider.fs.workspace = more.fs.workspace.clone(),
                PolicyKey::NetEnabled => wider.net.enabled = more.net.enabled.clone(),
                PolicyKey::NetPackages => wider.net.packages = more.net.packages.clone(),
                PolicyKey::NetDns => wider.net.dns = more.net.dns.clone(),
                PolicyKey::ModelsUnpriced => wider.unpriced = more.unpriced.clone(),
                PolicyKey::FsRead => {
                    wider.fs.read = more.fs.read.entries().fold(wider.fs.read, |all, one| all.widened(one));
                }
                PolicyKey::FsWrite => {
                    wider.fs.write = more.fs.write.entries().fold(wider.fs.write, |all, one| all.widened(one));
                }
                PolicyKey::NetAllowlist => {
                    let hosts = more.net.allowlist.entries();
                    wider.net.allowlist = hosts.fold(wider.net.allowlist, |all, one| all.widened(one));
                }
                PolicyKey::NetInject => {
                    let headers = more.net.inject.entries();
                    wider.net.inject = headers.fold(wider.net.inject, |all, one| all.widened(one));
                }
                PolicyKey::EnvSet => {
                    wider.env_set = more.env_set.entries().fold(wider.env_set, |all, one| all.widened(one));
                }
                PolicyKey::PathPrepend => {
                    let directories = more.path_prepend.entries();
                    wider.path_prepend = directories.fold(wider.path_prepend, |all, one| all.widened(one));
                }
                PolicyKey::Toolchains => {
                    wider.toolchains = more.toolchains.entries().fold(wider.toolchains, |all, one| all.widened(one));
                }
                PolicyKey::EnvPass => wider.env = more.env.entries().fold(wider.env, |all, one| all.widened(one)),
                PolicyKey::ModelsAllow => {
                    wider.models = more.models.entries().fold(wider.models, |all, one| all.widened(one));
                }
                PolicyKey::ToolsAllow => {
                    wider.tools =
                        more.tools.allow_entries().fold(wider.tools, |all, one| all.widened(one, Verdict::Allow));
                }
                PolicyKey::ToolsAsk => {
                    wider.tools = more.tools.ask_entries().fold(wider.tools, |all, one| all.widened(one, Verdict::Ask));
                }
                PolicyKey::FsDenyRead
                | PolicyKey::FsDenyWrite
                | PolicyKey::NetDenylist
                | PolicyKey::NetIntercept
                | PolicyKey::ToolsDeny => {}
                _ => {
                    wider.limits.extend(more.limits.clone());
                    wider.degrade.extend(more.degrade.clone());
                }
            }
        }
        wider
    }
}

fn unless<'a, P: ToString + 'a>(
    entries: impl Iterator<Item = &'a WithRule<P>>,
    covered: impl Fn(&P) -> bool,
) -> Vec<String> {
    entries.filter(|entry| !covered(&entry.value)).map(|entry| entry.value.to_string()).collect()
}

fn larger<T: Ord>(requested: Option<&WithRule<T>>, above: Option<&WithRule<T>>) -> bool {
    matches!((requested, above), (Some(requested), Some(above)) if requested.value > above.value)
}
