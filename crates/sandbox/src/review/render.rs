//! Changes as text for a terminal.
//!
//! The sandbox wrote the names and contents. Characters that could move the cursor, change the title or change the writing
//! direction are escaped.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use base::PrintableText;

use super::classes::{ClassName, PathClass, classify};
use super::diff::HIDDEN;
use super::json_path::quoted;
use super::{ChangeStat, SavedChanges, UnsavedReason};
use crate::overlay::ChangeKind;

/// Returns one line for each path, deletions first, and a sum. A deleted directory and its entries are one line, and all
/// ignored paths are one.
pub fn render_stat(stats: &[ChangeStat]) -> String {
    let (ignored, stats): (Vec<&ChangeStat>, Vec<&ChangeStat>) =
        stats.iter().partition(|stat| stat.class == ClassName::Ignored);
    let rows = rows(&stats);
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
    text + &ignored_line(ignored.len())
}

/// Returns the line about ignored paths; empty when there are none.
fn ignored_line(count: usize) -> String {
    super::LeftOut { ignored: count, ..super::LeftOut::default() }.to_string()
}

/// Returns the patches of `paths` and everything below them, or of all changes that are not ignored. The text is safe to print,
/// and `git apply` accepts it: lines about the classes of paths start with `#`, and git skips them.
pub fn render_diff(saved: &SavedChanges, paths: Option<&[&Path]>) -> io::Result<String> {
    let (mut text, mut ignored) = (String::new(), 0);
    for (change, class) in classify(saved)? {
        let wanted = paths.is_none_or(|paths| paths.iter().any(|path| change.path.starts_with(path)));
        if wanted && paths.is_none() && class == PathClass::Ignored {
            ignored += 1;
        } else if wanted {
            text += &class_note(&class).map(|line| note(&change.path, &line)).unwrap_or_default();
            text += &super::diff::patch(saved, change)?;
        }
    }
    text.extend(ignored_line(ignored).lines().map(|line| format!("# {line}\n")));
    Ok(text)
}

/// Returns a line about a path that `git apply` skips.
pub(crate) fn note(path: &Path, text: &str) -> String {
    format!("# {}: {}\n", quoted(path), visible(text))
}

/// Returns the class of a path for a person; `None` when it is plain.
fn class_note(class: &PathClass) -> Option<String> {
    class_text(class.name(), class.why().as_deref())
}

fn class_text(class: ClassName, why: Option<&str>) -> Option<String> {
    let why = why.map(visible).unwrap_or_default();
    match class {
        ClassName::Plain => None,
        ClassName::RunsByItself => Some(format!("runs by itself ({why}): applied only with --confirm")),
        ClassName::Refused => Some(format!("refused: {why}")),
        ClassName::Ignored => Some("ignored: applied only with --ignored".to_owned()),
    }
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
    note: String,
}

fn rows(stats: &[&ChangeStat]) -> Vec<StatRow> {
    let mut rows: Vec<(StatRow, &Path, u64)> = Vec::new();
    for stat in stats {
        // Sorted by path, a directory comes right before its entries.
        if let Some((row, top, within)) = rows.last_mut()
            && stat.kind == ChangeKind::Deleted
            && stat.path.starts_with(*top)
            && !stat.conflict
            && stat.class == ClassName::Plain
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
        let class = class_text(stat.class, stat.why.as_deref());
        let hidden = stat.hidden.then(|| HIDDEN.to_owned());
        let conflict = (stat.conflict && !stat.hidden).then(|| "conflict: the host changed as well".to_owned());
        let note = class.into_iter().chain(hidden).chain(conflict).map(|note| format!("  {note}")).collect();
        rows.push((StatRow { letter, name: quoted(&stat.path), lines, note }, &stat.path, 0));
    }
    rows.into_iter().map(|(row, ..)| row).collect()
}

/// Returns the text with control and direction characters escaped.
pub fn visible(text: &str) -> String {
    PrintableText::exact(text).into()
}
