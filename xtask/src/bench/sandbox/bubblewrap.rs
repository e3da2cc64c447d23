//! Bubblewrap, configured like `viv exec` as far as possible.
//!
//! Bubblewrap alone sets neither limits nor a system call filter. The second configuration therefore adds our filter and
//! its own control groups, at the lowest possible cost: this process creates and removes the groups, and a shell joins
//! them and becomes bubblewrap. Landlock, the masked files in /proc, the listeners and the verification from outside are
//! only in `viv exec`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Arguments for the namespaces, mounts and dropped privileges that `viv exec` has too.
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

/// Returns the command for bubblewrap without limits and filter.
pub(super) fn alone() -> Command {
    let mut command = Command::new("bwrap");
    command.args(BUBBLEWRAP);
    command
}

/// The limits of one run: control group files and their values.
const LIMITS: [(&str, &[(&str, &str)]); 3] = [
    ("memory", &[("memory.limit_in_bytes", "2147483648"), ("memory.memsw.limit_in_bytes", "2147483648")]),
    ("pids", &[("pids.max", "256")]),
    ("cpu", &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "200000")]),
];
const UNIFIED: &[(&str, &str)] =
    &[("memory.max", "2147483648"), ("memory.swap.max", "0"), ("pids.max", "256"), ("cpu.max", "200000 100000")];

/// How long the processes of a group may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Control groups with limits for one run. Dropping it removes the groups.
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

    /// Returns the files that a joining process writes to. Version 1 has a file that does not block: `tasks`.
    fn entrance(&self) -> &'static str {
        if self.0.len() == 1 { "cgroup.procs" } else { "tasks" }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for directory in &self.0 {
            // Bubblewrap may end before its child processes. If a group stays, the next run fails to create it.
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

/// Creates control groups, runs bubblewrap in them with the filter in the file `filter`, and removes the groups.
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
