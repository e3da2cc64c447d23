//! What a session may do, after all layers met: plain values for those who enforce it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use base::Digest;
use serde::Serialize;

use crate::decision::{Action, Decision};
use crate::denials::FileDenials;
use crate::deny::DenyGlobs;
use crate::document::{DnsMode, EnforcementMeans, WorkspaceMode};
use crate::explain::Explanation;
use crate::key::PolicyKey;
use crate::pattern::{Endpoint, InjectPattern, HeaderInjection, Pattern};
use crate::policy::CompiledPolicy;

/// Keys that sessions of earlier versions did not have, with the value that says nothing.
const LATER: [(&str, &str); 3] = [("net.intercept", "[]"), ("net.inject", "[]"), ("net.dns", "none")];

/// The policy of one session.
///
/// Every getter is at least as strict as each layer that went in. A key no layer spoke of cannot occur,
/// because a base fills in every key; were it to, the getter answers with the strictest value.
#[derive(Debug, Clone)]
pub struct EffectivePolicy {
    policy: CompiledPolicy,
    /// What nothing passes that is granted later.
    pub(crate) ceiling: CompiledPolicy,
    deny_read: DenyGlobs,
    deny_write: DenyGlobs,
    /// Made when somebody asks; every session does.
    digest: OnceLock<String>,
    /// The same, in words.
    pub(crate) sentences: OnceLock<Vec<Explanation>>,
    /// The network in short: what is never reached is a long list.
    net: OnceLock<NetPolicy>,
}

impl PartialEq for EffectivePolicy {
    fn eq(&self, other: &Self) -> bool {
        // The rest is made of it.
        self.policy == other.policy
    }
}

impl Eq for EffectivePolicy {}

/// Files.
#[derive(Debug, Clone)]
pub struct FsPolicy {
    /// How the workspace is shown.
    pub workspace_mode: WorkspaceMode,
    /// Host paths shown read-only.
    pub read_paths: Vec<PathBuf>,
    /// Host paths shown writable.
    pub write_paths: Vec<PathBuf>,
    /// What in the workspace is hidden.
    pub deny_read: DenyGlobs,
    /// What in the workspace is never changed.
    pub deny_write: DenyGlobs,
}

/// The network, in short; single connections are decided by [`EffectivePolicy::decide`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetPolicy {
    /// Whether there is anything but the model gateway.
    pub enabled: bool,
    /// What can be reached, in the words of the policy file.
    pub allowlist: Vec<String>,
    /// What is never reached.
    pub denylist: Vec<String>,
    /// Where TLS is opened and each request judged.
    pub intercept: Vec<String>,
    /// Names of the credentials that the proxy sets in headers.
    pub credentials: BTreeSet<String>,
    /// Whether names are answered inside.
    pub dns: DnsMode,
}

impl NetPolicy {
    /// Whether the egress proxy has anything to do but refuse.
    pub fn is_open(&self) -> bool {
        self.enabled && !self.allowlist.is_empty()
    }
}

/// What processes may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResourceLimits {
    /// Thousandths of a processor.
    pub cpu_millis: u64,
    /// Memory of all processes together.
    pub memory_bytes: u64,
    /// Processes and threads alive at once.
    pub pids: u64,
    /// Wall time.
    pub timeout: Duration,
    /// Bytes kept of each of stdout and stderr.
    pub output_bytes: u64,
    /// Bytes that can be written.
    pub disk_bytes: u64,
    /// Open files of a process.
    pub nofile: u64,
}

impl ResourceLimits {
    /// Processors, as a number people know.
    #[allow(clippy::cast_precision_loss)] // For show; a machine has fewer than 2⁵² thousandths of a processor.
    pub fn cpus(&self) -> f64 {
        self.cpu_millis as f64 / 1000.0
    }
}

/// The weakest means accepted for each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DegradePolicy {
    /// For processors.
    pub cpus: EnforcementMeans,
    /// For memory.
    pub memory: EnforcementMeans,
    /// For processes.
    pub pids: EnforcementMeans,
    /// For bytes written.
    pub disk: EnforcementMeans,
    /// For Landlock.
    pub landlock: EnforcementMeans,
}

/// Models and money.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelPolicy {
    /// Lists of patterns; a model must be matched by each list.
    pub allow: Vec<Vec<String>>,
    /// What may be spent, in pico-dollars.
    pub budget_picos: u64,
    /// How many calls may be made.
    pub max_requests: u64,
}

/// The tool gate of one layer; a call must pass every gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolRules {
    /// Calls that pass; `None` when the layer has no opinion.
    pub allow: Option<Vec<String>>,
    /// Calls a person is asked about.
    pub ask: Vec<String>,
    /// Calls that never pass.
    pub deny: Vec<String>,
}

impl EffectivePolicy {
    pub(crate) fn new(policy: CompiledPolicy, ceiling: CompiledPolicy) -> Self {
        Self {
            deny_read: DenyGlobs::new(&policy.fs.deny_read),
            deny_write: DenyGlobs::new(&policy.fs.deny_write),
            digest: OnceLock::new(),
            sentences: OnceLock::new(),
            net: OnceLock::new(),
            policy,
            ceiling,
        }
    }

    /// The compiled policy, rules included.
    pub fn policy(&self) -> &CompiledPolicy {
        &self.policy
    }

    /// Whether `action` may be done, and by which rule.
    pub fn decide(&self, action: &Action) -> Decision {
        self.policy.decide(action)
    }

    /// Whether an address that an allowed name was resolved to may be dialled.
    pub fn decide_address(&self, address: IpAddr, port: u16) -> Decision {
        self.policy.decide_address(address, port)
    }

    /// Whether a tunnel to `endpoint` is opened, so that each request in it is judged.
    pub fn intercepts(&self, endpoint: &Endpoint) -> bool {
        self.policy.net.intercepting(endpoint).is_some()
    }

    /// Whether a name may be known inside: some port of it may be reached.
    pub fn decide_name(&self, name: &str) -> Decision {
        self.policy.net.decide_name(name)
    }

    /// The headers that the proxy sets on requests to `endpoint`, each once.
    pub fn injections(&self, endpoint: &Endpoint) -> Vec<HeaderInjection> {
        let mut found: Vec<HeaderInjection> =
            self.injected().filter(|entry| entry.matches(endpoint)).map(|entry| entry.injection).collect();
        found.sort();
        found.dedup_by(|later, first| later.header == first.header);
        found
    }

    fn injected(&self) -> impl Iterator<Item = InjectPattern> {
        self.policy.net.inject.flatten().unwrap_or_default().into_iter().map(|entry| entry.value)
    }

    /// Whether some request to a host whose TLS is opened may pass, and by which rule.
    pub fn decide_intercepted_host(&self, host: &str, port: u16) -> Decision {
        self.policy.net.decide_opening(host, port)
    }

    /// Files.
    pub fn fs(&self) -> FsPolicy {
        let fs = &self.policy.fs;
        let paths = |lists: &crate::allow::AllowLists<crate::pattern::PathPrefix>| -> Vec<PathBuf> {
            let flat = lists.flatten().unwrap_or_default();
            flat.iter().map(|entry| entry.value.as_path().to_owned()).collect()
        };
        FsPolicy {
            workspace_mode: fs.workspace.value,
            read_paths: paths(&fs.read),
            write_paths: paths(&fs.write),
            deny_read: self.deny_read.clone(),
            deny_write: self.deny_write.clone(),
        }
    }

    /// What of the workspace is never written, in a form that can be stored.
    pub fn file_denials(&self) -> FileDenials {
        FileDenials::of(&self.policy)
    }

    /// Who answers when a name is looked up inside.
    pub fn dns_mode(&self) -> DnsMode {
        let net = &self.policy.net;
        if net.enabled.value { net.dns.value } else { DnsMode::None }
    }

    /// The network.
    pub fn net(&self) -> &NetPolicy {
        self.net.get_or_init(|| self.tell_net())
    }

    fn tell_net(&self) -> NetPolicy {
        let net = &self.policy.net;
        let allowed = net.allowlist.flatten().unwrap_or_default();
        NetPolicy {
            enabled: net.enabled.value,
            allowlist: allowed.iter().map(|entry| entry.value.to_string()).collect(),
            denylist: net.denylist.entries().map(|entry| entry.value.to_string()).collect(),
            intercept: net.intercept.entries().map(show).collect(),
            credentials: self.injected().map(|entry| entry.injection.credential).collect(),
            dns: self.dns_mode(),
        }
    }

    /// What processes may use.
    pub fn limits(&self) -> ResourceLimits {
        ResourceLimits {
            cpu_millis: self.bound(PolicyKey::ProcCpus),
            memory_bytes: self.bound(PolicyKey::ProcMemory),
            pids: self.bound(PolicyKey::ProcPids),
            timeout: Duration::from_millis(self.bound(PolicyKey::ProcTimeout)),
            output_bytes: self.bound(PolicyKey::ProcOutput),
            disk_bytes: self.bound(PolicyKey::ProcDisk),
            nofile: self.bound(PolicyKey::ProcNofile),
        }
    }

    /// The weakest means accepted for each key.
    pub fn degrade(&self) -> DegradePolicy {
        let means = |key| self.policy.degrade.get(&key).map_or(EnforcementMeans::Enforced, |ruled| ruled.value);
        DegradePolicy {
            cpus: means(PolicyKey::DegradeCpus),
            memory: means(PolicyKey::DegradeMemory),
            pids: means(PolicyKey::DegradePids),
            disk: means(PolicyKey::DegradeDisk),
            landlock: means(PolicyKey::DegradeLandlock),
        }
    }

    /// Names of the variables passed from the host.
    pub fn env_pass(&self) -> Vec<String> {
        let flat = self.policy.env.flatten().unwrap_or_default();
        flat.iter().map(|entry| entry.value.as_str().to_owned()).collect()
    }

    /// Models and money.
    pub fn models(&self) -> ModelPolicy {
        let lists = self.policy.models.lists();
        let patterns = |list: &crate::allow::AllowList<_>| list.entries().iter().map(show).collect();
        ModelPolicy {
            allow: lists.iter().map(patterns).collect(),
            budget_picos: self.bound(PolicyKey::ModelsBudgetUsd),
            max_requests: self.bound(PolicyKey::ModelsMaxRequests),
        }
    }

    /// The tool gates, one a layer.
    pub fn tools(&self) -> Vec<ToolRules> {
        let texts = |list: &Vec<_>| list.iter().map(show).collect();
        let gates = self.policy.tools.gates().iter();
        gates
            .map(|gate| ToolRules {
                allow: gate.allow.as_ref().map(texts),
                ask: texts(&gate.ask),
                deny: texts(&gate.deny),
            })
            .collect()
    }

    /// Every key with its value as a person would write it, for records.
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        PolicyKey::ALL.iter().map(|key| (key.name(), self.policy.show(*key))).collect()
    }

    /// A short name for exactly these values: equal for two sessions that may do the same.
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            // A key that came later is left out where it says nothing: sessions from before it are still the same.
            let says_something = |(key, value): &(&str, String)| !LATER.contains(&(*key, value.as_str()));
            let values = self.values().into_iter().filter(says_something);
            let lines: String =
                values.flat_map(|(key, value)| [key.to_owned(), "=".into(), value, "\n".into()]).collect();
            format!("sha256:{}", Digest::of(lines.as_bytes()))
        })
    }

    fn bound(&self, key: PolicyKey) -> u64 {
        self.policy.bounds.get(&key).map_or(0, |ruled| ruled.value)
    }
}

fn show<P: Pattern>(entry: &crate::rule::WithRule<P>) -> String {
    entry.value.to_string()
}
