//! Tests of `viv agents` with a fake npm.
//!
//! The conformance tests install the real agents with the real npm.
#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

/// Fake npm: installs `NAME@VERSION` as a folder with the program and a lock file with its hash. The program speaks the
/// protocol of Claude Code and reports its version. Version `0.0.404` does not exist.
const NPM: &str = r#"#!/bin/sh
set -eu
spec=$2
while [ "$1" != --prefix ]; do shift; done
prefix=$2
version=${spec##*@}
if [ "$version" = 0.0.404 ]; then echo 'npm error code ETARGET' >&2; exit 1; fi
if [ "$version" = latest ]; then version=9.9.9; fi
program=$prefix/node_modules/@anthropic-ai/claude-code-linux-x64
mkdir -p "$program" "$prefix/node_modules/@anthropic-ai/claude-code"
cat > "$program/claude" <<PROGRAM
#!/bin/sh
while read -r line; do
  case \$line in *'"type":"user"'*)
    echo '{"type":"system","subtype":"init","session_id":"s1"}'
    echo '{"type":"assistant","message":{"content":[{"type":"text","text":"I am $version."}]}}'
    echo '{"type":"result","subtype":"success","is_error":false}'
  esac
done
PROGRAM
chmod 755 "$program/claude"
cat > "$prefix/package-lock.json" <<LOCK
{"packages": {
  "": {},
  "node_modules/@anthropic-ai/claude-code": {"version": "$version", "integrity": "sha512-of-$version"},
  "node_modules/@anthropic-ai/claude-code-linux-x64": {"version": "$version", "integrity": "sha512-x"},
  "node_modules/@anthropic-ai/claude-code-darwin": {"version": "$version", "integrity": "sha512-y"}
}}
LOCK
"#;

/// A data directory and a fake npm.
struct Stage {
    directory: TempDir,
    /// Returns the `PATH` with the fake npm.
    path: String,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("bin/npm");
        std::fs::create_dir(program.parent().unwrap()).unwrap();
        std::fs::write(&program, NPM).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
        Self { directory, path }
    }

    fn viv(&self, arguments: &[&str]) -> (bool, String, String) {
        let output = Command::cargo_bin("viv")
            .unwrap()
            .arg("agents")
            .args(arguments)
            .arg("--data-dir")
            .arg(self.directory.path().join("data"))
            .env("PATH", &self.path)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).unwrap();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    /// Returns the answer of a task with one prompt.
    fn task(&self, agent: &str) -> serde_json::Value {
        let file = self.directory.path().join("task.yaml");
        let text = format!("{{version: 1, name: t, agent: {agent}, prompts: [{{text: Which are you?}}]}}");
        std::fs::write(&file, text).unwrap();
        let mut viv = Command::cargo_bin("viv").unwrap();
        let output = viv.arg("--json").arg("--data-dir").arg(self.directory.path().join("data"));
        let output = output.arg("task").arg(file).env("PATH", &self.path).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[track_caller]
    fn good(&self, arguments: &[&str]) -> String {
        let (good, stdout, stderr) = self.viv(arguments);
        assert!(good, "{arguments:?}: {stderr}");
        stdout
    }

    #[track_caller]
    fn bad(&self, arguments: &[&str], reason: &str) {
        let (good, _, stderr) = self.viv(arguments);
        assert!(!good && stderr.contains(reason), "{arguments:?}: {stderr}");
    }

    fn versions(&self) -> PathBuf {
        self.directory.path().join("data/agents/claude")
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".lock");
    names.sort();
    names
}

#[test]
fn several_versions_can_be_installed_and_removed() {
    let stage = Stage::new();
    stage.good(&["install", "claude@1.0.0", "claude@latest"]);
    assert_eq!(names(&stage.versions()), ["1.0.0", "9.9.9"]);
    stage.good(&["install", "claude@latest"]);
    let path = stage.good(&["path", "claude"]);
    assert!(path.contains("/9.9.9/node_modules/"), "the newest is taken: {path}");
    let shown = stage.good(&["show", "claude@1.0.0"]);
    assert!(shown.contains("sha512-of-1.0.0") && shown.contains("packages   2 "), "{shown}");
    assert!(stage.good(&["ls"]).contains("1.0.0, 9.9.9"));
    stage.good(&["rm", "claude@9.9.9"]);
    assert_eq!(names(&stage.versions()), ["1.0.0"]);
    stage.bad(&["rm", "claude@9.9.9"], "is not installed");
    stage.good(&["rm", "claude"]);
    stage.bad(&["path", "claude"], "viv agents install claude");
}

#[test]
fn a_task_of_prompts_runs_the_version_it_names() {
    let stage = Stage::new();
    stage.good(&["install", "claude@1.0.0", "claude@latest"]);
    for (agent, version) in [("claude@1.0.0", "1.0.0"), ("claude@9.9.9", "9.9.9"), ("claude", "9.9.9")] {
        let report = stage.task(agent);
        assert!(report.to_string().contains(&format!("I am {version}.")), "{agent}: {report:#}");
    }
    let report = stage.task("mock@1.0.0");
    assert_eq!(report["failure"]["class"], "agent_not_installed", "{report:#}");
}

#[test]
fn a_hash_mismatch_is_rejected_and_leaves_nothing() {
    let stage = Stage::new();
    stage.bad(&["install", "claude"], "hash mismatch");
    stage.bad(&["install", "claude@0.0.404"], "ETARGET");
    assert_eq!(names(&stage.versions()), [""; 0]);
}

#[test]
fn a_package_without_its_program_is_rejected() {
    let stage = Stage::new();
    stage.bad(&["install", "codex@1.0.0"], "recorded no hash");
    let npm = stage.directory.path().join("bin/npm");
    let without = std::fs::read_to_string(&npm)
        .unwrap()
        .replace("cat > \"$program/claude\"", "cat > /dev/null")
        .replace("chmod", ":");
    std::fs::write(npm, without).unwrap();
    stage.bad(&["install", "claude@1.0.0"], "lacks its program");
    assert_eq!(names(&stage.versions()), [""; 0]);
}

#[test]
fn the_remains_of_a_killed_installation_are_removed() {
    let stage = Stage::new();
    std::fs::create_dir_all(stage.versions().join(".1.0.0/node_modules")).unwrap();
    stage.good(&["install", "claude@2.0.0"]);
    assert_eq!(names(&stage.versions()), ["2.0.0"]);
}

#[test]
fn concurrent_installations_install_once() {
    let stage = Stage::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| stage.good(&["install", "claude@1.0.0"]));
        }
    });
    assert_eq!(names(&stage.versions()), ["1.0.0"]);
}

#[test]
fn without_npm_the_error_names_npm() {
    let mut stage = Stage::new();
    let bin = stage.directory.path().join("bin");
    std::fs::remove_file(bin.join("npm")).unwrap();
    std::os::unix::fs::symlink("/bin/sh", bin.join("sh")).unwrap();
    stage.path = bin.to_str().unwrap().to_owned();
    stage.bad(&["install", "claude"], "needs Node.js with npm");
}

#[test]
fn unknown_agents_are_rejected_with_the_reason() {
    let stage = Stage::new();
    stage.bad(&["install", "amp"], "vendor's server");
    stage.bad(&["install", "mcok"], "unknown agent `mcok`");
    stage.bad(&["install", "claude@../x"], "invalid version");
    stage.bad(&["path", "mock"], "is built into viv");
}
