//! Lists and details of sessions: a table, tab-separated lines, or JSON.

use std::collections::HashMap;
use std::fmt::Write as _;

use base::PrintableText;
use jiff::Timestamp;
use protocol::{ProblemCode, SessionInfo};
use serde::Serialize;

use super::summary::SessionSummary;
use crate::failure::Failure;
use crate::human_time::{age, duration, local};
use crate::output;
use crate::table::{TextTable, print};
use crate::timeline;

/// Longest prompt in a table on a terminal, in characters.
const PROMPT_WIDTH: usize = 40;
/// Most denials that the details list.
const DENIALS: usize = 10;

/// A session with its summary. The JSON form has the fields of both.
#[derive(Debug, Serialize)]
pub(crate) struct ListedSession {
    #[serde(flatten)]
    pub(crate) info: SessionInfo,
    pub(crate) summary: SessionSummary,
}

impl ListedSession {
    /// Returns the name, or else the id.
    pub(crate) fn name(&self) -> &str {
        self.info.name.as_deref().unwrap_or(self.info.session_id.as_str())
    }

    /// Returns the title, or else the first prompt, on one line of at most `width` characters.
    pub(crate) fn prompt(&self, width: usize) -> String {
        let text = self.info.title.as_deref().or(self.summary.prompt.as_deref()).unwrap_or_default();
        shortened(text, width)
    }

    /// Returns the agent, with a mark if it shows its own terminal UI.
    fn agent(&self) -> String {
        let mark = if super::screen::is_interactive(&self.info) { " (interactive)" } else { "" };
        format!("{}{mark}", self.info.agent)
    }

    /// Returns the cells of a table: name, agent, state, outcome, time, cost, age and prompt.
    pub(crate) fn cells(&self, now: Timestamp, prompt: usize) -> [String; 8] {
        let summary = &self.summary;
        let time = if summary.turns == 0 { String::new() } else { duration(summary.duration_ms) };
        let cost =
            if summary.calls == 0 { String::new() } else { timeline::cost(summary.cost_picos, summary.unpriced_calls) };
        [
            self.name().to_owned(),
            self.agent(),
            summary.state.to_owned(),
            summary.outcome.unwrap_or_default().to_owned(),
            time,
            cost,
            age(self.info.updated_at, now),
            self.prompt(prompt),
        ]
    }
}

/// The headings of [`ListedSession::cells`].
pub(crate) const HEAD: [&str; 8] = ["NAME", "AGENT", "STATE", "OUTCOME", "TIME", "COST", "AGE", "PROMPT"];

/// Prints a list, one session per line.
pub(super) fn print_table(sessions: &[ListedSession], json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json_text(&to_json(&sessions)?);
    }
    if sessions.is_empty() && output::stdout_is_terminal() {
        output::message!("no sessions; start one with `viv run mock hello`");
        return Ok(());
    }
    let now = Timestamp::now();
    if !output::stdout_is_terminal() {
        let row = |session: &ListedSession| {
            let [name, _, state, outcome, time, cost, _, prompt] = session.cells(now, usize::MAX);
            let agent = session.info.agent.clone();
            let (started, id) = (utc(session.info.created_at), session.info.session_id.to_string());
            [name, agent, state, outcome, time, cost, started, id, prompt]
        };
        let head = ["NAME", "AGENT", "STATE", "OUTCOME", "TIME", "COST", "STARTED", "ID", "PROMPT"];
        return print(&TextTable { head, rows: sessions.iter().map(row).collect() }.tabs());
    }
    let width = output::terminal_columns();
    let mut rows: Vec<_> = sessions.iter().map(|session| session.cells(now, PROMPT_WIDTH)).collect();
    fit(&mut rows, width);
    output::print_paged(&TextTable { head: HEAD, rows }.text())
}

/// Shortens the prompts so that each row fits into `width` columns.
pub(crate) fn fit(rows: &mut [[String; 8]], width: usize) {
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEAD[column].len()]).max().unwrap_or(0) + 2
    };
    let others: usize = (0..7).map(widest).sum();
    let left = width.saturating_sub(others + 1).max(8);
    for row in rows {
        row[7] = shortened(&row[7], left);
    }
}

/// Prints the details of one session.
pub(super) fn print_card(session: &ListedSession, names: &HashMap<String, String>, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json_text(&to_json(session)?);
    }
    let ListedSession { info, summary } = session;
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "\x1b[2m{key:<12}\x1b[0m{}", PrintableText::exact_line(value));
    };
    line("name", session.name());
    line("id", info.session_id.as_str());
    for (key, value) in [("title", &info.title), ("model", &info.model), ("workspace", &info.directory)] {
        if let Some(value) = value {
            line(key, value);
        }
    }
    if let Some(origin) = &summary.continues {
        line("continues", names.get(origin).unwrap_or(origin));
    }
    line("agent", &session.agent());
    line("permissions", &info.permission_mode);
    line("state", &state(summary));
    let now = Timestamp::now();
    line("started", &format!("{} ({} ago)", local(info.created_at), age(info.created_at, now)));
    line("last event", &format!("{} ({} ago)", local(info.updated_at), age(info.updated_at, now)));
    line("events", &info.event_count.to_string());
    line("turns", &format!("{} · {}", summary.turns, duration(summary.duration_ms)));
    line("cost", &cost(summary));
    let changes = summary.changes;
    line("changes", &format!("{} added, {} modified, {} deleted", changes.added, changes.modified, changes.deleted));
    for denial in summary.denials.iter().take(DENIALS) {
        line("denied", denial);
    }
    if let Some(more) = summary.denials.len().checked_sub(DENIALS).filter(|more| *more > 0) {
        line("", &format!("… {more} more, see viv logs {}", session.name()));
    }
    section(&mut text, "prompt", summary.prompt.as_deref());
    section(&mut text, "last prompt", summary.last_prompt.as_deref().filter(|_| summary.turns > 1));
    section(&mut text, "result", summary.result.as_deref());
    output::print_paged(&text)
}

fn state(summary: &SessionSummary) -> String {
    match summary.outcome {
        Some(outcome) => format!("{} · {outcome}", summary.state),
        None => summary.state.to_owned(),
    }
}

/// Returns calls, tokens and cost in one line.
pub(crate) fn cost(summary: &SessionSummary) -> String {
    let usage = &summary.usage;
    let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    let (output, cost) = (usage.output_tokens, timeline::cost(summary.cost_picos, summary.unpriced_calls));
    let calls = if summary.calls == 1 { "1 model call".to_owned() } else { format!("{} model calls", summary.calls) };
    format!("{cost} · {calls} · {input} tokens in, {output} out")
}

/// Appends a text of several lines, indented below its name.
fn section(to: &mut String, name: &str, text: Option<&str>) {
    let Some(text) = text else { return };
    let _ = writeln!(to, "\n\x1b[1m{name}\x1b[0m");
    for line in PrintableText::clean(text).as_str().lines() {
        let _ = writeln!(to, "  {line}");
    }
}

/// Returns the first `width` characters of a text on one line, with an ellipsis if something is left out.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= width {
        return line;
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Returns a time: local on a terminal, in UTC for programs.
pub(super) fn time(millis: i64) -> String {
    if output::stdout_is_terminal() { local(millis) } else { utc(millis) }
}

fn utc(millis: i64) -> String {
    Timestamp::from_millisecond(millis).map(|time| format!("{time:.0}")).unwrap_or_default()
}

fn to_json(value: &(impl Serialize + ?Sized)) -> Result<String, Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    Ok(text + "\n")
}
