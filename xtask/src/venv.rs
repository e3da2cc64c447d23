//! Python programs for tests and benches: pinned, one virtual environment a set, in the user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{install, step, workspace};

/// A set of Python packages in one virtual environment.
pub(crate) struct Environment {
    /// The requested packages, one pinned package a line.
    requirements: &'static str,
    /// Their dependencies, pinned too.
    constraints: &'static str,
    /// The name that people see.
    what: &'static str,
}

/// The vendors' SDKs, for tests of the gateway.
const SDKS: Environment = Environment {
    requirements: "crates/gateway/tests/clients/requirements.txt",
    constraints: "crates/gateway/tests/clients/constraints.txt",
    what: "the vendors' SDKs for Python",
};

/// A tester and a client generator for OpenAPI documents.
pub(crate) const API: Environment = Environment {
    requirements: "crates/server/tests/contract/requirements.txt",
    constraints: "crates/server/tests/contract/constraints.txt",
    what: "the testers of the session API",
};

/// LiteLLM's proxy: an upstream in tests, a peer in the bench.
pub(crate) const LITELLM: Environment = Environment {
    requirements: "crates/gateway/tests/litellm/requirements.txt",
    constraints: "crates/gateway/tests/litellm/constraints.txt",
    what: "LiteLLM's proxy",
};

/// MCP's SDK for Python, of the protocol versions until 2025-11-25.
const MCP_1: Environment = Environment {
    requirements: "crates/cli/tests/mcp/v1/requirements.txt",
    constraints: "crates/cli/tests/mcp/v1/constraints.txt",
    what: "MCP's SDK 1 for Python",
};

/// MCP's SDK for Python, of the protocol versions since 2026-07-28.
const MCP_2: Environment = Environment {
    requirements: "crates/cli/tests/mcp/v2/requirements.txt",
    constraints: "crates/cli/tests/mcp/v2/constraints.txt",
    what: "MCP's SDK 2 for Python",
};

/// Debian packages of Python.
const PYTHON: &[install::Package] =
    &[install::Package { name: "python3-venv", reason: "makes the folders that programs in Python are installed in" }];

/// Installs every set that is missing.
pub(crate) fn install() -> Result<()> {
    SDKS.install()?;
    LITELLM.install()?;
    MCP_1.install()?;
    MCP_2.install()?;
    API.install()
}

impl Environment {
    /// Installs the set unless it is present.
    pub(crate) fn install(&self) -> Result<()> {
        let folder = self.folder()?;
        if folder.join("bin/python").exists() {
            return Ok(());
        }
        if step::quietly(Command::new("python3").args(["-c", "import venv, ensurepip"])).is_err() {
            install::run(PYTHON)?;
        }
        // Built in a temporary folder and moved when complete, so that an incomplete set is never used.
        let mut unfinished = folder.clone().into_os_string();
        unfinished.push(format!(".{}.unfinished", std::process::id()));
        let unfinished = PathBuf::from(unfinished);
        let made = self.make(&unfinished).and_then(|()| move_in(&unfinished, &folder));
        if made.is_err() {
            // The failure is reported below; a leftover folder does no harm.
            let _ = std::fs::remove_dir_all(&unfinished);
        }
        made
    }

    /// Returns the folder of the set. Tests compute the same name.
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
        // Another run has installed the same set in the meantime.
        Err(_) if folder.join("bin/python").exists() => Ok(std::fs::remove_dir_all(unfinished)?),
        Err(error) => bail!("cannot move the packages to {}: {error}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_name_depends_on_the_content() {
        assert_eq!(name("anthropic==1.2\nopenai==3.4\n"), "anthropic-1.2-openai-3.4");
    }

    #[test]
    fn every_requirement_is_pinned() {
        let read = |path: &str| std::fs::read_to_string(workspace::root().join(path)).unwrap();
        let pinned = |line: &str| line.starts_with('#') || line.split("==").count() == 2;
        for Environment { requirements, constraints, .. } in [SDKS, LITELLM, MCP_1, MCP_2, API] {
            assert!(read(requirements).lines().chain(read(constraints).lines()).all(pinned));
        }
    }
}
