//! Request bodies, queries and response bodies of the API. JSON keys are in camelCase, except in events.

pub(crate) mod bundles;
pub(crate) mod changes;
pub(crate) mod feed;
pub(crate) mod files;
pub(crate) mod terminal;

use std::collections::BTreeMap;

use protocol::{
    Attachment, Event, Grant, KeyEnforcement, KeyEnforcements, PermissionReply, SessionId, SessionInfo, SessionUpdated,
    TurnOutcome,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use session::{PendingRequest, QueuedMessage, ReplayOutcome, UserMessage, WhenBusy};
use utoipa::{IntoParams, ToSchema};

use crate::event_filter::EventFilter;

/// Response of `GET /v1/health`.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    pub(crate) status: &'static str,
}

/// Response of `GET /v1/sessions`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionList {
    pub(crate) sessions: Vec<SessionInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// Response of `POST /v1/sessions/{id}`. An unhealthy session is a problem document instead.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Created)]
pub(crate) struct CreatedSession {
    pub(crate) healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) native_session_id: Option<String>,
}

/// Body of `PATCH /v1/sessions/{id}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RenameBody)]
pub(crate) struct UpdateBody {
    /// The new title, at most 1000 characters.
    title: Option<String>,
    /// Labels to set; `null` as value removes one. Labels that are not named stay.
    #[serde(default)]
    labels: BTreeMap<String, Option<String>>,
    /// The new metadata, which replaces the whole.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

impl UpdateBody {
    /// Returns the change of a session that has `labels`.
    pub(crate) fn onto(self, mut labels: BTreeMap<String, String>) -> SessionUpdated {
        let changes_labels = !self.labels.is_empty();
        for (key, value) in self.labels {
            match value {
                Some(value) => drop(labels.insert(key, value)),
                None => drop(labels.remove(&key)),
            }
        }
        let labels = changes_labels.then_some(labels);
        SessionUpdated { title: self.title, labels, metadata: self.metadata }
    }
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
    when_busy: BusyMode,
}

/// The handling of a message that arrives during a turn.
#[derive(Deserialize, Default, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Busy)]
enum BusyMode {
    #[default]
    Queue,
    Refuse,
    Steer,
}

impl From<MessageBody> for UserMessage {
    fn from(body: MessageBody) -> Self {
        let when_busy = match body.when_busy {
            BusyMode::Queue => WhenBusy::Queue,
            BusyMode::Refuse => WhenBusy::Refuse,
            BusyMode::Steer => WhenBusy::Steer,
        };
        let (text, attachments) = (body.message, body.attachments);
        Self { text, attachments, client_message_id: body.client_message_id, when_busy }
    }
}

/// Response of `GET …/queue`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageList {
    pub(crate) messages: Vec<QueuedMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A page of events, in order.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "pages are written event by event; only the schema is used")]
pub(crate) struct EventPage {
    events: Vec<Event>,
    /// Whether there are more events after this page.
    has_more: bool,
}

/// Query of `POST …/messages/stream`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RawQuery {
    /// Include the agent's raw output.
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
    /// The event types to return: `all`, or `contract` for those of the existing API. The default is `contract`, unless the server was started with `--events=all`.
    #[serde(default)]
    #[param(inline)]
    pub(crate) events: Option<EventFilter>,
}

/// Query of `GET …/events/sse`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// Return events after this sequence number.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) offset: Option<u64>,
    /// Include the agent's raw output.
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
    /// The event types to return: `all`, or `contract` for those of the existing API. The default is `contract`, unless the server was started with `--events=all`.
    #[serde(default)]
    #[param(inline)]
    pub(crate) events: Option<EventFilter>,
}

/// Query of `GET …/events`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Return events after this sequence number.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) offset: Option<u64>,
    /// Most events to return. Without it, the page has all events that fit into 8 MiB; `hasMore` tells if there are more.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) limit: Option<u64>,
    /// Include the agent's raw output.
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
    /// The event types to return: `all`, or `contract` for those of the existing API. The default is `contract`, unless the server was started with `--events=all`.
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

/// Response of `GET …/pending`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendingList {
    pub(crate) pending: Vec<PendingRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// Query of `GET /v1/usage`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageQuery {
    /// `session`, `account`, `user`, `agent`, `model` or `day`.
    pub(crate) by: Option<String>,
    /// Start of the period: a duration such as `7d`, a date or an RFC 3339 timestamp.
    pub(crate) since: Option<String>,
    /// Most rows to return, at least 1; all rows if absent.
    #[serde(default, deserialize_with = "at_least_one")]
    #[param(minimum = 1)]
    pub(crate) limit: Option<u64>,
    /// `nextCursor` of the previous page.
    pub(crate) cursor: Option<String>,
}

/// Body of `POST /v1/agents/{agent}/install`.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstallBody {
    /// Install again even if the agent is installed.
    pub(crate) reinstall: Option<bool>,
}

/// Body of `POST …/replay`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReplayBody {
    /// The id of the new session; a UUID if absent.
    pub(crate) session_id: Option<SessionId>,
    /// A directory with the state of the recorded workspace at the start of its session.
    pub(crate) directory: Option<String>,
}

/// Response of `POST …/replay`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayReport {
    /// The session of the replay, which has ended.
    session_id: SessionId,
    /// The outcome of its last turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<TurnOutcome>,
    /// Whether both journals are equal.
    same: bool,
    /// The differences, line by line.
    differences: Vec<String>,
    /// The first request that is not in the recording. It ended the replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<String>,
    /// Number of recorded model calls that the replay did not use.
    calls_left: usize,
}

impl ReplayReport {
    pub(crate) fn new(session_id: SessionId, replayed: ReplayOutcome) -> Self {
        let ReplayOutcome { outcome, unrecorded_request: miss, unused_calls: left, differences } = replayed;
        let same = miss.is_none() && differences.is_empty();
        Self { session_id, outcome, same, differences, missed: miss, calls_left: left }
    }
}

/// Body of `POST …/fork`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// The id of the new session; a UUID if absent.
    pub(crate) session_id: Option<SessionId>,
    /// The title of the new session; the title of the forked session if absent.
    pub(crate) title: Option<String>,
}

/// Response of `GET …/ports`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortList {
    pub(crate) ports: Vec<PortRow>,
}

/// A TCP port on which something listens inside a sandbox.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortRow {
    pub(crate) port: u16,
    /// The address inside the sandbox.
    #[schema(value_type = String)]
    pub(crate) address: std::net::IpAddr,
    /// The process id inside the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// The name of the program, which it can choose freely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<String>,
}

impl From<sandbox::InsidePort> for PortRow {
    fn from(port: sandbox::InsidePort) -> Self {
        let sandbox::InsidePort { port, address, pid, process } = port;
        Self { port, address, pid, process }
    }
}

/// Response of `GET …/grants`.
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
    /// Rules as `key=value`; only keys of `net`.
    #[schema(example = json!(["net.enabled=false"]))]
    pub(crate) rules: Vec<String>,
}

/// Body of `POST …/policy/grant`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyGrant {
    /// Rules as `key=value`; only keys of `net`.
    #[schema(example = json!(["net.allowlist=packages.example.com:443"]))]
    pub(crate) rules: Vec<String>,
    /// Duration of the grant in seconds.
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub(crate) seconds: u64,
}

/// Response of `GET …/policy`.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionPolicy {
    /// The backend of its sandbox.
    pub(crate) backend: String,
    /// Each policy key, whether it is enforced, and the means of enforcement.
    #[schema(value_type = std::collections::BTreeMap<String, KeyEnforcement>)]
    pub(crate) keys: KeyEnforcements,
}

/// Deserializes a number that fits into a signed 64-bit integer, as the OpenAPI document states.
pub(crate) fn signed<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<u64>::deserialize(from)?;
    match number {
        Some(number) if i64::try_from(number).is_err() => Err(D::Error::custom("the number is too large")),
        number => Ok(number),
    }
}

/// Deserializes a limit. A page without rows would have no cursor to continue from.
pub(crate) fn at_least_one<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match signed(from)? {
        Some(0) => Err(D::Error::custom("the limit must be at least 1")),
        limit => Ok(limit),
    }
}
