//! Checks of the container engines. None is needed if the jail works.

use std::sync::Arc;

use jail::Spawner;
use sandbox::{EngineKind, EngineReport, SandboxError};

use super::{CheckStatus, DoctorCheck};
use crate::backend;
use crate::config::Config;
use crate::failure::Failure;

/// Returns one check for each engine: its version and limits, or why it cannot be used.
pub(super) async fn look(config: &Config, spawner: &Arc<Spawner>) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    for kind in [EngineKind::Podman, EngineKind::Docker] {
        let settings = backend::settings(kind, config, &config.file.sandbox);
        let report = match backend::container(settings, config, spawner) {
            Ok(engine) => engine.report().await,
            Err(error) => Err(error),
        };
        checks.push(match report {
            Ok(report) => available(&report),
            Err(SandboxError::Unavailable { missing, fix }) => weaker(kind, missing, Some(fix)),
            Err(error) => weaker(kind, Failure::from(error).to_string(), None),
        });
    }
    checks
}

fn available(report: &EngineReport) -> DoctorCheck {
    let root = if report.rootless { ", without root" } else { "" };
    let runtimes = report.runtimes.join(", ");
    let found = format!("{}{root} at {}; runtimes: {runtimes}", report.version, report.socket.display());
    if report.cannot_keep.is_empty() {
        return DoctorCheck::ok(report.kind.as_str(), found);
    }
    let keys = report.cannot_keep.join(", ");
    let why = format!("{found}; cannot enforce {keys}; sandboxes that need them are rejected");
    weaker(report.kind, why, Some("viv exec --backend=jail -- id".to_owned()))
}

fn weaker(kind: EngineKind, summary: String, help: Option<String>) -> DoctorCheck {
    DoctorCheck { id: kind.as_str().to_owned(), status: CheckStatus::Weaker, summary, help }
}
