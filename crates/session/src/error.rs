//! Errors of session operations.

mod hint;

use std::path::PathBuf;

use agents::{AgentError, McpError};
use base::HostLimit;
use policy::{PolicyError, WideningDenied};
use protocol::{PermissionId, ProblemCode, QuestionId, SessionId, TurnId};
use sandbox::{ApplyError, CommitsError, SandboxError};
use serde_json::{Map, Value, json};
use store::{DataDirError, JournalError, LedgerError, SessionIndexError, StorageExceeded, is_disk_full};

use crate::WorkspaceForbidden;
use crate::skills::SkillError;

/// Why a session operation was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no session with that id.
    #[error("session `{0}` does not exist")]
    NotFound(SessionId),
    /// A session with that id exists.
    #[error("session `{0}` already exists")]
    AlreadyExists(SessionId),
    /// A deleted session had that id, and its ledger entries still refer to it.
    #[error("session id `{0}` belongs to a deleted session and cannot be used again")]
    IdUsed(SessionId),
    /// The session has ended.
    #[error("session `{0}` has ended")]
    Ended(SessionId),
    /// The sender asked for refusal instead of queueing.
    #[error("session `{0}` is running a turn")]
    TurnRunning(SessionId),
    /// The message queue is full.
    #[error("the queue of session `{id}` is full with {waiting} messages")]
    QueueFull {
        /// The session.
        id: SessionId,
        /// Number of queued messages.
        waiting: usize,
    },
    /// The client used one id for two different messages.
    #[error("clientMessageId `{0}` was already used for a different message")]
    MessageIdReused(String),
    /// The number of answers does not match the question.
    #[error("question `{id}` needs {wanted} answers, but {given} were given")]
    WrongAnswerCount {
        /// The question.
        id: QuestionId,
        /// Number of parts of the question.
        wanted: usize,
        /// Number of given answers.
        given: usize,
    },
    /// The permission request was answered, or resolved when its turn ended.
    #[error("permission `{0}` is not waiting for an answer")]
    PermissionNotPending(PermissionId),
    /// The session has no such permission request.
    #[error("permission `{0}` does not exist")]
    PermissionNotFound(PermissionId),
    /// The question was answered, or resolved when its turn ended.
    #[error("question `{0}` is not waiting for an answer")]
    QuestionNotPending(QuestionId),
    /// The session has no such question.
    #[error("question `{0}` does not exist")]
    QuestionNotFound(QuestionId),
    /// The turn of the message has started, or the message was removed.
    #[error("the message of turn `{0}` is no longer queued")]
    MessageNotQueued(TurnId),
    /// No message with that turn was ever queued.
    #[error("turn `{0}` never had a queued message")]
    MessageNotFound(TurnId),
    /// The grant is unknown, or was revoked before.
    #[error("session `{id}` has no grant `{grant}`")]
    GrantNotFound {
        /// The session.
        id: SessionId,
        /// The id that the client gave.
        grant: PermissionId,
    },
    /// The session has no running agent, and so no sandbox.
    #[error("session `{0}` is idle: its agent and sandbox do not run")]
    NotRunning(SessionId),
    /// The file is not a valid bundle.
    #[error("invalid session bundle: {0}")]
    InvalidBundle(String),
    /// A file of the bundle could not be written or read.
    #[error("cannot {doing} the bundle")]
    BundleFile {
        /// The failed operation, as a verb.
        doing: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// There is no agent with that name.
    #[error("unknown agent `{name}`{near}", name = .0, near = similar_agent(.0))]
    UnknownAgent(String),
    /// The agent is known but not installed.
    #[error("agent `{agent}`{} is not installed", version_suffix(version.as_deref()))]
    NotInstalled {
        /// The agent.
        agent: &'static str,
        /// The requested version.
        version: Option<String>,
    },
    /// The request has a field that is not supported here.
    #[error("`{field}` is not supported: {why}")]
    NotSupported {
        /// The name of the field.
        field: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The session is interactive, so it takes no messages.
    #[error("session `{0}` is interactive: type at its terminal")]
    Interactive(SessionId),
    /// The session has no open terminal.
    #[error("session `{0}` has no open terminal")]
    NoTerminal(SessionId),
    /// The workspace is a relative path.
    #[error("directory `{}` is not an absolute path", .0.display())]
    DirectoryNotAbsolute(PathBuf),
    /// The workspace does not exist or is not a directory.
    #[error("cannot open directory `{}`", path.display())]
    Directory {
        /// The path that the client gave.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No session, or no session of this caller, may use the directory.
    #[error("directory `{}` is not allowed: {why}", path.display())]
    DirectoryNotAllowed {
        /// The path that the client gave.
        path: PathBuf,
        /// The reason.
        why: WorkspaceForbidden,
    },
    /// The agent cannot be started with these settings.
    #[error("cannot start the agent with these settings")]
    Agent(#[from] AgentError),
    /// The MCP servers are invalid.
    #[error("invalid MCP servers")]
    Mcp(#[from] McpError),
    /// The skills could not be fetched or installed.
    #[error("cannot fetch skills")]
    Skills(#[from] SkillError),
    /// The sandbox could not be created, or a command in it could not be started.
    #[error("the sandbox failed")]
    Sandbox(#[from] SandboxError),
    /// The journal could not be written or read, so nothing else was done.
    #[error("cannot use the journal")]
    Journal(#[source] JournalError),
    /// The session reached its limit of disk space, or the disk has too little free space.
    #[error(transparent)]
    Storage(#[from] StorageExceeded),
    /// Too many sessions are open.
    #[error("{open} sessions{} are open; the limit is {open} (limits.{})", of_token(*limit), limit.key())]
    TooManySessions {
        /// Number of open sessions.
        open: usize,
        /// The limit.
        limit: HostLimit,
    },
    /// The session index could not be read or written.
    #[error("cannot use the session index")]
    Index(#[source] SessionIndexError),
    /// The data directory cannot be used.
    #[error("cannot use the data directory")]
    DataDir(#[from] DataDirError),
    /// The ledger could not be read.
    #[error("cannot read the ledger")]
    Ledger(#[from] LedgerError),
    /// The workspace changes could not be saved or read.
    #[error("cannot save or read the workspace changes")]
    Changes(#[source] std::io::Error),
    /// The changes can be applied or discarded only after the session has ended.
    #[error("session `{0}` has not ended")]
    NotEnded(SessionId),
    /// The caller did not name the digest of the change set that was reviewed.
    #[error("the digest of the change set of session `{0}` is missing; nothing was applied")]
    DigestRequired(SessionId),
    /// The digest of the caller is not that of the change set.
    #[error("wrong digest: the change set of session `{id}` has the digest {digest}; nothing was applied")]
    ChangeSetChanged {
        /// The session.
        id: SessionId,
        /// The digest of the current set, or of the set that the caller named.
        digest: String,
    },
    /// The session has no change set with that number, or no longer keeps it.
    #[error("session `{id}` has no change set {number}")]
    ChangeSetNotFound {
        /// The session.
        id: SessionId,
        /// The number.
        number: u64,
    },
    /// The changes could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The commits could not be imported or applied.
    #[error(transparent)]
    Commits(#[from] CommitsError),
    /// A session is never resumed under another policy.
    #[error("session `{0}` was created under another policy than the current one")]
    PolicyChanged(SessionId),
    /// The policy file in the session's directory cannot be read.
    #[error("cannot read the policy file `{}`", path.display())]
    ProjectPolicy {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The host has no upstream with that name.
    #[error("unknown upstream `{name}`; known upstreams: {}", join_names(known))]
    UnknownUpstream {
        /// The name that the client gave.
        name: String,
        /// The names of all upstreams.
        known: Vec<String>,
    },
    /// The upstream is configured but cannot be created.
    #[error("cannot use upstream `{name}`: {why}")]
    UpstreamUnusable {
        /// The upstream.
        name: String,
        /// The reason.
        why: String,
    },
    /// A policy rule is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The change would allow more than it may.
    #[error(transparent)]
    Widening(#[from] WideningDenied),
    /// The journal is damaged and was moved to the quarantine folder.
    #[error("the journal of session `{id}` is damaged: {defect}")]
    Damaged {
        /// The session.
        id: SessionId,
        /// The damage.
        defect: String,
    },
    /// The journal cannot be opened.
    #[error("cannot read the journal of session `{0}`")]
    Unreadable(SessionId),
    /// Another process of this data directory runs the session.
    #[error("another process runs session `{0}`")]
    RunByAnotherProcess(SessionId),
    /// A replay has no model to continue with.
    #[error("session `{0}` is a finished replay and cannot be continued")]
    ReplayFinished(SessionId),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    ShuttingDown,
}

impl SessionError {
    /// Returns the stable code for clients.
    pub fn code(&self) -> ProblemCode {
        // A full disk has the same remedy whichever operation failed.
        if is_disk_full(self) {
            return ProblemCode::DiskFull;
        }
        match self {
            Self::NotFound(_) => ProblemCode::SessionNotFound,
            Self::AlreadyExists(_) | Self::IdUsed(_) => ProblemCode::SessionAlreadyExists,
            Self::Ended(_) | Self::ReplayFinished(_) | Self::Journal(JournalError::Ended) => ProblemCode::SessionEnded,
            Self::TurnRunning(_) | Self::QueueFull { .. } => ProblemCode::TurnRunning,
            Self::MessageIdReused(_) => ProblemCode::IdempotencyKeyReused,
            Self::NotEnded(_) => ProblemCode::SessionOpen,
            Self::DigestRequired(_) => ProblemCode::DigestRequired,
            Self::ChangeSetChanged { .. } => ProblemCode::ChangeSetChanged,
            Self::ChangeSetNotFound { .. } => ProblemCode::ChangeSetNotFound,
            Self::Apply(error) => error.code(),
            Self::Storage(exceeded) => exceeded.code(),
            Self::TooManySessions { .. } => ProblemCode::TooManySessions,
            Self::Commits(error) => error.code(),
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
            | Self::Agent(AgentError::McpTransport { .. } | AgentError::NoTerminalUi(_))
            | Self::Mcp(_)
            | Self::WrongAnswerCount { .. }
            | Self::Skills(_) => ProblemCode::InvalidRequest,
            Self::Interactive(_) => ProblemCode::SessionInteractive,
            Self::NoTerminal(_) => ProblemCode::TerminalNotFound,
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
}

/// Returns a suggestion for a mistyped name of an agent.
fn similar_agent(name: &str) -> String {
    let known = agents::all().map(agents::Agent::id);
    policy::closest(name, known).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default()
}

impl SessionError {
    /// Returns machine-readable details: for refused changes, each path and the reason.
    pub fn details(&self) -> Map<String, Value> {
        match self {
            Self::Apply(ApplyError::Refused(refusals))
            | Self::Commits(CommitsError::Denied { paths: refusals, .. }) => {
                [("refusals".to_owned(), json!(refusals))].into_iter().collect()
            }
            _ => Map::new(),
        }
    }
}

/// Returns the words that tell a limit of one token from the limit of the host.
fn of_token(limit: HostLimit) -> &'static str {
    if limit == HostLimit::SessionsPerToken { " of this token" } else { "" }
}

impl From<JournalError> for SessionError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::StorageLimit(exceeded) => Self::Storage(exceeded),
            other => Self::Journal(other),
        }
    }
}

fn join_names(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn version_suffix(version: Option<&str>) -> String {
    version.map(|version| format!(" {version}")).unwrap_or_default()
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
