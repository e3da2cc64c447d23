//! The cost of running Claude Code in the jail and through the gateway, compared with Claude Code alone.
//!
//! Both send the same prompt to the same vendor stub, in turns, and both start with an empty home directory. The time
//! of `viv run` is the time of the whole program, including journal, ledger and workspace changes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::settings::{self, MODEL};
use super::{Folder, Goal, Report, Sample, Service};
use crate::step::quietly;
use crate::{install, workspace};

const ROUNDS: usize = 10;
const PROMPT: &str = "Say a few words.";
/// The last word of the vendor's stream. It shows that the whole answer arrived.
const LAST_WORD: &str = "finis";

/// Runs the bench.
pub(super) fn run() -> Result<Report> {
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "--bin", "viv"]))?;
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "-p", "load"]))?;
    let release = workspace::target_directory()?.join("release");
    let viv = release.join("viv");
    install::install_agents(&viv, &["claude"])?;
    let stage = Stage::set(&viv, &release.join("load"))?;
    // The first start of each program reads it from the disk.
    stage.bare()?;
    stage.jailed(&viv)?;
    let mut bare = || stage.bare();
    let mut jailed = || stage.jailed(&viv);
    let samples = Sample::in_turns(ROUNDS, &mut [("claude", &mut bare), ("viv run claude", &mut jailed)])?;
    let goal = goal(&samples)?;
    Ok(Report { samples, goals: vec![goal] })
}

fn goal(samples: &[Sample]) -> Result<Goal> {
    let [bare, jailed] = samples else { anyhow::bail!("expected two samples") };
    let over = jailed.median().as_secs_f64() / bare.median().as_secs_f64() - 1.0;
    Ok(Goal {
        what: "Claude Code in the jail, through the gateway",
        wanted: "≤ 10 % over Claude Code alone",
        measured: format!("{:+.1} %", over * 100.0),
        holds: over <= 0.10,
    })
}

/// The vendor stub and the files that both runs use.
struct Stage {
    folder: Folder,
    vendor: Service,
    claude: PathBuf,
}

impl Stage {
    fn set(viv: &Path, load: &Path) -> Result<Self> {
        let folder = Folder::make(&["data", "workspace"])?;
        let vendor = Service::start(Command::new(load).arg("vendor"))?;
        settings::write(&folder.path().join("data"), "normal", &vendor.first_line()?)?;
        let installed = install::agents_folder()?;
        let link = folder.path().join("data/agents");
        std::os::unix::fs::symlink(installed.join("agents"), link).context("cannot link the installed agents")?;
        let path =
            workspace::output(Command::new(viv).arg("--data-dir").arg(&installed).args(["agents", "path", "claude"]))?;
        let claude = PathBuf::from(path.trim());
        ensure!(claude.is_file(), "`{}` does not exist", claude.display());
        Ok(Self { folder, vendor, claude })
    }

    /// Runs Claude Code alone, with the arguments that `viv` uses.
    fn bare(&self) -> Result<()> {
        let home = self.folder.path().join("home");
        std::fs::create_dir(&home).context("cannot create a home directory")?;
        let mut command = Command::new(&self.claude);
        command.args(["-p", PROMPT, "--model", MODEL, "--output-format", "stream-json", "--verbose"]);
        command.args(["--include-partial-messages", "--strict-mcp-config", "--permission-mode", "default"]);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &home);
        command.env("ANTHROPIC_BASE_URL", format!("http://{}", self.vendor.first_line()?));
        command.env("ANTHROPIC_AUTH_TOKEN", "none").env("ANTHROPIC_MODEL", MODEL);
        command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
        let answered = self.finish(command);
        std::fs::remove_dir_all(&home).context("cannot remove the home directory")?;
        answered
    }

    /// Runs Claude Code in a sandbox, through the gateway.
    fn jailed(&self, viv: &Path) -> Result<()> {
        let mut command = Command::new(viv);
        command.arg("--data-dir").arg(self.folder.path().join("data"));
        command.args(["run", "claude", PROMPT, "--model", MODEL, "--perms", "deny"]);
        self.finish(command)
    }

    fn finish(&self, mut command: Command) -> Result<()> {
        command.current_dir(self.folder.path().join("workspace")).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.status.success() && stdout.contains(LAST_WORD),
            "{command:?}: {}\n{stdout}{stderr}",
            output.status
        );
        Ok(())
    }
}
