//! `viv policy check FILE…`: check policy files.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use ::policy::{BaseLayer, PolicyError, warnings};
use protocol::ProblemCode;
use serde_json::{Value, json};

use super::{PolicyCommandError, PolicyContext, failure::show_findings, load, print_json};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    /// Policy files
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Checks all files, even after an invalid one.
pub(super) fn run(
    args: &CheckArguments,
    setting: &PolicyContext,
    out: &mut dyn Write,
    people: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    let mut reports = Vec::new();
    let mut all_right = true;
    for file in &args.files {
        let outcome = BaseLayer::read(&load::read(file)?);
        all_right &= outcome.is_ok();
        match &outcome {
            _ if setting.json => reports.push(report(&file.display().to_string(), &outcome)),
            Ok(base) => {
                for note in warnings(base.policy()) {
                    writeln!(people, "note: {note}").map_err(PolicyCommandError::Output)?;
                }
                writeln!(out, "{}: ok", file.display()).map_err(PolicyCommandError::Output)?;
            }
            Err(error) => {
                show_findings(error, people).map_err(PolicyCommandError::Output)?;
                writeln!(out, "{}: wrong", file.display()).map_err(PolicyCommandError::Output)?;
            }
        }
    }
    if setting.json {
        print_json(out, &reports)?;
    }
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::from(ProblemCode::PolicyInvalid.exit()) })
}

fn report(file: &str, outcome: &Result<BaseLayer, PolicyError>) -> Value {
    let findings = outcome.as_ref().err().into_iter().flat_map(PolicyError::findings);
    let findings: Vec<Value> = findings
        .map(|finding| json!({"message": finding.message(), "line": finding.line(), "help": finding.help_text()}))
        .collect();
    let notes = outcome.as_ref().map(|base| warnings(base.policy())).unwrap_or_default();
    json!({"file": file, "ok": findings.is_empty(), "findings": findings, "notes": notes})
}
