//! Data types that all crates share: ids, events, items, usage and problem codes.
//!
//! Field names and event names are those of the session API that we are compatible with; we only add to them.
//! Everything here is plain data that survives a round trip through JSON, including unknown event types.
//!
//! Not here: I/O, clocks, async code, and rules about permissions.

mod agent_events;
mod enforcement;
mod event;
mod host_events;
mod id;
mod item;
mod problem;
mod request_metadata;
#[cfg(feature = "openapi")]
mod schema;
mod session;
mod session_status;
mod stream_delta;
mod usage;

pub use agent_events::{
    AgentUnparsed, ErrorData, Grant, ItemDelta, ItemEvent, Permission, PermissionReply, PermissionStatus, Question,
    QuestionPrompt, QuestionStatus, SessionEndReason, SessionEnded, SessionStarted, StderrOutput, TerminatedBy, Turn,
    TurnOutcome, TurnPhase,
};
pub use enforcement::{CopiedLinks, EnforcedValue, EnforcementState, KeyEnforcement, KeyEnforcements, NetworkAccess};
pub use event::{Event, EventBody, EventDraft, EventSource};
pub use host_events::{
    BodyRef, BudgetExceeded, EgressConnection, ExecFinished, ExecStarted, LeftProcess, LlmCall, MessageQueued,
    MessageRemoved, ModelRequest, ModelResponse, PolicyChange, PolicyEffective, PolicySentence, SessionRecovered,
    SessionRegistered, TaskCommandFinished, UpstreamError, WorkspaceChanged,
};
pub use id::{CallId, IdError, ItemId, PermissionId, QuestionId, SessionId, TurnId};
pub use item::{ContentPart, FileAction, Item, ItemKind, ItemRole, ItemStatus, ReasoningVisibility};
pub use problem::{Problem, ProblemCode};
pub use request_metadata::{RequestMetadata, Resolution};
pub use session::{Attachment, CreateSession, INTERACTIVE, SessionInfo, TerminalStart};
pub use session_status::{HostDraining, SessionStatus, SessionStatusChanged, SessionUpdated};
pub use usage::Usage;
