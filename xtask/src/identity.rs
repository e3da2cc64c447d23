//! Who runs the tests. What guards a machine must hold for root and for an ordinary user, so some crates'
//! tests run as both: once as whoever called us, once as the other.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::step::quietly;
use crate::workspace;

/// The crates whose tests run as root and as an ordinary user; behind a slash, the only program of them that does.
pub(crate) const BOTH: &[&str] = &["jail", "sandbox", "security", "cli/engine"];

/// Tells the tests of `cli` where `viv` is, when it is not where it was built.
const VIV: &str = "VIV_TEST_VIV";

/// The ordinary user; made when root tests, and removed again if we made it.
const USER: &str = "viv-test";

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    workspace::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// A command that runs as root: itself, or through sudo.
pub(crate) fn as_root(program: &str) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    // sudo forgets the environment, and apt-get must not ask.
    command.args(["--preserve-env=DEBIAN_FRONTEND", program]);
    command
}

/// Runs the tests of `crates` as the other kind of user; a word on what was done.
pub(crate) fn run_tests_as_other(crates: &[&str]) -> Result<String> {
    if crates.is_empty() {
        return Ok("no crate asks for it".to_owned());
    }
    let place = Place::new()?;
    let messages = built_tests(crates)?;
    let programs = place.copy(&test_programs(&messages, crates))?;
    place.copy(&[built_viv(&messages).context("cargo built no `viv`")?])?;
    if !is_root() {
        let outcome = run_all(&programs, &place, |program| {
            let mut command = Command::new("sudo");
            command.arg("env").arg(format!("HOME={}", place.home().display()));
            command.arg(format!("{VIV}={}", place.viv().display())).arg(program);
            command
        });
        // What root left there, we could not remove.
        let emptied = workspace::output(as_root("rm").arg("-rf").arg(place.home())).map(drop);
        outcome.and(emptied)?;
        return Ok(format!("{} programs as root", programs.len()));
    }
    let user = User::ensure()?;
    let outcome = chown_to(&user, &place).and_then(|()| run_all(&programs, &place, |program| user.command(program)));
    // The user goes in any case; what the tests said comes first.
    let removed = user.remove();
    outcome.and(removed)?;
    Ok(format!("{} programs as `{USER}`", programs.len()))
}

fn run_all(programs: &[PathBuf], place: &Place, command: impl Fn(&Path) -> Command) -> Result<()> {
    for program in programs {
        quietly(command(program).current_dir(place.home()).env("HOME", place.home()).env(VIV, place.viv()))?;
    }
    Ok(())
}

/// Builds the test programs of `crates`; what cargo says of them.
fn built_tests(crates: &[&str]) -> Result<String> {
    // All of the workspace, as the step before did: building a part of it would choose other features anew.
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

/// The test programs of `crates` among cargo's messages, one JSON document a line.
fn test_programs(messages: &str, crates: &[&str]) -> Vec<PathBuf> {
    let is_wanted = |message: &Value| {
        let (folder, target) = (folder_of(message), message["target"]["name"].as_str().unwrap_or_default());
        crates.iter().any(|wanted| *wanted == folder || wanted.split_once('/') == Some((folder, target)))
    };
    let tests = read(messages).filter(|message| message["profile"]["test"] == true && is_wanted(message));
    tests.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect()
}

/// The program `viv`, which is built for the tests of its crate.
fn built_viv(messages: &str) -> Option<PathBuf> {
    let is_viv = |message: &Value| message["profile"]["test"] == false && message["target"]["name"] == "viv";
    read(messages).filter(is_viv).find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn read(messages: &str) -> impl Iterator<Item = Value> {
    messages.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// The folder of the crate a message is about; with us it has the crate's name.
fn folder_of(message: &Value) -> &str {
    let manifest = message["manifest_path"].as_str().unwrap_or_default();
    manifest.rsplit('/').nth(1).unwrap_or_default()
}

/// A folder that every user can enter, with a home in it; the checkout may be in nobody else's reach.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self> {
        let place = Self(std::env::temp_dir().join(format!("{USER}-{}", std::process::id())));
        std::fs::create_dir(&place.0).with_context(|| format!("cannot make {}", place.0.display()))?;
        std::fs::set_permissions(&place.0, PermissionsExt::from_mode(0o755))?;
        std::fs::create_dir(place.home())?;
        Ok(place)
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

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("warning: cannot remove {}: {error}", self.0.display());
        }
    }
}

/// The ordinary user on this machine.
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
        // No user of the system: those are given no further users, which an engine of theirs needs.
        useradd.args(["--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", USER]);
        workspace::output(&mut useradd)?;
        Self::find(true)
    }

    fn find(made: bool) -> Result<Self> {
        let number = |flag| -> Result<u32> {
            let text = workspace::output(Command::new("id").args([flag, USER]))?;
            text.trim().parse().with_context(|| format!("`id` says `{text}`"))
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

fn chown_to(user: &User, place: &Place) -> Result<()> {
    chown(place.home(), Some(user.id), Some(user.group)).context("cannot give the home to the ordinary user")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_test_programs_of_the_crates_are_run() {
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
    fn an_empty_list_builds_and_makes_nothing() {
        assert_eq!(run_tests_as_other(&[]).unwrap(), "no crate asks for it");
    }

    #[test]
    fn the_place_is_open_to_others_and_goes_away() {
        let place = Place::new().unwrap();
        let path = place.0.clone();
        let copies = place.copy(&[PathBuf::from("/bin/true")]).unwrap();
        let mode = std::fs::metadata(&copies[0]).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        drop(place);
        assert!(!path.exists());
    }
}
