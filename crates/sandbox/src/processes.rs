//! The processes inside a sandbox, as the host's kernel lists them.
//!
//! Every process inside descends from init, because init adopts the orphans. Nothing inside can hide from this list or
//! change it; only the command lines are chosen by the sandbox.

use std::collections::HashSet;
use std::fs;
use std::io;

/// The most processes that are listed.
const MAX_LISTED: usize = 256;
/// The most bytes of a command line.
const MAX_COMMAND_BYTES: usize = 512;

/// A process inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsideProcess {
    /// The process id inside the sandbox.
    pub pid: u32,
    /// The command line. The process can choose it freely.
    pub command: String,
    /// Whether init is its parent: a command of the host, or an orphan.
    pub is_child_of_init: bool,
    /// When it started, in clock ticks since the boot.
    started: u64,
}

impl InsideProcess {
    /// Returns the name of the program, without its folder and arguments.
    pub(crate) fn program(&self) -> String {
        let program = self.command.split(' ').next().unwrap_or_default();
        program.rsplit('/').next().unwrap_or_default().to_owned()
    }
}

/// Returns the processes below `init`, a process id of the host, in the order of their start. Fails when this kernel does
/// not list the children of a process.
pub(crate) fn below(init: i32) -> io::Result<Vec<InsideProcess>> {
    Ok(host_pids_below(init)?.into_iter().map(|(_, process)| process).collect())
}

/// Returns the processes below `init` like [`below`], each with its process id on the host.
pub(crate) fn host_pids_below(init: i32) -> io::Result<Vec<(i32, InsideProcess)>> {
    let mut open = children(init)?;
    let direct: HashSet<i32> = open.iter().copied().collect();
    let mut found = Vec::new();
    while let Some(pid) = open.pop()
        && found.len() < MAX_LISTED
    {
        // A process that ended meanwhile has no files left.
        found.extend(read(pid, direct.contains(&pid)).map(|process| (pid, process)));
        open.extend(children(pid).unwrap_or_default());
    }
    found.sort_by_key(|(_, process): &(i32, InsideProcess)| (process.started, process.pid));
    Ok(found)
}

/// Returns the children of all threads of a process.
fn children(pid: i32) -> io::Result<Vec<i32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let listed = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(listed.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
    }
    Ok(children)
}

/// Returns a process; `None` when it has ended.
fn read(pid: i32, is_child_of_init: bool) -> Option<InsideProcess> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may contain some itself.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    if matches!(fields.first(), Some(&("Z" | "X"))) {
        return None;
    }
    let started = fields.get(19)?.parse().ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let inside = ids.split_whitespace().last()?.parse().ok()?;
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let name = status.lines().find_map(|line| line.strip_prefix("Name:")).unwrap_or_default();
    let command = if arguments.is_empty() { format!("[{}]", name.trim()) } else { joined(&arguments) };
    Some(InsideProcess { pid: inside, command, is_child_of_init, started })
}

/// Returns the arguments, which end with NUL, as one line of limited length.
fn joined(arguments: &[u8]) -> String {
    let shown = arguments.get(..MAX_COMMAND_BYTES).unwrap_or(arguments);
    let text = String::from_utf8_lossy(shown.strip_suffix(b"\0").unwrap_or(shown)).replace('\0', " ");
    if shown.len() < arguments.len() { text + "…" } else { text }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_and_their_children_are_listed_with_their_command_lines() {
        let script = "sleep 1000 & read line; kill $!";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell");
        let own = std::process::id().cast_signed();
        let found = loop {
            let found = below(own).unwrap();
            if found.iter().any(|process| process.command == "sleep 1000") {
                break found;
            }
        };
        let direct = found.iter().find(|process| process.pid == shell.id()).unwrap();
        assert!(direct.is_child_of_init && direct.command == format!("sh -c {script}"), "{direct:?}");
        let sleep = found.iter().find(|process| process.command == "sleep 1000").unwrap();
        assert!(!sleep.is_child_of_init && sleep.started >= direct.started);
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    #[test]
    fn long_command_lines_are_cut() {
        let long = joined(&[b'a'; 2 * MAX_COMMAND_BYTES]);
        assert_eq!(long.chars().count(), MAX_COMMAND_BYTES + 1);
        assert_eq!(joined(b"a\0b c\0"), "a b c");
    }
}
