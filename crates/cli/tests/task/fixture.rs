//! Test environment: a data directory, an env file with the address of a stub server, and `viv task`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use testkit::ChatStub;

/// Test environment of one test.
pub(crate) struct TaskFixture {
    directory: TempDir,
}

/// Exit code and output of a task.
#[derive(Debug)]
pub(crate) struct TaskOutput {
    pub(crate) code: Option<i32>,
    pub(crate) report: Value,
    pub(crate) people: String,
}

impl TaskFixture {
    pub(crate) fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    /// Returns an environment with the real Claude Code.
    pub(crate) fn with_claude() -> Self {
        let (fixture, installed) = (Self::new(), installed_claude());
        std::fs::create_dir(fixture.path("data")).unwrap();
        std::os::unix::fs::symlink(installed.join("agents"), fixture.path("data/agents")).unwrap();
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Writes `.env` with the address of `stub` and a model whose price nobody knows.
    pub(crate) fn env_file(&self, stub: &ChatStub) {
        let text =
            format!("BASE_URL=http://{}/v1\nAPI_KEY=sk-real-key-of-ours\nMODEL_NAME=my-own-model\n", stub.address);
        self.write(".env", &text);
    }

    /// Runs a task and reads its report.
    pub(crate) fn task(&self, file: &Path, arguments: &[&str]) -> TaskOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viv"));
        command.arg("--json").arg("--data-dir").arg(self.path("data")).arg("task").arg(file).args(arguments);
        command.current_dir(self.directory.path()).stdin(Stdio::null()).env_remove("VIV_DATA_DIR");
        let Output { status, stdout, stderr } = command.output().unwrap();
        let report = serde_json::from_slice(&stdout).unwrap_or_default();
        TaskOutput { code: status.code(), report, people: String::from_utf8_lossy(&stderr).into_owned() }
    }

    /// Returns the journal of a task from its logs.
    pub(crate) fn trajectory(&self, ran: &TaskOutput) -> Vec<Value> {
        let session = ran.report["session"].as_str().unwrap();
        let text = std::fs::read_to_string(self.path(&format!("logs/trajectory/{session}.jsonl"))).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Returns the path of a file of the repository.
pub(crate) fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

/// Returns a data directory in which viv has installed Claude Code: a folder of `cargo xtask test`, else one in the build
/// directory. An existing installation is reused.
fn installed_claude() -> PathBuf {
    let kept = std::env::var_os("VIV_TEST_AGENTS_DIR").map(PathBuf::from);
    let folder = kept.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("agents"));
    let mut install = Command::new(env!("CARGO_BIN_EXE_viv"));
    let installed = install.arg("--data-dir").arg(&folder).args(["agents", "install", "claude"]).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    folder
}
