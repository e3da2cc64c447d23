//! Runs some tests as root and as an ordinary user, because sandboxes must hold for both.
//!
//! The tests run once as the calling user and once as the other kind of user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::step::quietly;
use crate::workspace;

/// Crates whose tests run as both users; after a slash, the only test program that does.
pub(crate) const BOTH: &[&str] = &["jail", "sandbox", "security", "cli/engine"];

/// The variable that tells the tests of `cli` where `viv` is, when it is not in the build directory.
const VIV: &str = "VIV_TEST_VIV";

/// The ordinary user. Created when root runs the tests, and removed afterwards.
const USER: &str = "viv-test";

/// Returns whether this process runs as root.
pub(crate) fn is_root() -> bool {
    workspace::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Returns a command that runs `program` as root, through sudo if necessary.
pub(crate) fn as_root(program: &str) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    // sudo clears the environment, and apt-get must not ask questions.
    command.args(["--preserve-env=DEBIAN_FRONTEND", program]);
    command
}

/// Runs the tests of `crates` as the other kind of user, and returns a summary.
pub(crate) fn run_tests_as_other(crates: &[&str]) -> Result<String> {
    if crates.is_empty() {
        return Ok("no crate asks for it".to_owned());
    }
    let folder = SharedFolder::new()?;
    let messages = built_tests(crates)?;
    let programs = folder.copy(&test_programs(&messages, crates))?;
    folder.copy(&[built_viv(&messages).context("cargo built no `viv`")?])?;
    if !is_root() {
        let outcome = run_all(&programs, &folder, |program| {
            let mut command = Command::new("sudo");
            command.arg("env").arg(format!("HOME={}", folder.home().display()));
            command.arg(format!("{VIV}={}", folder.viv().display())).arg(program);
            command
        });
        // An ordinary user cannot remove files that root created.
        let emptied = workspace::output(as_root("rm").arg("-rf").arg(folder.home())).map(drop);
        outcome.and(emptied)?;
        return Ok(format!("{} programs as root", programs.len()));
    }
    let user = User::ensure()?;
    let outcome = chown_to(&user, &folder).and_then(|()| run_all(&programs, &folder, |program| user.command(program)));
    // Remove the user in any case; report a test failure first.
    let removed = user.remove();
    outcome.and(removed)?;
    Ok(format!("{} programs as `{USER}`", programs.len()))
}

fn run_all(programs: &[PathBuf], folder: &SharedFolder, command: impl Fn(&Path) -> Command) -> Result<()> {
    for program in programs {
        quietly(command(program).current_dir(folder.home()).env("HOME", folder.home()).env(VIV, folder.viv()))?;
    }
    Ok(())
}

/// Builds the test programs of `crates`, and returns cargo's messages.
fn built_tests(crates: &[&str]) -> Result<String> {
    // The whole workspace, as in the step before: building a part would select other features and rebuild.
    let mut cargo =
        workspace::cargo(&["test", "--locked", "--workspace", "--no-run", "--quiet", "--message-format=json"]);
    let messages = workspace::output(&mut cargo)?;
    for name in crates {
        if test_programs(&messages, &[name]).is_empty() {
            bail!("cargo built no test program for `{name}`");
        }
    }
    Ok(messages)
}

/// Returns the test programs of `crates` in cargo's messages, which are one JSON document a line.
fn test_programs(messages: &str, crates: &[&str]) -> Vec<PathBuf> {
    let is_wanted = |message: &Value| {
        let (folder, target) = (folder_of(message), message["target"]["name"].as_str().unwrap_or_default());
        crates.iter().any(|wanted| *wanted == folder || wanted.split_once('/') == Some((folder, target)))
    };
    let tests = read(messages).filter(|message| message["profile"]["test"] == true && is_wanted(message));
    tests.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect()
}

/// Returns the path of `viv`, which cargo builds for the tests of its crate.
fn built_viv(messages: &str) -> Option<PathBuf> {
    let is_viv = |message: &Value| message["profile"]["test"] == false && message["target"]["name"] == "viv";
    read(messages).filter(is_viv).find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn read(messages: &str) -> impl Iterator<Item = Value> {
    messages.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// Returns the folder name of the crate in a message, which equals the crate's name.
fn folder_of(message: &Value) -> &str {
    let manifest = message["manifest_path"].as_str().unwrap_or_default();
    manifest.rsplit('/').nth(1).unwrap_or_default()
}

/// A folder that every user can enter, with a home directory. Other users may not be able to read the checkout.
struct SharedFolder(PathBuf);

impl SharedFolder {
    fn new() -> Result<Self> {
        let folder = Self(std::env::temp_dir().join(format!("{USER}-{}", std::process::id())));
        std::fs::create_dir(&folder.0).with_context(|| format!("cannot create {}", folder.0.display()))?;
        std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755))?;
        std::fs::create_dir(folder.home())?;
        Ok(folder)
    }

    fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    fn viv(&self) -> PathBuf {
        self.0.join("viv")
    }

    fn copy(&self, programs: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let copies = programs.iter().map(|program| {
            let copy = self.0.join(program.file_name().context("a test program without a name")?);
            std::fs::copy(program, &copy).with_context(|| format!("cannot copy {}", program.display()))?;
            std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755))?;
            Ok(copy)
        });
        copies.collect()
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("warning: cannot remove {}: {error}", self.0.display());
        }
    }
}

/// The ordinary user of this machine.
struct User {
    id: u32,
    group: u32,
    made: bool,
}

impl User {
    fn ensure() -> Result<Self> {
        let known = Self::find(false);
        if known.is_ok() {
            return known;
        }
        let mut useradd = Command::new("useradd");
        // Not a system user: system users get no subordinate ids, which a container engine needs.
        useradd.args(["--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", USER]);
        workspace::output(&mut useradd)?;
        Self::find(true)
    }

    fn find(made: bool) -> Result<Self> {
        let number = |flag| -> Result<u32> {
            let text = workspace::output(Command::new("id").args([flag, USER]))?;
            text.trim().parse().with_context(|| format!("`id` printed `{text}`"))
        };
        Ok(Self { id: number("-u")?, group: number("-g")?, made })
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        let (id, group) = (format!("--reuid={}", self.id), format!("--regid={}", self.group));
        command.args([&id, &group]).args(["--clear-groups", "--inh-caps=-all", "--"]).arg(program);
        command.env("USER", USER).env("LOGNAME", USER);
        command
    }

    fn remove(self) -> Result<()> {
        if self.made {
            workspace::output(Command::new("userdel").arg(USER)).context("the tests left a process behind")?;
        }
        Ok(())
    }
}

fn chown_to(user: &User, folder: &SharedFolder) -> Result<()> {
    chown(folder.home(), Some(user.id), Some(user.group)).context("cannot give the home to the ordinary user")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_test_programs_of_listed_crates_run() {
        let message = |folder: &str, test: bool, executable: Option<&str>| {
            let manifest = format!("/x/crates/{folder}/Cargo.toml");
            let target = executable.and_then(|path| path.rsplit('/').next()?.split('-').next());
            json!({ "manifest_path": manifest, "profile": { "test": test }, "target": { "name": target },
                    "executable": executable })
            .to_string()
        };
        let messages = [
            message("jail", true, Some("/t/jail-1")),
            message("jail", false, Some("/t/jail")),
            message("jail", true, None),
            message("store", true, Some("/t/store-1")),
            message("cli", true, Some("/t/engine-1")),
            message("cli", true, Some("/t/help-1")),
            message("cli", false, Some("/t/viv")),
            "not json".to_owned(),
        ];
        let messages = messages.join("\n");
        let found = ["/t/jail-1", "/t/engine-1"].map(PathBuf::from);
        assert_eq!(test_programs(&messages, &["jail", "sandbox", "cli/engine"]), found);
        assert_eq!(built_viv(&messages), Some(PathBuf::from("/t/viv")));
    }

    #[test]
    fn empty_list_does_nothing() {
        assert_eq!(run_tests_as_other(&[]).unwrap(), "no crate asks for it");
    }

    #[test]
    fn folder_is_readable_by_others_and_is_removed() {
        let folder = SharedFolder::new().unwrap();
        let path = folder.0.clone();
        let copies = folder.copy(&[PathBuf::from("/bin/true")]).unwrap();
        let mode = std::fs::metadata(&copies[0]).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        drop(folder);
        assert!(!path.exists());
    }
}
