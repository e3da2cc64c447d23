//! Why a command to a session was refused or failed.

use std::path::PathBuf;

use agents::{AgentError, McpError};
use policy::{PolicyError, WideningDenied};
use protocol::{PermissionId, ProblemCode, QuestionId, SessionId, TurnId};
use sandbox::{ApplyError, SandboxError};
use serde_json::{Map, Value, json};
use store::{DataDirError, JournalError, LedgerError, SessionIndexError, is_full};

use crate::WorkspaceForbidden;
use crate::skills::SkillError;

/// Why a command to a session was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No session of that id.
    #[error("session `{0}` does not exist")]
    NotFound(SessionId),
    /// Ids are never used twice.
    #[error("session `{0}` exists already")]
    AlreadyExists(SessionId),
    /// It was deleted, and what it cost keeps its id.
    #[error("session `{0}` was deleted, and its id is never used again")]
    IdUsed(SessionId),
    /// `session.ended` was recorded.
    #[error("session `{0}` has ended")]
    Ended(SessionId),
    /// The sender asked to be refused rather than queued.
    #[error("session `{0}` is in the middle of a turn")]
    TurnRunning(SessionId),
    /// More messages wait than anybody will read.
    #[error("session `{id}` has {waiting} messages waiting, which is the most it keeps")]
    QueueFull {
        /// The session.
        id: SessionId,
        /// How many wait.
        waiting: usize,
    },
    /// The client gave one name to two messages.
    #[error("another message was sent as `{0}` before; a name is for one message, and for sending that again")]
    MessageIdReused(String),
    /// There is not one answer for each thing that was asked.
    #[error("question `{id}` asks for {wanted} answers, and {given} were given")]
    WrongAnswerCount {
        /// The question.
        id: QuestionId,
        /// How many things it asks.
        wanted: usize,
        /// How many were answered.
        given: usize,
    },
    /// Answered, or resolved when its turn ended.
    #[error("permission `{0}` is not waiting for an answer")]
    PermissionNotPending(PermissionId),
    /// The session never asked for it.
    #[error("permission `{0}` was never asked for")]
    PermissionNotFound(PermissionId),
    /// Answered, or resolved when its turn ended.
    #[error("question `{0}` is not waiting for an answer")]
    QuestionNotPending(QuestionId),
    /// The session never asked it.
    #[error("question `{0}` was never asked")]
    QuestionNotFound(QuestionId),
    /// Its turn has begun, or it was removed before.
    #[error("the message of turn `{0}` does not wait any more")]
    MessageNotQueued(TurnId),
    /// It never waited.
    #[error("no message of turn `{0}` has waited")]
    MessageNotFound(TurnId),
    /// Unknown, or revoked before.
    #[error("session `{id}` has no grant `{grant}`")]
    GrantNotFound {
        /// The session.
        id: SessionId,
        /// As the client named it.
        grant: PermissionId,
    },
    /// Its workspace is in a sandbox, and it has none now.
    #[error("session `{0}` sleeps: its agent and its sandbox do not run")]
    NotRunning(SessionId),
    /// What was sent cannot be taken in as a session.
    #[error("this is no bundle of a session: {0}")]
    InvalidBundle(String),
    /// The bundle of a session could not be written or read.
    #[error("cannot {doing} the bundle")]
    BundleFile {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// No agent of that name.
    #[error("there is no agent `{0}`")]
    UnknownAgent(String),
    /// The agent is one we know, and it is not here.
    #[error("agent `{agent}`{} is not installed", in_version(version.as_deref()))]
    NotInstalled {
        /// The agent.
        agent: &'static str,
        /// The version that was looked for.
        version: Option<String>,
    },
    /// A field of the request that nothing here would keep is refused, never dropped.
    #[error("`{field}` cannot be used: {why}")]
    NotSupported {
        /// The field, as the client wrote it.
        field: &'static str,
        /// What stands against it.
        why: &'static str,
    },
    /// The workspace is named in a way that could mean two places.
    #[error("directory `{}` is not an absolute path", .0.display())]
    DirectoryNotAbsolute(PathBuf),
    /// The workspace is not there, or is no directory.
    #[error("directory `{}` cannot be opened", path.display())]
    Directory {
        /// As the client wrote it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// No session is made there, or not by this caller.
    #[error("directory `{}` is not allowed: {why}", path.display())]
    DirectoryNotAllowed {
        /// As the client wrote it.
        path: PathBuf,
        /// What stands against it.
        why: WorkspaceForbidden,
    },
    /// The agent cannot be started like this.
    #[error("the agent cannot be started like this")]
    Agent(#[from] AgentError),
    /// The MCP servers cannot be used like this.
    #[error("the MCP servers cannot be used")]
    Mcp(#[from] McpError),
    /// The skills cannot be had.
    #[error("the skills cannot be had")]
    Skills(#[from] SkillError),
    /// The sandbox could not be made, or a command in it could not be started.
    #[error("the sandbox failed")]
    Sandbox(#[from] SandboxError),
    /// The record could not be kept, so nothing else was done.
    #[error("cannot keep the record")]
    Journal(#[from] JournalError),
    /// The list of sessions could not be read or written.
    #[error("cannot use the list of sessions")]
    Index(#[source] SessionIndexError),
    /// The data directory cannot be used.
    #[error("cannot use the data directory")]
    DataDir(#[from] DataDirError),
    /// The ledger could not be read.
    #[error("cannot read the ledger")]
    Ledger(#[from] LedgerError),
    /// What the agent changed could not be kept.
    #[error("cannot keep the changes of the workspace")]
    Changes(#[source] std::io::Error),
    /// Its agent may still write what is to be applied or forgotten.
    #[error("session `{0}` has not ended")]
    NotEnded(SessionId),
    /// What the agent changed was not applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A session never goes on under rules it was not made under.
    #[error("session `{0}` was made under another policy than the one in force now")]
    PolicyChanged(SessionId),
    /// The policy file of the session's directory is there, and cannot be read.
    #[error("the policy file `{}` cannot be read", path.display())]
    ProjectPolicy {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The host has no upstream of that name.
    #[error("there is no upstream `{name}`; there are: {}", listed(known))]
    UnknownUpstream {
        /// As the client named it.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// The host has it, and cannot use it.
    #[error("the upstream `{name}` cannot be used: {why}")]
    UpstreamUnusable {
        /// The upstream.
        name: String,
        /// What stands against it.
        why: String,
    },
    /// A rule that is none.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// More than may be granted, or more than a narrowing can give.
    #[error(transparent)]
    Widening(#[from] WideningDenied),
    /// Its journal is not what was written, and was put aside.
    #[error("the journal of session `{id}` is damaged: {flaw}")]
    Damaged {
        /// The session.
        id: SessionId,
        /// What is wrong with it.
        flaw: String,
    },
    /// Its journal cannot be opened.
    #[error("what session `{0}` left cannot be read")]
    Unreadable(SessionId),
    /// Another process of this data directory runs it.
    #[error("session `{0}` is run by another process")]
    RunByAnotherProcess(SessionId),
    /// A replay has no model to go on with.
    #[error("session `{0}` was a replay, and a replay does not go on")]
    ReplayFinished(SessionId),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    ShuttingDown,
}

impl SessionError {
    /// Stable identifier for clients.
    pub fn code(&self) -> ProblemCode {
        // Whatever met it: it is not our defect, and it is mended in the same way.
        if is_full(self) {
            return ProblemCode::DiskFull;
        }
        match self {
            Self::NotFound(_) => ProblemCode::SessionNotFound,
            Self::AlreadyExists(_) | Self::IdUsed(_) => ProblemCode::SessionAlreadyExists,
            Self::Ended(_) | Self::ReplayFinished(_) | Self::Journal(JournalError::Ended) => ProblemCode::SessionEnded,
            Self::TurnRunning(_) | Self::QueueFull { .. } => ProblemCode::TurnRunning,
            Self::MessageIdReused(_) => ProblemCode::IdempotencyKeyReused,
            Self::NotEnded(_) => ProblemCode::SessionOpen,
            Self::Apply(error) => error.code(),
            Self::PermissionNotPending(_) => ProblemCode::PermissionNotPending,
            Self::PermissionNotFound(_) => ProblemCode::PermissionNotFound,
            Self::QuestionNotPending(_) => ProblemCode::QuestionNotPending,
            Self::QuestionNotFound(_) => ProblemCode::QuestionNotFound,
            Self::MessageNotQueued(_) => ProblemCode::MessageNotQueued,
            Self::MessageNotFound(_) => ProblemCode::MessageNotFound,
            Self::GrantNotFound { .. } => ProblemCode::GrantNotFound,
            Self::NotRunning(_) => ProblemCode::SandboxGone,
            Self::InvalidBundle(_) => ProblemCode::BundleInvalid,
            Self::UnknownAgent(_) => ProblemCode::UnsupportedAgent,
            Self::Skills(SkillError::Denied { .. }) => ProblemCode::PolicyDenied,
            Self::NotSupported { .. }
            | Self::DirectoryNotAbsolute(_)
            | Self::ProjectPolicy { .. }
            | Self::UnknownUpstream { .. }
            | Self::Directory { .. }
            | Self::Agent(AgentError::McpTransport { .. })
            | Self::Mcp(_)
            | Self::WrongAnswerCount { .. }
            | Self::Skills(_) => ProblemCode::InvalidRequest,
            Self::DirectoryNotAllowed { .. } => ProblemCode::DirectoryNotAllowed,
            Self::Agent(AgentError::ModeNotSupported { .. }) => ProblemCode::ModeNotSupported,
            Self::NotInstalled { .. } | Self::Agent(AgentError::NodeMissing(_)) => ProblemCode::AgentNotInstalled,
            Self::Sandbox(error) => error.code(),
            Self::UpstreamUnusable { .. } => ProblemCode::ConfigInvalid,
            Self::PolicyChanged(_) => ProblemCode::PolicyWideningDenied,
            Self::Policy(error) => error.code(),
            Self::Widening(error) => error.code(),
            Self::RunByAnotherProcess(_) => ProblemCode::DataDirInUse,
            Self::Damaged { .. } | Self::Journal(JournalError::Damaged { .. }) => ProblemCode::JournalDamaged,
            Self::Index(error) => error.code(),
            Self::DataDir(error) => error.code(),
            Self::Ledger(error) => error.code(),
            Self::BundleFile { .. } | Self::Changes(_) | Self::Journal(_) | Self::Unreadable(_) => {
                ProblemCode::JournalUnavailable
            }
            Self::ShuttingDown => ProblemCode::ShuttingDown,
        }
    }

    /// What to do about it, in a line that can be pasted where there is one.
    pub fn hint(&self) -> Option<String> {
        if is_full(self) {
            return Some("df -h".to_owned());
        }
        match self {
            Self::NotFound(_) | Self::IdUsed(_) => Some("viv sessions ls".to_owned()),
            Self::PermissionNotFound(_) | Self::QuestionNotFound(_) => Some("viv perms ls".to_owned()),
            Self::NotRunning(id) => Some(format!("viv api POST /v1/sessions/{id}/resume")),
            Self::UnknownAgent(_) => Some("viv agents ls".to_owned()),
            Self::NotInstalled { agent, version } => Some(install(agent, version.as_deref())),
            Self::Agent(AgentError::NodeMissing(agent)) => Some(install(agent, None)),
            Self::AlreadyExists(id) | Self::TurnRunning(id) | Self::QueueFull { id, .. } => {
                Some(format!("viv sessions show {id}"))
            }
            Self::DirectoryNotAllowed { path, why: WorkspaceForbidden::Outside } => {
                Some(format!("viv serve --workspace-root={}", path.display()))
            }
            Self::DirectoryNotAllowed { .. } => {
                Some("mkdir -p ~/work && viv run mock hello --workspace ~/work".to_owned())
            }
            Self::NotEnded(id) => Some(format!("viv sessions stop {id}")),
            Self::Damaged { id, .. } => Some(format!("viv sessions rm {id}")),
            Self::Sandbox(SandboxError::Unavailable { fix, .. }) => Some(fix.clone()),
            Self::Sandbox(_) => Some("viv doctor".to_owned()),
            _ => None,
        }
    }
}

impl SessionError {
    /// What a program may want to know beside the code: for changes that were refused, each path and why.
    pub fn details(&self) -> Map<String, Value> {
        match self {
            Self::Apply(ApplyError::Refused(refusals)) => {
                [("refusals".to_owned(), json!(refusals))].into_iter().collect()
            }
            _ => Map::new(),
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn in_version(version: Option<&str>) -> String {
    version.map(|version| format!(" {version}")).unwrap_or_default()
}

fn install(agent: &str, version: Option<&str>) -> String {
    let version = version.map(|version| format!("@{version}")).unwrap_or_default();
    format!("viv agents install {agent}{version}")
}

impl From<SessionIndexError> for SessionError {
    fn from(error: SessionIndexError) -> Self {
        match error {
            SessionIndexError::AlreadyExists(id) => Self::AlreadyExists(id),
            SessionIndexError::OwnedByAnother(id) => Self::RunByAnotherProcess(id),
            SessionIndexError::NotFound(reference) => match SessionId::new(reference.clone()) {
                Ok(id) => Self::NotFound(id),
                Err(_) => Self::Index(SessionIndexError::NotFound(reference)),
            },
            other => Self::Index(other),
        }
    }
}
