//! A LiteLLM proxy process: one worker, no database, and a callback that prints its spend log.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Key that LiteLLM requires from its callers.
pub(crate) const KEY: &str = "sk-litellm-canary-0123456789";
/// A model that LiteLLM and our price table know.
pub(crate) const MODEL: &str = "claude-sonnet-4-5";
const REQUIREMENTS: &str = include_str!("requirements.txt");
/// LiteLLM needs half a minute to start on an idle machine and minutes on a busy one.
const TEST_TIMEOUT: Duration = Duration::from_secs(600);

/// A running proxy; killed on drop.
pub(crate) struct LitellmProxy {
    port: u16,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
    _folder: TempDir,
}

impl LitellmProxy {
    /// Starts a proxy whose only model is at the address `vendor`.
    pub(crate) async fn start(vendor: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spend = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/litellm/spend.py");
        std::fs::copy(spend, folder.path().join("spend.py")).unwrap();
        std::fs::write(folder.path().join("config.yaml"), config(vendor)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = Command::new(python())
            .args(["-m", "litellm.proxy.proxy_cli", "--config", "config.yaml", "--host", "127.0.0.1", "--port"])
            .arg(port.to_string())
            .current_dir(folder.path())
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = async {
            let mut text = String::new();
            while let Some(line) = log.next_line().await.unwrap() {
                text.push_str(&line);
                text.push('\n');
                if line.contains("Uvicorn running on") {
                    return;
                }
            }
            panic!("LiteLLM did not start: {text}");
        };
        timeout(TEST_TIMEOUT, ready).await.unwrap();
        // The log must be read, or LiteLLM blocks when the pipe is full.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { port, lines, _child: child, _folder: folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the next entry of the spend log.
    pub(crate) async fn spend(&mut self) -> Value {
        let next = async {
            loop {
                let line = self.lines.next_line().await.unwrap().unwrap();
                if let Some(entry) = line.strip_prefix("spend ") {
                    return serde_json::from_str(entry).unwrap();
                }
            }
        };
        timeout(TEST_TIMEOUT, next).await.unwrap()
    }
}

fn config(vendor: &str) -> String {
    format!(
        "model_list:
  - model_name: {MODEL}
    litellm_params: {{model: anthropic/{MODEL}, api_base: \"{vendor}\", api_key: sk-of-the-vendor}}
general_settings: {{master_key: {KEY}}}
litellm_settings: {{telemetry: false, callbacks: spend.spend}}
"
    )
}

/// Returns the Python interpreter with LiteLLM; `xtask` uses the same folder name.
fn python() -> PathBuf {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache");
    let folder = REQUIREMENTS.trim().replace("==", "-");
    let python = given.unwrap_or_else(home).join("viv-test").join(folder).join("bin/python");
    assert!(python.exists(), "LiteLLM is not installed in {}\n  help: run `cargo xtask install`", python.display());
    python
}
