//! Test environment: a data directory, a workspace, and `viv`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Maximum waiting time of tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A data directory and a workspace, deleted with the test.
pub(crate) struct Place {
    directory: TempDir,
    /// Outside of the data directory, because a workspace around it would get another policy.
    kept: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("workspace")).unwrap();
        std::fs::write(directory.path().join("workspace/kept.txt"), "as it was\n").unwrap();
        Self { directory, kept: TempDir::new().unwrap() }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.kept.path().join("data")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    /// Returns `viv` with this data directory and empty input.
    pub(crate) fn viv(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("--data-dir").arg(self.data()).args(arguments);
        command.current_dir(self.directory.path()).stdin(Stdio::null()).env_remove("VIV_DATA_DIR");
        for name in ["BASE_URL", "API_KEY", "MODEL_NAME"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs `viv` to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.viv(arguments))
    }

    /// Runs `viv` to its end with `input`.
    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.viv(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        // Written by a thread, because the command may answer before it has read everything.
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        Ran::of(output)
    }

    /// Returns names and contents of the files in the workspace on the host.
    pub(crate) fn workspace_files(&self) -> Vec<(String, String)> {
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
}

/// The binary under test.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_viv")
}

/// Exit code and output of `viv`.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Returns the exit code as a shell reports it.
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) people: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let status = output.status;
        let code = status.code().or_else(|| status.signal().map(|signal| 1000 + signal)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code, out: text(&output.stdout), people: text(&output.stderr) }
    }
}

/// Runs a command to its end, without a terminal.
pub(crate) fn finish(mut command: Command) -> Ran {
    Ran::of(command.output().unwrap())
}

/// Waits for a child to end; after a bounded time the child is killed and the test fails.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> std::process::ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("a process did not end");
        }
        testkit::poll_pause();
    }
}
