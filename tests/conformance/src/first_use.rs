//! `viv run` with an agent that is not installed yet.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::model_script::{self, FILE, prompts};
use crate::scenario_session::Scenario;
use crate::tested_agent::TestedAgent;

/// Starts with an empty data directory that only selects the model. The agent is installed, runs in the jail and
/// streams its output; at the end its changes and its bill are shown.
pub(crate) async fn agent_runs_from_an_empty_data_directory(scenario: Scenario) {
    let setup = FirstUseSetup::new(&scenario.agent);
    let mut viv = setup.run(scenario.agent.name, prompts::FILE);
    let (stdout, mut stderr) = (viv.stdout.take().unwrap(), viv.stderr.take().unwrap());
    let (output, messages) = tokio::join!(read_output(stdout, &mut viv), async {
        let mut messages = String::new();
        stderr.read_to_string(&mut messages).await.unwrap();
        messages
    });
    let status = viv.wait().await.unwrap();
    assert_eq!(status.code(), Some(0), "{output}\n{messages}");
    assert!(output.contains("It is made."), "{output}\n{messages}");
    check_installed(&scenario.agent, &messages);
    check_messages(scenario.agent.name, &messages);
    let left: Vec<_> = std::fs::read_dir(setup.directory.path().join("workspace")).unwrap().collect();
    assert!(left.is_empty(), "changes stay in the layer: {left:?}");
}

/// Returns the output of the agent, and checks that it was streamed while the agent was working.
async fn read_output(stdout: impl tokio::io::AsyncRead + Unpin, viv: &mut Child) -> String {
    let (mut lines, mut output) = (BufReader::new(stdout).lines(), String::new());
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("I am on it.") {
            assert!(viv.try_wait().unwrap().is_none(), "the output was not streamed");
        }
        output.extend([line.as_str(), "\n"]);
    }
    assert!(output.contains("I am on it."), "{output}");
    output
}

/// Checks the messages about the installation.
fn check_installed(agent: &TestedAgent, messages: &str) {
    let Some(package) = agents::by_name(agent.name).unwrap().package() else { return };
    let node = package.needs_node.then_some(("node", agents::NODE.version));
    for (name, version) in [(agent.name, package.version)].into_iter().chain(node) {
        let (begun, done) = (format!("installing {name} {version} …"), format!("installed {name} {version} · "));
        let places = (messages.find(&begun), messages.find(&done), messages.find("session "));
        assert!(
            matches!(places, (Some(begun), Some(done), Some(session)) if begun < done && done < session),
            "{messages}"
        );
    }
}

/// Checks the messages about the session: agent, model, changes, bill and next steps.
fn check_messages(agent: &str, messages: &str) {
    assert!(messages.contains(&format!(" · agent {agent} · model: built-in script, no real model\n")), "{messages}");
    let bill = messages.lines().find(|line| line.contains(" model call")).expect(messages);
    assert!(bill.contains(" tokens in, ") && bill.ends_with(" out · $0.0000"), "{bill}");
    assert!(!bill.starts_with("0 ") && !bill.contains(" 0 out"), "{bill}");
    assert!(
        messages.lines().any(|line| line.starts_with(&format!("A {}", FILE.0)) && line.contains("+1")),
        "{messages}"
    );
    assert!(messages.contains("viv sessions diff "), "{messages}");
}

/// An empty data directory and an empty workspace.
struct FirstUseSetup {
    directory: TempDir,
    /// The npm cache.
    downloads: PathBuf,
}

impl FirstUseSetup {
    fn new(agent: &TestedAgent) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["data", "workspace"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let model = directory.path().join("model.json");
        let agent = &TestedAgent { workspace: directory.path().join("workspace"), ..agent.clone() };
        std::fs::write(&model, model_script::script_text(agent)).unwrap();
        std::fs::write(directory.path().join("data/viv.toml"), format!("[model]\nscript = '{}'\n", model.display()))
            .unwrap();
        Self { directory, downloads: agent.installed.join("npm") }
    }

    /// Starts `viv run` without input.
    fn run(&self, agent: &str, prompt: &str) -> Child {
        let mut command = Command::new(viv());
        command.arg("--data-dir").arg(self.directory.path().join("data"));
        command
            .args(["run", agent, prompt, "--perms=allow", "--workspace"])
            .arg(self.directory.path().join("workspace"));
        command.env("npm_config_cache", &self.downloads).env("npm_config_prefer_offline", "true");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().unwrap()
    }
}

/// Returns the path of `viv`, which is built next to the tests.
fn viv() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).map(|folder| folder.join("viv")).filter(|program| Path::exists(program));
    program.expect("`viv` is not built: run cargo build --bin viv first")
}
