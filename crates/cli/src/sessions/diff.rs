//! `viv sessions diff`: what a session changed, as it would be applied.

use std::io;

use protocol::{ProblemCode, SessionId};
use sandbox::{SavedChanges, render_stat};
use session::SessionChanges;

use crate::config::Config;
use crate::failure::Failure;
use crate::host;

/// The whole diff.
pub(crate) fn render(config: &Config, session: &SessionId) -> Result<String, Failure> {
    look(config, session)?.patch().map_err(|error| unreadable(session, &error))
}

/// A line a file.
pub(crate) fn stat(config: &Config, session: &SessionId) -> Result<String, Failure> {
    let stats = look(config, session)?.stat().map_err(|error| unreadable(session, &error))?;
    Ok(render_stat(&stats))
}

/// Every change with its counts, as JSON.
pub(crate) fn json(config: &Config, session: &SessionId) -> Result<String, Failure> {
    let stats = look(config, session)?.stat().map_err(|error| unreadable(session, &error))?;
    let text =
        serde_json::to_string_pretty(&stats).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    Ok(text + "\n")
}

/// What can be applied.
pub(crate) fn open(config: &Config, session: &SessionId) -> Result<SavedChanges, Failure> {
    if let SessionChanges::Saved(saved) = look(config, session)? {
        return Ok(saved);
    }
    let why = format!("session `{session}` came from a bundle: what it changed can be looked at, not applied");
    Err(Failure::new(ProblemCode::InvalidRequest, why).help(format!("viv sessions diff {session}")))
}

fn look(config: &Config, session: &SessionId) -> Result<SessionChanges, Failure> {
    let changes =
        SessionChanges::open(&host::data_dir(config)?, session).map_err(|error| unreadable(session, &error))?;
    if changes.is_there() { Ok(changes) } else { Err(unreadable(session, &io::Error::from(io::ErrorKind::NotFound))) }
}

pub(crate) fn unreadable(session: &SessionId, error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::ArtifactReadError, format!("the changes of session `{session}` cannot be read"))
        .because(error)
        .help(format!("viv sessions show {session}"))
}
