//! Hosts that a person adds to the base layer: `--allow`, and the package registries of `net.packages`.
//!
//! An addition never enables entries that were disabled: if the network of the base is off, its old allow-list is
//! dropped before the network is enabled. The ceiling and narrowing layers still restrict the result.
//!
//! Not here: finding the registries; that reads the configuration of the host's tools (`cli`).

use crate::allow_list::{AllowList, AllowLists};
use crate::deny_list::DenyList;
use crate::finding::{PolicyError, PolicyFinding};
use crate::layer::BaseLayer;
use crate::pattern::{ConnectionPattern, EndpointPattern, InjectPattern};
use crate::policy::CompiledPolicy;
use crate::rule::{LayerName, RuleRef, WithRule};
use crate::source::{PolicySource, SourcePosition};
use crate::value::InvalidValue;

/// Access to one package registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryAccess {
    /// Host and port, such as `registry.example.com:443`.
    pub endpoint: String,
    /// Whether the registry uses TLS, which the proxy then decrypts to check the method.
    pub tls: bool,
    /// Header with the registry's credential, such as `Authorization=Bearer {packages-1}`.
    pub inject: Option<String>,
    /// The tool and the place of its configuration, such as `npm: ~/.npmrc`. Shown as the file of the rule.
    pub origin: String,
}

impl BaseLayer {
    /// Returns the layer with `net.packages: true`, as `--net packages` sets it.
    #[must_use]
    pub fn with_packages(&self) -> Self {
        let mut policy = self.policy().clone();
        if !policy.net.packages.value {
            policy.net.packages = WithRule::new(true, rule("--net packages", "net.packages: true".to_owned()));
        }
        Self::from_policy(policy)
    }

    /// Returns whether the layer opens package registries.
    pub fn opens_packages(&self) -> bool {
        self.policy().net.packages.value
    }

    /// Returns the layer with further entries of `net.allowlist`, as `--allow` sets them.
    pub fn allowing(&self, entries: &[String]) -> Result<Self, PolicyError> {
        if entries.is_empty() {
            return Ok(self.clone());
        }
        let mut policy = self.policy().clone();
        let mut patterns = Vec::new();
        for text in entries {
            let pattern = parse("--allow", text, ConnectionPattern::parse)?;
            let rule = rule("--allow", format!("net.allowlist: \"{pattern}\""));
            patterns.push(WithRule::new(pattern, rule));
        }
        enable_network(&mut policy, "--allow", "net.allowlist has no other entry");
        widen(&mut policy, patterns);
        Ok(Self::from_policy(policy))
    }

    /// Returns the layer with the registries of the host's tools, if `net.packages` is `true`. A host that the layer
    /// already allows keeps its own rule.
    pub fn with_registries(&self, registries: &[RegistryAccess]) -> Result<Self, PolicyError> {
        if !self.opens_packages() {
            return Ok(self.clone());
        }
        let mut policy = self.policy().clone();
        let opened_by = policy.net.packages.rule.file.clone();
        enable_network(&mut policy, &opened_by, "net.packages opens package registries with GET and HEAD only");
        for registry in registries {
            let RegistryAccess { endpoint, tls, inject, origin } = registry;
            let entry = parse(origin, &format!("GET|HEAD {endpoint}/**"), ConnectionPattern::parse)?.into_registry();
            if policy.net.allowlist.covers(&entry) {
                continue;
            }
            let found = |text: String| rule(origin, text);
            if *tls {
                let host = parse(origin, endpoint, EndpointPattern::parse)?;
                let host = WithRule::new(host, found(format!("net.packages: \"{endpoint}\"")));
                policy.net.intercept = policy.net.intercept.meet(&DenyList::new(vec![host]));
            }
            if let Some(header) = inject {
                let header = parse(origin, &format!("{endpoint} {header}"), InjectPattern::parse)?;
                if !policy.net.inject.entries().any(|entry| entry.value.contradicts(&header)) {
                    let header = WithRule::new(header, found(format!("net.packages: \"{endpoint}\"")));
                    policy.net.inject = policy.net.inject.widened(&header);
                }
            }
            let entry = WithRule::new(entry, found(format!("net.packages: \"{endpoint}\"")));
            widen(&mut policy, vec![entry]);
        }
        Ok(Self::from_policy(policy))
    }
}

/// Enables the network with an empty allow-list, unless the network is enabled already. `otherwise` is the rule that then
/// denies all other hosts.
fn enable_network(policy: &mut CompiledPolicy, file: &str, otherwise: &str) {
    if policy.net.enabled.value {
        return;
    }
    policy.net.enabled = WithRule::new(true, rule(file, "net.enabled: true".to_owned()));
    let empty = AllowList::new(Vec::new(), rule(file, otherwise.to_owned()));
    policy.net.allowlist = AllowLists::one(empty);
}

fn widen(policy: &mut CompiledPolicy, entries: Vec<WithRule<ConnectionPattern>>) {
    let lists = entries.iter().fold(policy.net.allowlist.clone(), |lists, entry| lists.widened(entry));
    policy.net.allowlist = lists;
}

fn rule(file: &str, text: String) -> RuleRef {
    RuleRef { file: file.to_owned(), line: None, text, layer: LayerName::Base }
}

fn parse<P>(name: &str, text: &str, parse: impl Fn(&str) -> Result<P, InvalidValue>) -> Result<P, PolicyError> {
    let source = PolicySource::new(name, text);
    parse(text).map_err(|bad| {
        let position = SourcePosition { line: 1, offset: 0, length: text.len() };
        let finding = PolicyFinding::new(&source, bad.message).at(Some(position)).with_help(bad.help);
        PolicyError::new(&source, vec![finding])
    })
}
