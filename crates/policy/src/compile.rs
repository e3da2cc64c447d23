//! Compiles a document into a policy.
//!
//! Each invalid value becomes a finding with its position in the text.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::allow_list::{AllowList, AllowLists};
use crate::deny_list::DenyList;
use crate::document::{
    DegradeSection, EnforcementMeans, NetSection, PolicyDocument, ProcSection, TextList, ToolsSection, WordOrList,
};
use crate::finding::{PolicyError, PolicyFinding, is_terminal_control};
use crate::key::PolicyKey;
use crate::limit;
use crate::pattern::{
    ConnectionPattern, DenyPattern, EndpointPattern, ExactText, InjectPattern, NamePattern, PathGlob, PathPrefix,
    Pattern, ToolPattern, VariableName,
};
use crate::policy::{CompiledPolicy, NetRules};
use crate::rule::{LayerName, RuleRef, WithRule};
use crate::source::{PolicySource, SourcePosition, Spanned};
use crate::tool_gate::{ToolGate, ToolGates};
use crate::value::InvalidValue;

/// A compiled layer and the keys that its text sets.
#[derive(Debug, Clone)]
pub(crate) struct CompiledLayer {
    pub(crate) policy: CompiledPolicy,
    pub(crate) set_keys: BTreeSet<PolicyKey>,
}

/// Compiles `document`. A key that is absent keeps its value of `absent`.
pub(crate) fn compile(
    source: &PolicySource,
    document: &PolicyDocument,
    layer: LayerName,
    absent: &CompiledPolicy,
) -> Result<CompiledLayer, PolicyError> {
    let mut compiler = LayerCompiler { source, layer, set_keys: BTreeSet::new(), findings: Vec::new() };
    let mut policy = absent.clone();
    compiler.compile_fs(document, &mut policy);
    compiler.compile_net(document, &mut policy);
    compiler.compile_limits(document, &mut policy);
    if let Some(degrade) = &document.degrade {
        compiler.compile_degrade(degrade, &mut policy);
    }
    if let Some(list) = document.env.as_ref().and_then(|env| env.pass.as_ref()) {
        policy.env = compiler.compile_allow_list(PolicyKey::EnvPass, list, VariableName::parse);
    }
    if let Some(list) = document.env.as_ref().and_then(|env| env.set.as_ref()) {
        policy.env_set = compiler.compile_allow_list(PolicyKey::EnvSet, list, ExactText::parse_assignment);
    }
    if let Some(list) = document.path.as_ref().and_then(|path| path.prepend.as_ref()) {
        policy.path_prepend = compiler.compile_allow_list(PolicyKey::PathPrepend, list, ExactText::parse_directory);
    }
    if let Some(words) = &document.toolchains {
        policy.toolchains = compiler.compile_toolchains(words);
    }
    compiler.check_extends(document);
    if let Some(list) = document.models.as_ref().and_then(|models| models.allow.as_ref()) {
        policy.models = compiler.compile_allow_list(PolicyKey::ModelsAllow, list, NamePattern::parse);
    }
    if let Some(unpriced) = document.models.as_ref().and_then(|models| models.unpriced.as_ref()) {
        policy.unpriced = compiler.with_rule(PolicyKey::ModelsUnpriced, unpriced.value, unpriced.position);
    }
    if let Some(tools) = &document.tools {
        compiler.compile_tools(tools, &mut policy);
    }
    if compiler.findings.is_empty() {
        Ok(CompiledLayer { policy, set_keys: compiler.set_keys })
    } else {
        Err(PolicyError::new(source, compiler.findings))
    }
}

struct LayerCompiler<'a> {
    source: &'a PolicySource,
    layer: LayerName,
    set_keys: BTreeSet<PolicyKey>,
    findings: Vec<PolicyFinding>,
}

impl LayerCompiler<'_> {
    fn compile_fs(&mut self, document: &PolicyDocument, policy: &mut CompiledPolicy) {
        let Some(fs) = &document.fs else { return };
        if let Some(mode) = &fs.workspace {
            policy.fs.workspace = self.with_rule(PolicyKey::FsWorkspace, mode.value, mode.position);
        }
        if let Some(list) = &fs.read {
            policy.fs.read = self.compile_allow_list(PolicyKey::FsRead, list, PathPrefix::parse);
        }
        if let Some(list) = &fs.write {
            policy.fs.write = self.compile_allow_list(PolicyKey::FsWrite, list, PathPrefix::parse);
        }
        if let Some(list) = &fs.deny_read {
            policy.fs.deny_read = DenyList::new(self.entries(PolicyKey::FsDenyRead, list, PathGlob::parse));
        }
        if let Some(list) = &fs.deny_write {
            policy.fs.deny_write = DenyList::new(self.entries(PolicyKey::FsDenyWrite, list, PathGlob::parse_path));
        }
    }

    fn compile_net(&mut self, document: &PolicyDocument, policy: &mut CompiledPolicy) {
        let Some(net) = &document.net else { return };
        if let Some(enabled) = &net.enabled {
            policy.net.enabled = self.with_rule(PolicyKey::NetEnabled, enabled.value, enabled.position);
        }
        if let Some(list) = &net.allowlist {
            policy.net.allowlist = self.compile_allow_list(PolicyKey::NetAllowlist, list, ConnectionPattern::parse);
        }
        if let Some(list) = &net.denylist {
            policy.net.denylist = DenyList::new(self.entries(PolicyKey::NetDenylist, list, DenyPattern::parse));
        }
        if let Some(list) = &net.intercept {
            policy.net.intercept = DenyList::new(self.entries(PolicyKey::NetIntercept, list, EndpointPattern::parse));
        }
        if let Some(packages) = &net.packages {
            policy.net.packages = self.with_rule(PolicyKey::NetPackages, packages.value, packages.position);
            self.check_packages(net);
        }
        if let Some(dns) = &net.dns {
            policy.net.dns = self.with_rule(PolicyKey::NetDns, dns.value, dns.position);
        }
        if let Some(list) = &net.inject {
            policy.net.inject = self.compile_allow_list(PolicyKey::NetInject, list, InjectPattern::parse);
            self.check_injections(list, &policy.net);
        }
    }

    /// Reports a base that opens package registries and disables the network.
    fn check_packages(&mut self, net: &NetSection) {
        let (Some(packages), Some(enabled)) = (&net.packages, &net.enabled) else { return };
        if self.layer == LayerName::Base && packages.value && !enabled.value {
            let bad = InvalidValue::new("`net.packages: true` contradicts `net.enabled: false`");
            let help = "remove `enabled: false`: `packages: true` alone opens the package registries and nothing else";
            self.report(bad.with_help(help), packages.position);
        }
    }

    /// Reports contradictory injections, and injections into TLS that the proxy does not intercept.
    fn check_injections(&mut self, list: &TextList, net: &NetRules) {
        let parsed: Vec<_> = list
            .value
            .iter()
            .filter_map(|written| Some((InjectPattern::parse(&written.value).ok()?, written)))
            .collect();
        for (number, (entry, written)) in parsed.iter().enumerate() {
            if let Some((other, _)) = parsed[..number].iter().find(|(other, _)| entry.contradicts(other)) {
                let bad = InvalidValue::new(format!("`{entry}` and `{other}` set the same header of the same host"));
                self.report(bad.with_help("remove one of them"), written.position);
            }
            let opened = net.intercept.find(|pattern| pattern.covers(&entry.endpoint)).is_some();
            // Another layer may intercept the host of a narrowing layer. A base layer must be complete.
            if self.layer == LayerName::Base && entry.endpoint.is_usually_tls() && !opened {
                let bad = InvalidValue::new(format!("cannot inject `{entry}`: TLS to this host is not intercepted"));
                let help = format!("add \"{}\" under `net.intercept`, or name a port with plain HTTP", entry.endpoint);
                self.report(bad.with_help(help), written.position);
            }
        }
    }

    /// Compiles `toolchains`. `none` is an empty list.
    fn compile_toolchains(&mut self, words: &Spanned<WordOrList>) -> AllowLists<ExactText> {
        let WordOrList(all) = &words.value;
        let is_none = all.len() == 1 && all.first().is_some_and(|word| word.value == "none");
        // A single word has the position of the value.
        let located = |word: &Spanned<String>| {
            let has_position = word.position != SourcePosition::default();
            Spanned::at(word.value.clone(), if has_position { word.position } else { words.position })
        };
        let entries = if is_none { Vec::new() } else { all.iter().map(located).collect() };
        let list = Spanned::at(entries, words.position);
        self.compile_allow_list(PolicyKey::Toolchains, &list, ExactText::parse_toolchain)
    }

    /// Reports `extends` in a layer that only takes away: it would have no effect there.
    fn check_extends(&mut self, document: &PolicyDocument) {
        if let Some(extends) = document.extends.as_ref().filter(|_| self.layer != LayerName::Base) {
            let bad = InvalidValue::new("`extends` works only in the policy that a person chose");
            self.report(bad.with_help("remove this line: this policy only takes away"), extends.position);
        }
    }

    fn compile_limits(&mut self, document: &PolicyDocument, policy: &mut CompiledPolicy) {
        let empty = ProcSection::default();
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
            (PolicyKey::ProcSockets, proc.sockets.as_ref()),
            (PolicyKey::ModelsBudgetUsd, models.and_then(|models| models.budget_usd.as_ref())),
            (PolicyKey::ModelsMaxRequests, models.and_then(|models| models.max_requests.as_ref())),
            (PolicyKey::ModelsMaxTokens, models.and_then(|models| models.max_tokens.as_ref())),
        ];
        for (key, text) in written {
            let Some(text) = text else { continue };
            match limit::parse(key, &text.value) {
                Ok(value) => {
                    let rule = self.rule(key, &limit::show(key, value), text.position);
                    policy.limits.insert(key, WithRule::new(value, rule));
                }
                Err(bad) => self.report(bad, text.position),
            }
            self.set_keys.insert(key);
        }
    }

    fn compile_degrade(&mut self, degrade: &DegradeSection, policy: &mut CompiledPolicy) {
        let written = [
            (PolicyKey::DegradeCpus, &degrade.cpus),
            (PolicyKey::DegradeMemory, &degrade.memory),
            (PolicyKey::DegradePids, &degrade.pids),
            (PolicyKey::DegradeDisk, &degrade.disk),
            (PolicyKey::DegradeLandlock, &degrade.landlock),
        ];
        for (key, means) in written {
            let Some(means) = means else { continue };
            if !accepted_means(key).contains(&means.value) {
                let words: Vec<_> = accepted_means(key).iter().map(|means| means.as_str()).collect();
                let bad = InvalidValue::new(format!("`{key}` does not accept `{}`", means.value.as_str()));
                self.report(bad.with_help(format!("accepted here: {}", words.join(", "))), means.position);
            }
            let ruled = self.with_rule(key, means.value, means.position);
            policy.degrade.insert(key, ruled);
        }
    }

    /// Compiles the tool lists as one gate. An absent `allow` allows nothing in a base and has no opinion in other
    /// layers.
    fn compile_tools(&mut self, tools: &ToolsSection, policy: &mut CompiledPolicy) {
        if tools.allow.is_none() && tools.ask.is_none() && tools.deny.is_none() {
            return;
        }
        let absent = policy.tools.gates().first().cloned();
        let position = [&tools.allow, &tools.ask, &tools.deny].into_iter().flatten().next().map(|list| list.position);
        let mut list =
            |key, texts: &Option<TextList>| texts.as_ref().map(|texts| self.entries(key, texts, ToolPattern::parse));
        let allow = list(PolicyKey::ToolsAllow, &tools.allow);
        let ask = list(PolicyKey::ToolsAsk, &tools.ask);
        let deny = list(PolicyKey::ToolsDeny, &tools.deny);
        let count = allow.as_ref().map_or(0, Vec::len) + ask.as_ref().map_or(0, Vec::len);
        let rule = self.rule_text(
            format!("tools.allow and tools.ask have {}, none match", entry_count(count)),
            position.unwrap_or_default(),
        );
        policy.tools = ToolGates::one(ToolGate {
            allow: allow.or_else(|| absent.as_ref().and_then(|gate| gate.allow.clone())),
            ask: ask.or_else(|| absent.as_ref().map(|gate| gate.ask.clone())).unwrap_or_default(),
            deny: deny.or_else(|| absent.as_ref().map(|gate| gate.deny.clone())).unwrap_or_default(),
            default_rule: WithRule::new((), rule),
        });
    }

    fn compile_allow_list<P: Pattern>(
        &mut self,
        key: PolicyKey,
        list: &TextList,
        parse: impl Fn(&str) -> Result<P, InvalidValue>,
    ) -> AllowLists<P> {
        let parsed = self.entries(key, list, parse);
        let text = match parsed.len() {
            0 => format!("{key} is empty"),
            count => format!("{key} has {}, none match", entry_count(count)),
        };
        AllowLists::one(AllowList::new(parsed, self.rule_text(text, list.position)))
    }

    fn entries<P: Display>(
        &mut self,
        key: PolicyKey,
        list: &TextList,
        parse: impl Fn(&str) -> Result<P, InvalidValue>,
    ) -> Vec<WithRule<P>> {
        self.set_keys.insert(key);
        let mut parsed = Vec::new();
        for Spanned { value, position } in &list.value {
            match check_printable(value).and_then(|()| parse(value)) {
                Ok(pattern) => {
                    let rule = self.rule_text(format!("{key}: \"{pattern}\""), *position);
                    parsed.push(WithRule::new(pattern, rule));
                }
                Err(bad) => self.report(bad, *position),
            }
        }
        parsed
    }

    fn with_rule<T: ToString>(&mut self, key: PolicyKey, value: T, position: SourcePosition) -> WithRule<T> {
        self.set_keys.insert(key);
        let rule = self.rule(key, &value.to_string(), position);
        WithRule::new(value, rule)
    }

    fn rule(&self, key: PolicyKey, value: &str, position: SourcePosition) -> RuleRef {
        self.rule_text(format!("{key}: {value}"), position)
    }

    fn rule_text(&self, text: String, position: SourcePosition) -> RuleRef {
        let line = (position.line > 0).then_some(position.line);
        RuleRef { file: self.source.name().to_owned(), line, text, layer: self.layer }
    }

    fn report(&mut self, bad: InvalidValue, position: SourcePosition) {
        self.findings.push(PolicyFinding::new(self.source, bad.message).at(Some(position)).with_help(bad.help));
    }
}

/// Returns the means that exist for a key. A process limit (rlimit) cannot limit CPUs, Landlock or the disk, and the
/// disk is always limited.
fn accepted_means(key: PolicyKey) -> &'static [EnforcementMeans] {
    match key {
        PolicyKey::DegradeDisk => &[EnforcementMeans::Enforced],
        PolicyKey::DegradeCpus | PolicyKey::DegradeLandlock => &[EnforcementMeans::Enforced, EnforcementMeans::None],
        _ => &[EnforcementMeans::Enforced, EnforcementMeans::Rlimit, EnforcementMeans::None],
    }
}

/// Rejects control characters: rules are shown on terminals, in logs and in responses.
fn check_printable(text: &str) -> Result<(), InvalidValue> {
    if !text.contains(|c| is_terminal_control(c) || matches!(c, '\n' | '\t')) {
        return Ok(());
    }
    Err(InvalidValue::new("the entry contains a character that cannot be printed")
        .with_help("use printable characters only"))
}

fn entry_count(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}
