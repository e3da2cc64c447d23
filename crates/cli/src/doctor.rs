//! `viv doctor`: what works on this machine, tried for real.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use ::policy::Effective;
use jail::{Controller, Hierarchy, Limiter, Spawner};
use protocol::Code;
use sandbox::{Backend, ExecSpec, JailBackend, SandboxSpec};
use serde::Serialize;

use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::policy::{Setting, choose};

/// How one check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// Works, with less than could be.
    Weaker,
    Failed,
}

/// One thing that was tried.
#[derive(Debug, Serialize)]
struct Check {
    id: &'static str,
    status: Status,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

/// Carries out `viv doctor`; exit code 6 when a sandbox cannot be made here.
pub(crate) fn carry_out(config: &Config, spawner: Spawner, json: bool) -> Result<ExitCode, Failure> {
    let policy = Arc::new(choose(&Setting::of(config, json), Some("balanced"), &[])?);
    let mut checks = vec![kernel(), data_directory(config), landlock()];
    checks.extend(limits());
    checks.push(host::on_runtime(async { Ok(sandbox(policy, spawner).await) })?);
    let failed = checks.iter().any(|check| check.status == Status::Failed);
    if json {
        let text = serde_json::to_string_pretty(&checks).map_err(|error| Failure::of(Code::Internal, &error))?;
        println!("{text}");
    } else {
        anstream::print!("{}", render(&checks));
    }
    Ok(ExitCode::from(if failed { Code::SandboxCreateError.exit() } else { 0 }))
}

fn render(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let mark = match check.status {
            Status::Ok => "\x1b[32m✓\x1b[0m",
            Status::Weaker => "\x1b[33m–\x1b[0m",
            Status::Failed => "\x1b[31m✗\x1b[0m",
        };
        let _ = writeln!(text, "{mark} {:<14} {}", check.id, check.summary);
        if let Some(help) = &check.help {
            let _ = writeln!(text, "                 help: {help}");
        }
    }
    text
}

fn kernel() -> Check {
    let system = rustix::system::uname();
    let (release, machine) = (system.release().to_string_lossy(), system.machine().to_string_lossy());
    Check { id: "kernel", status: Status::Ok, summary: format!("{release} on {machine}"), help: None }
}

fn data_directory(config: &Config) -> Check {
    let path = config.data_dir.display();
    match host::data_dir(config) {
        Ok(_) => Check { id: "data-dir", status: Status::Ok, summary: path.to_string(), help: None },
        Err(_) => Check {
            id: "data-dir",
            status: Status::Failed,
            summary: format!("{path} cannot be used"),
            help: Some("viv --data-dir ./viv-data doctor".to_owned()),
        },
    }
}

fn landlock() -> Check {
    match jail::landlock_version() {
        Some(version) => {
            Check { id: "landlock", status: Status::Ok, summary: format!("version {version}"), help: None }
        }
        None => Check {
            id: "landlock",
            status: Status::Failed,
            summary: "this kernel does not offer it".to_owned(),
            help: Some("boot with lsm=landlock,… on the kernel command line".to_owned()),
        },
    }
}

fn limits() -> Vec<Check> {
    let limiter = Limiter::probe().ok();
    let by = |controller| limiter.as_ref().and_then(|limiter| limiter.hierarchy(controller));
    [
        ("limit-memory", Controller::Memory, "rlimit"),
        ("limit-pids", Controller::Pids, "rlimit"),
        ("limit-cpus", Controller::Cpu, "none"),
    ]
    .map(|(id, controller, weaker)| match by(controller) {
        Some(Hierarchy::V1) => Check { id, status: Status::Ok, summary: "cgroup version 1".to_owned(), help: None },
        Some(Hierarchy::V2) => Check { id, status: Status::Ok, summary: "cgroup version 2".to_owned(), help: None },
        None => Check {
            id,
            status: Status::Weaker,
            summary: format!("no cgroup this user may use; by {weaker} where the policy says `degrade`"),
            help: Some("sudo viv doctor".to_owned()),
        },
    })
    .into()
}

/// Makes a sandbox and runs a command in it: the only proof that counts.
async fn sandbox(policy: Arc<Effective>, spawner: Spawner) -> Check {
    let id = "doctor".to_owned();
    let spec = SandboxSpec { id, workspace: None, mounts: Vec::new(), files: Vec::new(), policy };
    let attempt = async {
        let sandbox = JailBackend::new(Arc::new(spawner))?.create(spec).await?;
        let command = ["id", "-u"].map(str::to_owned).to_vec();
        let exec = ExecSpec { command, ..ExecSpec::default() };
        let result = sandbox::run(&*sandbox, exec, &mut |_, _| {}).await;
        sandbox.destroy().await?;
        result
    };
    match attempt.await {
        Ok(result) if result.stdout == b"1000\n" => Check {
            id: "sandbox",
            status: Status::Ok,
            summary: "made, and a command ran in it as an ordinary user".to_owned(),
            help: None,
        },
        Ok(result) => Check {
            id: "sandbox",
            status: Status::Failed,
            summary: format!("a command in it said `{}`", String::from_utf8_lossy(&result.stdout).trim()),
            help: None,
        },
        Err(sandbox::SandboxError::Unavailable { missing, fix }) => {
            Check { id: "sandbox", status: Status::Failed, summary: missing, help: Some(fix) }
        }
        Err(error) => {
            Check { id: "sandbox", status: Status::Failed, summary: Failure::from(error).to_string(), help: None }
        }
    }
}
