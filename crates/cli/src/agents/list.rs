//! `viv agents ls`: every agent there is.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use ::agents::{Agent, Capabilities, UNSUPPORTED};
use protocol::Code;
use serde_json::{Value, json};

use super::shelf::Place;
use crate::failure::Failure;

/// Prints the list.
pub(super) fn print(root: &Path, json: bool) -> Result<ExitCode, Failure> {
    let text = if json { as_json(root) } else { as_table(root) };
    anstream::stdout()
        .lock()
        .write_all(text.as_bytes())
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| Failure::new(Code::StreamError, "cannot write the output").because(&error))
}

fn versions(root: &Path, agent: &dyn Agent) -> Vec<String> {
    let Some(package) = agent.package() else { return Vec::new() };
    let installed = Place::of_agent(root, agent.id(), package).installed();
    installed.into_iter().map(|manifest| manifest.version).collect()
}

fn as_json(root: &Path) -> String {
    let supported = ::agents::all().map(|agent| {
        json!({
            "id": agent.id(),
            "supported": true,
            "installed": agent.package().is_none() || !versions(root, agent).is_empty(),
            "versions": versions(root, agent),
            "default": agent.package().map(|package| package.version),
            "package": agent.package().map(|package| package.npm),
            "capabilities": Capabilities::of(agent.id()),
        })
    });
    let unsupported =
        UNSUPPORTED.iter().map(|known| json!({"id": known.id, "supported": false, "reason": known.reason}));
    let all: Vec<Value> = supported.chain(unsupported).collect();
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

fn as_table(root: &Path) -> String {
    let row = |name: &str, default: &str, installed: &str, can: &str| {
        format!("{name:<10} {default:<12} {installed:<14} {can}").trim_end().to_owned() + "\n"
    };
    let mut rows = vec![format!("\x1b[1m{}\x1b[0m", row("AGENT", "DEFAULT", "INSTALLED", "CAN"))];
    rows.extend(::agents::all().map(|agent| match agent.package() {
        None => row(agent.id(), "", "part of viv", &abilities(agent.id())),
        Some(package) => {
            let versions = versions(root, agent);
            let installed = if versions.is_empty() { "on first use".to_owned() } else { versions.join(", ") };
            row(agent.id(), package.version, &installed, &abilities(agent.id()))
        }
    }));
    rows.extend(UNSUPPORTED.iter().map(|known| row(known.id, "", "not supported", known.reason)));
    rows.concat()
}

/// What an agent can do, told by what it cannot: that is the shorter list.
fn abilities(agent: &str) -> String {
    let all = serde_json::to_value(Capabilities::of(agent)).unwrap_or_default();
    let lacking = all.as_object().into_iter().flatten().filter(|(_, can)| **can == json!(false));
    let lacking: Vec<&str> = lacking.map(|(name, _)| name.as_str()).collect();
    if lacking.is_empty() { "everything".to_owned() } else { format!("all but {}", lacking.join(", ")) }
}
