//! Lists and details of sessions: a table, tab-separated lines, or JSON.

use std::fmt::Write as _;

use base::PrintableText;
use protocol::{ProblemCode, SessionInfo};

use crate::failure::Failure;
use crate::output;
use crate::table::{TextTable, print};

/// Prints a list, one session per line.
pub(super) fn print_table(sessions: &[SessionInfo], json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json_text(&to_json(&sessions)?);
    }
    let head = ["NAME", "AGENT", "STATE", "EVENTS", "STARTED", "ID"];
    print(&TextTable { head, rows: sessions.iter().map(row).collect() }.text())
}

/// Prints the details of one session.
pub(super) fn print_card(session: &SessionInfo, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json_text(&to_json(session)?);
    }
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key:<12}{}", PrintableText::exact_line(value));
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
    print(&text)
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

pub(super) fn time(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis).map(|time| format!("{time:.0}")).unwrap_or_default()
}

fn to_json(value: &(impl serde::Serialize + ?Sized)) -> Result<String, Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    Ok(text + "\n")
}
