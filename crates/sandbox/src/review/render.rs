//! Changes as text for a terminal.
//!
//! The sandbox wrote the names and contents. Characters that could move the cursor, change the title or change the writing
//! direction are escaped.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use super::json_path::{is_plain, quoted};
use super::{ChangeStat, SavedChanges, UnsavedReason};
use crate::overlay::ChangeKind;

/// Returns one line for each path, deletions first, and a sum. A deleted directory and its entries are one line.
pub fn render_stat(stats: &[ChangeStat]) -> String {
    let rows = rows(stats);
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for row in &rows {
        let StatRow { letter, name, lines, note } = row;
        let line = format!("{letter} {name:width$}  {lines}{note}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let (added, removed) =
        stats.iter().fold((0, 0), |(added, removed), stat| (added + stat.lines.added, removed + stat.lines.removed));
    let paths = if stats.len() == 1 { "path" } else { "paths" };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} {paths} changed, +{added} -{removed}", stats.len());
    text
}

/// Returns the patches of `paths` and everything below them, or of all changes, escaped for a terminal.
pub fn render_diff(saved: &SavedChanges, paths: Option<&[&Path]>) -> io::Result<String> {
    let mut text = String::new();
    for change in saved.changes() {
        let wanted = paths.is_none_or(|paths| paths.iter().any(|path| change.path.starts_with(path)));
        if wanted {
            text.push_str(&visible(&super::diff::patch(saved, change)?));
        }
    }
    Ok(text)
}

/// Returns why a file was not saved, as a clause.
pub(crate) fn unsaved(reason: UnsavedReason) -> &'static str {
    match reason {
        UnsavedReason::TooLarge => "it is too large",
        UnsavedReason::TooDeep => "its path is too long",
        UnsavedReason::Unreadable => "its permissions do not allow to read it",
        UnsavedReason::Vanished => "it was replaced while it was read",
    }
}

struct StatRow {
    letter: char,
    name: String,
    lines: String,
    note: &'static str,
}

fn rows(stats: &[ChangeStat]) -> Vec<StatRow> {
    let mut rows: Vec<(StatRow, &Path, u64)> = Vec::new();
    for stat in stats {
        // Sorted by path, a directory comes right before its entries.
        if let Some((row, top, within)) = rows.last_mut()
            && stat.kind == ChangeKind::Deleted
            && stat.path.starts_with(*top)
            && !stat.conflict
        {
            *within += 1;
            row.lines = format!("with {within} below");
            continue;
        }
        let letter = match stat.kind {
            ChangeKind::Deleted => 'D',
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
        };
        let lines = match (stat.lines.binary, stat.lines.added, stat.lines.removed) {
            (true, ..) => "binary".to_owned(),
            (false, 0, 0) => String::new(),
            (false, added, removed) => format!("+{added} -{removed}"),
        };
        let note = if stat.conflict { "  conflict: the host changed as well" } else { "" };
        rows.push((StatRow { letter, name: quoted(&stat.path), lines, note }, &stat.path, 0));
    }
    rows.into_iter().map(|(row, ..)| row).collect()
}

/// Returns the text with control and direction characters escaped.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '\n' | '\t' => shown.push(sign),
            sign if is_plain(sign) => shown.push(sign),
            sign if sign.is_ascii_control() => {
                let letter = u8::try_from(u32::from(sign)).unwrap_or_default() ^ 0x40;
                shown.extend(['^', char::from(letter)]);
            }
            sign => {
                let _ = write!(shown, "<U+{:04X}>", u32::from(sign));
            }
        }
    }
    shown
}
