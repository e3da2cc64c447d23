//! `viv sessions diff`: the changes of a session.

use std::io;

use protocol::{ProblemCode, SessionId};
use sandbox::{SavedChanges, render_stat};
use session::SessionChanges;

use crate::config::Config;
use crate::failure::Failure;
use crate::host;

/// Returns the full diff.
pub(crate) fn render(config: &Config, session: &SessionId) -> Result<String, Failure> {
    open_changes(config, session)?.patch().map_err(|error| unreadable(session, &error))
}

/// Returns one line per file with its counts.
pub(crate) fn stat(config: &Config, session: &SessionId) -> Result<String, Failure> {
    let stats = open_changes(config, session)?.stat().map_err(|error| unreadable(session, &error))?;
    Ok(render_stat(&stats))
}

/// Returns all changes with their counts as JSON.
pub(crate) fn json(config: &Config, session: &SessionId) -> Result<String, Failure> {
    let stats = open_changes(config, session)?.stat().map_err(|error| unreadable(session, &error))?;
    let text =
        serde_json::to_string_pretty(&stats).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    Ok(text + "\n")
}

/// Returns the changes for `apply`; fails for an imported session.
pub(crate) fn open(config: &Config, session: &SessionId) -> Result<SavedChanges, Failure> {
    if let SessionChanges::Saved(saved) = open_changes(config, session)? {
        return Ok(saved);
    }
    let why = format!("session `{session}` was imported: its changes can be viewed, not applied");
    Err(Failure::new(ProblemCode::InvalidRequest, why).help(format!("viv sessions diff {session}")))
}

fn open_changes(config: &Config, session: &SessionId) -> Result<SessionChanges, Failure> {
    let changes =
        SessionChanges::open(&host::data_dir(config)?, session).map_err(|error| unreadable(session, &error))?;
    if changes.exists() { Ok(changes) } else { Err(unreadable(session, &io::Error::from(io::ErrorKind::NotFound))) }
}

pub(crate) fn unreadable(session: &SessionId, error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::ArtifactReadError, format!("cannot read the changes of session `{session}`"))
        .because(error)
        .help(format!("viv sessions show {session}"))
}
