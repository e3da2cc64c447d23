//! Sentences that explain an effective policy.

use serde::Serialize;

use crate::document::{DnsMode, EnforcementMeans, UnpricedModels, WorkspaceMode};
use crate::effective::EffectivePolicy;
use crate::key::PolicyKey;
use crate::key_value::{KeyValue, texts};
use crate::policy::CompiledPolicy;
use crate::rule::{LayerName, RuleRef};
use crate::secret_files::SECRETS_ENTRY;

/// One sentence about a policy key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The key.
    pub key: PolicyKey,
    /// The sentence.
    pub text: String,
    /// The layer of the rule.
    pub layer: LayerName,
    /// The rule that set the value.
    pub rule: RuleRef,
}

/// Returns a sentence for each relevant key, in the order of the policy file.
pub fn explain(effective: &EffectivePolicy) -> &[Explanation] {
    effective.explanations.get_or_init(|| explain_policy(effective.policy()))
}

fn explain_policy(policy: &CompiledPolicy) -> Vec<Explanation> {
    let to_explanation = |key: &PolicyKey| {
        let text = sentence(policy, *key)?;
        let rule = policy.value(*key).rule();
        Some(Explanation { key: *key, text, layer: rule.layer, rule })
    };
    PolicyKey::ALL.iter().filter_map(to_explanation).collect()
}

fn sentence(policy: &CompiledPolicy, key: PolicyKey) -> Option<String> {
    let value = policy.value(key);
    let shown = value.show();
    let text = match key {
        PolicyKey::FsWorkspace => workspace_sentence(policy.fs.workspace.value).to_owned(),
        PolicyKey::FsRead => outside_workspace(&value, "readable"),
        PolicyKey::FsWrite => outside_workspace(&value, "writable"),
        PolicyKey::FsDenyRead => hidden_sentence(&value)?,
        PolicyKey::FsDenyWrite => list_sentence(&value, "Write-protected in the workspace, existing or not:", ".")?,
        PolicyKey::NetEnabled => return network_off_sentence(policy),
        PolicyKey::NetAllowlist => return network_on_sentence(policy, &value),
        PolicyKey::NetDenylist => denylist_sentence(policy, &value)?,
        PolicyKey::NetIntercept => intercept_sentence(policy, &value)?,
        PolicyKey::NetInject => list_sentence(&value, "Headers that the proxy adds and the sandbox never sees:", ".")
            .filter(|_| policy.net.enabled.value)?,
        PolicyKey::NetPackages => return packages_sentence(policy),
        PolicyKey::NetDns => return dns_sentence(policy),
        PolicyKey::ProcCpus => format!("CPU limit: {shown}."),
        PolicyKey::ProcMemory => format!("Memory limit for all processes together: {shown}."),
        PolicyKey::ProcPids => format!("Limit of processes and threads: {shown}."),
        PolicyKey::ProcTimeout => format!("Time limit: {shown}."),
        PolicyKey::ProcOutput => format!("Output limit for stdout and stderr each: {shown}."),
        PolicyKey::ProcDisk => {
            let note = disk_above_memory(policy).map(|note| format!(" {note}")).unwrap_or_default();
            format!("Disk limit: {shown}.{note}")
        }
        PolicyKey::ProcNofile => format!("Limit of open files per process: {shown}."),
        PolicyKey::ProcSockets => format!("Limit of socket memory: {shown}."),
        PolicyKey::DegradeCpus => degrade_sentence(policy, key, "CPU limit")?,
        PolicyKey::DegradeMemory => degrade_sentence(policy, key, "Memory limit")?,
        PolicyKey::DegradePids => degrade_sentence(policy, key, "Process limit")?,
        PolicyKey::DegradeDisk => degrade_sentence(policy, key, "Disk limit")?,
        PolicyKey::DegradeLandlock => landlock_sentence(policy)?,
        PolicyKey::EnvSet => list_sentence(&value, "Environment variables that the policy sets:", ".")?,
        PolicyKey::PathPrepend => list_sentence(&value, "Directories that are searched first for programs:", ".")?,
        PolicyKey::Toolchains if value.allows_nothing() => "No toolchain of the host is shown.".to_owned(),
        PolicyKey::Toolchains if shown == "[auto]" => {
            "Toolchains of the host that are found are shown read-only; writes to their caches stay in the sandbox."
                .to_owned()
        }
        PolicyKey::Toolchains => format!("Toolchains of the host that are shown read-only: {}.", all_of(&value)),
        PolicyKey::EnvPass => list_sentence(&value, "Environment variables passed from the host:", ".")
            .unwrap_or_else(|| "No environment variables are passed from the host.".to_owned()),
        PolicyKey::ModelsAllow if value.allows_nothing() => "No model can be called.".to_owned(),
        PolicyKey::ModelsAllow if shown == "[*]" => "Any model can be called, through the gateway.".to_owned(),
        PolicyKey::ModelsAllow => format!("Models that can be called, through the gateway: {}.", all_of(&value)),
        PolicyKey::ModelsBudgetUsd => format!("Model budget: ${shown}."),
        PolicyKey::ModelsMaxRequests => format!("Limit of model calls: {shown}."),
        PolicyKey::ModelsMaxTokens => return token_sentence(policy, &shown),
        PolicyKey::ModelsUnpriced => return unpriced_sentence(policy),
        PolicyKey::ToolsAllow if value.allows_nothing() => "No tool call is allowed without approval.".to_owned(),
        PolicyKey::ToolsAllow if shown == "[*]" => "Tool calls are allowed unless another rule applies.".to_owned(),
        PolicyKey::ToolsAllow => format!("Allowed tool calls: {}.", all_of(&value)),
        PolicyKey::ToolsAsk => list_sentence(&value, "Tool calls that need your approval:", ".")?,
        PolicyKey::ToolsDeny => list_sentence(&value, "Denied tool calls:", ".")?,
    };
    Some(text)
}

fn token_sentence(policy: &CompiledPolicy, shown: &str) -> Option<String> {
    let allowed = policy.unpriced.value == UnpricedModels::Allow && calls_models(policy);
    allowed.then(|| format!("Limit of tokens for models without a known price: {shown}."))
}

fn unpriced_sentence(policy: &CompiledPolicy) -> Option<String> {
    let text = match policy.unpriced.value {
        UnpricedModels::Deny => "A model without a known price cannot be called.",
        UnpricedModels::Allow => {
            "A model without a known price can be called; requests and tokens are limited in place of dollars."
        }
    };
    calls_models(policy).then(|| text.to_owned())
}

fn calls_models(policy: &CompiledPolicy) -> bool {
    !policy.value(PolicyKey::ModelsAllow).allows_nothing()
}

fn workspace_sentence(mode: WorkspaceMode) -> &'static str {
    match mode {
        WorkspaceMode::Readonly => "The workspace is read-only.",
        WorkspaceMode::Overlay => "Workspace changes go to an overlay; the host changes only when you apply them.",
        WorkspaceMode::Bind => "Workspace changes are written to the host at once.",
    }
}

fn outside_workspace(value: &KeyValue, access: &str) -> String {
    if value.allows_nothing() {
        return format!("No host path outside the workspace is {access}.");
    }
    format!("Host paths outside the workspace that are {access}: {}.", all_of(value))
}

fn list_sentence(value: &KeyValue, before: &str, after: &str) -> Option<String> {
    let entries = value.entries();
    (!entries.is_empty()).then(|| format!("{before} {}{after}", texts(&entries).join(", ")))
}

fn hidden_sentence(value: &KeyValue) -> Option<String> {
    let entries = value.entries();
    let named: Vec<&str> = texts(&entries).into_iter().filter(|text| *text != SECRETS_ENTRY).collect();
    let secrets = "private keys, env files and credentials that git does not track";
    match (named.len() < entries.len(), named.is_empty()) {
        (false, true) => None,
        (true, true) => Some(format!("Hidden in the workspace: {secrets}.")),
        (true, false) => Some(format!("Hidden in the workspace: {secrets}; {}.", named.join(", "))),
        (false, false) => Some(format!("Hidden in the workspace: {}.", named.join(", "))),
    }
}

/// Joins the entries of a list. With several lists, an entry must match each of them.
fn all_of(value: &KeyValue) -> String {
    let KeyValue::Lists(lists) = value else { return value.show() };
    lists.iter().map(|(entries, _)| texts(entries).join(", ")).collect::<Vec<_>>().join(" that also match ")
}

fn network_off_sentence(policy: &CompiledPolicy) -> Option<String> {
    (!policy.net.enabled.value).then(|| "Network is off; only the model gateway is reachable.".to_owned())
}

fn network_on_sentence(policy: &CompiledPolicy, value: &KeyValue) -> Option<String> {
    if !policy.net.enabled.value {
        return None;
    }
    if value.allows_nothing() {
        return Some("No host is reachable: no host is on every allow-list.".to_owned());
    }
    let entries = policy.net.allowlist.flatten().unwrap_or_default();
    if entries.iter().any(|entry| entry.value.is_registry()) {
        // The registries have a sentence of their own.
        let listed = entries.iter().filter(|entry| !entry.value.is_registry()).map(|entry| entry.value.to_string());
        let listed: Vec<String> = listed.collect();
        return (!listed.is_empty())
            .then(|| format!("Reachable hosts besides the model gateway: {}.", listed.join(", ")));
    }
    Some(format!("Reachable hosts besides the model gateway: {}.", all_of(value)))
}

fn packages_sentence(policy: &CompiledPolicy) -> Option<String> {
    if !policy.net.enabled.value || !policy.net.packages.value {
        return None;
    }
    let entries = policy.net.allowlist.flatten().unwrap_or_default();
    let named: Vec<String> = entries
        .iter()
        .filter(|entry| entry.value.is_registry())
        .map(|entry| format!("{} ({})", entry.value, entry.rule.file))
        .collect();
    if named.is_empty() {
        return Some("Package registries: none besides the hosts above.".to_owned());
    }
    Some(format!("Package registries of this host's tools: {}.", named.join(", ")))
}

fn denylist_sentence(policy: &CompiledPolicy, value: &KeyValue) -> Option<String> {
    if !policy.net.enabled.value {
        return None;
    }
    let entries = value.entries();
    let ceiling = entries.iter().filter(|item| item.rule.layer == LayerName::Ceiling).count();
    let own: Vec<_> = entries.into_iter().filter(|item| item.rule.layer != LayerName::Ceiling).collect();
    let built_in = format!("model vendors, metadata services and private networks ({ceiling} rules)");
    let named: Vec<&str> = texts(&own).into_iter().chain((ceiling > 0).then_some(built_in.as_str())).collect();
    (!named.is_empty()).then(|| format!("Denied hosts: {}.", named.join(", ")))
}

fn dns_sentence(policy: &CompiledPolicy) -> Option<String> {
    let answered = policy.net.enabled.value && policy.net.dns.value == DnsMode::Stub;
    answered.then(|| "DNS inside the sandbox answers allowed names with a placeholder address.".to_owned())
}

fn intercept_sentence(policy: &CompiledPolicy, value: &KeyValue) -> Option<String> {
    let after = ": each request is checked, and only HTTP passes.";
    list_sentence(value, "The proxy decrypts TLS to", after).filter(|_| policy.net.enabled.value)
}

fn landlock_sentence(policy: &CompiledPolicy) -> Option<String> {
    let missing = policy.degrade.get(&PolicyKey::DegradeLandlock)?.value != EnforcementMeans::Enforced;
    missing.then(|| "On a kernel without Landlock, only the mounts protect files.".to_owned())
}

/// Returns warnings about values that cannot take full effect.
pub fn warnings(policy: &CompiledPolicy) -> Vec<String> {
    let disk = disk_above_memory(policy).map(|note| format!("`proc.disk` is greater than `proc.memory`. {note}"));
    let dead = policy.value(PolicyKey::FsRead).allows_nothing().then(|| {
        "`fs.read` is empty: no program of the host is visible, so nothing can run. Add `extends: balanced`.".to_owned()
    });
    dead.into_iter().chain(disk).collect()
}

fn disk_above_memory(policy: &CompiledPolicy) -> Option<String> {
    let (disk, memory) = (policy.limits.get(&PolicyKey::ProcDisk)?, policy.limits.get(&PolicyKey::ProcMemory)?);
    (disk.value > memory.value).then(|| {
        let memory = policy.show(PolicyKey::ProcMemory);
        format!("Written files are held in memory: where memory is enforced, its limit of {memory} is reached first.")
    })
}

/// Returns the sentence for a limit that may be enforced by weaker means.
fn degrade_sentence(policy: &CompiledPolicy, key: PolicyKey, subject: &str) -> Option<String> {
    match (policy.degrade.get(&key)?.value, key) {
        (EnforcementMeans::Enforced, _) => None,
        (EnforcementMeans::None, _) => Some(format!("{subject} is best effort.")),
        (EnforcementMeans::Rlimit, PolicyKey::DegradePids) => Some(
            "Without cgroups, the process limit counts all processes and threads of the user; before Linux 5.14 this \
             includes those outside the sandbox."
                .to_owned(),
        ),
        (EnforcementMeans::Rlimit, _) => Some(
            "Without cgroups, the memory limit applies to the private memory of each process; shared memory, files in \
             memory (memfd, tmpfs) and socket buffers are not counted."
                .to_owned(),
        ),
    }
}
