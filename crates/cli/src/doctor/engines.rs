//! Container engines on this machine. None is needed where the jail works.

use std::sync::Arc;

use jail::Spawner;
use sandbox::{EngineKind, EngineReport, SandboxError};

use super::{CheckStatus, DoctorCheck};
use crate::backend;
use crate::config::Config;
use crate::failure::Failure;

/// What each engine is and can keep, or why it cannot be used.
pub(super) async fn look(config: &Config, spawner: &Arc<Spawner>) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    for kind in [EngineKind::Podman, EngineKind::Docker] {
        let settings = backend::settings(kind, config, &config.file.sandbox);
        let report = match backend::container(settings, config, spawner) {
            Ok(engine) => engine.report().await,
            Err(error) => Err(error),
        };
        checks.push(match report {
            Ok(report) => there(&report),
            Err(SandboxError::Unavailable { missing, fix }) => weaker(kind, missing, Some(fix)),
            Err(error) => weaker(kind, Failure::from(error).to_string(), None),
        });
    }
    checks
}

fn there(report: &EngineReport) -> DoctorCheck {
    let root = if report.rootless { ", without root" } else { "" };
    let runtimes = report.runtimes.join(", ");
    let found = format!("{}{root} at {}; runtimes: {runtimes}", report.version, report.socket.display());
    if report.cannot_keep.is_empty() {
        return DoctorCheck::ok(report.kind.as_str(), found);
    }
    let keys = report.cannot_keep.join(", ");
    let why = format!("{found}; it cannot keep {keys}, and sandboxes that need them are refused");
    weaker(report.kind, why, Some("run the engine as root, or use `--backend=jail`".to_owned()))
}

fn weaker(kind: EngineKind, summary: String, help: Option<String>) -> DoctorCheck {
    DoctorCheck { id: kind.as_str().to_owned(), status: CheckStatus::Weaker, summary, help }
}
