//! `viv sessions …`: what there is, what happened, what changed, and the end of one.
//!
//! Reading needs no server: the store is the same whoever runs the session.

pub(crate) mod apply;
pub(crate) mod diff;
mod keep;
mod list;
pub(crate) mod reach;
pub(crate) mod stop;
pub(crate) mod traffic;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::{Code, Event, EventBody, PolicyEffective, SessionInfo};
use store::{JournalReader, SessionIndex, SystemClock};

use crate::args::{LogsArguments, SessionsCommand};
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::table::print;

/// Events are read so many at a time.
const PAGE: usize = 1000;

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
            watch::events(&directory, &index, &session, watch::Wanted { after, follow, kinds: Vec::new() }, json)
                .await?;
        }
        SessionsCommand::Diff { session, stat } => {
            let session = find(&session)?.session_id;
            print(&match (json, stat) {
                (true, _) => diff::json(&config, &session)?,
                (_, true) => diff::stat(&config, &session)?,
                _ => diff::render(&config, &session)?,
            })?;
        }
        SessionsCommand::Apply { session, paths, policy, finish, undo } => {
            let session = find(&session)?;
            let step = match (finish, undo) {
                (true, _) => apply::Step::Finish,
                (_, true) => apply::Step::Undo,
                _ => apply::Step::Apply { paths, policy },
            };
            print(&apply::carry_out(&config, &session, step, json)?)?;
        }
        SessionsCommand::Discard { session } => {
            let session = find(&session)?.session_id;
            sandbox::discard(&directory.changes(&session)).map_err(|error| diff::unreadable(&session, &error))?;
        }
        SessionsCommand::Attach { session } => return reach::attach(&directory, &index.find(&session)?, json).await,
        SessionsCommand::Send { session, message } => {
            reach::send(&directory, &index.find(&session)?, &message).await?;
        }
        SessionsCommand::Fork { session, title } => {
            reach::fork(&directory, &index.find(&session)?, title, json).await?;
        }
        SessionsCommand::Export { session, output } => {
            keep::export(&find(&session)?.session_id, &output, &config, spawner, json).await?;
        }
        SessionsCommand::Import { file } => {
            let session = keep::import(&file, &config, spawner, json).await?;
            print(&list::card(&session, json)?)?;
        }
        SessionsCommand::Rm { sessions } => {
            let ids =
                sessions.iter().map(|session| Ok(find(session)?.session_id)).collect::<Result<Vec<_>, Failure>>()?;
            keep::remove(&ids, &config, spawner, json).await?;
        }
        SessionsCommand::Stop { session } => return stop::carry_out(&session, &config, spawner, json).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Carries out `viv policy explain --session S`: what held when its sandbox was last made.
pub(crate) fn explain(reference: &str, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let directory = host::data_dir(config)?;
    let index = SessionIndex::open(&directory, Arc::new(SystemClock))?;
    let session = index.find(reference)?.info.session_id;
    let reader = JournalReader::open(directory.journal(&session), session.clone())?;
    let (mut effective, mut seen) = (None, 0);
    loop {
        let page = reader.after(seen, PAGE)?;
        let Some(last) = page.last() else { break };
        seen = last.sequence;
        effective = page.into_iter().rev().find_map(told_policy).or(effective);
    }
    let effective = effective.ok_or_else(|| {
        let why = format!("session `{session}` never had a sandbox");
        Failure::new(Code::InvalidRequest, why).help(format!("viv logs {session}"))
    })?;
    print(&crate::policy::explain::session(&effective, json))?;
    Ok(ExitCode::SUCCESS)
}

fn told_policy(event: Event) -> Option<PolicyEffective> {
    match event.draft.body {
        EventBody::PolicyEffective(effective) => Some(effective),
        _ => None,
    }
}

/// Carries out `viv logs`.
pub(crate) async fn logs(arguments: LogsArguments, config: Config, json: bool) -> Result<ExitCode, Failure> {
    let directory = host::data_dir(&config)?;
    let index = SessionIndex::open(&directory, Arc::new(SystemClock))?;
    let session = index.find(&arguments.session)?.info.session_id;
    let wanted = watch::Wanted { after: 0, follow: arguments.follow, kinds: arguments.kind };
    watch::events(&directory, &index, &session, wanted, json).await?;
    Ok(ExitCode::SUCCESS)
}
