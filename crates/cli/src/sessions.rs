//! `viv sessions …`: what there is, what happened, what changed, and the end of one.
//!
//! Reading needs no server: the store is the same whoever runs the session.

pub(crate) mod diff;
mod list;
pub(crate) mod stop;
mod watch;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::SessionInfo;
use store::{SessionIndex, SystemClock};

use crate::args::SessionsCommand;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;

/// Carries out `viv sessions …`.
pub(crate) async fn carry_out(
    command: SessionsCommand,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let directory = host::data_dir(&config)?;
    let index = SessionIndex::open(&directory, Arc::new(SystemClock))?;
    let find = |reference: &str| -> Result<SessionInfo, Failure> { Ok(index.find(reference)?.info) };
    match command {
        SessionsCommand::Ls { limit } => {
            let page = index.list(None, limit)?;
            let sessions: Vec<_> = page.sessions.into_iter().map(|record| record.info).collect();
            print(&list::table(&sessions, json)?)?;
        }
        SessionsCommand::Show { session } => print(&list::card(&find(&session)?, json)?)?,
        SessionsCommand::Events { session, after, follow } => {
            let session = find(&session)?.session_id;
            watch::events(&directory, &index, &session, after, follow, json).await?;
        }
        SessionsCommand::Diff { session, stat } => {
            let session = find(&session)?.session_id;
            print(&if stat { diff::stat(&config, &session)? } else { diff::render(&config, &session)? })?;
        }
        SessionsCommand::Stop { session } => return stop::carry_out(&session, &config, spawner, json).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes data to stdout; a reader that has gone away is no error.
fn print(text: &str) -> Result<(), Failure> {
    match anstream::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::output(&error)),
        _ => Ok(()),
    }
}
