//! `viv sessions …`: list, inspect, apply and stop sessions.
//!
//! Reading needs no server: all processes share the store of the data directory.

pub(crate) mod apply;
mod apply_arguments;
mod command;
pub(crate) mod commits;
pub(crate) mod consent;
pub(crate) mod diff;
pub(crate) mod list;
mod logs;
mod ports;
pub(crate) mod remote;
mod screen;
mod sets;
pub(crate) mod stop;
pub(crate) mod summary;
pub(crate) mod traffic;
mod transfer;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::{Event, EventBody, PolicyEffective, ProblemCode, SessionId, SessionInfo};
use session::ImportedSession;
use store::{DataDir, JournalReader, SessionIndex, SystemClock};

use crate::args::LogsArguments;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::output::{print, print_diff, print_json_text};

use apply_arguments::ApplyArguments;
pub(crate) use command::{ListFilter, SessionsCommand};
pub(crate) use list::ListedSession;
use summary::SessionSummary;

/// Number of events that are read at a time.
const PAGE: usize = 1000;

/// Runs `viv sessions …`.
pub(crate) async fn carry_out(
    command: SessionsCommand,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let catalog = SessionCatalog::open(&config, json)?;
    let SessionCatalog { directory, index, .. } = &catalog;
    match command {
        SessionsCommand::Ls(filter) => catalog.list(&filter)?,
        SessionsCommand::Show { session } => catalog.show(catalog.find(&session)?)?,
        SessionsCommand::Events { session, after, follow } => {
            catalog.events(&session, watch::EventSelection { after, follow, kinds: Vec::new() }).await?;
        }
        SessionsCommand::Diff { session, stat, commits, set, against } => {
            catalog.diff(&session, diff::DiffSelection { stat, commits, set, against })?;
        }
        SessionsCommand::Sets { session } => print(&sets::list(directory, &catalog.id(&session)?, json)?)?,
        SessionsCommand::Apply(arguments) => catalog.apply(*arguments).await?,
        SessionsCommand::Discard { session } => catalog.discard(&session)?,
        SessionsCommand::Attach { session } => return catalog.attach(&session).await,
        SessionsCommand::Play { session, speed, pause } => {
            let settings = screen::PlaySettings { speed, longest_pause: pause };
            return screen::play(directory, &catalog.find(&session)?, settings).await;
        }
        SessionsCommand::Send { session, message } => {
            return remote::send(&config, index.find(&session)?, &message, spawner, json).await;
        }
        SessionsCommand::Queue { session, remove: None } => {
            remote::queue(directory, &index.find(&session)?, json).await?;
        }
        SessionsCommand::Queue { session, remove: Some(turn) } => {
            remote::unqueue(directory, &index.find(&session)?, &turn).await?;
        }
        SessionsCommand::Ports { session } => ports::list(directory, &index.find(&session)?, json).await?,
        SessionsCommand::Forward { session, ports } => {
            return ports::forward(directory, &index.find(&session)?, &ports).await;
        }
        SessionsCommand::Fork { session, title } => {
            remote::fork(directory, &index.find(&session)?, title, json).await?;
        }
        SessionsCommand::Export { session, output } => {
            transfer::export(&catalog.id(&session)?, &output, &config, spawner, json).await?;
        }
        SessionsCommand::Import { file, new_id } => {
            let session = transfer::import(&file, new_id, &config, spawner, json).await?;
            catalog.show(session)?;
        }
        SessionsCommand::Rm { sessions, yes } => catalog.remove(&sessions, yes, spawner).await?,
        SessionsCommand::Stop { session } => return stop::carry_out(&session, &config, spawner, json).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// The sessions of a data directory, opened for one command.
pub(crate) struct SessionCatalog<'a> {
    config: &'a Config,
    directory: DataDir,
    index: SessionIndex,
    json: bool,
}

/// The most sessions that `viv top` shows.
const TOP_SESSIONS: usize = 200;

impl<'a> SessionCatalog<'a> {
    pub(crate) fn open(config: &'a Config, json: bool) -> Result<Self, Failure> {
        let directory = host::data_dir(config)?;
        let index = SessionIndex::open(&directory, Arc::new(SystemClock))?;
        Ok(Self { config, directory, index, json })
    }

    async fn apply(&self, arguments: ApplyArguments) -> Result<(), Failure> {
        let session = self.find(&arguments.session)?;
        let applied = apply::carry_out(self.config, &session, arguments.into_step(), self.json).await?;
        if self.json { print_json_text(&applied) } else { print(&applied) }
    }

    /// Shows the screen of an interactive session; chats with the agent of any other.
    async fn attach(&self, reference: &str) -> Result<ExitCode, Failure> {
        let record = self.index.find(reference)?;
        if screen::is_interactive(&record.info) {
            return screen::attach(self.config, &self.directory, &record).await;
        }
        remote::attach(&self.directory, &record, self.json).await
    }

    /// Deletes sessions. Without `yes`, asks first.
    async fn remove(&self, references: &[String], yes: bool, spawner: Spawner) -> Result<(), Failure> {
        let found = references.iter().map(|session| self.find(session)).collect::<Result<Vec<_>, _>>()?;
        if !yes && !transfer::may_remove(&found).await? {
            return Ok(());
        }
        let ids: Vec<SessionId> = found.into_iter().map(|session| session.session_id).collect();
        transfer::remove(&ids, self.config, spawner, self.json).await
    }

    /// Returns the session that `reference` names: id, name, prefix of an id, or @last.
    fn find(&self, reference: &str) -> Result<SessionInfo, Failure> {
        Ok(self.counted(self.index.find(reference)?.info))
    }

    /// Returns the session with its current event count. The index is updated at the end of a turn, the journal at once.
    fn counted(&self, mut info: SessionInfo) -> SessionInfo {
        if !info.ended && !info.damaged {
            let journal = self.directory.journal(&info.session_id);
            let last = JournalReader::open(journal, info.session_id.clone()).and_then(|journal| journal.last());
            info.event_count = last.unwrap_or(info.event_count);
        }
        info
    }

    fn id(&self, reference: &str) -> Result<SessionId, Failure> {
        Ok(self.find(reference)?.session_id)
    }

    fn list(&self, filter: &ListFilter) -> Result<(), Failure> {
        list::print_table(&self.select(filter)?, self.json)
    }

    /// Returns the sessions that `filter` selects, newest first.
    pub(crate) fn select(&self, filter: &ListFilter) -> Result<Vec<ListedSession>, Failure> {
        let since = filter.since.map_or(i64::MIN, |since| since.millisecond(jiff::Timestamp::now()));
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = self.index.list(from, PAGE)?;
            for record in page.sessions {
                if found.len() == filter.limit || record.info.created_at < since {
                    return Ok(found);
                }
                if filter.agent.as_ref().is_some_and(|agent| *agent != record.info.agent) {
                    continue;
                }
                let listed = self.summarize(record.info)?;
                if filter.selects(&listed) {
                    found.push(listed);
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(found);
            }
        }
    }

    /// Returns the sessions that have not ended, newest first.
    pub(crate) fn open_sessions(&self) -> Result<Vec<SessionInfo>, Failure> {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = self.index.list(from, PAGE)?;
            found.extend(
                page.sessions.into_iter().map(|record| record.info).filter(|info| !info.ended && !info.damaged),
            );
            from = page.next;
            if from.is_none() || found.len() >= TOP_SESSIONS {
                found.truncate(TOP_SESSIONS);
                return Ok(found);
            }
        }
    }

    /// Returns the data directory.
    pub(crate) fn directory(&self) -> &DataDir {
        &self.directory
    }

    fn summarize(&self, info: SessionInfo) -> Result<ListedSession, Failure> {
        let info = self.counted(info);
        let summary = SessionSummary::read(&self.directory, &info)?;
        Ok(ListedSession { info, summary })
    }

    fn show(&self, info: SessionInfo) -> Result<(), Failure> {
        let session = self.summarize(info)?;
        let origin = session.summary.continues.clone().and_then(|id| self.index.find(&id).ok());
        let names = origin.and_then(|record| Some((record.info.session_id.to_string(), record.info.name?)));
        list::print_card(&session, &names.into_iter().collect(), self.json)
    }

    async fn events(&self, reference: &str, selection: watch::EventSelection) -> Result<(), Failure> {
        let session = self.id(reference)?;
        watch::events(&self.directory, &self.index, &session, selection, self.json).await
    }

    fn diff(&self, reference: &str, selection: diff::DiffSelection) -> Result<(), Failure> {
        let session = self.id(reference)?;
        let diff::DiffSelection { stat, commits, set, against } = selection;
        if let Some(against) = against {
            let compared = diff::against(self.config, &session, set, against, self.json)?;
            return if self.json { print_json_text(&compared) } else { print(&compared) };
        }
        let changes = diff::open_changes(self.config, &session, set)?;
        match (self.json, stat) {
            (true, _) if commits => print_json_text(&commits::json(&changes, &session)?),
            (true, _) => print_json_text(&diff::json(&changes, &session)?),
            (_, true) if commits => print(&commits::stat(&changes, &session)),
            (_, true) => print(&diff::stat(&changes, &session)?),
            // A patch is data for other programs.
            _ if commits => print_diff(&commits::render(&changes, &session)?),
            _ => print_diff(&diff::render(&changes, &session)?),
        }
    }

    fn discard(&self, reference: &str) -> Result<(), Failure> {
        let session = self.id(reference)?;
        let discarded = match ImportedSession::find(&self.directory, &session) {
            Some(imported) => imported.discard(),
            None => sandbox::discard(&self.directory.change_set(&session)),
        };
        discarded.map_err(|error| diff::unreadable(&session, &error))
    }
}

/// Runs `viv policy explain --session S`, with the policy of the session's last sandbox.
pub(crate) fn explain(reference: &str, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let catalog = SessionCatalog::open(config, json)?;
    let session = catalog.id(reference)?;
    let reader = JournalReader::open(catalog.directory.journal(&session), session.clone())?;
    let (mut effective, mut seen) = (None, 0);
    loop {
        let page = reader.after(seen, PAGE)?;
        let Some(last) = page.last() else { break };
        seen = last.sequence;
        effective = page.into_iter().rev().find_map(effective_policy).or(effective);
    }
    let effective = effective.ok_or_else(|| {
        let why = format!("session `{session}` has no recorded policy: its sandbox was never made");
        Failure::new(ProblemCode::InvalidRequest, why).help(format!("viv logs {session}"))
    })?;
    let explained = crate::policy::explain::session(&effective, json);
    if json {
        print_json_text(&explained)?;
    } else {
        print(&explained)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn effective_policy(event: Event) -> Option<PolicyEffective> {
    match event.draft.body {
        EventBody::PolicyEffective(effective) => Some(effective),
        _ => None,
    }
}

/// Runs `viv logs`: prints a readable log, or the events as JSON.
pub(crate) async fn logs(arguments: LogsArguments, config: Config, json: bool) -> Result<ExitCode, Failure> {
    let catalog = SessionCatalog::open(&config, json)?;
    if json {
        let selection = watch::EventSelection { after: 0, follow: arguments.follow, kinds: arguments.kind };
        catalog.events(&arguments.session, selection).await?;
    } else {
        logs::print(&catalog, &arguments).await?;
    }
    Ok(ExitCode::SUCCESS)
}
