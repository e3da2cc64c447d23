//! Bodies and queries as they stand in JSON: camelCase outside of events.

use protocol::{Attachment, PermissionReply, SessionInfo};
use serde::{Deserialize, Serialize};
use session::{Message, PendingRequest, WhenBusy};

/// `GET /v1/health`.
#[derive(Serialize)]
pub(crate) struct Health {
    pub(crate) status: &'static str,
}

/// `GET /v1/sessions`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionList {
    pub(crate) sessions: Vec<SessionInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// Query of `GET /v1/sessions`.
#[derive(Deserialize)]
pub(crate) struct ListQuery {
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
}

/// Answer of `POST /v1/sessions/{id}`. A session that is not healthy is a problem instead.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Created {
    pub(crate) healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) native_session_id: Option<String>,
}

/// Body of `PATCH /v1/sessions/{id}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenameBody {
    pub(crate) title: String,
}

/// Body of `POST …/messages` and `POST …/messages/stream`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MessageBody {
    message: String,
    #[serde(default)]
    attachments: Vec<Attachment>,
    #[serde(default, alias = "client_message_id")]
    client_message_id: Option<String>,
    #[serde(default, alias = "when_busy")]
    when_busy: Busy,
}

/// What to do with a message that comes in the middle of a turn.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
enum Busy {
    #[default]
    Queue,
    Refuse,
    Steer,
}

impl From<MessageBody> for Message {
    fn from(body: MessageBody) -> Self {
        let when_busy = match body.when_busy {
            Busy::Queue => WhenBusy::Queue,
            Busy::Refuse => WhenBusy::Refuse,
            Busy::Steer => WhenBusy::Steer,
        };
        let (text, attachments) = (body.message, body.attachments);
        Self { text, attachments, client_message_id: body.client_message_id, when_busy }
    }
}

/// Query of the event routes.
#[derive(Deserialize)]
pub(crate) struct EventsQuery {
    pub(crate) offset: Option<u64>,
    pub(crate) limit: Option<usize>,
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
}

/// Body of `POST …/permissions/{id}/reply`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionBody {
    pub(crate) reply: PermissionReply,
}

/// Body of `POST …/questions/{id}/reply`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswersBody {
    pub(crate) answers: Vec<Vec<String>>,
}

/// `GET …/pending`.
#[derive(Serialize)]
pub(crate) struct PendingList {
    pub(crate) pending: Vec<PendingRequest>,
}
