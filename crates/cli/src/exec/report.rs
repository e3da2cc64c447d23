//! The outcome of `viv exec`: its exit code, its JSON report, and the notes for a person.

use std::sync::Arc;

use protocol::{EgressConnection, EventBody, SessionId};
use sandbox::{ExecResult, ProcessExit};
use serde_json::{Value, json};
use store::{Journal, SessionIndex, SystemClock};

use super::VIV_FAILED;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;

/// Exit code of a command that was killed at its timeout.
const TIMED_OUT: u8 = 124;

/// Returns the exit code of the command as a shell reports it.
pub(super) fn exit_number(result: &ExecResult) -> u8 {
    if result.timed_out {
        return TIMED_OUT;
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

/// Returns the report for programs.
pub(super) fn document(command: &[String], result: &ExecResult, denied: &[EgressConnection]) -> Value {
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
        "stdout": String::from_utf8_lossy(&result.stdout),
        "stderr": String::from_utf8_lossy(&result.stderr),
    })
}

/// Tells a person why the command was killed, if a memory limit did it.
pub(super) fn print_notes(result: &ExecResult, memory_bytes: u64) {
    if result.exit.out_of_memory {
        anstream::eprintln!(
            "viv: the command was killed: it used more than {memory_bytes} bytes of memory (proc.memory)"
        );
    }
}

/// Tells a person how many connections were denied, with the command that lists them.
pub(super) fn print_denials(denied: &[EgressConnection], id: &SessionId, config: &Config) -> Result<(), Failure> {
    let count: u64 = denied.iter().map(|denied| denied.count.unwrap_or(1)).sum();
    let connections = match count {
        0 => return Ok(()),
        1 => "1 connection".to_owned(),
        more => format!("{more} connections"),
    };
    let index = SessionIndex::open(&host::data_dir(config)?, Arc::new(SystemClock))?;
    let name = index.get(id)?.info.name.unwrap_or_else(|| id.to_string());
    anstream::eprintln!("viv: {connections} refused: viv policy log {name}");
    Ok(())
}
