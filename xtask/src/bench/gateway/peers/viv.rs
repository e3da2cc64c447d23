//! Our gateway, alone, with a key that has a budget.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Service, Target};
use crate::workspace;

pub(super) fn start(
    viv: &Path,
    folder: &Path,
    name: &'static str,
    durability: &str,
    vendor: &str,
) -> Result<(Service, Target)> {
    std::fs::write(folder.join("viv.toml"), config(durability, vendor)).context("cannot write viv.toml")?;
    private(folder)?;
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

fn config(durability: &str, vendor: &str) -> String {
    format!(
        "[model]
upstream = \"vendor\"
[upstreams.vendor]
kind = \"anthropic\"
base_url = \"http://{vendor}\"
key = \"sk-of-the-bench\"
[prices.bench]
input = 3.0
output = 15.0
[ledger]
durability = \"{durability}\"
"
    )
}

/// A data directory that others could write to is refused.
fn private(folder: &Path) -> Result<()> {
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    std::fs::set_permissions(folder, mode).context("cannot make the data directory private")
}

fn text(json: &str, field: &str) -> Result<String> {
    let value: Value = serde_json::from_str(json).with_context(|| format!("`{json}` is no JSON"))?;
    value[field].as_str().map(str::to_owned).with_context(|| format!("`{json}` has no `{field}`"))
}
