//! A session's life: its turns, what it asks, what it leaves, and who owns which task.
//!
//! Each session is one actor that owns sandbox, agent and gateway attachment; it alone changes them, so
//! nothing is locked across an await. What is told to anyone is on record before. When a session has
//! ended, every process of it is dead and nothing more is recorded.
//!
//! Not here: what an agent's lines mean (`agents`), where commands run (`sandbox`), HTTP (`server`).

mod actor;
mod answers;
mod bundle;
mod change;
mod changes;
mod client;
mod command;
mod doors;
mod drift;
mod error;
mod everything;
mod fork;
mod host;
mod imported;
mod late;
mod left;
mod line;
mod listing;
mod live;
mod message;
mod pending;
mod pictures;
mod plan;
mod queue;
mod receipts;
mod recorder;
mod recovery;
mod replay;
mod roster;
mod seat;
mod sessions;
mod setup;
mod shelf;
mod skills;
mod stderr;
mod surroundings;
mod timing;
mod to_its_end;
mod turn;
mod variables;
mod watched;
mod workbench;
mod workspaces;

pub use changes::SessionChanges;
pub use client::{
    AgentClient, AgentClientBuilder, AgentResponse, BuildError, Conversation, ConversationBuilder, Goal, GoalError,
    PermissionResponder, SandboxChoice, TurnFailure, TurnReader,
};
pub use drift::{Drift, DriftByAgent};
pub use error::SessionError;
pub use everything::{FeedBatch, FeedEntry, FeedFilter, FeedFollower, GlobalFeed};
pub use imported::ImportedSession;
pub use listing::SessionListPage;
pub use message::{AcceptedMessage, SessionOptions, UserMessage, WhenBusy};
pub use pending::{PendingRequest, Request};
pub use queue::QueuedMessage;
pub use replay::{
    ReplayOutcome, ReplaySession, ReplaySessionError, ReplaySetup, SessionRecording, WorkspaceOrigin, compare,
};
pub use roster::{AgentRegistry, RegisteredAgent};
pub use sessions::{Parts, Sessions};
pub use setup::{BillingSettings, Setup, way_out};
pub use skills::SkillError;
pub use surroundings::{NarrowPolicy, ProjectPolicy, UpstreamFactory, UpstreamRegistry};
pub use timing::SessionTimeouts;
pub use to_its_end::{DetachOnDrop, detach_on_drop};
pub use variables::HostVariables;
pub use workbench::{ArtifactError, CommandSession, OnDemandSettings, SessionCommand};
pub use workspaces::{WorkspaceAccess, WorkspaceForbidden};
