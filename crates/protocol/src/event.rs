//! Events of a session.
//!
//! `type` determines the content of `data`. Both are parsed together, so events of unknown types survive a round trip
//! as well.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    AgentUnparsed, BudgetExceeded, EgressConnection, ErrorData, ExecFinished, ExecStarted, Grant, HostDraining,
    ItemDelta, ItemEvent, LlmCall, MessageQueued, MessageRemoved, ModelRequest, ModelResponse, Permission,
    PolicyChange, PolicyEffective, Question, SessionEnded, SessionId, SessionRecovered, SessionRegistered,
    SessionStarted, SessionStatusChanged, SessionUpdated, TaskCommandFinished, Turn, TurnId, UpstreamError,
    WorkspaceChanged,
};

/// An event as clients read it. The journal assigns its number and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// `evt_<sequence>`.
    pub event_id: String,
    /// Contiguous from 1 in a session.
    pub sequence: u64,
    /// RFC 3339, UTC.
    pub time: String,
    /// The session.
    pub session_id: SessionId,
    /// The content of the event.
    #[serde(flatten)]
    pub draft: EventDraft,
}

/// An event before it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventDraft {
    /// The turn of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The agent's own session id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_session_id: Option<String>,
    /// Whether the host created the event because the agent did not report it.
    pub synthetic: bool,
    /// The source of the event.
    pub source: EventSource,
    /// `type` and `data`.
    #[serde(flatten)]
    pub body: EventBody,
    /// The agent's output, kept if it was not understood completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
}

impl EventDraft {
    /// Returns an event that the agent reported.
    pub fn agent(body: EventBody) -> Self {
        Self { turn_id: None, native_session_id: None, synthetic: false, source: EventSource::Agent, body, raw: None }
    }

    /// Returns an event that the host reports.
    pub fn daemon(body: EventBody) -> Self {
        Self { source: EventSource::Daemon, ..Self::agent(body) }
    }

    /// Marks the event as created by the host instead of the agent.
    #[must_use]
    pub fn synthetic(mut self) -> Self {
        self.synthetic = true;
        self
    }

    /// Sets the turn.
    #[must_use]
    pub fn in_turn(mut self, turn: Option<TurnId>) -> Self {
        self.turn_id = turn;
        self
    }

    /// Adds the agent's output.
    #[must_use]
    pub fn with_raw(mut self, raw: Value) -> Self {
        self.raw = Some(raw);
        self
    }
}

/// The source of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventSource {
    /// The output of the agent.
    Agent,
    /// The host.
    Daemon,
}

/// The type and data of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
#[expect(missing_docs, reason = "each variant is documented by its payload")]
pub enum EventBody {
    #[serde(rename = "session.started")]
    SessionStarted(SessionStarted),
    #[serde(rename = "session.ended")]
    SessionEnded(SessionEnded),
    #[serde(rename = "turn.started")]
    TurnStarted(Turn),
    #[serde(rename = "turn.ended")]
    TurnEnded(Turn),
    #[serde(rename = "item.started")]
    ItemStarted(ItemEvent),
    #[serde(rename = "item.delta")]
    ItemDelta(ItemDelta),
    #[serde(rename = "item.completed")]
    ItemCompleted(ItemEvent),
    #[serde(rename = "error")]
    Error(ErrorData),
    #[serde(rename = "permission.requested")]
    PermissionRequested(Permission),
    #[serde(rename = "permission.resolved")]
    PermissionResolved(Permission),
    #[serde(rename = "question.requested")]
    QuestionRequested(Question),
    #[serde(rename = "question.resolved")]
    QuestionResolved(Question),
    #[serde(rename = "agent.unparsed")]
    AgentUnparsed(AgentUnparsed),

    #[serde(rename = "grant.created")]
    GrantCreated(Grant),
    #[serde(rename = "grant.revoked")]
    GrantRevoked(Grant),

    #[serde(rename = "policy.effective")]
    PolicyEffective(PolicyEffective),
    #[serde(rename = "policy.narrowed")]
    PolicyNarrowed(PolicyChange),
    #[serde(rename = "policy.widened")]
    PolicyWidened(PolicyChange),
    #[serde(rename = "session_registered")]
    SessionRegistered(SessionRegistered),
    #[serde(rename = "message.queued")]
    MessageQueued(MessageQueued),
    #[serde(rename = "message.removed")]
    MessageRemoved(MessageRemoved),
    #[serde(rename = "session.recovered")]
    SessionRecovered(SessionRecovered),
    #[serde(rename = "session.status")]
    SessionStatus(SessionStatusChanged),
    #[serde(rename = "host.draining")]
    HostDraining(HostDraining),
    #[serde(rename = "session.updated")]
    SessionUpdated(SessionUpdated),
    #[serde(rename = "anthropic_request")]
    AnthropicRequest(ModelRequest),
    #[serde(rename = "anthropic_response")]
    AnthropicResponse(ModelResponse),
    #[serde(rename = "openai_request")]
    OpenaiRequest(ModelRequest),
    #[serde(rename = "openai_response")]
    OpenaiResponse(ModelResponse),
    #[serde(rename = "gemini_request")]
    GeminiRequest(ModelRequest),
    #[serde(rename = "gemini_response")]
    GeminiResponse(ModelResponse),
    #[serde(rename = "upstream_error")]
    UpstreamError(UpstreamError),
    #[serde(rename = "llm.call")]
    LlmCall(LlmCall),
    #[serde(rename = "budget.exceeded")]
    BudgetExceeded(BudgetExceeded),
    #[serde(rename = "egress.allowed")]
    EgressAllowed(EgressConnection),
    #[serde(rename = "egress.denied")]
    EgressDenied(EgressConnection),
    #[serde(rename = "exec.started")]
    ExecStarted(ExecStarted),
    #[serde(rename = "exec.finished")]
    ExecFinished(ExecFinished),
    #[serde(rename = "task_command_finished")]
    TaskCommandFinished(TaskCommandFinished),
    #[serde(rename = "workspace.changed")]
    WorkspaceChanged(WorkspaceChanged),

    /// An event of an unknown type, kept unchanged.
    #[serde(untagged)]
    Other {
        #[serde(rename = "type")]
        kind: String,
        data: Value,
    },
}

impl EventBody {
    /// Returns the `type` in JSON.
    pub fn kind(&self) -> &str {
        match self {
            Self::SessionStarted(_) => "session.started",
            Self::SessionEnded(_) => "session.ended",
            Self::TurnStarted(_) => "turn.started",
            Self::TurnEnded(_) => "turn.ended",
            Self::ItemStarted(_) => "item.started",
            Self::ItemDelta(_) => "item.delta",
            Self::ItemCompleted(_) => "item.completed",
            Self::Error(_) => "error",
            Self::PermissionRequested(_) => "permission.requested",
            Self::PermissionResolved(_) => "permission.resolved",
            Self::QuestionRequested(_) => "question.requested",
            Self::QuestionResolved(_) => "question.resolved",
            Self::AgentUnparsed(_) => "agent.unparsed",
            Self::GrantCreated(_) => "grant.created",
            Self::GrantRevoked(_) => "grant.revoked",
            Self::PolicyEffective(_) => "policy.effective",
            Self::PolicyNarrowed(_) => "policy.narrowed",
            Self::PolicyWidened(_) => "policy.widened",
            Self::SessionRegistered(_) => "session_registered",
            Self::MessageQueued(_) => "message.queued",
            Self::MessageRemoved(_) => "message.removed",
            Self::SessionRecovered(_) => "session.recovered",
            Self::SessionStatus(_) => "session.status",
            Self::HostDraining(_) => "host.draining",
            Self::SessionUpdated(_) => "session.updated",
            Self::AnthropicRequest(_) => "anthropic_request",
            Self::AnthropicResponse(_) => "anthropic_response",
            Self::OpenaiRequest(_) => "openai_request",
            Self::OpenaiResponse(_) => "openai_response",
            Self::GeminiRequest(_) => "gemini_request",
            Self::GeminiResponse(_) => "gemini_response",
            Self::UpstreamError(_) => "upstream_error",
            Self::LlmCall(_) => "llm.call",
            Self::BudgetExceeded(_) => "budget.exceeded",
            Self::EgressAllowed(_) => "egress.allowed",
            Self::EgressDenied(_) => "egress.denied",
            Self::ExecStarted(_) => "exec.started",
            Self::ExecFinished(_) => "exec.finished",
            Self::TaskCommandFinished(_) => "task_command_finished",
            Self::WorkspaceChanged(_) => "workspace.changed",
            Self::Other { kind, .. } => kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_round_trip(json: &str) {
        let event: Event = serde_json::from_str(json).unwrap();
        let written = serde_json::to_value(&event).unwrap();
        assert_eq!(written, serde_json::from_str::<Value>(json).unwrap());
        assert_eq!(written["type"], event.draft.body.kind());
    }

    #[test]
    fn known_event_round_trips() {
        check_round_trip(
            r#"{"event_id":"evt_7","sequence":7,"time":"2026-11-15T10:00:00Z","session_id":"s","synthetic":false,
                "source":"agent","type":"item.delta","data":{"item_id":"itm_1","delta":"hi"}}"#,
        );
    }

    #[test]
    fn unknown_event_round_trips() {
        check_round_trip(
            r#"{"event_id":"evt_7","sequence":7,"time":"2026-11-15T10:00:00Z","session_id":"s","turn_id":"trn_1",
                "synthetic":true,"source":"daemon","type":"planet.moved","data":{"a":[1,null]},"raw":"x"}"#,
        );
    }

    #[test]
    fn known_type_with_unknown_data_round_trips() {
        check_round_trip(
            r#"{"event_id":"evt_1","sequence":1,"time":"t","session_id":"s","synthetic":false,"source":"agent",
                "type":"item.delta","data":{"surprise":true}}"#,
        );
    }
}
