//! The record of one command: a session like every other, made when there is first something to record.
//!
//! Most commands reach for nothing. Those leave no file behind, and do not wait for one.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use ::policy::EffectivePolicy;
use base::lock;
use protocol::{
    EgressConnection, Event, EventBody, EventDraft, PolicyEffective, PolicySentence, SessionEndReason, SessionEnded,
    SessionId, SessionRegistered, SessionStarted, TaskCommandFinished, TerminatedBy,
};
use serde_json::{Value, json};
use store::{
    DataDir, FileJournal, Journal, JournalError, NewSession, ProcessOwner, SessionIndex, SessionPatch, StoredRange,
    SystemClock,
};
use tokio::sync::watch;

use crate::failure::Failure;

/// What stands in the list of sessions where there is no agent.
const NO_AGENT: &str = "none";
/// Letters of a command that are its title.
const TITLE: usize = 80;

/// What the first records say.
pub(super) struct Facts {
    pub(super) session: SessionId,
    pub(super) command: Vec<String>,
    pub(super) workspace: Option<PathBuf>,
    pub(super) sandbox: String,
    pub(super) backend: String,
    /// What the sandbox enforces, key by key.
    pub(super) keys: Value,
    pub(super) policy: Arc<EffectivePolicy>,
}

/// The record of one command.
pub(super) struct Record {
    data_dir: PathBuf,
    facts: Facts,
    last: watch::Sender<u64>,
    kept: Mutex<Option<Kept>>,
}

/// What there is once something was recorded.
struct Kept {
    journal: FileJournal,
    index: SessionIndex,
    name: String,
    /// Tells others that whoever writes it lives.
    _owner: ProcessOwner,
}

/// What came of a command that was recorded.
pub(super) struct Told {
    /// What a person calls its session.
    pub(super) name: String,
    /// What it was refused.
    pub(super) denied: Vec<EgressConnection>,
}

impl Record {
    pub(super) fn new(data_dir: PathBuf, facts: Facts) -> Self {
        Self { data_dir, facts, last: watch::Sender::new(0), kept: Mutex::new(None) }
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.facts.session
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        lock(&self.kept)
    }

    fn begin(&self) -> Result<Kept, Failure> {
        let (directory, clock) = (DataDir::open(&self.data_dir)?, Arc::new(SystemClock));
        let (index, owner) = (SessionIndex::open(&directory, clock.clone())?, ProcessOwner::claim(&directory)?);
        let Facts { session, command, workspace, .. } = &self.facts;
        let record = index.create(&NewSession {
            directory: workspace.as_ref().map(|path| path.to_string_lossy().into_owned()),
            title: Some(command.join(" ").chars().take(TITLE).collect()),
            ..NewSession::new(session.clone(), NO_AGENT, owner.id().clone())
        })?;
        let journal = FileJournal::open(directory.journal(session), session.clone(), clock)?.journal;
        journal.store(&self.opening().map(EventDraft::daemon))?;
        let name = record.info.name.unwrap_or_else(|| session.to_string());
        Ok(Kept { journal, index, name, _owner: owner })
    }

    /// What every session of commands begins with.
    fn opening(&self) -> [EventBody; 3] {
        let Facts { session, sandbox, backend, keys, policy, .. } = &self.facts;
        let sentences = ::policy::explain(policy).iter().map(|sentence| PolicySentence {
            text: sentence.text.clone(),
            layer: sentence.layer.to_string(),
            rule: sentence.rule.location(),
        });
        let effective =
            PolicyEffective { backend: backend.clone(), keys: keys.clone(), sentences: sentences.collect() };
        let registered =
            SessionRegistered { session_id: session.clone(), sandbox_id: sandbox.clone(), task_name: None };
        let metadata = Some(json!({"agent": NO_AGENT, "policy": policy.digest()}));
        [
            EventBody::PolicyEffective(effective),
            EventBody::SessionRegistered(registered),
            EventBody::SessionStarted(SessionStarted { metadata }),
        ]
    }

    /// Closes the record, if there is one, and tells what is in it.
    pub(super) fn end(&self, exit_code: i32, wall_micros: u64) -> Result<Option<Told>, Failure> {
        let Some(kept) = self.kept().take() else { return Ok(None) };
        let command = self.facts.command.clone();
        let finished = TaskCommandFinished { command, exit_code, wall_micros };
        kept.journal.append(EventDraft::daemon(EventBody::TaskCommandFinished(finished)))?;
        let (reason, terminated_by) = (SessionEndReason::Completed, TerminatedBy::Daemon);
        let ended = SessionEnded { reason, terminated_by, message: None, exit_code: None, stderr: None };
        let last = kept.journal.append(EventDraft::daemon(EventBody::SessionEnded(ended)))?.sequence;
        kept.journal.sync()?;
        let (event_count, outcome) = (Some(last), Some(reason.into()));
        kept.index.update(&self.facts.session, &SessionPatch { event_count, outcome, ..SessionPatch::default() })?;
        let events = kept.journal.after(0, usize::MAX)?.into_iter();
        let denied = events.filter_map(|event| match event.draft.body {
            EventBody::EgressDenied(connection) => Some(connection),
            _ => None,
        });
        Ok(Some(Told { name: kept.name.clone(), denied: denied.collect() }))
    }
}

impl Journal for Record {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        let mut kept = self.kept();
        if kept.is_none() {
            *kept = Some(self.begin().map_err(|failure| JournalError::Io {
                doing: "begin",
                path: self.data_dir.clone(),
                source: io::Error::other(failure.to_string()),
            })?);
        }
        let Some(kept) = kept.as_ref() else { return Err(JournalError::Ended) };
        let stored = kept.journal.store(drafts)?;
        self.last.send_replace(*kept.journal.last().borrow());
        Ok(stored)
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        self.kept().as_ref().map_or_else(|| Ok(Vec::new()), |kept| kept.journal.after(sequence, limit))
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        self.kept().as_ref().map_or(Ok(()), |kept| kept.journal.sync())
    }
}

/// A refusal as programs read it.
pub(super) fn as_json(denied: &EgressConnection) -> Value {
    json!({"host": denied.host, "port": denied.port, "rule": denied.rule})
}

/// How often something was refused, and where to read more, for a person.
pub(super) fn sentence(told: &Told) -> Option<String> {
    let count: u64 = told.denied.iter().map(|denied| denied.count.unwrap_or(1)).sum();
    let connections = match count {
        0 => return None,
        1 => "1 connection".to_owned(),
        more => format!("{more} connections"),
    };
    Some(format!("{connections} refused: viv policy log {}", told.name))
}
