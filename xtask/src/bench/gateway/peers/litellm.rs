//! The LiteLLM proxy with one worker, without database and callbacks: its fastest configuration.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Service, free_address};
use crate::venv;

/// The master key, without which LiteLLM does not start.
pub(super) const KEY: &str = "sk-of-the-bench-0123456789abcdef";

pub(super) fn start(folder: &Path, vendor: &str) -> Result<(Service, String)> {
    let address = free_address()?;
    let (_, port) = address.rsplit_once(':').context("the address has no port")?;
    let path = folder.join("config.yaml");
    std::fs::write(&path, config(vendor)).context("cannot write LiteLLM's configuration")?;
    let python = venv::LITELLM.folder()?.join("bin/python");
    let mut command = Command::new(python);
    command.args(["-m", "litellm.proxy.proxy_cli", "--host", "127.0.0.1", "--port", port, "--num_workers", "1"]);
    command.arg("--config").arg(&path).current_dir(folder);
    command.env("LITELLM_LOG", "ERROR").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    Ok((Service::start_at(&mut command, &address)?, address))
}

fn config(vendor: &str) -> String {
    format!(
        "model_list:
  - model_name: bench
    litellm_params:
      model: anthropic/claude-sonnet-4-5
      api_base: http://{vendor}
      api_key: none
general_settings:
  master_key: {KEY}
litellm_settings:
  telemetry: false
"
    )
}
