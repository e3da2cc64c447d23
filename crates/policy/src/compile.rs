//! Document to policy: every written value gets its meaning, or a finding that points at it.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::allow::{AllowList, AllowLists};
use crate::bound;
use crate::deny::DenyList;
use crate::document::{Degrade, EnforcementMeans, PolicyDocument, Proc, Texts, Tools};
use crate::finding::{PolicyError, PolicyFinding, is_harmful};
use crate::gate::{Gate, Gates};
use crate::key::PolicyKey;
use crate::pattern::{
    Denied, EndpointPattern, InjectPattern, NamePattern, PathGlob, PathPrefix, Pattern, ReachPattern, ToolPattern,
    VariableName,
};
use crate::policy::{CompiledPolicy, NetRules};
use crate::rule::{LayerName, RuleRef, WithRule};
use crate::source::{PolicySource, SourcePosition, Spanned};
use crate::value::BadValue;

/// A compiled layer: what it means, and which keys were written rather than left out.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) policy: CompiledPolicy,
    pub(crate) given: BTreeSet<PolicyKey>,
}

/// Compiles `document`; a key that is absent keeps the value it has in `absent`.
pub(crate) fn compile(
    source: &PolicySource,
    document: &PolicyDocument,
    layer: LayerName,
    absent: &CompiledPolicy,
) -> Result<Compiled, PolicyError> {
    let mut compiler = Compiler { source, layer, given: BTreeSet::new(), findings: Vec::new() };
    let mut policy = absent.clone();
    compiler.fs(document, &mut policy);
    compiler.net(document, &mut policy);
    compiler.limits(document, &mut policy);
    if let Some(degrade) = &document.degrade {
        compiler.degrade(degrade, &mut policy);
    }
    if let Some(list) = document.env.as_ref().and_then(|env| env.pass.as_ref()) {
        policy.env = compiler.allow(PolicyKey::EnvPass, list, VariableName::parse);
    }
    if let Some(list) = document.models.as_ref().and_then(|models| models.allow.as_ref()) {
        policy.models = compiler.allow(PolicyKey::ModelsAllow, list, NamePattern::parse);
    }
    if let Some(tools) = &document.tools {
        compiler.tools(tools, &mut policy);
    }
    if compiler.findings.is_empty() {
        Ok(Compiled { policy, given: compiler.given })
    } else {
        Err(PolicyError::new(source, compiler.findings))
    }
}

struct Compiler<'a> {
    source: &'a PolicySource,
    layer: LayerName,
    given: BTreeSet<PolicyKey>,
    findings: Vec<PolicyFinding>,
}

impl Compiler<'_> {
    fn fs(&mut self, document: &PolicyDocument, policy: &mut CompiledPolicy) {
        let Some(fs) = &document.fs else { return };
        if let Some(mode) = &fs.workspace {
            policy.fs.workspace = self.ruled(PolicyKey::FsWorkspace, mode.value, mode.position);
        }
        if let Some(list) = &fs.read {
            policy.fs.read = self.allow(PolicyKey::FsRead, list, PathPrefix::parse);
        }
        if let Some(list) = &fs.write {
            policy.fs.write = self.allow(PolicyKey::FsWrite, list, PathPrefix::parse);
        }
        if let Some(list) = &fs.deny_read {
            policy.fs.deny_read = DenyList::new(self.entries(PolicyKey::FsDenyRead, list, PathGlob::parse));
        }
        if let Some(list) = &fs.deny_write {
            policy.fs.deny_write = DenyList::new(self.entries(PolicyKey::FsDenyWrite, list, PathGlob::parse));
        }
    }

    fn net(&mut self, document: &PolicyDocument, policy: &mut CompiledPolicy) {
        let Some(net) = &document.net else { return };
        if let Some(enabled) = &net.enabled {
            policy.net.enabled = self.ruled(PolicyKey::NetEnabled, enabled.value, enabled.position);
        }
        if let Some(list) = &net.allowlist {
            policy.net.allowlist = self.allow(PolicyKey::NetAllowlist, list, ReachPattern::parse);
        }
        if let Some(list) = &net.denylist {
            policy.net.denylist = DenyList::new(self.entries(PolicyKey::NetDenylist, list, Denied::parse));
        }
        if let Some(list) = &net.intercept {
            policy.net.intercept = DenyList::new(self.entries(PolicyKey::NetIntercept, list, EndpointPattern::parse));
        }
        if let Some(dns) = &net.dns {
            policy.net.dns = self.ruled(PolicyKey::NetDns, dns.value, dns.position);
        }
        if let Some(list) = &net.inject {
            policy.net.inject = self.allow(PolicyKey::NetInject, list, InjectPattern::parse);
            self.injections(list, &policy.net);
        }
    }

    /// A header is set in one way, and only where requests are seen: what could never happen is a mistake.
    fn injections(&mut self, list: &Texts, net: &NetRules) {
        let parsed: Vec<_> = list
            .value
            .iter()
            .filter_map(|written| Some((InjectPattern::parse(&written.value).ok()?, written)))
            .collect();
        for (number, (entry, written)) in parsed.iter().enumerate() {
            if let Some((other, _)) = parsed[..number].iter().find(|(other, _)| entry.contradicts(other)) {
                let bad = BadValue::new(format!("`{entry}` and `{other}` set one header of one host"));
                self.wrong(bad.with_help("keep one of the two"), written.position);
            }
            let opened = net.intercept.find(|pattern| pattern.covers(&entry.endpoint)).is_some();
            // Other layers may open what a narrowing speaks of; a base stands for itself.
            if self.layer == LayerName::Base && entry.endpoint.is_usually_tls() && !opened {
                let bad = BadValue::new(format!("`{entry}` is injected into TLS that is not opened"));
                let help = format!("add \"{}\" under `net.intercept`, or name the port of plain HTTP", entry.endpoint);
                self.wrong(bad.with_help(help), written.position);
            }
        }
    }

    fn limits(&mut self, document: &PolicyDocument, policy: &mut CompiledPolicy) {
        let empty = Proc::default();
        let proc = document.proc.as_ref().unwrap_or(&empty);
        let models = document.models.as_ref();
        let written = [
            (PolicyKey::ProcCpus, proc.cpus.as_ref()),
            (PolicyKey::ProcMemory, proc.memory.as_ref()),
            (PolicyKey::ProcPids, proc.pids.as_ref()),
            (PolicyKey::ProcTimeout, proc.timeout.as_ref()),
            (PolicyKey::ProcOutput, proc.output.as_ref()),
            (PolicyKey::ProcDisk, proc.disk.as_ref()),
            (PolicyKey::ProcNofile, proc.nofile.as_ref()),
            (PolicyKey::ModelsBudgetUsd, models.and_then(|models| models.budget_usd.as_ref())),
            (PolicyKey::ModelsMaxRequests, models.and_then(|models| models.max_requests.as_ref())),
        ];
        for (key, text) in written {
            let Some(text) = text else { continue };
            match bound::parse(key, &text.value) {
                Ok(value) => {
                    let rule = self.rule(key, &bound::show(key, value), text.position);
                    policy.bounds.insert(key, WithRule::new(value, rule));
                }
                Err(bad) => self.wrong(bad, text.position),
            }
            self.given.insert(key);
        }
    }

    fn degrade(&mut self, degrade: &Degrade, policy: &mut CompiledPolicy) {
        let written = [
            (PolicyKey::DegradeCpus, &degrade.cpus),
            (PolicyKey::DegradeMemory, &degrade.memory),
            (PolicyKey::DegradePids, &degrade.pids),
            (PolicyKey::DegradeDisk, &degrade.disk),
            (PolicyKey::DegradeLandlock, &degrade.landlock),
        ];
        for (key, means) in written {
            let Some(means) = means else { continue };
            if !accepted(key).contains(&means.value) {
                let words: Vec<_> = accepted(key).iter().map(|means| means.as_str()).collect();
                let bad = BadValue::new(format!("`{key}` has no means `{}`", means.value.as_str()));
                self.wrong(bad.with_help(format!("means here: {}", words.join(", "))), means.position);
            }
            let ruled = self.ruled(key, means.value, means.position);
            policy.degrade.insert(key, ruled);
        }
    }

    /// A gate is built whole: an absent `allow` allows nothing in a base and has no opinion elsewhere.
    fn tools(&mut self, tools: &Tools, policy: &mut CompiledPolicy) {
        if tools.allow.is_none() && tools.ask.is_none() && tools.deny.is_none() {
            return;
        }
        let absent = policy.tools.gates().first().cloned();
        let place = [&tools.allow, &tools.ask, &tools.deny].into_iter().flatten().next().map(|list| list.position);
        let mut list =
            |key, texts: &Option<Texts>| texts.as_ref().map(|texts| self.entries(key, texts, ToolPattern::parse));
        let allow = list(PolicyKey::ToolsAllow, &tools.allow);
        let ask = list(PolicyKey::ToolsAsk, &tools.ask);
        let deny = list(PolicyKey::ToolsDeny, &tools.deny);
        let count = allow.as_ref().map_or(0, Vec::len) + ask.as_ref().map_or(0, Vec::len);
        let rule = self.rule_text(
            format!("tools.allow and tools.ask have {}, none match", entries(count)),
            place.unwrap_or_default(),
        );
        policy.tools = Gates::one(Gate {
            allow: allow.or_else(|| absent.as_ref().and_then(|gate| gate.allow.clone())),
            ask: ask.or_else(|| absent.as_ref().map(|gate| gate.ask.clone())).unwrap_or_default(),
            deny: deny.or_else(|| absent.as_ref().map(|gate| gate.deny.clone())).unwrap_or_default(),
            otherwise: WithRule::new((), rule),
        });
    }

    fn allow<P: Pattern>(
        &mut self,
        key: PolicyKey,
        list: &Texts,
        parse: impl Fn(&str) -> Result<P, BadValue>,
    ) -> AllowLists<P> {
        let parsed = self.entries(key, list, parse);
        let text = match parsed.len() {
            0 => format!("{key} is empty"),
            count => format!("{key} has {}, none match", entries(count)),
        };
        AllowLists::one(AllowList::new(parsed, self.rule_text(text, list.position)))
    }

    fn entries<P: Display>(
        &mut self,
        key: PolicyKey,
        list: &Texts,
        parse: impl Fn(&str) -> Result<P, BadValue>,
    ) -> Vec<WithRule<P>> {
        self.given.insert(key);
        let mut parsed = Vec::new();
        for Spanned { value, position: place } in &list.value {
            match showable(value).and_then(|()| parse(value)) {
                Ok(pattern) => {
                    let rule = self.rule_text(format!("{key}: \"{pattern}\""), *place);
                    parsed.push(WithRule::new(pattern, rule));
                }
                Err(bad) => self.wrong(bad, *place),
            }
        }
        parsed
    }

    fn ruled<T: ToString>(&mut self, key: PolicyKey, value: T, place: SourcePosition) -> WithRule<T> {
        self.given.insert(key);
        let rule = self.rule(key, &value.to_string(), place);
        WithRule::new(value, rule)
    }

    fn rule(&self, key: PolicyKey, value: &str, place: SourcePosition) -> RuleRef {
        self.rule_text(format!("{key}: {value}"), place)
    }

    fn rule_text(&self, text: String, place: SourcePosition) -> RuleRef {
        let line = (place.line > 0).then_some(place.line);
        RuleRef { file: self.source.name().to_owned(), line, text, layer: self.layer }
    }

    fn wrong(&mut self, bad: BadValue, place: SourcePosition) {
        self.findings.push(PolicyFinding::new(self.source, bad.why).at(Some(place)).with_help(bad.help));
    }
}

/// The means that there are for a key. Limits of processes can say nothing about processors, files or disks, and a disk
/// is always limited.
fn accepted(key: PolicyKey) -> &'static [EnforcementMeans] {
    match key {
        PolicyKey::DegradeDisk => &[EnforcementMeans::Enforced],
        PolicyKey::DegradeCpus | PolicyKey::DegradeLandlock => &[EnforcementMeans::Enforced, EnforcementMeans::None],
        _ => &[EnforcementMeans::Enforced, EnforcementMeans::Rlimit, EnforcementMeans::None],
    }
}

/// Rules are shown on terminals, in logs and in answers: one that could not be read there is refused.
fn showable(text: &str) -> Result<(), BadValue> {
    if !text.contains(|c| is_harmful(c) || matches!(c, '\n' | '\t')) {
        return Ok(());
    }
    Err(BadValue::new("an entry has a character in it that cannot be shown")
        .with_help("write printable characters only"))
}

fn entries(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}
