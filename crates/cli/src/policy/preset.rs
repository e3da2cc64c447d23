//! `viv policy presets [NAME]`: list the presets, or print one.

use std::io::Write;
use std::process::ExitCode;

use ::policy::Preset;
use serde_json::{Value, json};

use super::{PolicyCommandError, PolicyContext, print_json};

/// Arguments of `presets`.
#[derive(Debug, clap::Args)]
pub(crate) struct PresetArguments {
    /// Preset to print, as a starting point for a policy file
    name: Option<String>,
}

/// Lists the presets, or prints the named one.
pub(super) fn run(
    args: &PresetArguments,
    setting: &PolicyContext,
    out: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    if let Some(name) = &args.name {
        let preset: Preset =
            name.parse().map_err(|source| PolicyCommandError::NoPolicy { name: name.clone(), source })?;
        out.write_all(preset.source().text().as_bytes()).map_err(PolicyCommandError::Output)?;
        return Ok(ExitCode::SUCCESS);
    }
    if setting.json {
        let describe = |preset: Preset| json!({"name": preset.name(), "summary": preset.summary()});
        return print_json(out, &Preset::ALL.map(describe).to_vec() as &Vec<Value>);
    }
    for preset in Preset::ALL {
        writeln!(out, "{:<10}  {}", preset.name(), preset.summary()).map_err(PolicyCommandError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}
