//! A recorded session, played again: the same agent in a new sandbox, told and answered what it was told and
//! answered then, with a model that speaks from the recording.
//!
//! The replay reaches no network, whatever the policy of the recorded session allowed, and begins with a workspace as
//! the recorded one began. What cannot be the same is refused before anything starts.
//!
//! Not here: which answer belongs to which request (`gateway`).

mod compare;
mod origin;
mod part;
mod whole;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gateway::{NormalizerError, ReplayError, Upstream};
use policy::{EffectivePolicy, NarrowingLayer};
use protocol::{CreateSession, Event, ProblemCode, SessionId, SessionInfo};
use serde_json::Value;
use store::{DataDir, JournalReader, JournalTail};

use crate::{ImportedSession, SessionError, SessionOptions, Sessions};
use part::{Act, Part};

pub use compare::compare;
pub use origin::WorkspaceOrigin;
pub use whole::ReplayOutcome;

/// So many events are read at a time.
const PAGE: usize = 1_000;

/// A session that plays a recorded one.
#[derive(Debug, Clone)]
pub struct ReplaySession {
    /// The recorded one.
    pub of: SessionId,
    /// Speaks from the recording.
    pub upstream: Arc<dyn Upstream>,
}

/// What was done with a session, apart from what the model and the agent said.
#[derive(Debug, Clone)]
pub struct SessionRecording {
    /// The session.
    pub id: SessionId,
    /// Which agent.
    pub agent: String,
    /// Which version of it.
    pub agent_version: Option<String>,
    /// Its workspace on the host.
    pub directory: Option<PathBuf>,
    /// How that began; none: it was not looked at.
    pub origin: Option<WorkspaceOrigin>,
    /// Digest of the policy it was made under.
    pub policy: String,
    agent_mode: Option<String>,
    permission_mode: Option<String>,
    model: Option<String>,
    mcp: Option<BTreeMap<String, Value>>,
    skills: Option<Value>,
    parts: Vec<Part>,
    /// Everything that was recorded.
    pub events: Vec<Event>,
}

/// Why a session cannot be played again.
#[derive(Debug, thiserror::Error)]
pub enum ReplaySessionError {
    /// It never started.
    #[error("session `{0}` never started")]
    NeverStarted(SessionId),
    /// Its rules are not those of now.
    #[error("session `{0}` was recorded under another policy than the one in force now")]
    Policy(SessionId),
    /// What it worked on is not what it was.
    #[error("the workspace `{}` is not as it was when the session began", directory.display())]
    Workspace {
        /// Where.
        directory: PathBuf,
        /// Which paths differ, and how.
        differences: Vec<String>,
    },
    /// What its model said is not all there.
    #[error("what the model said cannot be had")]
    Recording(#[from] ReplayError),
    /// What should not count cannot be told.
    #[error("the rules of what does not count cannot be used")]
    NormalizerRules(#[from] NormalizerError),
    /// A step failed as it would in any session.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl ReplaySessionError {
    /// Stable identifier for clients.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Session(error) => error.code(),
            Self::NormalizerRules(_) => ProblemCode::ConfigInvalid,
            Self::NeverStarted(_) | Self::Policy(_) | Self::Workspace { .. } | Self::Recording(_) => {
                ProblemCode::ReplayImpossible
            }
        }
    }
}

impl SessionRecording {
    /// What is on record of a session in `directory`.
    pub fn read(directory: &DataDir, info: &SessionInfo) -> Result<Self, ReplaySessionError> {
        let id = info.session_id.clone();
        let reader = JournalReader::open(directory.journal(&id), id.clone()).map_err(SessionError::from)?;
        let mut events: Vec<Event> = Vec::new();
        loop {
            let seen = events.last().map_or(0, |event| event.sequence);
            let page = reader.after(seen, PAGE).map_err(SessionError::from)?;
            if page.is_empty() {
                break;
            }
            events.extend(page);
        }
        let started = part::started(&events).ok_or_else(|| ReplaySessionError::NeverStarted(id.clone()))?;
        Ok(Self {
            agent: info.agent.clone(),
            agent_version: started.agent_version,
            agent_mode: started.agent_mode,
            permission_mode: started.permission_mode,
            model: started.model,
            mcp: info.mcp.clone(),
            skills: info.skills.clone(),
            policy: started.policy,
            // What a bundle names is a directory of another host.
            directory: info
                .directory
                .clone()
                .filter(|_| ImportedSession::find(directory, &id).is_none())
                .map(PathBuf::from),
            origin: WorkspaceOrigin::load(&directory.origin(&id)),
            parts: part::parts(&events),
            events,
            id,
        })
    }

    /// The policy for a replay: the recorded one, without the network.
    fn policy(&self, policy: &Arc<EffectivePolicy>) -> Result<Arc<EffectivePolicy>, ReplaySessionError> {
        if policy.digest() != self.policy {
            return Err(ReplaySessionError::Policy(self.id.clone()));
        }
        // Only where it was open: the rule that closes it is quoted to the agent, and would be another one.
        if !policy.net().is_open() {
            return Ok(policy.clone());
        }
        let closed =
            NarrowingLayer::assign("net.enabled=false").ok().and_then(|closed| policy.narrowed(&[closed]).ok());
        closed.map(Arc::new).ok_or_else(|| ReplaySessionError::Policy(self.id.clone()))
    }

    fn check_workspace(&self, directory: Option<&PathBuf>) -> Result<(), ReplaySessionError> {
        let (Some(origin), Some(directory)) = (&self.origin, directory) else { return Ok(()) };
        let differences = origin.differences(&WorkspaceOrigin::scan(directory));
        if differences.is_empty() {
            return Ok(());
        }
        Err(ReplaySessionError::Workspace { directory: directory.clone(), differences })
    }
}

impl Sessions {
    /// Plays `recording` in the new session `id` and ends that, telling `hear` of every event as it comes.
    ///
    /// `policy` must be the one it was recorded under. The workspace is `directory` if given, else the recorded one,
    /// and must be as that was.
    pub async fn replay(
        &self,
        id: SessionId,
        recording: &SessionRecording,
        stage: ReplaySetup,
        mut hear: impl FnMut(&Event),
    ) -> Result<(), ReplaySessionError> {
        let directory = stage.directory.or_else(|| recording.directory.clone());
        // Before it is looked at: what differs in a directory is told, and not to everybody.
        let named = directory.as_deref().map(|path| self.check_directory(path, &stage.options.workspaces));
        named.transpose()?;
        recording.check_workspace(directory.as_ref())?;
        let policy = recording.policy(&stage.policy)?;
        let request = CreateSession {
            agent: recording.agent.clone(),
            agent_version: recording.agent_version.clone(),
            agent_mode: recording.agent_mode.clone(),
            permission_mode: recording.permission_mode.clone(),
            model: recording.model.clone(),
            mcp: recording.mcp.clone(),
            skills: recording.skills.clone(),
            directory: directory.map(|path| path.to_string_lossy().into_owned()),
            title: Some(format!("replay of {}", recording.id)),
            ..CreateSession::default()
        };
        let rerun = ReplaySession { of: recording.id.clone(), upstream: stage.upstream };
        let options = SessionOptions { policy: Some(policy), replay: Some(rerun), ..stage.options };
        self.create(id.clone(), request, options).await?;
        let played = self.play(&id, recording, &mut hear).await;
        self.terminate(&id).await?;
        played
    }

    async fn play(
        &self,
        id: &SessionId,
        recording: &SessionRecording,
        hear: &mut impl FnMut(&Event),
    ) -> Result<(), ReplaySessionError> {
        for part in &recording.parts {
            let accepted = self.send(id, part.message.clone()).await?;
            let mut tail = JournalTail::new(self.journal(id)?, accepted.sequence);
            let mut cues = part.cues();
            loop {
                let events = tail.next(1).await.map_err(SessionError::from)?;
                let Some(event) = events.first() else { return Ok(()) };
                hear(event);
                match cues.after(&event.draft.body) {
                    Act::Listen => {}
                    Act::Permit(permission, reply) => self.reply_permission(id, &permission, reply).await?,
                    Act::Answer(question, Some(answers)) => self.reply_question(id, &question, answers).await?,
                    Act::Answer(question, None) => self.reject_question(id, &question).await?,
                    Act::Interrupt => self.interrupt(id).await?,
                    Act::Next => break,
                }
            }
        }
        Ok(())
    }
}

/// What a replay is played on.
pub struct ReplaySetup {
    /// Speaks from the recording.
    pub upstream: Arc<dyn Upstream>,
    /// The policy the session was recorded under.
    pub policy: Arc<EffectivePolicy>,
    /// A workspace in place of the recorded one.
    pub directory: Option<PathBuf>,
    /// Who it belongs to.
    pub options: SessionOptions,
}
