//! Bubblewrap, set up like `viv exec` as far as it goes.
//!
//! By itself it sets no limits and no system call filter. Where a sandbox is to hold an agent there are both, so a
//! second set-up gets our filter and is put into control groups of its own, with the least that takes: the groups are
//! made and removed by this process, and a shell joins them and becomes bubblewrap. Landlock, what is covered in /proc,
//! listeners and a look from outside before the first command are still only in `viv exec`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What bubblewrap is asked for: the namespaces, mounts and drops that `viv exec` has too.
const BUBBLEWRAP: &[&str] = &[
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/home/agent",
    "--tmpfs",
    "/workspace",
    "--ro-bind",
    "/etc/ssl",
    "/etc/ssl",
    "--ro-bind",
    "/etc/alternatives",
    "/etc/alternatives",
    "--hostname",
    "sandbox",
    "--chdir",
    "/workspace",
    "/bin/true",
];

/// Bubblewrap alone.
pub(super) fn alone() -> Command {
    let mut command = Command::new("bwrap");
    command.args(BUBBLEWRAP);
    command
}

/// The limits of one run, as files to be written.
const LIMITS: [(&str, &[(&str, &str)]); 3] = [
    ("memory", &[("memory.limit_in_bytes", "2147483648"), ("memory.memsw.limit_in_bytes", "2147483648")]),
    ("pids", &[("pids.max", "256")]),
    ("cpu", &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "200000")]),
];
const UNIFIED: &[(&str, &str)] =
    &[("memory.max", "2147483648"), ("memory.swap.max", "0"), ("pids.max", "256"), ("cpu.max", "200000 100000")];

/// How long what runs in a group may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Control groups with limits for one run; dropped, they are gone.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn make() -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("viv-bench-{}", std::process::id());
        let unified = root.join("cgroup.controllers").exists();
        let places: Vec<(PathBuf, &[(&str, &str)])> = if unified {
            vec![(root.join(&name), UNIFIED)]
        } else {
            LIMITS.iter().map(|(controller, limits)| (root.join(controller).join(&name), *limits)).collect()
        };
        let mut groups = Self(Vec::new());
        for (directory, limits) in places {
            fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
            for (file, value) in limits {
                // A kernel without swap accounting has no such file.
                if directory.join(file).exists() {
                    fs::write(directory.join(file), value).with_context(|| format!("cannot set {file}"))?;
                }
            }
            groups.0.push(directory);
        }
        Ok(groups)
    }

    /// What is written to by who joins; in version 1 the one that waits for nothing.
    fn entrance(&self) -> &'static str {
        if self.0.len() == 1 { "cgroup.procs" } else { "tasks" }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for directory in &self.0 {
            // Bubblewrap may be gone before what it had started. One that stays is told by the next run, which cannot
            // make it.
            let begun = Instant::now();
            while let Err(error) = fs::remove_dir(directory)
                && error.kind() == ErrorKind::ResourceBusy
                && begun.elapsed() < PATIENCE
            {
                std::thread::yield_now();
            }
        }
    }
}

/// Runs bubblewrap in control groups of its own, from their making to their end, and under the filter in a file.
pub(super) fn comparable(filter: &Path, start: impl FnOnce(Command) -> Result<()>) -> Result<()> {
    const SCRIPT: &str = r#"for group in $GROUPS_TO_JOIN; do echo 0 > "$group/$JOIN_BY"; done
        exec bwrap --seccomp 9 "$@" 9< "$FILTER""#;
    let groups = Groups::make()?;
    let mut command = Command::new("sh");
    let directories: Vec<String> = groups.0.iter().map(|directory| directory.display().to_string()).collect();
    command.env("GROUPS_TO_JOIN", directories.join(" ")).env("JOIN_BY", groups.entrance()).env("FILTER", filter);
    command.args(["-c", SCRIPT, "sh"]).args(BUBBLEWRAP);
    start(command)
}
