//! Sessions: their turns, permissions, records, workspaces and replays.
//!
//! One actor task owns the sandbox, the agent process and the gateway attachment of a session. Only that actor
//! changes them, so no lock is held across an await. Every event is recorded before a client or an agent sees it.
//! When a session has ended, all its processes are dead and nothing more is recorded.
//!
//! Not here: the meaning of an agent's output (`agents`), how commands run (`sandbox`), HTTP (`server`).

mod bundle;
mod client;
mod command_session;
mod config;
mod error;
mod feed;
mod lifecycle;
mod replay;
mod sessions;
mod skills;
mod storage;
mod terminal;

pub use client::{
    AgentClient, AgentClientBuilder, AgentResponse, BuildError, Conversation, ConversationBuilder, Goal, GoalError,
    PermissionResponder, SandboxChoice, TurnFailure, TurnReader,
};
pub use command_session::{ArtifactError, ChangesAtEnd, CommandSession, OnDemandSettings, SessionCommand};
pub use config::{
    AgentDefault, AgentDefaults, AgentRegistry, BillingSettings, HostBudget, HostVariables, NarrowPolicy,
    ProjectPolicy, RegisteredAgent, SessionHostConfig, SessionLifetime, SessionTimeouts, UpstreamFactory,
    UpstreamRegistry, WorkspaceAccess, WorkspaceForbidden, system_egress,
};
pub use error::SessionError;
pub use feed::{FeedBatch, FeedEntry, FeedFilter, FeedFollower, GlobalFeed};
pub use lifecycle::{
    AcceptedMessage, DetachOnDrop, Drift, DriftByAgent, PendingRequest, PortConnection, QueuedMessage, Request,
    SessionOptions, UserMessage, WhenBusy, detach_on_drop, grant_pattern,
};
pub use replay::{
    ReplayOutcome, ReplaySession, ReplaySessionError, ReplaySetup, SessionRecording, WorkspaceOrigin, compare,
};
pub use sessions::Sessions;
pub use skills::SkillError;
pub use storage::{
    CommitProblem, CommitReview, ImportedSession, ReviewedSet, SessionChanges, SessionListPage, ShownSet,
};
pub use terminal::{
    Frame, RESTORE_TERMINAL, RecordingError, RecordingReader, TerminalUpdate, TerminalViewer, ViewerAccess,
};
