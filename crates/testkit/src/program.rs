//! The `viv` program with its own data directory and workspace.

#![expect(clippy::unwrap_used, clippy::panic, reason = "only tests call this")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::{WAIT_LIMIT, poll_pause};

/// Variables of the host that would change the behaviour of `viv`.
const REMOVED_VARIABLES: [&str; 4] = ["VIV_DATA_DIR", "BASE_URL", "API_KEY", "MODEL_NAME"];

/// A data directory and a workspace for `viv`, deleted with the fixture.
#[derive(Debug)]
pub struct VivFixture {
    program: PathBuf,
    directory: TempDir,
    data_dir: PathBuf,
    /// Keeps the parent of a data directory outside of `directory`.
    _data_parent: Option<TempDir>,
}

impl VivFixture {
    /// Returns a fixture for the `viv` at `program`. Its data directory does not exist yet and is outside of
    /// [`directory`](Self::directory), because a workspace around the data directory would get another policy.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let parent = TempDir::new().unwrap();
        Self::in_directory(program.into(), parent.path().join("data"), TempDir::new().unwrap(), Some(parent))
    }

    /// Returns a fixture like [`new`](Self::new), with the data directory at `data` in [`directory`](Self::directory).
    pub fn with_inner_data_dir(program: impl Into<PathBuf>) -> Self {
        let directory = TempDir::new().unwrap();
        Self::in_directory(program.into(), directory.path().join("data"), directory, None)
    }

    fn in_directory(program: PathBuf, data_dir: PathBuf, directory: TempDir, data_parent: Option<TempDir>) -> Self {
        std::fs::create_dir(directory.path().join("workspace")).unwrap();
        Self { program, directory, data_dir, _data_parent: data_parent }
    }

    /// Returns the working directory of commands: the parent of the workspace.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.data_dir.clone()
    }

    /// Returns the path of the workspace.
    pub fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    /// Returns names and contents of the files in the workspace on the host.
    pub fn workspace_files(&self) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(self.workspace()).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    /// Writes `viv.toml`; creates the data directory if it is missing.
    pub fn configure(&self, text: &str) {
        if !self.data_dir.exists() {
            std::fs::DirBuilder::new().mode(0o700).create(&self.data_dir).unwrap();
        }
        std::fs::set_permissions(&self.data_dir, PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(self.data_dir.join("viv.toml"), text).unwrap();
    }

    /// Returns `viv` with this data directory and empty input.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(&self.data_dir).args(arguments);
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        for name in REMOVED_VARIABLES {
            command.env_remove(name);
        }
        command
    }

    /// Runs `viv` to its end.
    pub fn run(&self, arguments: &[&str]) -> ProgramOutput {
        run_to_end(self.command(arguments))
    }

    /// Runs `viv` to its end with `input`.
    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> ProgramOutput {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        // A thread writes the input, because the command may answer before it has read everything.
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        output.into()
    }
}

/// Exit code and output of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The exit code; 1000 plus the number of the signal when a signal ended the program.
    pub code: i32,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> Self {
        let status = output.status;
        let code = status.code().or_else(|| status.signal().map(|signal| 1000 + signal)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// Runs a command to its end, without a terminal.
pub fn run_to_end(mut command: Command) -> ProgramOutput {
    command.output().unwrap().into()
}

/// Waits for a child to end. Kills the child and panics when it does not end within [`WAIT_LIMIT`].
#[track_caller]
pub fn wait_for_exit(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > WAIT_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the process did not end within {WAIT_LIMIT:?}");
        }
        poll_pause();
    }
}

/// Returns the address that a `viv --json … serve` prints first, without `http://`. Closes the output of the child.
pub fn listening_address(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    line["listening"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned()
}
