//! `viv sessions diff`: the changes of a session.

use std::fmt::Write as _;
use std::io;

use protocol::{ProblemCode, SessionId};
use sandbox::{ChangeKind, SavedChanges, compare_sets, quoted, render_stat};
use session::SessionChanges;

use super::commits;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;

/// The part of a session's changes that `viv sessions diff` shows.
pub(super) struct DiffSelection {
    /// Only the line counts.
    pub(super) stat: bool,
    /// Only the commits.
    pub(super) commits: bool,
    /// The number of a change set; the current one if absent.
    pub(super) set: Option<u64>,
    /// The change set to compare with.
    pub(super) against: Option<u64>,
}

/// Returns the commits, and the full diff of the files.
pub(crate) fn render(changes: &SessionChanges, session: &SessionId) -> Result<String, Failure> {
    let files = changes.patch().map_err(|error| unreadable(session, &error))?;
    Ok(commits::render(changes, session)? + &files)
}

/// Returns the commits, and one line per file with its counts.
pub(crate) fn stat(changes: &SessionChanges, session: &SessionId) -> Result<String, Failure> {
    let stats = changes.stat().map_err(|error| unreadable(session, &error))?;
    Ok(commits::stat(changes, session) + &render_stat(&stats))
}

/// Returns all changes with their counts as JSON.
pub(crate) fn json(changes: &SessionChanges, session: &SessionId) -> Result<String, Failure> {
    let stats = changes.stat().map_err(|error| unreadable(session, &error))?;
    to_json(&stats)
}

/// Returns one line for each path that the set `set`, or the current one, changes in another way than `against`.
pub(crate) fn against(
    config: &Config,
    session: &SessionId,
    set: Option<u64>,
    against: u64,
    json: bool,
) -> Result<String, Failure> {
    let (changes, other) = (open(config, session, set)?, open(config, session, Some(against))?);
    let differences = compare_sets(&changes, &other);
    if json {
        return to_json(&differences);
    }
    let mut text = String::new();
    for difference in &differences {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {}", letter(difference.kind), quoted(&difference.path));
    }
    let paths = if differences.len() == 1 { "path differs" } else { "paths differ" };
    let _ = writeln!(text, "{} {paths} between set {against} and set {}", differences.len(), changes.set_number());
    Ok(text)
}

/// Returns the letter of a kind of change.
pub(crate) fn letter(kind: ChangeKind) -> char {
    match kind {
        ChangeKind::Deleted => 'D',
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
    }
}

/// Returns the changes for `apply`: the set `set`, or the current one. Fails for an imported session.
pub(crate) fn open(config: &Config, session: &SessionId, set: Option<u64>) -> Result<SavedChanges, Failure> {
    if let SessionChanges::Saved(saved) = open_changes(config, session, set)? {
        return Ok(saved);
    }
    let why = format!("session `{session}` was imported: its changes can be viewed, not applied");
    Err(Failure::new(ProblemCode::InvalidRequest, why).help(format!("viv sessions diff {session}")))
}

/// Returns the set `set` of a session, or the current one. Fails when nothing was saved.
pub(crate) fn open_changes(config: &Config, session: &SessionId, set: Option<u64>) -> Result<SessionChanges, Failure> {
    let changes = SessionChanges::open_set(&host::data_dir(config)?, session, set).map_err(|error| {
        let help = error.hint().unwrap_or_else(|| format!("viv sessions show {session}"));
        Failure::from_error(error.code(), &error).help(help)
    })?;
    if changes.exists() { Ok(changes) } else { Err(unreadable(session, &io::Error::from(io::ErrorKind::NotFound))) }
}

pub(crate) fn unreadable(session: &SessionId, error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::ArtifactReadError, format!("cannot read the changes of session `{session}`"))
        .because(error)
        .help(format!("viv sessions show {session}"))
}

fn to_json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    Ok(text + "\n")
}
