//! The three roles a policy file can play, and the one function that puts them together.

use std::collections::BTreeSet;

use crate::compile::compile;
use crate::document::PolicyDocument;
use crate::effective::EffectivePolicy;
use crate::finding::{PolicyError, PolicyFinding};
use crate::key::PolicyKey;
use crate::policy::CompiledPolicy;
use crate::preset::{self, Preset};
use crate::rule::LayerName;
use crate::source::{PolicySource, SourcePosition};

/// Built-in rules and the organisation's: nothing passes it. An absent key is no opinion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CeilingLayer(CompiledPolicy);

impl CeilingLayer {
    /// The rules that hold on every machine.
    pub fn built_in() -> Result<Self, PolicyError> {
        let source = preset::ceiling();
        let document = PolicyDocument::of_ours(&source)?;
        Ok(Self(compile(&source, &document, LayerName::Ceiling, &CompiledPolicy::unrestricted())?.policy))
    }

    /// With the rules of an organisation's file on top.
    pub fn with_organisation(&self, source: &PolicySource) -> Result<Self, PolicyError> {
        let document = PolicyDocument::parse(source)?;
        let theirs = compile(source, &document, LayerName::Ceiling, &CompiledPolicy::unrestricted())?.policy;
        Ok(Self(self.0.meet(&theirs)))
    }

    /// What it means.
    pub fn policy(&self) -> &CompiledPolicy {
        &self.0
    }
}

/// What the person chose. An absent key is the strictest value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseLayer(CompiledPolicy);

impl BaseLayer {
    /// Reads a policy text.
    pub fn read(source: &PolicySource) -> Result<Self, PolicyError> {
        Self::compiled(source, &PolicyDocument::parse(source)?)
    }

    /// A policy that comes with the program.
    pub fn preset(preset: Preset) -> Result<Self, PolicyError> {
        let source = preset.source();
        Self::compiled(&source, &PolicyDocument::of_ours(&source)?)
    }

    fn compiled(source: &PolicySource, document: &PolicyDocument) -> Result<Self, PolicyError> {
        let strictest = preset::strictest();
        let absent = PolicyDocument::of_ours(&strictest)?;
        let absent = compile(&strictest, &absent, LayerName::Base, &CompiledPolicy::unrestricted())?.policy;
        Ok(Self(compile(source, document, LayerName::Base, &absent)?.policy))
    }

    /// What it means.
    pub fn policy(&self) -> &CompiledPolicy {
        &self.0
    }
}

/// What only takes away. An absent key is no opinion.
#[derive(Debug, Clone)]
pub struct NarrowingLayer {
    pub(crate) policy: CompiledPolicy,
    pub(crate) given: BTreeSet<PolicyKey>,
}

impl NarrowingLayer {
    /// Reads a policy text: an untrusted project file, or what a session or a call asks for.
    pub fn read(source: &PolicySource) -> Result<Self, PolicyError> {
        Self::compiled(source, &PolicyDocument::parse(source)?)
    }

    /// Hides what stands at `path`, relative to the workspace, with everything below it, and keeps it as it is.
    pub fn hiding(path: &str) -> Result<Self, PolicyError> {
        let glob = format!("[{:?}]", format!("{}/**", globset::escape(path)));
        Self::read(&PolicySource::new(
            "built-in",
            format!("version: 1\nfs:\n  deny_read: {glob}\n  deny_write: {glob}\n"),
        ))
    }

    /// Reads `key=value`, as in `proc.memory=512MiB`; lists are separated by commas.
    pub fn assign(argument: &str) -> Result<Self, PolicyError> {
        let (source, document) = assignment(argument)?;
        Self::compiled(&source, &document)
    }

    /// Reads `key=value` as something a person grants.
    pub fn grant(argument: &str) -> Result<Self, PolicyError> {
        let (_, document) = assignment(argument)?;
        let source = PolicySource::new("grant", argument);
        let compiled = compile(&source, &document, LayerName::Grant, &CompiledPolicy::unrestricted())?;
        Ok(Self { policy: compiled.policy, given: compiled.given })
    }

    fn compiled(source: &PolicySource, document: &PolicyDocument) -> Result<Self, PolicyError> {
        let compiled = compile(source, document, LayerName::Narrowing, &CompiledPolicy::unrestricted())?;
        Ok(Self { policy: compiled.policy, given: compiled.given })
    }

    /// What it means.
    pub fn policy(&self) -> &CompiledPolicy {
        &self.policy
    }

    /// The keys it speaks about.
    pub fn keys(&self) -> impl Iterator<Item = PolicyKey> {
        self.given.iter().copied()
    }
}

/// Reads the argument of `--narrow`: `proc.memory=512MiB`, `net.allowlist=a.example.com:443,b.example.com`.
pub fn narrow(argument: &str) -> Result<NarrowingLayer, PolicyError> {
    NarrowingLayer::assign(argument)
}

/// What a session may do: what the ceiling, the base and every narrowing allow.
///
/// Where a narrowing asks for more, it simply does not get it; [`crate::resolve`] says so instead.
pub fn effective(ceiling: &CeilingLayer, base: &BaseLayer, narrowings: &[NarrowingLayer]) -> EffectivePolicy {
    let chosen = ceiling.0.meet(&base.0);
    let policy = narrowings.iter().fold(chosen, |policy, narrowing| policy.meet(&narrowing.policy));
    EffectivePolicy::new(policy, ceiling.0.clone())
}

/// A document with one key from `key=value`.
fn assignment(argument: &str) -> Result<(PolicySource, PolicyDocument), PolicyError> {
    let source = PolicySource::new("--narrow", argument);
    let place = |offset, length| SourcePosition { line: 1, offset, length };
    let wrong = |finding: PolicyFinding| PolicyError::new(&source, vec![finding]);
    let Some((name, value)) = argument.split_once('=') else {
        let finding = PolicyFinding::new(&source, format!("`{argument}` is not `key=value`"));
        return Err(wrong(
            finding.at(Some(place(0, argument.len()))).with_help(Some("as in `proc.memory=512MiB`".into())),
        ));
    };
    let key: PolicyKey = name.trim().parse().map_err(|unknown: crate::key::UnknownKey| {
        let help = unknown.suggestion.map(|near| format!("did you mean `{near}`?"));
        wrong(
            PolicyFinding::new(&source, format!("unknown key `{name}`")).at(Some(place(0, name.len()))).with_help(help),
        )
    })?;
    let lead = value.len() - value.trim_start().len();
    let at = place(name.len() + 1 + lead, value.trim().len());
    match PolicyDocument::with(key, value.trim(), at) {
        Ok(document) => Ok((source, document)),
        Err(bad) => Err(wrong(PolicyFinding::new(&source, bad.why).at(Some(at)).with_help(bad.help))),
    }
}
