//! The three kinds of layers, and their combination.

use std::collections::BTreeSet;

use crate::compile::compile;
use crate::document::PolicyDocument;
use crate::effective::EffectivePolicy;
use crate::finding::{PolicyError, PolicyFinding};
use crate::key::PolicyKey;
use crate::policy::CompiledPolicy;
use crate::preset::{self, Preset};
use crate::rule::LayerName;
use crate::source::{PolicySource, SourcePosition, Spanned};

/// Built-in and organisation rules. No other layer can allow more. An absent key has no opinion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CeilingLayer(CompiledPolicy);

impl CeilingLayer {
    /// Returns the built-in rules.
    pub fn built_in() -> Result<Self, PolicyError> {
        let source = preset::ceiling();
        let document = PolicyDocument::parse(&source)?;
        Ok(Self(compile(&source, &document, LayerName::Ceiling, &CompiledPolicy::unrestricted())?.policy))
    }

    /// Returns these rules combined with an organisation's file.
    pub fn with_organisation(&self, source: &PolicySource) -> Result<Self, PolicyError> {
        let document = PolicyDocument::parse(source)?;
        let theirs = compile(source, &document, LayerName::Ceiling, &CompiledPolicy::unrestricted())?.policy;
        Ok(Self(self.0.meet(&theirs)))
    }

    /// Returns the compiled rules.
    pub fn policy(&self) -> &CompiledPolicy {
        &self.0
    }
}

/// The policy that a person chose. An absent key has its strictest value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseLayer(CompiledPolicy);

impl BaseLayer {
    /// Parses and compiles a policy text.
    pub fn read(source: &PolicySource) -> Result<Self, PolicyError> {
        Self::compiled(source, &PolicyDocument::parse(source)?)
    }

    /// Returns a built-in preset.
    pub fn preset(preset: Preset) -> Result<Self, PolicyError> {
        let source = preset.source();
        Self::compiled(&source, &PolicyDocument::parse(&source)?)
    }

    pub(crate) fn from_policy(policy: CompiledPolicy) -> Self {
        Self(policy)
    }

    fn compiled(source: &PolicySource, document: &PolicyDocument) -> Result<Self, PolicyError> {
        let absent = if let Some(name) = &document.extends {
            Self::preset(extended_preset(source, name)?)?.0
        } else {
            let strictest = preset::strictest();
            let absent = PolicyDocument::parse(&strictest)?;
            compile(&strictest, &absent, LayerName::Base, &CompiledPolicy::unrestricted())?.policy
        };
        let own = compile(source, document, LayerName::Base, &absent)?.policy;
        Ok(Self(if document.extends.is_some() { own.with_lists_of(&absent) } else { own }))
    }

    /// Returns the compiled rules.
    pub fn policy(&self) -> &CompiledPolicy {
        &self.0
    }
}

/// Returns the preset that a policy extends.
fn extended_preset(source: &PolicySource, name: &Spanned<String>) -> Result<Preset, PolicyError> {
    name.value.parse().map_err(|unknown: preset::UnknownPreset| {
        let finding = PolicyFinding::new(source, unknown.to_string()).at(Some(name.position));
        PolicyError::new(source, vec![finding.with_help(Some("presets: strict, balanced, open".into()))])
    })
}

/// A policy that only takes away. An absent key has no opinion.
#[derive(Debug, Clone)]
pub struct NarrowingLayer {
    pub(crate) policy: CompiledPolicy,
    pub(crate) set_keys: BTreeSet<PolicyKey>,
}

impl NarrowingLayer {
    /// Parses and compiles the text of an untrusted project file, a session or a call.
    pub fn read(source: &PolicySource) -> Result<Self, PolicyError> {
        Self::compiled(source, &PolicyDocument::parse(source)?)
    }

    /// Returns a layer that hides and write-protects `path`, relative to the workspace, with everything below it.
    pub fn hiding(path: &str) -> Result<Self, PolicyError> {
        let glob = format!("[{:?}]", format!("{}/**", globset::escape(path)));
        Self::read(&PolicySource::new(
            "built-in",
            format!("version: 1\nfs:\n  deny_read: {glob}\n  deny_write: {glob}\n"),
        ))
    }

    /// Parses `key=value`, such as `proc.memory=512MiB`. Commas separate list entries.
    pub fn assign(argument: &str) -> Result<Self, PolicyError> {
        let (source, document) = assignment(argument)?;
        Self::compiled(&source, &document)
    }

    /// Parses `key=value` as the content of a grant.
    pub fn grant(argument: &str) -> Result<Self, PolicyError> {
        let (_, document) = assignment(argument)?;
        let source = PolicySource::new("grant", argument);
        let compiled = compile(&source, &document, LayerName::Grant, &CompiledPolicy::unrestricted())?;
        Ok(Self { policy: compiled.policy, set_keys: compiled.set_keys })
    }

    fn compiled(source: &PolicySource, document: &PolicyDocument) -> Result<Self, PolicyError> {
        let compiled = compile(source, document, LayerName::Narrowing, &CompiledPolicy::unrestricted())?;
        Ok(Self { policy: compiled.policy, set_keys: compiled.set_keys })
    }

    /// Returns the compiled rules.
    pub fn policy(&self) -> &CompiledPolicy {
        &self.policy
    }

    /// Returns the keys that the layer sets.
    pub fn keys(&self) -> impl Iterator<Item = PolicyKey> {
        self.set_keys.iter().copied()
    }
}

/// Parses the argument of `--narrow`: `proc.memory=512MiB`, `net.allowlist=a.example.com:443,b.example.com`.
pub fn narrow(argument: &str) -> Result<NarrowingLayer, PolicyError> {
    NarrowingLayer::assign(argument)
}

/// Returns the policy of a session: the intersection of the ceiling, the base and every narrowing layer.
///
/// A narrowing layer that requests more has no effect there; [`crate::resolve`] returns an error instead.
pub fn effective(ceiling: &CeilingLayer, base: &BaseLayer, narrowings: &[NarrowingLayer]) -> EffectivePolicy {
    let chosen = ceiling.0.meet(&base.0);
    let policy = narrowings.iter().fold(chosen, |policy, narrowing| policy.meet(&narrowing.policy));
    EffectivePolicy::new(policy, ceiling.0.clone())
}

/// Parses `key=value` into a document with one key.
fn assignment(argument: &str) -> Result<(PolicySource, PolicyDocument), PolicyError> {
    let source = PolicySource::new("--narrow", argument);
    let position = |offset, length| SourcePosition { line: 1, offset, length };
    let wrong = |finding: PolicyFinding| PolicyError::new(&source, vec![finding]);
    let Some((name, value)) = argument.split_once('=') else {
        let finding = PolicyFinding::new(&source, format!("`{argument}` is not `key=value`"));
        return Err(wrong(
            finding.at(Some(position(0, argument.len()))).with_help(Some("as in `proc.memory=512MiB`".into())),
        ));
    };
    let key: PolicyKey = name.trim().parse().map_err(|unknown: crate::key::UnknownKey| {
        let help = unknown.suggestion.map(|near| format!("did you mean `{near}`?"));
        wrong(
            PolicyFinding::new(&source, format!("unknown key `{name}`"))
                .at(Some(position(0, name.len())))
                .with_help(help),
        )
    })?;
    let lead = value.len() - value.trim_start().len();
    let at = position(name.len() + 1 + lead, value.trim().len());
    match PolicyDocument::with(key, value.trim(), at) {
        Ok(document) => Ok((source, document)),
        Err(bad) => Err(wrong(PolicyFinding::new(&source, bad.message).at(Some(at)).with_help(bad.help))),
    }
}
