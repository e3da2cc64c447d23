//! The `data` of the events that are ours: what the host saw, not what the agent told.

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::pieces::{Joined, Pieces};
use crate::{Attachment, CallId, SessionId, TurnId, Usage};

/// `session_registered`: a session, its sandbox and its task are known to the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRegistered {
    /// The session the token is good for. The token itself is never recorded.
    pub session_id: SessionId,
    /// The sandbox it runs in.
    pub sandbox_id: String,
    /// The task it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_name: Option<String>,
}

/// A body: here where it is short, or kept beside the journal, by its content.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BodyFields")]
pub enum BodyRef {
    /// Its bytes are few and text. They are kept nowhere else, and what vouches for the line vouches for them. A stream is
    /// written in pieces, of which each says only what is new in it.
    Inline {
        /// All of it.
        text: String,
    },
    /// It has a file of its own, or was not to be kept at all.
    Stored {
        /// Hexadecimal SHA-256 of the bytes.
        sha256: String,
        /// How many bytes.
        bytes: u64,
    },
}

impl Serialize for BodyRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline { text } => {
                let mut body = serializer.serialize_struct("BodyRef", 1)?;
                match Pieces::of(text) {
                    Some(pieces) => body.serialize_field("pieces", &pieces)?,
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

/// A body as it is read: earlier versions named one that stood in its record, too.
#[derive(Deserialize)]
struct BodyFields {
    sha256: Option<String>,
    bytes: Option<u64>,
    text: Option<String>,
    pieces: Option<Joined>,
}

impl TryFrom<BodyFields> for BodyRef {
    type Error = &'static str;

    fn try_from(fields: BodyFields) -> Result<Self, Self::Error> {
        match fields {
            BodyFields { text: Some(text), .. } | BodyFields { pieces: Some(Joined(text)), .. } => {
                Ok(Self::Inline { text })
            }
            BodyFields { sha256: Some(sha256), bytes: Some(bytes), .. } => Ok(Self::Stored { sha256, bytes }),
            _ => Err("a body has `text`, or `pieces`, or `sha256` and `bytes`"),
        }
    }
}

/// `anthropic_request`, `openai_request`, `gemini_request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// Pairs request, response and charge.
    pub call_id: CallId,
    /// Method and path as the agent sent them.
    pub path: String,
    /// The model asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// The body, byte for byte.
    pub body: BodyRef,
}

/// `anthropic_response`, `openai_response`, `gemini_response`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelResponse {
    /// Pairs request, response and charge.
    pub call_id: CallId,
    /// HTTP status the agent got.
    pub status: u16,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// Tokens, as the vendor counted them.
    #[serde(default)]
    pub usage: Usage,
    /// Why the model stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// The body, byte for byte.
    pub body: BodyRef,
}

/// `upstream_error`: the model's side failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamError {
    /// The call that failed.
    pub call_id: CallId,
    /// HTTP status of the upstream, when it answered at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What went wrong.
    pub message: String,
}

/// `llm.call`: one finished call with its price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlmCall {
    /// The call.
    pub call_id: CallId,
    /// The model asked for.
    pub model: String,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_answered: Option<String>,
    /// Name of the upstream in the configuration.
    pub upstream: String,
    /// What a proxy behind us calls it, to find it in that proxy's own accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_call_id: Option<String>,
    /// Tokens by kind.
    pub usage: Usage,
    /// Price in pico-dollars (10⁻¹² USD).
    pub cost_picos: i64,
    /// HTTP status the agent got.
    pub status: u16,
    /// Microseconds to the first byte.
    pub ttft_micros: u64,
    /// Microseconds to the last byte.
    pub duration_micros: u64,
    /// Why the model stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// `policy.effective`: what the sandbox enforces, key by key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyEffective {
    /// Which backend enforces it.
    pub backend: String,
    /// Key → `{state: enforced|weaker|absent, by, value}`.
    pub keys: Value,
    /// What that lets the session do, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sentences: Vec<PolicySentence>,
}

/// One thing a session may do or not, and who said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySentence {
    /// The sentence.
    pub text: String,
    /// The layer it comes from.
    pub layer: String,
    /// The rule, with its file and line.
    pub rule: String,
}

/// `policy.narrowed` and `policy.widened`: what a running session may reach, from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// What was taken away or granted, each as `key=value`.
    pub rules: Vec<String>,
    /// When a grant ends, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_secs: Option<u64>,
}

/// `egress.allowed`, written when the connection is over, and `egress.denied`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressConnection {
    /// Host name or address asked for.
    pub host: String,
    /// Port asked for.
    pub port: u16,
    /// The rule that decided, with its file and line.
    pub rule: String,
    /// The method, where one was seen: `CONNECT`, `GET`, `SOCKS5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path, where one was seen; never its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The address that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Bytes both ways together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Those of them that left the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<u64>,
    /// From the request to the end of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_micros: Option<u64>,
    /// How many attempts this record stands for, when it is not one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Why an allowed connection failed or was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `exec.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Where it runs.
    pub workdir: String,
}

/// `exec.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecFinished {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its exit code, when it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Wall time.
    pub wall_micros: u64,
}

/// `task_command_finished`: one command of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCommandFinished {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its exit code.
    pub exit_code: i32,
    /// Wall time.
    pub wall_micros: u64,
}

/// `budget.exceeded`: a call was refused before it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetExceeded {
    /// What was used up: `budget_usd`, `max_requests`.
    pub limit: String,
    /// In words.
    pub message: String,
}

/// `workspace.changed`: what the overlay holds that the host does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceChanged {
    /// Paths added.
    pub added: Vec<String>,
    /// Paths changed.
    pub modified: Vec<String>,
    /// Paths deleted.
    pub deleted: Vec<String>,
}

/// `message.queued`: a message was taken and waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueued {
    /// The turn that will answer it.
    pub turn_id: TurnId,
    /// The words.
    pub message: String,
    /// Files that go with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Chosen by the client, so that the same message is not taken twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    /// It interrupts the turn that runs, and comes before everything that waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steers: bool,
}

/// `message.removed`: a message that waited was taken out of the queue; its turn never starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRemoved {
    /// The turn that would have answered it.
    pub turn_id: TurnId,
    /// As its client named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
}

/// `session.recovered`: the host died and came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecovered {
    /// What was left undone: a turn, permissions, questions.
    pub interrupted: Vec<String>,
    /// Bytes of a half-written last record that were cut.
    pub torn_bytes: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_here_or_named_and_one_of_an_earlier_version_is_read() {
        let here = BodyRef::Inline { text: "abc".to_owned() };
        assert_eq!(serde_json::to_value(&here).unwrap(), json!({"text": "abc"}));
        let earlier = json!({"sha256": "ba7816bf", "bytes": 3, "text": "abc"});
        assert_eq!(serde_json::from_value::<BodyRef>(earlier).unwrap(), here);
        let named = BodyRef::Stored { sha256: "ba7816bf".to_owned(), bytes: 3 };
        assert_eq!(serde_json::to_value(&named).unwrap(), json!({"sha256": "ba7816bf", "bytes": 3}));
        assert!(serde_json::from_value::<BodyRef>(json!({"sha256": "ba7816bf"})).is_err());
    }
}
