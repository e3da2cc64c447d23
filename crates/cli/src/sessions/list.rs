//! Rendering of sessions: a table, tab-separated lines, or JSON.

use std::fmt::Write as _;
use std::io::IsTerminal;

use protocol::{ProblemCode, SessionInfo};

use crate::failure::Failure;

/// Renders a list, one session per line.
pub(super) fn table(sessions: &[SessionInfo], json: bool) -> Result<String, Failure> {
    if json {
        return to_json(&sessions);
    }
    let rows: Vec<[String; 6]> = sessions.iter().map(row).collect();
    let head = ["NAME", "AGENT", "STATE", "EVENTS", "STARTED", "ID"].map(ToOwned::to_owned);
    let mut text = String::new();
    if !std::io::stdout().is_terminal() {
        for row in rows {
            let _ = writeln!(text, "{}", row.join("\t"));
        }
        return Ok(text);
    }
    let all: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for (number, row) in all.iter().enumerate() {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let line = cells.join("  ");
        let line = line.trim_end();
        let _ = if number == 0 { writeln!(text, "\x1b[1m{line}\x1b[0m") } else { writeln!(text, "{line}") };
    }
    Ok(text)
}

/// Renders the details of one session.
pub(super) fn card(session: &SessionInfo, json: bool) -> Result<String, Failure> {
    if json {
        return to_json(session);
    }
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key:<12}{value}");
    };
    line("id", session.session_id.as_str());
    for (key, value) in [("name", &session.name), ("title", &session.title), ("model", &session.model)] {
        if let Some(value) = value {
            line(key, value);
        }
    }
    line("agent", &session.agent);
    line("permissions", &session.permission_mode);
    line("state", state(session));
    line("events", &session.event_count.to_string());
    line("started", &time(session.created_at));
    line("last event", &time(session.updated_at));
    if let Some(directory) = &session.directory {
        line("workspace", directory);
    }
    Ok(text)
}

fn row(session: &SessionInfo) -> [String; 6] {
    [
        session.name.clone().unwrap_or_default(),
        session.agent.clone(),
        state(session).to_owned(),
        session.event_count.to_string(),
        time(session.created_at),
        session.session_id.to_string(),
    ]
}

fn state(session: &SessionInfo) -> &'static str {
    match session {
        SessionInfo { damaged: true, .. } => "damaged",
        SessionInfo { ended: true, .. } => "ended",
        _ => "open",
    }
}

fn time(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis).map(|time| format!("{time:.0}")).unwrap_or_default()
}

fn to_json(value: &(impl serde::Serialize + ?Sized)) -> Result<String, Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    Ok(text + "\n")
}
