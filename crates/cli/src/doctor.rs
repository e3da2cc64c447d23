//! `viv doctor`: checks of this machine, including a real sandbox.

mod engines;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ::policy::EffectivePolicy;
use jail::{FeatureProbe, Spawner, probe_kernel, probe_limits};
use protocol::{KeyEnforcements, ProblemCode};
use sandbox::{ExecSpec, SandboxSpec, Toolchains};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use session::HostBudget;

use crate::args::DoctorArguments;
use crate::backend;
use crate::config::{Config, SandboxSection, host_variable};
use crate::failure::Failure;
use crate::policy::{PolicyContext, choose};
use crate::{host, output};

/// File in the data directory with the last report.
const REPORT_FILE: &str = "doctor.json";

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CheckStatus {
    Ok,
    /// Works with restrictions.
    Weaker,
    Failed,
}

/// One check.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DoctorCheck {
    id: String,
    status: CheckStatus,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

impl DoctorCheck {
    fn ok(id: &str, summary: impl Into<String>) -> Self {
        Self { id: id.to_owned(), status: CheckStatus::Ok, summary: summary.into(), help: None }
    }

    fn failed(id: &str, summary: impl Into<String>, help: Option<&str>) -> Self {
        Self { id: id.to_owned(), status: CheckStatus::Failed, summary: summary.into(), help: help.map(str::to_owned) }
    }

    /// Turns a failure into a restriction, because another feature replaces this one.
    fn weaken(&mut self) {
        if self.status == CheckStatus::Failed {
            self.status = CheckStatus::Weaker;
        }
    }
}

/// Results of all checks. They are valid until the next boot, for the same user and version of viv.
#[derive(Debug, Serialize, Deserialize)]
struct DoctorReport {
    boot_id: String,
    uid: u32,
    version: String,
    /// Sandbox settings and engine sockets at the time; other ones invalidate the report.
    configured: SandboxSection,
    sockets: Vec<PathBuf>,
    checks: Vec<DoctorCheck>,
    /// Enforcement of each policy key; empty if no sandbox could be made.
    enforced: KeyEnforcements,
}

impl DoctorReport {
    /// Runs all checks.
    fn run_all(config: &Config, spawner: Spawner, json: bool) -> Result<Self, Failure> {
        let policy = Arc::new(choose(&PolicyContext::of(config, json), Some("balanced"), &[])?);
        // The probes require a single thread.
        let mut features: Vec<DoctorCheck> = probe_kernel().into_iter().map(feature).collect();
        let limits = probe_limits().into_iter().map(limit);
        let rest: Vec<DoctorCheck> = limits.chain([data_directory(config)]).collect();
        let spawner = Arc::new(spawner);
        let (engines, SandboxTrial { check, backend, enforced }) = host::on_runtime(async {
            Ok((engines::look(config, &spawner).await, sandbox(config, policy, &spawner).await))
        })?;
        if backend.is_some_and(|name| name != JAIL) {
            // A container needs none of the jail's kernel features.
            features.iter_mut().for_each(DoctorCheck::weaken);
        }
        let checks = [vec![kernel()], features, rest, engines, vec![check]].concat();
        let (boot_id, uid) = (boot_id(), rustix::process::geteuid().as_raw());
        let (version, configured) = (env!("CARGO_PKG_VERSION").to_owned(), config.file.sandbox.clone());
        Ok(Self { boot_id, uid, version, configured, sockets: backend::sockets(config), checks, enforced })
    }

    /// Returns the stored report if it is still valid and has no failure.
    fn earlier(config: &Config) -> Option<Self> {
        let text = std::fs::read(config.data_dir.join(REPORT_FILE)).ok()?;
        let found: Self = serde_json::from_slice(&text).ok()?;
        let holds = found.boot_id == boot_id()
            && found.uid == rustix::process::geteuid().as_raw()
            && found.version == env!("CARGO_PKG_VERSION")
            && found.configured == config.file.sandbox
            && found.sockets == backend::sockets(config)
            // A failure may have been fixed since.
            && !found.failed();
        holds.then_some(found)
    }

    /// Stores the report. If that fails, the next call runs the checks again.
    fn keep(&self, config: &Config) {
        if let (Ok(_), Ok(text)) = (host::data_dir(config), serde_json::to_vec_pretty(self)) {
            let _ = std::fs::write(config.data_dir.join(REPORT_FILE), text);
        }
    }

    fn failed(&self) -> bool {
        self.checks.iter().any(|check| check.status == CheckStatus::Failed)
    }
}

/// Runs `viv doctor`; exit code 6 if no sandbox can be made.
pub(crate) fn carry_out(
    arguments: &DoctorArguments,
    config: &Config,
    broken: Option<&Failure>,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let earlier = if arguments.fresh || broken.is_some() { None } else { DoctorReport::earlier(config) };
    let is_stored = earlier.is_some();
    let mut findings = match earlier {
        Some(findings) => findings,
        None => DoctorReport::run_all(config, spawner, json)?,
    };
    match broken {
        // The other checks ran with the defaults, and are not kept.
        Some(failure) => findings.checks.insert(0, configuration(failure)),
        None => findings.keep(config),
    }
    if json {
        let mut report =
            serde_json::to_value(&findings).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        report["toolchains"] = json!(toolchains(config, json)?.list());
        report["limits"] = limit_values(&config.file.limits.budget()).into();
        output::print_json_text(&format!("{report:#}\n"))?;
    } else {
        let limits = render_limits(&config.file.limits.budget());
        let tools = render_toolchains(&toolchains(config, json)?);
        let keys = render_keys(&findings.enforced);
        output::print(&format!("{}{keys}{tools}{limits}", render(&findings.checks)))?;
        if is_stored {
            output::print("results since the last boot; run `viv doctor --fresh` to check again\n")?;
        }
    }
    Ok(ExitCode::from(match broken {
        Some(failure) => failure.code().exit(),
        None if findings.failed() => ProblemCode::SandboxCreateError.exit(),
        None => 0,
    }))
}

/// Renders one line for each policy key with its enforcement.
fn render_keys(enforced: &KeyEnforcements) -> String {
    let mut text = String::new();
    if !enforced.is_empty() {
        text.push_str("\nenforcement of policy keys:\n");
    }
    for (key, row) in enforced.iter() {
        let _ = writeln!(text, "  {key:<14} {:<9} {}", row.state.to_string(), row.by);
    }
    text
}

/// Returns the toolchains that `balanced` shows. They are not part of a stored report: an installation shows at once.
fn toolchains(config: &Config, json: bool) -> Result<Toolchains, Failure> {
    let policy = choose(&PolicyContext::of(config, json), Some("balanced"), &[])?;
    Ok(Toolchains::find(host_variable, None, &policy))
}

/// Renders one line for each toolchain that was found.
fn render_toolchains(found: &Toolchains) -> String {
    let mut text = "\ntoolchains (`toolchains: auto` shows them read-only):\n".to_owned();
    if found.list().is_empty() {
        text.push_str("  none found in the home directory\n");
    }
    for (tool, directories) in found.list() {
        let directories: Vec<_> = directories.iter().map(|path| path.display().to_string()).collect();
        let _ = writeln!(text, "  {tool:<18} {}", directories.join(", "));
    }
    text
}

/// Returns the limits of the host budget by their keys.
fn limit_values(budget: &HostBudget) -> Map<String, Value> {
    budget.values().into_iter().map(|(limit, value)| (limit.key().to_owned(), Value::String(value))).collect()
}

/// Renders one line for each limit of the host budget. They are not part of a stored report, because a change of
/// `viv.toml` takes effect at once.
fn render_limits(budget: &HostBudget) -> String {
    let mut text = "\nlimits of the host process ([limits] in viv.toml):\n".to_owned();
    for (limit, value) in budget.values() {
        let _ = writeln!(text, "  {:<18} {value}", limit.key());
    }
    text
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn render(checks: &[DoctorCheck]) -> String {
    let mut text = String::new();
    for check in checks {
        let mark = match check.status {
            CheckStatus::Ok => "\x1b[32m✓\x1b[0m",
            CheckStatus::Weaker => "\x1b[33m–\x1b[0m",
            CheckStatus::Failed => "\x1b[31m✗\x1b[0m",
        };
        let _ = writeln!(text, "{mark} {:<18} {}", check.id, check.summary);
        if let Some(help) = &check.help {
            let _ = writeln!(text, "                     help: {help}");
        }
    }
    text
}

fn kernel() -> DoctorCheck {
    let system = rustix::system::uname();
    let (release, machine) = (system.release().to_string_lossy(), system.machine().to_string_lossy());
    DoctorCheck::ok("kernel", format!("{release} on {machine}"))
}

/// Check of a `viv.toml` that the other commands reject.
fn configuration(failure: &Failure) -> DoctorCheck {
    let problem = failure.problem();
    let summary = format!("{}; the checks below use the defaults", problem.detail.as_deref().unwrap_or(&problem.title));
    DoctorCheck::failed("viv.toml", summary, problem.hint.as_deref())
}

fn data_directory(config: &Config) -> DoctorCheck {
    let path = config.data_dir.display();
    match host::data_dir(config) {
        Ok(_) => DoctorCheck::ok("data directory", path.to_string()),
        Err(_) => DoctorCheck::failed(
            "data directory",
            format!("cannot use {path}"),
            Some("viv --data-dir ./viv-data doctor"),
        ),
    }
}

/// Check of a kernel feature that every sandbox needs.
fn feature(probe: FeatureProbe) -> DoctorCheck {
    let help = match probe.name {
        "landlock" => "boot with lsm=landlock,… on the kernel command line",
        "overlayfs" => "modprobe overlay",
        name if name.ends_with("namespace") => {
            "sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0"
        }
        _ => "use a kernel of 5.19 or newer",
    };
    match probe.outcome {
        Ok(found) => DoctorCheck::ok(probe.name, found),
        Err(error) => DoctorCheck::failed(probe.name, error.to_string(), Some(help)),
    }
}

/// Check of a resource limit. A policy can accept a weaker mechanism with `degrade`.
fn limit(probe: FeatureProbe) -> DoctorCheck {
    let weaker = if matches!(probe.name, "cpu limit" | "socket memory") { "none" } else { "rlimit" };
    match probe.outcome {
        Ok(found) => DoctorCheck::ok(probe.name, found),
        Err(error) => DoctorCheck {
            id: probe.name.to_owned(),
            status: CheckStatus::Weaker,
            summary: format!("{error}; enforced by {weaker} if the policy says `degrade`"),
            help: Some("sudo viv doctor".to_owned()),
        },
    }
}

/// Name of the built-in backend.
const JAIL: &str = "jail";

/// Result of making a sandbox.
struct SandboxTrial {
    check: DoctorCheck,
    /// Backend that made the sandbox.
    backend: Option<&'static str>,
    /// Enforcement of each policy key in it.
    enforced: KeyEnforcements,
}

/// Makes a sandbox with the chosen backend and runs a command in it.
async fn sandbox(config: &Config, policy: Arc<EffectivePolicy>, spawner: &Arc<Spawner>) -> SandboxTrial {
    const ID: &str = "sandbox";
    let id = "doctor".to_owned();
    let spec = SandboxSpec {
        id,
        workspace: None,
        workspace_at: "/workspace".into(),
        toolchains: Toolchains::find(host_variable, None, &policy),
        mounts: Vec::new(),
        files: Vec::new(),
        policy,
    };
    let attempt = async {
        let backend = backend::choose(config, spawner)?;
        let sandbox = backend.create(spec).await?;
        let command = ["id", "-u"].map(str::to_owned).to_vec();
        let exec = ExecSpec { command, ..ExecSpec::default() };
        let result = sandbox::run(&*sandbox, exec, &mut |_, _| {}).await;
        let effective = sandbox.effective();
        sandbox.destroy().await?;
        Ok::<_, Failure>((result?, effective, backend.name()))
    };
    let failed = |check| SandboxTrial { check, backend: None, enforced: KeyEnforcements::default() };
    match attempt.await {
        Ok((result, enforced, name)) if is_ordinary(&result.stdout) => {
            let made = format!("made by {name}, {}; a command ran in it as an ordinary user", reason(config));
            SandboxTrial { check: DoctorCheck::ok(ID, made), backend: Some(name), enforced }
        }
        Ok((result, ..)) => {
            let unexpected = format!(
                "`id -u` in the sandbox printed `{}`, expected an ordinary user",
                String::from_utf8_lossy(&result.stdout).trim()
            );
            failed(DoctorCheck::failed(ID, unexpected, None))
        }
        Err(failure) => failed(DoctorCheck::failed(ID, failure.to_string(), failure.problem().hint.as_deref())),
    }
}

/// Returns why that backend was chosen.
fn reason(config: &Config) -> &'static str {
    match config.file.sandbox.backend {
        Some(_) => "chosen by `sandbox.backend` in viv.toml",
        None => "the first that works of jail, podman, docker",
    }
}

/// Returns whether the text is the number of a user other than root.
fn is_ordinary(number: &[u8]) -> bool {
    std::str::from_utf8(number).is_ok_and(|text| text.trim().parse::<u32>().is_ok_and(|number| number != 0))
}
