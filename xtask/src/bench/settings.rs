//! The `viv.toml` of benches: one vendor and the price of its model.

use std::path::Path;

use anyhow::{Context, Result};

/// The model that the vendor stub answers as.
pub(crate) const MODEL: &str = "bench";

/// Writes `viv.toml` into a data directory.
pub(crate) fn write(folder: &Path, durability: &str, vendor: &str) -> Result<()> {
    let text = format!(
        "[model]
upstream = \"vendor\"
[upstreams.vendor]
kind = \"anthropic\"
base_url = \"http://{vendor}\"
key = \"sk-of-the-bench\"
[prices.{MODEL}]
input = 3.0
output = 15.0
[ledger]
durability = \"{durability}\"
"
    );
    std::fs::write(folder.join("viv.toml"), text).context("cannot write viv.toml")
}
