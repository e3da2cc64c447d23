//! The `data` of events that the host adds to the session API: model calls, policy, egress, commands and recovery.

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::stream_delta::{DecodedStream, StreamDelta};
use crate::{Attachment, CallId, KeyEnforcements, SessionId, TurnId, Usage};

/// `session_registered`: the gateway accepts calls of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRegistered {
    /// The session of the token. The token itself is never recorded.
    pub session_id: SessionId,
    /// The sandbox of the session.
    pub sandbox_id: String,
    /// The task of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_name: Option<String>,
}

/// A request or response body: inline if it is short, else a reference by digest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BodyFields")]
pub enum BodyRef {
    /// A short text, stored only in the record. An event stream is delta-encoded in JSON.
    Inline {
        /// The whole body.
        text: String,
    },
    /// A body in a file of the body store, or one that was not stored.
    Stored {
        /// Hexadecimal SHA-256 of the bytes.
        sha256: String,
        /// Length in bytes.
        bytes: u64,
    },
}

impl Serialize for BodyRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline { text } => {
                let mut body = serializer.serialize_struct("BodyRef", 1)?;
                match StreamDelta::new(text) {
                    Some(delta) => body.serialize_field("pieces", &delta)?,
                    None => body.serialize_field("text", text)?,
                }
                body.end()
            }
            Self::Stored { sha256, bytes } => {
                let mut body = serializer.serialize_struct("BodyRef", 2)?;
                body.serialize_field("sha256", sha256)?;
                body.serialize_field("bytes", bytes)?;
                body.end()
            }
        }
    }
}

/// The JSON fields of a body. Records of earlier versions have a digest with an inline body.
#[derive(Deserialize)]
struct BodyFields {
    sha256: Option<String>,
    bytes: Option<u64>,
    text: Option<String>,
    pieces: Option<DecodedStream>,
}

impl TryFrom<BodyFields> for BodyRef {
    type Error = &'static str;

    fn try_from(fields: BodyFields) -> Result<Self, Self::Error> {
        match fields {
            BodyFields { text: Some(text), .. } | BodyFields { pieces: Some(DecodedStream(text)), .. } => {
                Ok(Self::Inline { text })
            }
            BodyFields { sha256: Some(sha256), bytes: Some(bytes), .. } => Ok(Self::Stored { sha256, bytes }),
            _ => Err("a body needs `text`, or `pieces`, or both `sha256` and `bytes`"),
        }
    }
}

/// `anthropic_request`, `openai_request`, `gemini_request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The call; links request, response and cost.
    pub call_id: CallId,
    /// Method and path of the request.
    pub path: String,
    /// The requested model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether the response is streamed.
    pub stream: bool,
    /// The header `anthropic-beta`, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta: Option<String>,
    /// The unchanged body.
    pub body: BodyRef,
}

/// `anthropic_response`, `openai_response`, `gemini_response`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelResponse {
    /// The call; links request, response and cost.
    pub call_id: CallId,
    /// HTTP status sent to the agent.
    pub status: u16,
    /// Whether the response was streamed.
    pub stream: bool,
    /// Tokens as counted by the vendor.
    #[serde(default)]
    pub usage: Usage,
    /// The stop reason of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// The unchanged body.
    pub body: BodyRef,
}

/// `upstream_error`: the upstream failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamError {
    /// The failed call.
    pub call_id: CallId,
    /// HTTP status of the upstream; absent if there was no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error message.
    pub message: String,
}

/// `llm.call`: a finished call with its cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlmCall {
    /// The call.
    pub call_id: CallId,
    /// The requested model.
    pub model: String,
    /// The model that responded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_answered: Option<String>,
    /// Name of the upstream in the configuration.
    pub upstream: String,
    /// The call id of an upstream proxy, to find the call in its records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_call_id: Option<String>,
    /// Tokens by kind.
    pub usage: Usage,
    /// Whether `usage` is an upper estimate, because the gateway cancelled the call before the vendor counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// Whether the cost is unknown, so that the call keeps its hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cost_unknown: bool,
    /// Cost in pico-dollars (10⁻¹² USD).
    pub cost_picos: i64,
    /// The model as the upstream names it, if its price is not known. The cost is then not known, and not zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpriced: Option<String>,
    /// HTTP status sent to the agent.
    pub status: u16,
    /// Microseconds to the first byte.
    pub ttft_micros: u64,
    /// Microseconds to the last byte.
    pub duration_micros: u64,
    /// The stop reason of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// `policy.effective`: the enforced policy, by key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyEffective {
    /// The backend that enforces the policy.
    pub backend: String,
    /// The enforcement of each policy key.
    pub keys: KeyEnforcements,
    /// The policy as sentences for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sentences: Vec<PolicySentence>,
}

/// A permission or restriction of a session, with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySentence {
    /// The sentence.
    pub text: String,
    /// The layer of the rule.
    pub layer: String,
    /// The rule, with its file and line.
    pub rule: String,
}

/// `policy.narrowed` and `policy.widened`: a change of the policy of a running session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// The removed or granted rules, each as `key=value`.
    pub rules: Vec<String>,
    /// Expiry of a grant, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_secs: Option<u64>,
}

/// `egress.allowed`, recorded at the end of the connection, and `egress.denied`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressConnection {
    /// Requested host name or address.
    pub host: String,
    /// Requested port.
    pub port: u16,
    /// The rule that decided, with its file and line.
    pub rule: String,
    /// The method, if known: `CONNECT`, `GET`, `SOCKS5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path, if known, without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The address that was connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Bytes in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes that left the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<u64>,
    /// Microseconds from the request to the end of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_micros: Option<u64>,
    /// Number of attempts that this record represents, if more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The reason why an allowed connection failed or was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `exec.started`: a command was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory.
    pub workdir: String,
}

/// `exec.finished`: a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecFinished {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Exit code; absent if a signal ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Wall time in microseconds.
    pub wall_micros: u64,
}

/// `task_command_finished`: a command of a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCommandFinished {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Exit code.
    pub exit_code: i32,
    /// Wall time in microseconds.
    pub wall_micros: u64,
    /// The reason that the caller gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `budget.exceeded`: a call was refused before it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetExceeded {
    /// The exceeded limit: `budget_usd`, `max_requests`.
    pub limit: String,
    /// Message for people.
    pub message: String,
}

/// `workspace.changed`: the differences between the workspace of the session and the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceChanged {
    /// Added paths.
    pub added: Vec<String>,
    /// Changed paths.
    pub modified: Vec<String>,
    /// Deleted paths.
    pub deleted: Vec<String>,
    /// The number of the change set that holds these differences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<u64>,
    /// The digest of the change set, with which it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Processes that still ran when the set was saved. Their later writes belong to the next set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_processes: Vec<LeftProcess>,
}

/// A process that the agent left running at the end of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftProcess {
    /// The process id inside the sandbox.
    pub pid: u32,
    /// The command line, as far as it can be shown.
    pub command: String,
}

/// `message.queued`: a message was accepted and waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueued {
    /// The turn that will answer the message.
    pub turn_id: TurnId,
    /// The text of the message.
    pub message: String,
    /// Attached files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Id chosen by the client, so that a repeated message is accepted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    /// Whether the message interrupts the running turn and precedes all queued messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steers: bool,
}

/// `message.removed`: a message was removed from the queue; its turn never starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRemoved {
    /// The turn that would have answered the message.
    pub turn_id: TurnId,
    /// The id chosen by the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
}

/// `session.recovered`: the host restarted after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecovered {
    /// Interrupted work: a turn, permissions, questions.
    pub interrupted: Vec<String>,
    /// Bytes of an incomplete last record that were removed.
    pub torn_bytes: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn body_is_inline_or_stored_and_earlier_form_is_read() {
        let inline = BodyRef::Inline { text: "abc".to_owned() };
        assert_eq!(serde_json::to_value(&inline).unwrap(), json!({"text": "abc"}));
        let earlier = json!({"sha256": "ba7816bf", "bytes": 3, "text": "abc"});
        assert_eq!(serde_json::from_value::<BodyRef>(earlier).unwrap(), inline);
        let stored = BodyRef::Stored { sha256: "ba7816bf".to_owned(), bytes: 3 };
        assert_eq!(serde_json::to_value(&stored).unwrap(), json!({"sha256": "ba7816bf", "bytes": 3}));
        assert!(serde_json::from_value::<BodyRef>(json!({"sha256": "ba7816bf"})).is_err());
    }
}
