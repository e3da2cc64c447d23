//! `viv policy presets [NAME]`.

use std::io::Write;
use std::process::ExitCode;

use ::policy::Preset;
use serde_json::{Value, json};

use super::{Failure, Setting, print_json};

/// Arguments of `presets`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print this one, as a file to start from
    name: Option<String>,
}

/// Lists the presets, or prints one.
pub(super) fn run(args: &Args, setting: &Setting, out: &mut dyn Write) -> Result<ExitCode, Failure> {
    if let Some(name) = &args.name {
        let preset: Preset = name.parse().map_err(|source| Failure::NoPolicy { name: name.clone(), source })?;
        out.write_all(preset.source().text().as_bytes()).map_err(Failure::Output)?;
        return Ok(ExitCode::SUCCESS);
    }
    if setting.json {
        let describe = |preset: Preset| json!({"name": preset.name(), "summary": preset.summary()});
        return print_json(out, &Preset::ALL.map(describe).to_vec() as &Vec<Value>);
    }
    for preset in Preset::ALL {
        writeln!(out, "{:<10}  {}", preset.name(), preset.summary()).map_err(Failure::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}
