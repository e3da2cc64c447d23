//! Replay of a recorded session: the same agent in a new sandbox gets the same prompts and answers, and the recorded
//! model responses.
//!
//! A replay has no network access. Its workspace must be in the same state as at the start of the recorded session. A
//! replay that cannot be faithful is refused before anything starts.
//!
//! Not here: matching of model requests to recorded responses (`gateway`).

mod compare;
mod outcome;
mod turn_script;
mod workspace_origin;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gateway::{NormalizerError, ReplayError, Upstream};
use policy::{EffectivePolicy, NarrowingLayer};
use protocol::{CreateSession, Event, ProblemCode, SessionId, SessionInfo};
use serde_json::Value;
use store::{DataDir, JournalReader, JournalTail};

use crate::{ImportedSession, SessionError, SessionOptions, Sessions};
use turn_script::{ReplayStep, TurnScript};

pub use compare::compare;
pub use outcome::ReplayOutcome;
pub use workspace_origin::WorkspaceOrigin;

/// Events read at a time.
const PAGE: usize = 1_000;

/// Marks a new session as the replay of another one.
#[derive(Debug, Clone)]
pub struct ReplaySession {
    /// The recorded session.
    pub of: SessionId,
    /// The path of the workspace inside, as it was recorded: requests to the model contain it.
    pub workspace_at: PathBuf,
    /// The upstream that responds from the recording.
    pub upstream: Arc<dyn Upstream>,
}

/// A recorded session: its settings, the user's actions, and all its events.
#[derive(Debug, Clone)]
pub struct SessionRecording {
    /// The id of the session.
    pub id: SessionId,
    /// The name of the agent.
    pub agent: String,
    /// The version of the agent.
    pub agent_version: Option<String>,
    /// The workspace on the host.
    pub directory: Option<PathBuf>,
    /// The initial state of the workspace, if it was saved.
    pub origin: Option<WorkspaceOrigin>,
    /// Digest of the session's policy.
    pub policy: String,
    /// The path of the workspace inside.
    workspace_at: PathBuf,
    agent_mode: Option<String>,
    permission_mode: Option<String>,
    model: Option<String>,
    mcp: Option<BTreeMap<String, Value>>,
    skills: Option<Value>,
    turns: Vec<TurnScript>,
    /// All recorded events.
    pub events: Vec<Event>,
}

/// Why a session cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplaySessionError {
    /// The session never started.
    #[error("session `{0}` never started")]
    NeverStarted(SessionId),
    /// The policy has changed since the recording.
    #[error("session `{0}` was recorded under another policy than the current one")]
    Policy(SessionId),
    /// The workspace has changed since the recording.
    #[error("the workspace `{}` has changed since the session started", directory.display())]
    Workspace {
        /// The workspace.
        directory: PathBuf,
        /// The changed paths, one line each.
        differences: Vec<String>,
    },
    /// Recorded model responses are missing.
    #[error("cannot read the recorded model responses")]
    Recording(#[from] ReplayError),
    /// The normalizer rules are invalid.
    #[error("invalid rules of the request normalizer")]
    NormalizerRules(#[from] NormalizerError),
    /// A session operation failed.
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
    /// Reads the recording of a session from the data directory. Fails when the session never started.
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
        let started =
            turn_script::start_metadata(&events).ok_or_else(|| ReplaySessionError::NeverStarted(id.clone()))?;
        Ok(Self {
            agent: info.agent.clone(),
            agent_version: started.agent_version,
            agent_mode: started.agent_mode,
            permission_mode: started.permission_mode,
            model: started.model,
            mcp: info.mcp.clone(),
            skills: info.skills.clone(),
            policy: started.policy,
            workspace_at: started.workspace.unwrap_or_else(|| base::WORKSPACE.into()),
            // The directory of an imported session is on another host.
            directory: info
                .directory
                .clone()
                .filter(|_| ImportedSession::find(directory, &id).is_none())
                .map(PathBuf::from),
            origin: WorkspaceOrigin::load(&directory.workspace_origin(&id)),
            turns: turn_script::turn_scripts(&events),
            events,
            id,
        })
    }

    /// Returns the policy for a replay: the recorded one, without network access.
    fn policy(&self, policy: &Arc<EffectivePolicy>) -> Result<Arc<EffectivePolicy>, ReplaySessionError> {
        if policy.digest() != self.policy {
            return Err(ReplaySessionError::Policy(self.id.clone()));
        }
        // Narrowed only if the network was open, because the agent sees which rule denies a request.
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
    /// Replays `recording` in the new session `id`, ends that session, and calls `listener` for every event.
    ///
    /// The policy of `setup` must be the recorded one. The workspace is the directory of `setup` if given, else the
    /// recorded one, and must be in its initial state.
    pub async fn replay(
        &self,
        id: SessionId,
        recording: &SessionRecording,
        setup: ReplaySetup,
        mut listener: impl FnMut(&Event),
    ) -> Result<(), ReplaySessionError> {
        let directory = setup.directory.or_else(|| recording.directory.clone());
        // Checked before the scan, because the differences are reported to the caller.
        let allowed = directory.as_deref().map(|path| self.check_directory(path, &setup.options.workspaces));
        allowed.transpose()?;
        recording.check_workspace(directory.as_ref())?;
        let policy = recording.policy(&setup.policy)?;
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
        let workspace_at = recording.workspace_at.clone();
        let replay = ReplaySession { of: recording.id.clone(), workspace_at, upstream: setup.upstream };
        let options = SessionOptions { policy: Some(policy), replay: Some(replay), ..setup.options };
        self.create(id.clone(), request, options).await?;
        let replayed = self.replay_turns(&id, recording, &mut listener).await;
        self.terminate(&id).await?;
        replayed
    }

    async fn replay_turns(
        &self,
        id: &SessionId,
        recording: &SessionRecording,
        listener: &mut impl FnMut(&Event),
    ) -> Result<(), ReplaySessionError> {
        for turn in &recording.turns {
            let accepted = self.send(id, turn.message.clone()).await?;
            let mut tail = JournalTail::new(self.journal(id)?, accepted.sequence);
            let mut replayer = turn.replayer();
            loop {
                let events = tail.next(1).await.map_err(SessionError::from)?;
                let Some(event) = events.first() else { return Ok(()) };
                listener(event);
                match replayer.after(&event.draft.body) {
                    ReplayStep::Wait => {}
                    ReplayStep::Permit(permission, reply) => self.reply_permission(id, &permission, reply).await?,
                    ReplayStep::Answer(question, Some(answers)) => self.reply_question(id, &question, answers).await?,
                    ReplayStep::Answer(question, None) => self.reject_question(id, &question).await?,
                    ReplayStep::Interrupt => self.interrupt(id).await?,
                    ReplayStep::EndTurn => break,
                }
            }
        }
        Ok(())
    }
}

/// The upstream, policy, workspace and options of a replay.
pub struct ReplaySetup {
    /// The upstream that responds from the recording.
    pub upstream: Arc<dyn Upstream>,
    /// The policy of the recorded session.
    pub policy: Arc<EffectivePolicy>,
    /// A workspace to use instead of the recorded one.
    pub directory: Option<PathBuf>,
    /// Options of the new session.
    pub options: SessionOptions,
}
