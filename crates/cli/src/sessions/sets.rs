//! `viv sessions sets`: the change sets of a session.

use std::io;

use protocol::{ProblemCode, SessionId};
use sandbox::{SavedChanges, SetOrigin, SetSummary, visible};
use store::DataDir;

use super::{diff, list};
use crate::failure::Failure;
use crate::table::TextTable;

/// The most characters of a command line in the table.
const MAX_COMMAND: usize = 60;

/// A set with its line counts against the workspace as it is now.
#[derive(serde::Serialize)]
struct CountedSet {
    #[serde(flatten)]
    summary: SetSummary,
    added_lines: u64,
    removed_lines: u64,
}

/// Returns the kept sets, oldest first, as a table or JSON.
pub(super) fn list(directory: &DataDir, session: &SessionId, json: bool) -> Result<String, Failure> {
    let sets = read(directory, session).map_err(|error| diff::unreadable(session, &error))?;
    if json {
        let text =
            serde_json::to_string_pretty(&sets).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        return Ok(text + "\n");
    }
    let head = ["SET", "DIGEST", "MADE", "PATHS", "LINES", "BY", "TURN", "STILL RUNNING"];
    Ok(TextTable { head, rows: sets.iter().map(row).collect() }.text())
}

fn read(directory: &DataDir, session: &SessionId) -> io::Result<Vec<CountedSet>> {
    let directory = directory.change_set(session);
    let sets = match SavedChanges::sets(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        sets => sets?,
    };
    let counted = sets.into_iter().map(|summary| {
        let stats = SavedChanges::open_set(&directory, summary.number)?.stat()?;
        let added_lines = stats.iter().map(|stat| stat.lines.added).sum();
        let removed_lines = stats.iter().map(|stat| stat.lines.removed).sum();
        Ok(CountedSet { summary, added_lines, removed_lines })
    });
    counted.collect()
}

fn row(set: &CountedSet) -> [String; 8] {
    let CountedSet { summary, added_lines, removed_lines } = set;
    let origin = match summary.origin {
        SetOrigin::Save => "save",
        SetOrigin::Apply => "apply",
        SetOrigin::Undo => "undo",
    };
    let left = summary.left_processes.iter().map(|left| format!("{} {}", left.pid, one_line(&left.command)));
    [
        summary.number.to_string(),
        summary.short_digest(),
        list::time(i64::try_from(summary.made_unix_millis).unwrap_or(i64::MAX)),
        paths(summary),
        format!("+{added_lines} -{removed_lines}"),
        origin.to_owned(),
        summary.turn.clone().unwrap_or_default(),
        left.collect::<Vec<_>>().join("; "),
    ]
}

/// Returns the number of paths by kind of change.
fn paths(summary: &SetSummary) -> String {
    let kinds = [(summary.added, 'A'), (summary.modified, 'M'), (summary.deleted, 'D')];
    let kinds: Vec<String> =
        kinds.into_iter().filter(|(count, _)| *count > 0).map(|(count, letter)| format!("{count}{letter}")).collect();
    if kinds.is_empty() { "0".to_owned() } else { kinds.join(" ") }
}

/// Returns a command line of the sandbox in one short line. The sandbox chose the text, so it is escaped.
pub(super) fn one_line(command: &str) -> String {
    let text = visible(command).replace(['\n', '\t'], " ");
    if text.chars().count() <= MAX_COMMAND {
        return text;
    }
    text.chars().take(MAX_COMMAND - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_the_sandbox_are_escaped_and_cut() {
        assert_eq!(one_line("sh\x1b[2J -c\n'x'"), "sh^[[2J -c 'x'");
        assert_eq!(one_line(&"a".repeat(100)).chars().count(), MAX_COMMAND);
    }

    #[test]
    fn paths_are_counted_by_kind() {
        let set = SetSummary { added: 2, deleted: 1, ..SetSummary::nothing() };
        assert_eq!((paths(&set).as_str(), paths(&SetSummary::nothing()).as_str()), ("2A 1D", "0"));
    }
}
