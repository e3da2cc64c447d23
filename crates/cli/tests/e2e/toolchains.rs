//! Tests of toolchains in the home directory: projects that build on the host build inside, offline, and the host's
//! directories do not change.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::viv_fixture;
use testkit::VivFixture;

/// Returns the name, size, time and mode of every file below `top`, as one text.
fn state(top: &Path) -> String {
    let script = "find . -type f -printf '%p %s %T@ %m\\n' | sort; find . -type l -printf '%p %l\\n' | sort";
    let output = Command::new("sh").args(["-c", script]).current_dir(top).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn home() -> PathBuf {
    std::env::home_dir().unwrap()
}

#[track_caller]
fn inside(place: &VivFixture, script: &str) -> String {
    let workspace = place.workspace().display().to_string();
    let ran = place.run(&["exec", "--workspace", &workspace, "--", "sh", "-c", script]);
    assert_eq!(ran.code, 0, "{script}: {}{}", ran.stdout, ran.stderr);
    ran.stdout
}

#[track_caller]
fn on_host(directory: &Path, program: &str, arguments: &[&str]) {
    // The settings of the build that runs these tests would make another build.
    let kept = ["PATH", "HOME", "PYENV_ROOT", "RUSTUP_HOME", "CARGO_HOME"];
    let kept = kept.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env_clear().envs(kept);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn crate_with_a_dependency_is_tested_with_rustup_of_the_home_directory() {
    let place = viv_fixture();
    let (workspace, cargo) = (place.workspace(), home().join(".cargo"));
    let manifest =
        "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n";
    std::fs::write(workspace.join("Cargo.toml"), manifest).unwrap();
    std::fs::create_dir(workspace.join("src")).unwrap();
    let code = "pub fn text(n: u32) -> String { itoa::Buffer::new().format(n).to_owned() }\n#[test]\nfn manifest() { \
                assert!(std::path::Path::new(env!(\"CARGO_MANIFEST_DIR\")).join(\"Cargo.toml\").exists()); \
                assert_eq!(text(7), \"7\"); }\n";
    std::fs::write(workspace.join("src/lib.rs"), code).unwrap();
    // The workspace of this project has the crate in its lock file, so it is in the cache.
    on_host(&workspace, "cargo", &["test", "--offline", "--no-run"]);
    let before = state(&cargo);
    let output = inside(&place, "cargo test --lib 2>&1 && touch ~/.cargo/registry/new && rm -rf ~/.cargo/bin");
    assert!(output.contains("1 passed"), "{output}");
    assert!(!output.contains("Compiling"), "the host's build is used: {output}");
    assert_eq!(state(&cargo), before);
}

#[test]
fn virtual_environment_works_at_its_own_path() {
    let place = viv_fixture();
    let workspace = place.workspace();
    on_host(&workspace, "python3", &["-m", "venv", ".venv"]);
    std::fs::write(
        workspace.join("test_sample.py"),
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n",
    )
    .unwrap();
    let script = ".venv/bin/pip --version && . .venv/bin/activate && python -m unittest 2>&1 && python -c 'import sys; print(sys.prefix)'";
    let output = inside(&place, script);
    assert!(output.contains("OK"), "{output}");
    let prefix = workspace.canonicalize().unwrap().join(".venv");
    assert!(output.contains(&prefix.display().to_string()), "{output}");
}

#[test]
fn node_project_is_installed_and_tested_offline() {
    let place = viv_fixture();
    let workspace = place.workspace();
    std::fs::create_dir(workspace.join("dep")).unwrap();
    std::fs::write(workspace.join("dep/package.json"), r#"{"name": "dep", "version": "1.0.0", "main": "i.js"}"#)
        .unwrap();
    std::fs::write(workspace.join("dep/i.js"), "module.exports = 7;").unwrap();
    let manifest = r#"{"name": "sample", "version": "1.0.0", "dependencies": {"dep": "file:./dep"},
        "scripts": {"test": "node -e \"if (require('dep') !== 7) process.exit(1)\""}}"#;
    std::fs::write(workspace.join("package.json"), manifest).unwrap();
    on_host(&workspace, "npm", &["install", "--offline"]);
    inside(&place, "npm test && npm ci --offline && npm test");
}

#[test]
fn credentials_of_toolchains_do_not_exist_inside() {
    let place = viv_fixture();
    let home = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        std::fs::create_dir_all(home.path().join(path).parent().unwrap()).unwrap();
        std::fs::write(home.path().join(path), text).unwrap();
    };
    write(".cargo/credentials.toml", "token = 's3cr3t'");
    write(
        ".cargo/config.toml",
        "[source.own]\nregistry = 'https://me:s3cr3t@own.example.com'\n[registry]\ntoken = 's3cr3t'\n",
    );
    write(".m2/settings.xml", "<settings><servers><password>s3cr3t</password></servers><mirrors/></settings>");
    write(".m2/repository/kept.jar", "jar");
    write(".gradle/gradle.properties", "org.gradle.jvmargs=-Xmx1g\nsigningPassword=s3cr3t\n");
    let workspace = place.workspace().display().to_string();
    let run = |arguments: &[&str]| {
        let mut viv = place.command(arguments);
        for name in ["CARGO_HOME", "RUSTUP_HOME"] {
            viv.env_remove(name);
        }
        let output = viv.env("HOME", home.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let script = "ls ~/.cargo; cat ~/.cargo/config.toml ~/.m2/settings.xml ~/.gradle/gradle.properties; \
                  cat ~/.m2/repository/kept.jar; grep -rs s3cr3t ~/.cargo/. ~/.m2/. ~/.gradle/. && exit 9; \
                  echo new > ~/.cargo/credentials.toml && echo new > ~/.m2/new";
    let (code, stdout, stderr) = run(&["exec", "--workspace", &workspace, "--", "sh", "-c", script]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(!stdout.contains("s3cr3t") && stdout.contains("own.example.com") && stdout.contains("-Xmx1g"), "{stdout}");
    assert!(stdout.contains("<mirrors/>") && stdout.ends_with("jar"), "{stdout}");
    let kept = std::fs::read_to_string(home.path().join(".cargo/credentials.toml")).unwrap();
    assert_eq!(kept, "token = 's3cr3t'", "the host's file does not change");
    assert!(!home.path().join(".m2/new").exists());
    let (code, ..) = run(&["exec", "--narrow", "toolchains=none", "--", "test", "-e", "/home/agent/.cargo"]);
    assert_eq!(code, Some(1), "`none` shows nothing");
    let (_, stdout, _) = run(&["policy", "explain"]);
    assert!(stdout.contains(&format!("Found: rust in {}/.cargo.", home.path().display())), "{stdout}");
}

#[test]
fn policy_sets_variables_and_the_path() {
    let place = viv_fixture();
    let policy = place.directory().join("own.yaml");
    let text = "version: 1\nextends: balanced\nenv: {set: [CC=clang]}\npath: {prepend: [/srv/bin]}\ntoolchains: none\n";
    std::fs::write(&policy, text).unwrap();
    let policy = policy.display().to_string();
    let ran = place.run(&["exec", "--policy", &policy, "--", "sh", "-c", "echo $CC $PATH"]);
    assert!(ran.stdout.starts_with("clang /srv/bin:/usr"), "{}{}", ran.stdout, ran.stderr);
}
