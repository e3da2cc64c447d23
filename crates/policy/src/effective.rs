//! The policy of one session: the intersection of all layers, as plain values for the code that enforces it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use base::Digest;
use serde::Serialize;

use crate::decision::{Action, Decision};
use crate::deny_list::DenyGlobs;
use crate::document::{DnsMode, EnforcementMeans, UnpricedModels, WorkspaceMode};
use crate::explain::Explanation;
use crate::file_denials::FileDenials;
use crate::key::PolicyKey;
use crate::pattern::{Endpoint, HeaderInjection, InjectPattern, Pattern};
use crate::policy::CompiledPolicy;
use crate::secret_files::secret_clue;

/// Keys that older versions did not have, with their neutral value.
const KEYS_ADDED_LATER: [(&str, &str); 10] = [
    ("env.set", "[]"),
    ("path.prepend", "[]"),
    ("toolchains", "[]"),
    ("net.intercept", "[]"),
    ("net.inject", "[]"),
    ("net.packages", "false"),
    ("net.dns", "none"),
    ("proc.sockets", "256MiB"),
    ("models.max_tokens", "10000000"),
    ("models.unpriced", "deny"),
];

/// The policy of one session.
///
/// Every getter is at least as strict as each layer. A base layer sets every key; if a key were missing anyway, the
/// getter would return the strictest value.
#[derive(Debug, Clone)]
pub struct EffectivePolicy {
    policy: CompiledPolicy,
    /// The limit for later grants.
    pub(crate) ceiling: CompiledPolicy,
    deny_read: DenyGlobs,
    deny_write: DenyGlobs,
    /// Computed on first use.
    digest: OnceLock<String>,
    /// Computed on first use.
    pub(crate) explanations: OnceLock<Vec<Explanation>>,
    /// Computed on first use, because the deny-list is long.
    net: OnceLock<NetPolicy>,
}

impl PartialEq for EffectivePolicy {
    fn eq(&self, other: &Self) -> bool {
        // All other fields are derived from the policy.
        self.policy == other.policy
    }
}

impl Eq for EffectivePolicy {}

/// File access.
#[derive(Debug, Clone)]
pub struct FsPolicy {
    /// How the workspace is mounted.
    pub workspace_mode: WorkspaceMode,
    /// Host paths mounted read-only.
    pub read_paths: Vec<PathBuf>,
    /// Host paths mounted writable.
    pub write_paths: Vec<PathBuf>,
    /// Hidden files of the workspace.
    pub deny_read: DenyGlobs,
    /// Files of the workspace that cannot be changed.
    pub deny_write: DenyGlobs,
}

/// A summary of the network rules. [`EffectivePolicy::decide`] decides single connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetPolicy {
    /// Whether anything except the model gateway can be reachable.
    pub enabled: bool,
    /// Allowed hosts, as in the policy file.
    pub allowlist: Vec<String>,
    /// Denied hosts and networks.
    pub denylist: Vec<String>,
    /// Hosts whose TLS the proxy decrypts.
    pub intercept: Vec<String>,
    /// Names of the credentials that the proxy injects into headers.
    pub credentials: BTreeSet<String>,
    /// Whether the package registries of the host's tools can be reached.
    pub packages: bool,
    /// Whether a DNS server runs inside the sandbox.
    pub dns: DnsMode,
}

impl NetPolicy {
    /// Returns whether the egress proxy can allow any connection.
    pub fn is_open(&self) -> bool {
        self.enabled && !self.allowlist.is_empty()
    }
}

/// Resource limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResourceLimits {
    /// Thousandths of a CPU.
    pub cpu_millis: u64,
    /// Memory of all processes together.
    pub memory_bytes: u64,
    /// Number of processes and threads at one time.
    pub pids: u64,
    /// Wall-clock time.
    pub timeout: Duration,
    /// Bytes of output that are kept, for stdout and stderr each.
    pub output_bytes: u64,
    /// Bytes that can be written.
    pub disk_bytes: u64,
    /// Open files per process.
    pub nofile: u64,
    /// Memory of all socket buffers together.
    pub socket_bytes: u64,
}

impl ResourceLimits {
    /// Returns the number of CPUs.
    #[allow(clippy::cast_precision_loss)] // For display; a machine has fewer than 2⁵² thousandths of a CPU.
    pub fn cpus(&self) -> f64 {
        self.cpu_millis as f64 / 1000.0
    }
}

/// The weakest acceptable means for each limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DegradePolicy {
    /// For CPUs.
    pub cpus: EnforcementMeans,
    /// For memory.
    pub memory: EnforcementMeans,
    /// For processes.
    pub pids: EnforcementMeans,
    /// For the disk.
    pub disk: EnforcementMeans,
    /// For Landlock.
    pub landlock: EnforcementMeans,
}

/// Models and budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelPolicy {
    /// Lists of patterns. A model must match each list.
    pub allow: Vec<Vec<String>>,
    /// The most that can be spent, in pico-dollars.
    pub budget_picos: u64,
    /// The maximum number of calls.
    pub max_requests: u64,
    /// The maximum number of tokens of calls to models without a known price.
    pub max_tokens: u64,
    /// Whether a model without a known price can be called.
    pub unpriced: UnpricedModels,
}

/// The tool rules of one layer. A call must be allowed by every layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolRules {
    /// Allowed calls; `None` if the layer has no opinion.
    pub allow: Option<Vec<String>>,
    /// Calls that need a person's approval.
    pub ask: Vec<String>,
    /// Denied calls.
    pub deny: Vec<String>,
}

impl EffectivePolicy {
    pub(crate) fn new(policy: CompiledPolicy, ceiling: CompiledPolicy) -> Self {
        Self {
            deny_read: DenyGlobs::new(&policy.fs.deny_read),
            deny_write: DenyGlobs::new(&policy.fs.deny_write),
            digest: OnceLock::new(),
            explanations: OnceLock::new(),
            net: OnceLock::new(),
            policy,
            ceiling,
        }
    }

    /// Returns the compiled policy with its rules.
    pub fn policy(&self) -> &CompiledPolicy {
        &self.policy
    }

    /// Decides `action` and returns the rule that decided.
    pub fn decide(&self, action: &Action) -> Decision {
        self.policy.decide(action)
    }

    /// Decides whether an address that an allowed name resolved to can be dialled.
    pub fn decide_address(&self, address: IpAddr, port: u16) -> Decision {
        self.policy.decide_address(address, port)
    }

    /// Returns whether the proxy decrypts TLS to `endpoint`, so that each request is decided on its own.
    pub fn intercepts(&self, endpoint: &Endpoint) -> bool {
        self.policy.net.intercepting(endpoint).is_some()
    }

    /// Decides whether DNS answers `name`: at least one port of the host must be allowed.
    pub fn decide_name(&self, name: &str) -> Decision {
        self.policy.net.decide_name(name)
    }

    /// Returns the headers that the proxy sets on requests to `endpoint`, each once.
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

    /// Decides whether any request to an intercepted host can be allowed.
    pub fn decide_intercepted_host(&self, host: &str, port: u16) -> Decision {
        self.policy.net.decide_intercepted_host(host, port)
    }

    /// Returns the file access rules.
    pub fn fs(&self) -> FsPolicy {
        let fs = &self.policy.fs;
        let paths = |lists: &crate::allow_list::AllowLists<crate::pattern::PathPrefix>| -> Vec<PathBuf> {
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

    /// Returns whether the workspace can be written and no glob names `path`, which is relative to the workspace. Faster than
    /// `decide`, which finds the rule.
    pub fn is_plainly_writable(&self, path: &Path) -> bool {
        let is_writable = self.policy.fs.workspace.value != WorkspaceMode::Readonly;
        let may_be_secret = self.deny_read.hides_secrets() && secret_clue(path).is_some();
        is_writable && !may_be_secret && !self.deny_write.matches(path) && !self.deny_read.matches(path)
    }

    /// Returns the write denials of the workspace in a form that can be stored.
    pub fn file_denials(&self) -> FileDenials {
        FileDenials::of(&self.policy)
    }

    /// Returns whether a DNS server runs inside the sandbox.
    pub fn dns_mode(&self) -> DnsMode {
        let net = &self.policy.net;
        if net.enabled.value { net.dns.value } else { DnsMode::None }
    }

    /// Returns a summary of the network rules.
    pub fn net(&self) -> &NetPolicy {
        self.net.get_or_init(|| self.summarize_net())
    }

    fn summarize_net(&self) -> NetPolicy {
        let net = &self.policy.net;
        let mut allowed = net.allowlist.flatten().unwrap_or_default();
        allowed.retain(|entry| net.packages.value || !entry.value.is_registry());
        NetPolicy {
            enabled: net.enabled.value,
            packages: net.enabled.value && net.packages.value,
            allowlist: allowed.iter().map(|entry| entry.value.to_string()).collect(),
            denylist: net.denylist.entries().map(|entry| entry.value.to_string()).collect(),
            intercept: net.intercept.entries().map(show).collect(),
            credentials: self.injected().map(|entry| entry.injection.credential).collect(),
            dns: self.dns_mode(),
        }
    }

    /// Returns the resource limits.
    pub fn limits(&self) -> ResourceLimits {
        ResourceLimits {
            cpu_millis: self.limit(PolicyKey::ProcCpus),
            memory_bytes: self.limit(PolicyKey::ProcMemory),
            pids: self.limit(PolicyKey::ProcPids),
            timeout: Duration::from_millis(self.limit(PolicyKey::ProcTimeout)),
            output_bytes: self.limit(PolicyKey::ProcOutput),
            disk_bytes: self.limit(PolicyKey::ProcDisk),
            nofile: self.limit(PolicyKey::ProcNofile),
            socket_bytes: self.limit(PolicyKey::ProcSockets),
        }
    }

    /// Returns the weakest acceptable means for each limit.
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

    /// Returns the names of the variables passed from the host.
    pub fn env_pass(&self) -> Vec<String> {
        let flat = self.policy.env.flatten().unwrap_or_default();
        flat.iter().map(|entry| entry.value.as_str().to_owned()).collect()
    }

    /// Returns the variables that the policy sets, with their values.
    pub fn env_set(&self) -> Vec<(String, String)> {
        let flat = self.policy.env_set.flatten().unwrap_or_default();
        let pairs = flat.iter().filter_map(|entry| entry.value.as_str().split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the directories that are searched first for programs.
    pub fn path_prepend(&self) -> Vec<String> {
        let flat = self.policy.path_prepend.flatten().unwrap_or_default();
        flat.iter().map(|entry| entry.value.as_str().to_owned()).collect()
    }

    /// Returns whether the toolchain `name` of the host is shown.
    pub fn shows_toolchain(&self, name: &str) -> bool {
        let lists = &self.policy.toolchains;
        !lists.lists().is_empty() && lists.decide(name).is_ok()
    }

    /// Returns the model rules and the budget.
    pub fn models(&self) -> ModelPolicy {
        let lists = self.policy.models.lists();
        let patterns = |list: &crate::allow_list::AllowList<_>| list.entries().iter().map(show).collect();
        ModelPolicy {
            allow: lists.iter().map(patterns).collect(),
            budget_picos: self.limit(PolicyKey::ModelsBudgetUsd),
            max_requests: self.limit(PolicyKey::ModelsMaxRequests),
            max_tokens: self.limit(PolicyKey::ModelsMaxTokens),
            unpriced: self.policy.unpriced.value,
        }
    }

    /// Returns whether a model without a known price can be called.
    pub fn allows_unpriced_models(&self) -> bool {
        self.policy.unpriced.value == UnpricedModels::Allow
    }

    /// Returns the tool rules, one entry per layer.
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

    /// Returns every key with its value as text.
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        PolicyKey::ALL.iter().map(|key| (key.name(), self.policy.show(*key))).collect()
    }

    /// Returns a digest of all values. Two sessions with the same rights have the same digest.
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            // A key that was added later is left out at its neutral value, so that digests of older sessions stay
            // valid.
            let is_set = |(key, value): &(&str, String)| !KEYS_ADDED_LATER.contains(&(*key, value.as_str()));
            let values = self.values().into_iter().filter(is_set);
            let lines: String =
                values.flat_map(|(key, value)| [key.to_owned(), "=".into(), value, "\n".into()]).collect();
            format!("sha256:{}", Digest::of(lines.as_bytes()))
        })
    }

    fn limit(&self, key: PolicyKey) -> u64 {
        self.policy.limits.get(&key).map_or(0, |ruled| ruled.value)
    }
}

fn show<P: Pattern>(entry: &crate::rule::WithRule<P>) -> String {
    entry.value.to_string()
}
