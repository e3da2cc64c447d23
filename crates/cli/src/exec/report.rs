//! The outcome of `viv exec`: its exit code, its JSON report, and the notes for a person.

use std::sync::Arc;
use std::time::Duration;

use protocol::{EgressConnection, EventBody, SessionId, WorkspaceChanged};
use sandbox::{ExecResult, ProcessExit};
use serde_json::{Value, json};
use store::{Journal, SessionIndex, SystemClock};

use super::VIV_FAILED;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::output::message;

/// Exit code of a command that was killed at its timeout.
const TIMED_OUT: u8 = 124;
/// The exit code of a command that SIGKILL ended.
const KILLED: u8 = 137;

/// Returns the exit code of the command as a shell reports it.
pub(super) fn exit_number(result: &ExecResult) -> u8 {
    if result.timed_out {
        return TIMED_OUT;
    }
    if result.output_exceeded {
        // The command may also have ended by itself before it was killed.
        return KILLED;
    }
    let ProcessExit { code, signal, .. } = result.exit;
    let number = code.or_else(|| signal.map(|signal| 128 + signal)).unwrap_or(i32::from(VIV_FAILED));
    u8::try_from(number & 0xff).unwrap_or(VIV_FAILED)
}

/// Returns the connections that the policy denied.
pub(super) fn denied_connections(journal: &dyn Journal) -> Result<Vec<EgressConnection>, Failure> {
    let events = journal.after(0, usize::MAX)?.into_iter();
    let denied = events.filter_map(|event| match event.draft.body {
        EventBody::EgressDenied(connection) => Some(connection),
        _ => None,
    });
    Ok(denied.collect())
}

/// Returns the changes of the workspace that were kept.
pub(super) fn workspace_changes(journal: &dyn Journal) -> Result<Option<WorkspaceChanged>, Failure> {
    let events = journal.after(0, usize::MAX)?.into_iter();
    let mut changes = events.filter_map(|event| match event.draft.body {
        EventBody::WorkspaceChanged(changed) => Some(changed),
        _ => None,
    });
    Ok(changes.next_back())
}

/// Tells a person how many files changed, with the commands that show and apply the changes.
pub(super) fn print_changes(
    changed: Option<&WorkspaceChanged>,
    id: &SessionId,
    config: &Config,
) -> Result<(), Failure> {
    let Some(changed) = changed else { return Ok(()) };
    let count = changed.added.len() + changed.modified.len() + changed.deleted.len();
    let files = if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
    let name = name_of(id, config)?;
    message!("viv: {files} changed in the sandbox: viv sessions diff {name} · viv sessions apply {name}");
    Ok(())
}

/// Returns the report for programs. `changed` has the session and its kept changes.
pub(super) fn document(
    command: &[String],
    result: &ExecResult,
    denied: &[EgressConnection],
    changed: Option<(&SessionId, WorkspaceChanged)>,
) -> Value {
    let denial = |denied: &EgressConnection| json!({"host": denied.host, "port": denied.port, "rule": denied.rule});
    json!({
        "command": command,
        "exit_code": result.exit.code,
        "signal": result.exit.signal,
        "timed_out": result.timed_out,
        "out_of_memory": result.exit.out_of_memory,
        "wall_micros": u64::try_from(result.wall.as_micros()).unwrap_or(u64::MAX),
        "cpu_micros": result.exit.cpu_micros,
        "peak_rss_bytes": result.exit.peak_rss_bytes,
        "truncated": result.truncated,
        "denials": denied.iter().map(denial).collect::<Vec<_>>(),
        "changes": changed.map(|(session, changed)| json!({"session": session, "added": changed.added,
            "modified": changed.modified, "deleted": changed.deleted})),
        "stdout": String::from_utf8_lossy(&result.stdout),
        "stderr": String::from_utf8_lossy(&result.stderr),
    })
}

/// Limits that can kill a command.
pub(super) struct KillLimits {
    pub(super) memory_bytes: u64,
    pub(super) output_bytes: u64,
    pub(super) timeout: Duration,
    pub(super) idle_timeout: Option<Duration>,
    /// Whether the policy sets the timeout, because it is shorter than `--timeout`.
    pub(super) by_policy: bool,
}

/// Tells a person which limit killed the command or one of its processes.
pub(super) fn print_notes(result: &ExecResult, limits: &KillLimits) {
    let (memory, output) = (mebibytes(limits.memory_bytes), mebibytes(limits.output_bytes));
    if result.output_exceeded {
        message!("viv: the command was killed: it wrote more than {output} of output (proc.output)");
        message!("help: viv exec --policy open -- COMMAND");
    }
    if result.exit.out_of_memory {
        message!("viv: the command was killed: it used more than {memory} of memory (proc.memory)");
    } else if result.exit.memory_kills > 0 {
        message!(
            "viv: a process of the command was killed: the sandbox used more than {memory} of memory (proc.memory)"
        );
    }
    if result.timed_out {
        message!("viv: the command was killed: {}", limits.exceeded(result.wall));
    }
}

impl KillLimits {
    /// Returns the time limit that a command exceeded after `wall`.
    fn exceeded(&self, wall: Duration) -> String {
        match self.idle_timeout {
            Some(idle) if wall < self.timeout => format!("it printed nothing for {} (--idle-timeout)", seconds(idle)),
            _ => {
                let option = if self.by_policy { "proc.timeout" } else { "--timeout" };
                format!("it ran longer than {} ({option})", seconds(self.timeout))
            }
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn mebibytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{bytes} bytes") }
}

/// Tells a person how many connections were denied, with the command that lists them.
pub(super) fn print_denials(denied: &[EgressConnection], id: &SessionId, config: &Config) -> Result<(), Failure> {
    let count: u64 = denied.iter().map(|denied| denied.count.unwrap_or(1)).sum();
    let connections = match count {
        0 => return Ok(()),
        1 => "1 connection".to_owned(),
        more => format!("{more} connections"),
    };
    message!("viv: {connections} refused: viv policy log {}", name_of(id, config)?);
    Ok(())
}

/// Returns the name of a recorded session.
fn name_of(id: &SessionId, config: &Config) -> Result<String, Failure> {
    let index = SessionIndex::open(&host::data_dir(config)?, Arc::new(SystemClock))?;
    Ok(index.get(id)?.info.name.unwrap_or_else(|| id.to_string()))
}
