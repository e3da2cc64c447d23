//! What a session may do, in sentences.

use serde::Serialize;

use crate::document::{DnsMode, EnforcementMeans, WorkspaceMode};
use crate::effective::EffectivePolicy;
use crate::inspect::{Value, texts};
use crate::key::PolicyKey;
use crate::policy::CompiledPolicy;
use crate::rule::{LayerName, RuleRef};

/// One sentence about what a session may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The key it speaks of.
    pub key: PolicyKey,
    /// The sentence.
    pub text: String,
    /// The layer it comes from.
    pub layer: LayerName,
    /// The rule it comes from.
    pub rule: RuleRef,
}

/// Says what a session may do, in the order of the policy file.
pub fn explain(effective: &EffectivePolicy) -> &[Explanation] {
    effective.sentences.get_or_init(|| tell(effective.policy()))
}

fn tell(policy: &CompiledPolicy) -> Vec<Explanation> {
    let told = |key: &PolicyKey| {
        let text = sentence(policy, *key)?;
        let rule = policy.value(*key).rule();
        Some(Explanation { key: *key, text, layer: rule.layer, rule })
    };
    PolicyKey::ALL.iter().filter_map(told).collect()
}

fn sentence(policy: &CompiledPolicy, key: PolicyKey) -> Option<String> {
    let value = policy.value(key);
    let shown = value.show();
    let text = match key {
        PolicyKey::FsWorkspace => workspace(policy.fs.workspace.value).to_owned(),
        PolicyKey::FsRead => beside(&value, "reads nothing of the host", "reads"),
        PolicyKey::FsWrite => beside(&value, "changes nothing of the host", "reads and changes"),
        PolicyKey::FsDenyRead => named(&value, "In the workspace it never sees", ".")?,
        PolicyKey::FsDenyWrite => {
            named(&value, "In the workspace it never changes", ", whether it exists yet or not.")?
        }
        PolicyKey::NetEnabled => return network_off(policy),
        PolicyKey::NetAllowlist => return network_on(policy, &value),
        PolicyKey::NetDenylist => denied(policy, &value)?,
        PolicyKey::NetIntercept => intercepted(policy, &value)?,
        PolicyKey::NetInject => named(&value, "The proxy adds to its requests, and it never sees,", ".")
            .filter(|_| policy.net.enabled.value)?,
        PolicyKey::NetDns => return names(policy),
        PolicyKey::ProcCpus => format!("It uses at most {shown} processors."),
        PolicyKey::ProcMemory => format!("Its processes use at most {shown} of memory together."),
        PolicyKey::ProcPids => format!("It has at most {shown} processes and threads at once."),
        PolicyKey::ProcTimeout => format!("It is stopped after {shown}."),
        PolicyKey::ProcOutput => format!("At most {shown} of each of its outputs are kept."),
        PolicyKey::ProcDisk => {
            let note = disk_above_memory(policy).map(|note| format!(" {note}")).unwrap_or_default();
            format!("It writes at most {shown}.{note}")
        }
        PolicyKey::ProcNofile => format!("Each of its processes opens at most {shown} files."),
        PolicyKey::DegradeCpus => degraded(policy, key, "its use of processors")?,
        PolicyKey::DegradeMemory => degraded(policy, key, "its memory")?,
        PolicyKey::DegradePids => degraded(policy, key, "the number of its processes")?,
        PolicyKey::DegradeDisk => degraded(policy, key, "what it writes")?,
        PolicyKey::DegradeLandlock => landlock(policy)?,
        PolicyKey::EnvPass => named(&value, "Of your environment it gets", " and nothing else.")
            .unwrap_or_else(|| "It gets nothing of your environment.".to_owned()),
        PolicyKey::ModelsAllow if value.is_nothing() => "It calls no model.".to_owned(),
        PolicyKey::ModelsAllow if shown == "[*]" => "It calls any model, through the gateway.".to_owned(),
        PolicyKey::ModelsAllow => format!("It calls models named {}, through the gateway.", all_of(&value)),
        PolicyKey::ModelsBudgetUsd => format!("It spends at most ${shown} on models."),
        PolicyKey::ModelsMaxRequests => format!("It makes at most {shown} model calls."),
        PolicyKey::ToolsAllow if value.is_nothing() => "No tool call passes without being asked about.".to_owned(),
        PolicyKey::ToolsAllow if shown == "[*]" => "Tool calls pass unless another rule stops them.".to_owned(),
        PolicyKey::ToolsAllow => format!("Tool calls pass when they are {}.", all_of(&value)),
        PolicyKey::ToolsAsk => named(&value, "You are asked about", ".")?,
        PolicyKey::ToolsDeny => named(&value, "Tool calls never pass when they are", ".")?,
    };
    Some(text)
}

fn workspace(mode: WorkspaceMode) -> &'static str {
    match mode {
        WorkspaceMode::Readonly => "It reads the workspace and changes nothing in it.",
        WorkspaceMode::Overlay => "It changes a layer above the workspace; the host changes only when you apply it.",
        WorkspaceMode::Bind => "It changes the workspace on the host, at once.",
    }
}

fn beside(value: &Value, nothing: &str, verb: &str) -> String {
    if value.is_nothing() {
        return format!("Beside the workspace it {nothing}.");
    }
    format!("Beside the workspace it {verb} {}.", all_of(value))
}

fn named(value: &Value, before: &str, after: &str) -> Option<String> {
    let items = value.items();
    (!items.is_empty()).then(|| format!("{before} {}{after}", texts(&items).join(", ")))
}

/// A list; with several of them, what is in each.
fn all_of(value: &Value) -> String {
    let Value::Lists(lists) = value else { return value.show() };
    lists.iter().map(|(items, _)| texts(items).join(", ")).collect::<Vec<_>>().join(" and at the same time ")
}

fn network_off(policy: &CompiledPolicy) -> Option<String> {
    (!policy.net.enabled.value).then(|| "It reaches nothing over the network but the model gateway.".to_owned())
}

fn network_on(policy: &CompiledPolicy, value: &Value) -> Option<String> {
    if !policy.net.enabled.value {
        return None;
    }
    if value.is_nothing() {
        return Some("It reaches no host: nothing is on every allow-list.".to_owned());
    }
    Some(format!("It reaches {}, and nothing else over the network but the model gateway.", all_of(value)))
}

fn denied(policy: &CompiledPolicy, value: &Value) -> Option<String> {
    if !policy.net.enabled.value {
        return None;
    }
    let items = value.items();
    let ceiling = items.iter().filter(|item| item.rule.layer == LayerName::Ceiling).count();
    let own: Vec<_> = items.into_iter().filter(|item| item.rule.layer != LayerName::Ceiling).collect();
    let built_in = format!("model vendors' own addresses, metadata services and private networks ({ceiling} rules)");
    let named: Vec<&str> = texts(&own).into_iter().chain((ceiling > 0).then_some(built_in.as_str())).collect();
    (!named.is_empty()).then(|| format!("It never reaches {}.", named.join(", ")))
}

fn names(policy: &CompiledPolicy) -> Option<String> {
    let answered = policy.net.enabled.value && policy.net.dns.value == DnsMode::Stub;
    answered.then(|| "Names it may reach are answered inside, with an address that leads nowhere.".to_owned())
}

fn intercepted(policy: &CompiledPolicy, value: &Value) -> Option<String> {
    let after = " is opened by the proxy: each request is judged, and only HTTP passes.";
    named(value, "Its TLS to", after).filter(|_| policy.net.enabled.value)
}

fn landlock(policy: &CompiledPolicy) -> Option<String> {
    let missing = policy.degrade.get(&PolicyKey::DegradeLandlock)?.value != EnforcementMeans::Enforced;
    missing.then(|| "On a kernel without Landlock, the mounts alone guard its files.".to_owned())
}

/// What is allowed and yet will not be had.
pub fn warnings(policy: &CompiledPolicy) -> Vec<String> {
    let disk = disk_above_memory(policy).map(|note| format!("`proc.disk` is above `proc.memory`. {note}"));
    disk.into_iter().collect()
}

fn disk_above_memory(policy: &CompiledPolicy) -> Option<String> {
    let (disk, memory) = (policy.bounds.get(&PolicyKey::ProcDisk)?, policy.bounds.get(&PolicyKey::ProcMemory)?);
    (disk.value > memory.value).then(|| {
        let memory = policy.show(PolicyKey::ProcMemory);
        format!(
            "What it writes lies in memory: where its {memory} of memory are counted for all processes together, they \
             count first."
        )
    })
}

/// What is left of a limit where a weaker means is accepted for it, which may still be a better one than the weakest.
fn degraded(policy: &CompiledPolicy, key: PolicyKey, subject: &str) -> Option<String> {
    let left = match (policy.degrade.get(&key)?.value, key) {
        (EnforcementMeans::Enforced, _) => return None,
        (EnforcementMeans::None, _) => return Some(format!("Where the machine cannot limit {subject}, it need not.")),
        (EnforcementMeans::Rlimit, PolicyKey::DegradePids) => {
            "its processes and threads are counted by their user: before Linux 5.14, whatever else runs as that user \
             counts too"
        }
        // A limit of each process does not see what belongs to none of them.
        (EnforcementMeans::Rlimit, _) => {
            "each of its processes has its own limit of private memory; what they share, and files in memory (memfd, \
             tmpfs), are beside that"
        }
    };
    Some(format!("Where the machine cannot do better, {left}."))
}
