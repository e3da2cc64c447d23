//! Tests of `viv` with a container engine: successes, and errors with the engine's own messages.
//!
//! The tests start their own engines, as root or as the current user. The engines end with the thread that started
//! them, so these tests have their own `main`.
#![allow(clippy::unwrap_used, clippy::unnecessary_wraps, reason = "a test that brings its own harness")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use engines::{Engine, IMAGE, MountTraces};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

type Case = fn(&EngineFixture);

/// The tests with their names.
const CASES: [(&str, Case); 10] = [
    ("a_command_runs_in_a_container", a_command),
    ("an_agent_works_in_a_container_and_its_changes_can_be_seen", an_agent),
    ("the_doctor_makes_a_container_where_the_configuration_says_so", doctor),
    ("an_engine_that_is_absent_is_a_sandbox_create_error", engine_absent),
    ("an_image_that_is_absent_is_a_sandbox_create_error", image_absent),
    ("an_entrypoint_that_fails_is_a_sandbox_create_error", entrypoint_failed),
    ("a_container_is_taken_down_when_its_command_is_told_to_stop", stopped),
    ("a_container_is_taken_down_when_it_is_told_to_stop_at_its_start", stopped_at_the_start),
    ("a_container_that_the_engine_refuses_is_a_sandbox_create_error", container_refused),
    ("a_command_that_takes_too_long_is_a_runtime_error", timed_out),
];

/// Expected enforcement of limits by an engine of root, and by one of an ordinary user without a delegated cgroup.
const OF_ROOT: (&str, Case) = ("a_command_without_memory_is_a_runtime_error", out_of_memory);
const OF_A_USER: (&str, Case) = ("a_limit_that_is_not_kept_is_refused_by_its_key", limits_refused);

fn main() {
    let arguments = Arguments::from_args();
    let engines = if arguments.list { Vec::new() } else { Engine::start_all() };
    let mut trials = Vec::new();
    for engine in &engines {
        let of_its_own = if engine.is_rootless() && !is_delegated() { OF_A_USER } else { OF_ROOT };
        for (name, case) in CASES.into_iter().chain([of_its_own]) {
            let fixture = EngineFixture::of(engine);
            trials.push(Trial::test(format!("{}::{name}", engine.name()), move || -> Result<(), Failed> {
                case(&fixture);
                Ok(fixture.check_left()?)
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let left: Vec<String> = engines.iter().flat_map(Engine::leftovers).collect();
    drop(engines);
    assert!(left.is_empty(), "containers are gone and these are not: {left:#?}");
    conclusion.exit();
}

/// Returns whether an ordinary user's engine enforces limits: never with cgroup version 1.
fn is_delegated() -> bool {
    std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// A data directory whose configuration names a test engine.
struct EngineFixture {
    directory: TempDir,
    engine: &'static str,
    socket: PathBuf,
    rootless: bool,
}

/// Exit code and output of `viv`.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    programs: String,
    people: String,
}

impl EngineFixture {
    fn of(engine: &Engine) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("workspace")).unwrap();
        let (engine, socket, rootless) = (engine.kind().as_str(), engine.socket(), engine.is_rootless());
        let fixture = Self { directory, engine, socket, rootless };
        fixture.configure(&format!("image = \"{IMAGE}\"\nsocket = \"{}\"\n", fixture.socket.display()));
        fixture
    }

    /// Rewrites the sandbox section of the configuration.
    fn configure(&self, section: &str) {
        let data = self.directory.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&data, private).unwrap();
        std::fs::write(data.join("viv.toml"), format!("[sandbox]\n{section}")).unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let built = || PathBuf::from(env!("CARGO_BIN_EXE_viv"));
        let mut command = Command::new(std::env::var_os("VIV_TEST_VIV").map_or_else(built, PathBuf::from));
        command.arg("--json").arg("--data-dir").arg(self.directory.path().join("data")).args(arguments);
        command.current_dir(self.directory.path().join("workspace")).stdin(Stdio::null()).env_remove("VIV_DATA_DIR");
        command
    }

    fn viv(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), programs: text(&output.stdout), people: text(&output.stderr) }
    }

    /// Runs `viv exec` in a container.
    fn exec(&self, command: &[&str]) -> Ran {
        self.viv(&[&["exec", "--backend", self.engine, "--"], command].concat())
    }

    /// Stops `viv exec` when its container runs; returns its outcome.
    fn stopped(&self, arguments: &[&str], signal: Signal) -> Option<i32> {
        let start = ["exec", "--backend", self.engine];
        let mut viv = self.command(&[&start, arguments].concat()).stdout(Stdio::null()).spawn().unwrap();
        let owner = format!("{}-", viv.id());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        while !runtime
            .block_on(engines::running_containers(&self.socket))
            .iter()
            .any(|it| it.owner.starts_with(&owner) && it.pid > 0)
        {
            assert!(viv.try_wait().unwrap().is_none(), "it ended by itself");
        }
        kill_process(Pid::from_child(&viv), signal).unwrap();
        viv.wait().unwrap().code()
    }

    /// Returns the remaining files of containers right after the end of `viv`.
    fn check_left(&self) -> Result<(), String> {
        let mounts = MountTraces { directory: self.directory.path().to_owned(), socket: self.socket.clone() }.count();
        let containers = std::fs::read_dir(self.directory.path().join("data/containers"));
        let files: Vec<_> = containers.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        if mounts == 0 && files.is_empty() { Ok(()) } else { Err(format!("{mounts} mounts are left, and {files:?}")) }
    }

    /// Runs a command whose sandbox cannot be made; returns exit code and output.
    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        let ran = self.exec(&["true"]);
        assert_eq!(ran.code, Some(125), "{ran:#?}");
        let told: Value = serde_json::from_str(ran.people.lines().last().unwrap()).unwrap();
        assert_eq!(told["code"], "sandbox_create_error", "{told}");
        for part in parts {
            assert!(told.to_string().contains(part), "no `{part}` in {told}");
        }
    }

    /// Runs a task with one failing command; returns the message.
    #[track_caller]
    fn failed(&self, policy: &str, command: &str) -> String {
        self.write("policy.yaml", policy);
        self.write(
            "task.yaml",
            &format!(
                "version: 1\nname: one\nsandbox: {{backend: {}, policy: policy.yaml}}\ncommands: [{command}]\nlogs: logs\n",
                self.engine
            ),
        );
        let ran = self.viv(&["task", "../task.yaml"]);
        let report: Value = serde_json::from_str(&ran.programs).unwrap();
        assert_eq!((ran.code, &report["failure"]["class"]), (Some(1), &Value::from("runtime_error")), "{ran:#?}");
        report["failure"]["message"].to_string()
    }
}

fn a_command(fixture: &EngineFixture) {
    let ran = fixture.exec(&["id"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    // The user is unused on the host, or the engine's; the programs are those of the image.
    let user = if fixture.rootless { rustix::process::geteuid().as_raw() } else { 1_900_000_000 };
    assert!(ran.programs.contains(&format!("uid={user}(agent)")), "{ran:#?}");
    assert_eq!(fixture.exec(&["sh", "-c", "exit 7"]).code, Some(7));
    assert_eq!(fixture.exec(&["no-such-program"]).code, Some(127));
}

fn an_agent(fixture: &EngineFixture) {
    let ran = fixture.viv(&["run", "mock", "hello", "--backend", fixture.engine, "--workspace", "."]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let sessions: Value = serde_json::from_str(&fixture.viv(&["sessions", "ls"]).programs).unwrap();
    let session = sessions[0]["sessionId"].as_str().unwrap();
    let events = fixture.viv(&["sessions", "events", session]).programs;
    let keeper =
        if fixture.rootless && !is_delegated() { "weaker".to_owned() } else { format!("{} (cgroup", fixture.engine) };
    assert!(events.contains("policy.effective") && events.contains(&keeper), "{events}");
    assert_eq!(fixture.viv(&["sessions", "diff", session]).code, Some(0));
}

fn doctor(fixture: &EngineFixture) {
    let engine = fixture.engine;
    let socket = fixture.socket.display();
    fixture.configure(&format!("backend = \"{engine}\"\nimage = \"{IMAGE}\"\nsocket = \"{socket}\"\n"));
    let ran = fixture.viv(&["doctor"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    for part in [format!("made by {engine}, chosen by `sandbox.backend` in viv.toml"), format!("at {socket}")] {
        assert!(ran.programs.contains(&part), "no `{part}` in {ran:#?}");
    }
}

fn engine_absent(fixture: &EngineFixture) {
    fixture.configure("socket = \"/nowhere/engine.sock\"\n");
    let start = if fixture.rootless { "systemctl --user start" } else { "systemctl start" };
    fixture.refused(&[&format!("no {} engine answers (/nowhere/engine.sock", fixture.engine), start]);
}

fn image_absent(fixture: &EngineFixture) {
    fixture.configure(&format!("image = \"localhost/viv-test:none\"\nsocket = \"{}\"\n", fixture.socket.display()));
    // The text in brackets comes from the engine.
    fixture.refused(&["has no image `localhost/viv-test:none`", "o such image", "docs/container"]);
}

fn entrypoint_failed(fixture: &EngineFixture) {
    let section = "entrypoint = [\"/bin/sh\", \"-c\", \"echo no licence >&2; exit 3\"]\n";
    fixture.configure(&format!("{section}image = \"{IMAGE}\"\nsocket = \"{}\"\n", fixture.socket.display()));
    fixture.refused(&["run the entrypoint", "exited with code 3: no licence"]);
}

/// An entrypoint that does not end keeps the container from being ready.
fn stopped_at_the_start(fixture: &EngineFixture) {
    let section = "entrypoint = [\"/bin/sleep\", \"600\"]\n";
    fixture.configure(&format!("{section}image = \"{IMAGE}\"\nsocket = \"{}\"\n", fixture.socket.display()));
    assert_eq!(fixture.stopped(&["--", "true"], Signal::TERM), Some(143));
}

fn stopped(fixture: &EngineFixture) {
    assert_eq!(fixture.stopped(&["--", "sleep", "600"], Signal::INT), Some(130));
    assert_eq!(fixture.stopped(&["--", "sleep", "600"], Signal::TERM), Some(143));
}

fn container_refused(fixture: &EngineFixture) {
    fixture.configure(&format!(
        "runtime = \"no-such-runtime\"\nimage = \"{IMAGE}\"\nsocket = \"{}\"\n",
        fixture.socket.display()
    ));
    fixture.refused(&["no-such-runtime"]);
}

const SMALL: &str = "version: 1\nfs: {workspace: overlay, read: [/usr, /bin, /lib, /lib64]}\n\
                     proc: {cpus: 1.0, memory: 64MiB, pids: 64, timeout: 1m, output: 1MiB, disk: 32MiB, nofile: 256}\n";

/// Policy that accepts weaker limits.
const WEAKER: &str = "degrade: {memory: rlimit, pids: rlimit, cpus: none}\n";

fn limits_refused(fixture: &EngineFixture) {
    fixture.write("policy.yaml", SMALL);
    let policy = fixture.directory.path().join("policy.yaml");
    let exec = |command: &[&str]| {
        let start = ["exec", "--backend", fixture.engine, "--policy", policy.to_str().unwrap(), "--"];
        fixture.viv(&[&start[..], command].concat())
    };
    let ran = exec(&["true"]);
    assert_eq!(ran.code, Some(125), "{ran:#?}");
    assert!(ran.people.contains("`proc.memory` cannot be enforced here"), "{ran:#?}");
    // With the weaker limit that the policy accepts, each process has its own limit.
    fixture.write("policy.yaml", &format!("{SMALL}{WEAKER}"));
    let ran = exec(&["sh", "-c", "ulimit -d; tail /dev/zero"]);
    let told: Value = serde_json::from_str(&ran.programs).unwrap();
    assert_eq!((&told["stdout"], &told["stderr"]), (&"65536\n".into(), &"tail: memory exhausted\n".into()), "{told}");
}

fn out_of_memory(fixture: &EngineFixture) {
    let told = fixture.failed(SMALL, "{run: [tail, /dev/zero]}");
    assert!(told.contains("exceeded its memory limit"), "{told}");
}

fn timed_out(fixture: &EngineFixture) {
    let told = fixture.failed(&format!("{SMALL}{WEAKER}"), "{run: [sleep, '600'], timeout: 500ms}");
    assert!(told.contains("exceeded its time limit"), "{told}");
}
