//! Programs in Python that tests run: pinned, each set in a folder of the user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{install, step, workspace};

/// A set of packages with a folder of its own.
pub(crate) struct Environment {
    /// What is wanted, one pinned package a line.
    requirements: &'static str,
    /// What those want in turn, pinned too.
    constraints: &'static str,
    /// What it is, for people.
    what: &'static str,
}

/// The vendors' SDKs, which tests of the gateway run.
const SDKS: Environment = Environment {
    requirements: "crates/gateway/tests/clients/requirements.txt",
    constraints: "crates/gateway/tests/clients/constraints.txt",
    what: "the vendors' SDKs for Python",
};

/// What calls the session API as its document says, and what makes clients of such documents.
pub(crate) const API: Environment = Environment {
    requirements: "crates/server/tests/contract/requirements.txt",
    constraints: "crates/server/tests/contract/constraints.txt",
    what: "the testers of the session API",
};

/// Where Debian splits Python up.
const PYTHON: &[install::Package] =
    &[install::Package { name: "python3-venv", reason: "makes the folders that programs in Python are installed in" }];

/// Installs every set unless it is there.
pub(crate) fn install() -> Result<()> {
    SDKS.install()?;
    API.install()
}

impl Environment {
    /// Installs the packages unless they are there.
    pub(crate) fn install(&self) -> Result<()> {
        let folder = self.folder()?;
        if folder.join("bin/python").exists() {
            return Ok(());
        }
        if step::quietly(Command::new("python3").args(["-c", "import venv, ensurepip"])).is_err() {
            install::run(PYTHON)?;
        }
        // Made beside its place and moved there when it is whole, so that half of it is never found.
        let mut unfinished = folder.clone().into_os_string();
        unfinished.push(format!(".{}.unfinished", std::process::id()));
        let unfinished = PathBuf::from(unfinished);
        let made = self.make(&unfinished).and_then(|()| move_in(&unfinished, &folder));
        if made.is_err() {
            // What failed is told; what is left of it would only be untidy.
            let _ = std::fs::remove_dir_all(&unfinished);
        }
        made
    }

    /// Where the packages are; tests name it the same way.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        let path = workspace::root().join(self.requirements);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        install::cache_folder(&name(&text))
    }

    fn make(&self, folder: &Path) -> Result<()> {
        println!("  installing {} into {}", self.what, folder.display());
        step::quietly(Command::new("python3").args(["-m", "venv", "--copies"]).arg(folder))?;
        let root = workspace::root();
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip.arg("--requirement").arg(root.join(self.requirements)).arg("--constraint").arg(root.join(self.constraints));
        step::quietly(&mut pip)?;
        Ok(())
    }
}

fn name(requirements: &str) -> String {
    requirements.lines().map(|line| line.replace("==", "-")).collect::<Vec<_>>().join("-")
}

fn move_in(unfinished: &Path, folder: &Path) -> Result<()> {
    match std::fs::rename(unfinished, folder) {
        Ok(()) => Ok(()),
        // Another run was faster; what it made is the same.
        Err(_) if folder.join("bin/python").exists() => Ok(std::fs::remove_dir_all(unfinished)?),
        Err(error) => bail!("cannot move the packages to {}: {error}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_named_by_what_is_in_it() {
        assert_eq!(name("anthropic==1.2\nopenai==3.4\n"), "anthropic-1.2-openai-3.4");
    }

    #[test]
    fn every_requirement_is_pinned() {
        let read = |path: &str| std::fs::read_to_string(workspace::root().join(path)).unwrap();
        let pinned = |line: &str| line.starts_with('#') || line.split("==").count() == 2;
        for Environment { requirements, constraints, .. } in [SDKS, API] {
            assert!(read(requirements).lines().chain(read(constraints).lines()).all(pinned));
        }
    }
}
