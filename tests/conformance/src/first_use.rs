//! `viv run` of an agent that is not here yet, as a person meets it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::tested_agent::TestedAgent;
use crate::model_script::{self, FILE, say};
use crate::scenario_session::Scenario;

/// From a data directory in which nothing is but which model to ask: it is installed, works in the jail, is heard while
/// it works, and at the end there are its changes and its bill.
pub(crate) async fn agent_runs_from_an_empty_data_directory(scenario: Scenario) {
    let place = FirstUseSetup::new(&scenario.agent);
    let mut viv = place.run(scenario.agent.name, say::FILE);
    let (stdout, mut stderr) = (viv.stdout.take().unwrap(), viv.stderr.take().unwrap());
    let (said, told) = tokio::join!(heard(stdout, &mut viv), async {
        let mut told = String::new();
        stderr.read_to_string(&mut told).await.unwrap();
        told
    });
    let status = viv.wait().await.unwrap();
    assert_eq!(status.code(), Some(0), "{said}\n{told}");
    assert!(said.contains("It is made."), "{said}\n{told}");
    check_installed(&scenario.agent, &told);
    check_told(scenario.agent.name, &told);
    let left: Vec<_> = std::fs::read_dir(place.directory.path().join("workspace")).unwrap().collect();
    assert!(left.is_empty(), "changes stay in the layer: {left:?}");
}

/// Everything the agent said. Its first words come while it has still something to do.
async fn heard(stdout: impl tokio::io::AsyncRead + Unpin, viv: &mut Child) -> String {
    let (mut lines, mut said) = (BufReader::new(stdout).lines(), String::new());
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("I am on it.") {
            assert!(viv.try_wait().unwrap().is_none(), "it was heard only at the end");
        }
        said.extend([line.as_str(), "\n"]);
    }
    assert!(said.contains("I am on it."), "{said}");
    said
}

/// What a person reads of the installation: what is missing begins, and what began is there.
fn check_installed(agent: &TestedAgent, told: &str) {
    let Some(package) = agents::by_name(agent.name).unwrap().package() else { return };
    let node = package.needs_node.then_some(("node", agents::NODE.version));
    for (name, version) in [(agent.name, package.version)].into_iter().chain(node) {
        let (begun, done) = (format!("installing {name} {version} …"), format!("installed {name} {version} · "));
        let places = (told.find(&begun), told.find(&done), told.find("session "));
        assert!(matches!(places, (Some(begun), Some(done), Some(session)) if begun < done && done < session), "{told}");
    }
}

/// What a person reads of the session: whose it is, who answers, what was written, the bill, the changes, and what to do next.
fn check_told(agent: &str, told: &str) {
    assert!(told.contains(&format!(" · agent {agent} · model: built-in script, no real model\n")), "{told}");
    let bill = told.lines().find(|line| line.contains(" model call")).expect(told);
    assert!(bill.contains(" tokens in, ") && bill.ends_with(" out · $0.0000"), "{bill}");
    assert!(!bill.starts_with("0 ") && !bill.contains(" 0 out"), "{bill}");
    assert!(told.lines().any(|line| line.starts_with(&format!("A {}", FILE.0)) && line.contains("+1")), "{told}");
    assert!(told.contains("viv sessions diff "), "{told}");
}

/// An empty data directory and an empty workspace.
struct FirstUseSetup {
    directory: TempDir,
    /// What npm has downloaded before: its own store, not ours.
    downloads: PathBuf,
}

impl FirstUseSetup {
    fn new(agent: &TestedAgent) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["data", "workspace"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let model = directory.path().join("model.json");
        std::fs::write(&model, model_script::text(agent)).unwrap();
        std::fs::write(directory.path().join("data/viv.toml"), format!("[model]\nscript = '{}'\n", model.display()))
            .unwrap();
        Self { directory, downloads: agent.installed.join("npm") }
    }

    /// `viv run`, with nobody at its input.
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

/// The program, which is built beside its tests.
fn viv() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).map(|folder| folder.join("viv")).filter(|program| Path::exists(program));
    program.expect("`viv` is built before these tests: cargo build --bin viv")
}
