//! `viv policy explain [FILE|PRESET]`.

use std::io::Write;
use std::process::ExitCode;

use super::{Failure, Setting, load, print_json};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A policy file or a preset; what would hold in this directory when absent
    policy: Option<String>,
}

/// Prints one sentence a line, each with its layer and rule.
pub(super) fn run(
    args: &Args,
    setting: &Setting,
    out: &mut dyn Write,
    people: &mut dyn Write,
) -> Result<ExitCode, Failure> {
    let session = if let Some(name) = &args.policy {
        load::chosen(name, setting)?
    } else {
        let (session, note) = load::unchosen(setting)?;
        writeln!(people, "from {note}").map_err(Failure::Output)?;
        session
    };
    let sentences = ::policy::explain(&session);
    if setting.json {
        return print_json(out, &sentences);
    }
    for sentence in sentences {
        writeln!(out, "{}  [{}: {}]", sentence.text, sentence.layer, sentence.rule.location())
            .map_err(Failure::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}
