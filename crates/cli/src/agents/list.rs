//! `viv agents ls`: the list of agents.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ::agents::{Agent, Capabilities, UNSUPPORTED};
use serde_json::{Value, json};
use store::{DataDir, DriftRecord, SessionIndex, SystemClock};

use super::install_folder::InstallFolder;
use crate::failure::Failure;
use crate::output;

/// Prints the list.
pub(super) fn print(data: &DataDir, json: bool) -> Result<ExitCode, Failure> {
    let drift = drift(data)?;
    if json {
        output::print_json_text(&as_json(data.root(), &drift))?;
    } else {
        output::print(&as_table(data.root(), &drift))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the counts of unparsed agent output; empty for a data directory without sessions, which stays untouched.
fn drift(data: &DataDir) -> Result<Vec<DriftRecord>, Failure> {
    if !data.database().exists() {
        return Ok(Vec::new());
    }
    let index = SessionIndex::open(data, Arc::new(SystemClock));
    index
        .and_then(|index| index.drift())
        .map_err(|error| Failure::new(error.code(), "cannot read the counts of unparsed agent output").because(&error))
}

fn versions(root: &Path, agent: &dyn Agent) -> Vec<String> {
    let Some(package) = agent.package() else { return Vec::new() };
    let installed = InstallFolder::of_agent(root, agent.id(), package).installed();
    installed.into_iter().map(|manifest| manifest.version).collect()
}

fn as_json(root: &Path, drift: &[DriftRecord]) -> String {
    let supported = ::agents::all().map(|agent| {
        json!({
            "id": agent.id(),
            "supported": true,
            "installed": agent.package().is_none() || !versions(root, agent).is_empty(),
            "versions": versions(root, agent),
            "default": agent.package().map(|package| package.version),
            "package": agent.package().map(|package| package.npm),
            "capabilities": Capabilities::of(agent.id()),
            "drift": drift_of(drift, agent.id()),
        })
    });
    let unsupported =
        UNSUPPORTED.iter().map(|known| json!({"id": known.id, "supported": false, "reason": known.reason}));
    let all: Vec<Value> = supported.chain(unsupported).collect();
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

fn as_table(root: &Path, drift: &[DriftRecord]) -> String {
    let row = |name: &str, default: &str, installed: &str, can: &str| {
        format!("{name:<10} {default:<12} {installed:<14} {can}").trim_end().to_owned() + "\n"
    };
    let mut rows = vec![format!("\x1b[1m{}\x1b[0m", row("AGENT", "DEFAULT", "INSTALLED", "CAN"))];
    rows.extend(::agents::all().map(|agent| match agent.package() {
        None => row(agent.id(), "", "part of viv", &abilities(agent.id(), drift)),
        Some(package) => {
            let versions = versions(root, agent);
            let installed = if versions.is_empty() { "on first use".to_owned() } else { versions.join(", ") };
            row(agent.id(), package.version, &installed, &abilities(agent.id(), drift))
        }
    }));
    rows.extend(UNSUPPORTED.iter().map(|known| row(known.id, "", "not supported", known.reason)));
    rows.concat()
}

/// Returns the counts of one agent by version, in the form of the session API.
fn drift_of(drift: &[DriftRecord], agent: &str) -> Value {
    let ours = drift.iter().filter(|record| record.agent == agent);
    let counts = |record: &DriftRecord| json!({"unparsed": record.unparsed, "unknown": record.unknown});
    ours.map(|record| (record.version.clone(), counts(record))).collect()
}

/// Returns the capabilities that an agent lacks, which is the shorter list, and its counts of unparsed output.
fn abilities(agent: &str, drift: &[DriftRecord]) -> String {
    let all = serde_json::to_value(Capabilities::of(agent)).unwrap_or_default();
    let lacking = all.as_object().into_iter().flatten().filter(|(_, can)| **can == json!(false));
    let lacking: Vec<&str> = lacking.map(|(name, _)| name.as_str()).collect();
    let can = if lacking.is_empty() { "everything".to_owned() } else { format!("all but {}", lacking.join(", ")) };
    let ours = drift.iter().filter(|record| record.agent == agent);
    ours.fold(can, |text, record| {
        let times = record.unparsed + record.unknown;
        format!("{text}; {} printed {times} unknown messages", record.version)
    })
}
