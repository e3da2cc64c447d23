//! `viv gateway serve` with one key that has a budget.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Service, Target};
use crate::bench::settings;
use crate::workspace;

pub(super) fn start(
    viv: &Path,
    folder: &Path,
    name: &'static str,
    durability: &str,
    vendor: &str,
) -> Result<(Service, Target)> {
    settings::write(folder, durability, vendor)?;
    let viv = |arguments: &[&str]| {
        let mut command = Command::new(viv);
        command.arg("--json").arg("--data-dir").arg(folder).args(arguments);
        command
    };
    let key = workspace::output(&mut viv(&["keys", "create", "--account", "bench", "--budget", "1000000"]))?;
    let service = Service::start(&mut viv(&["gateway", "serve", "--listen", "127.0.0.1:0"]))?;
    let line = service.first_line()?;
    let address = text(&line, "listening")?;
    let address = address.strip_prefix("http://").unwrap_or(&address).to_owned();
    Ok((service, Target { name, address, token: text(&key, "key")? }))
}

fn text(json: &str, field: &str) -> Result<String> {
    let value: Value = serde_json::from_str(json).with_context(|| format!("`{json}` is not JSON"))?;
    value[field].as_str().map(str::to_owned).with_context(|| format!("`{json}` has no `{field}`"))
}
