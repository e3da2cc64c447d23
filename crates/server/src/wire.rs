//! Bodies and queries as they stand in JSON: camelCase outside of events.

pub(crate) mod bundles;
pub(crate) mod changes;
pub(crate) mod feed;
pub(crate) mod files;

use protocol::{Attachment, Event, Grant, PermissionReply, SessionId, SessionInfo, TurnOutcome};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use session::{PendingRequest, QueuedMessage, ReplayOutcome, UserMessage, WhenBusy};
use utoipa::{IntoParams, ToSchema};

use crate::event_filter::EventFilter;

/// `GET /v1/health`.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    pub(crate) status: &'static str,
}

/// `GET /v1/sessions`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionList {
    pub(crate) sessions: Vec<SessionInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// Answer of `POST /v1/sessions/{id}`. A session that is not healthy is a problem instead.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Created {
    pub(crate) healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) native_session_id: Option<String>,
}

/// Body of `PATCH /v1/sessions/{id}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenameBody {
    pub(crate) title: String,
}

/// Body of `POST …/messages` and `POST …/messages/stream`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MessageBody {
    message: String,
    #[serde(default)]
    attachments: Vec<Attachment>,
    #[serde(default, alias = "client_message_id")]
    #[schema(min_length = 1, max_length = 255)]
    client_message_id: Option<String>,
    #[serde(default, alias = "when_busy")]
    when_busy: Busy,
}

/// What to do with a message that comes in the middle of a turn.
#[derive(Deserialize, Default, ToSchema)]
#[serde(rename_all = "camelCase")]
enum Busy {
    #[default]
    Queue,
    Refuse,
    Steer,
}

impl From<MessageBody> for UserMessage {
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

/// `GET …/queue`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageList {
    pub(crate) messages: Vec<QueuedMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A page of events, in order. It is written event by event, in bounded memory; this is its shape.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct EventPage {
    events: Vec<Event>,
    /// Whether there are more after the last of these.
    has_more: bool,
}

/// Query of `POST …/messages/stream`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RawQuery {
    /// With what the agent printed itself.
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
    /// Only types of events that the contract knows, or all; what the server was started with when not given.
    #[serde(default)]
    #[param(inline)]
    pub(crate) events: Option<EventFilter>,
}

/// Query of `GET …/events/sse`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// Only what comes after this number.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) offset: Option<u64>,
    /// With what the agent printed itself.
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
    /// Only types of events that the contract knows, or all; what the server was started with when not given.
    #[serde(default)]
    #[param(inline)]
    pub(crate) events: Option<EventFilter>,
}

/// Query of `GET …/events`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only what comes after this number.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) offset: Option<u64>,
    /// At most this many.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) limit: Option<u64>,
    /// With what the agent printed itself.
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
    /// Only types of events that the contract knows, or all; what the server was started with when not given.
    #[serde(default)]
    #[param(inline)]
    pub(crate) events: Option<EventFilter>,
}

/// Body of `POST …/permissions/{id}/reply`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionBody {
    pub(crate) reply: PermissionReply,
}

/// Body of `POST …/questions/{id}/reply`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswersBody {
    pub(crate) answers: Vec<Vec<String>>,
}

/// `GET …/pending`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendingList {
    pub(crate) pending: Vec<PendingRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// What `GET /v1/usage` can be asked.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageQuery {
    /// `session`, `account`, `user`, `agent`, `model` or `day`.
    pub(crate) by: Option<String>,
    /// A time such as `7d`, a date or an RFC 3339 timestamp.
    pub(crate) since: Option<String>,
    /// At most this many rows; all of them when not given.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) limit: Option<u64>,
    /// `nextCursor` of the page before.
    pub(crate) cursor: Option<String>,
}

/// Body of `POST /v1/agents/{agent}/install`.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstallBody {
    /// Also when it is there.
    pub(crate) reinstall: Option<bool>,
}

/// Body of `POST …/replay`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReplayBody {
    /// The id of the new session; a UUID when not given.
    pub(crate) session_id: Option<SessionId>,
    /// Another directory that is as the recorded one was when its session began.
    pub(crate) directory: Option<String>,
}

/// Answer of `POST …/replay`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayReport {
    /// The session it was played in; it has ended.
    session_id: SessionId,
    /// How its last turn ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<TurnOutcome>,
    /// Whether both records say the same.
    same: bool,
    /// In what they differ, line by line.
    differences: Vec<String>,
    /// The first request that was not recorded, which ended the replay there.
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<String>,
    /// How many recorded model calls nobody asked for.
    calls_left: usize,
}

impl ReplayReport {
    pub(crate) fn of(session_id: SessionId, played: ReplayOutcome) -> Self {
        let ReplayOutcome { outcome, miss, left, differences } = played;
        let same = miss.is_none() && differences.is_empty();
        Self { session_id, outcome, same, differences, missed: miss, calls_left: left }
    }
}

/// Body of `POST …/fork`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// The id of the new session; a UUID when not given.
    pub(crate) session_id: Option<SessionId>,
    /// The title of the new session; that of the other when not given.
    pub(crate) title: Option<String>,
}

/// `GET …/grants`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrantList {
    pub(crate) grants: Vec<Grant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// Body of `POST …/policy/narrow`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyRules {
    /// Each as `key=value`; only keys of `net`.
    #[schema(example = json!(["net.enabled=false"]))]
    pub(crate) rules: Vec<String>,
}

/// Body of `POST …/policy/grant`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyGrant {
    /// Each as `key=value`; only keys of `net`.
    #[schema(example = json!(["net.allowlist=packages.example.com:443"]))]
    pub(crate) rules: Vec<String>,
    /// How long it lasts.
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub(crate) seconds: u64,
}

/// `GET …/policy`.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionPolicy {
    /// What makes its sandbox.
    pub(crate) backend: String,
    /// Each key, whether it is enforced, and by what means.
    pub(crate) keys: serde_json::Value,
}

/// A number that a signed integer of 64 bits holds too: the document promises no more.
pub(crate) fn signed<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<u64>::deserialize(from)?;
    match number {
        Some(number) if i64::try_from(number).is_err() => Err(D::Error::custom("the number is too large")),
        number => Ok(number),
    }
}
