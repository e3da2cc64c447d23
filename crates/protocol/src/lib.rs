//! The words every part of Vivarium shares: ids, events, items, usage, problem codes.
//!
//! Field names and event names are those of the session API we are compatible with; we only add.
//! Everything here is plain data that survives a round trip through JSON, what we do not know included.
//!
//! Not here: I/O, clocks, async, or any rule about who may do what.

mod event;
mod fact;
mod id;
mod item;
mod payload;
mod pieces;
mod problem;
#[cfg(feature = "openapi")]
mod schema;
mod session;
mod usage;

pub use event::{Event, EventBody, EventDraft, EventSource};
pub use fact::{
    BodyRef, BudgetExceeded, EgressConnection, ExecFinished, ExecStarted, LlmCall, MessageQueued, MessageRemoved,
    ModelRequest, ModelResponse, PolicyChange, PolicyEffective, PolicySentence, SessionRecovered, SessionRegistered,
    TaskCommandFinished, UpstreamError, WorkspaceChanged,
};
pub use id::{CallId, IdError, ItemId, PermissionId, QuestionId, SessionId, TurnId};
pub use item::{ContentPart, FileAction, Item, ItemKind, ItemRole, ItemStatus, ReasoningVisibility};
pub use payload::{
    AgentUnparsed, ErrorData, Grant, ItemDelta, ItemEvent, Permission, PermissionReply, PermissionStatus, Question,
    QuestionPrompt, QuestionStatus, SessionEndReason, SessionEnded, SessionStarted, StderrOutput, TerminatedBy, Turn,
    TurnOutcome, TurnPhase,
};
pub use problem::{Problem, ProblemCode};
pub use session::{Attachment, CreateSession, SessionInfo};
pub use usage::Usage;
