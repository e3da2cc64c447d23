//! `viv sessions diff`: what a session changed, as it would be applied.

use protocol::{Code, SessionId};
use sandbox::{SavedChanges, render_diff, render_stat};

use crate::config::Config;
use crate::failure::Failure;
use crate::host;

/// The whole diff.
pub(crate) fn render(config: &Config, session: &SessionId) -> Result<String, Failure> {
    let saved = open(config, session)?;
    render_diff(&saved, None).map_err(|error| unreadable(session, &error))
}

/// A line a file.
pub(crate) fn stat(config: &Config, session: &SessionId) -> Result<String, Failure> {
    let saved = open(config, session)?;
    let stats = saved.stat().map_err(|error| unreadable(session, &error))?;
    Ok(render_stat(&stats))
}

/// Every change with its counts, as JSON.
pub(crate) fn json(config: &Config, session: &SessionId) -> Result<String, Failure> {
    let stats = open(config, session)?.stat().map_err(|error| unreadable(session, &error))?;
    let text = serde_json::to_string_pretty(&stats).map_err(|error| Failure::of(Code::Internal, &error))?;
    Ok(text + "\n")
}

pub(crate) fn open(config: &Config, session: &SessionId) -> Result<SavedChanges, Failure> {
    SavedChanges::open(&host::data_dir(config)?.changes(session)).map_err(|error| unreadable(session, &error))
}

pub(crate) fn unreadable(session: &SessionId, error: &dyn std::error::Error) -> Failure {
    Failure::new(Code::ArtifactReadError, format!("the changes of session `{session}` cannot be read"))
        .because(error)
        .help(format!("viv sessions show {session}"))
}
