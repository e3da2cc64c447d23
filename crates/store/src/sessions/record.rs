//! Rows of the sessions index, and changes to them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use protocol::{SessionId, SessionInfo, SessionStatus};
use rusqlite::Row;
use rusqlite::types::Type;
use serde_json::{Map, Value};

use super::{SessionIndexError, SessionTally};
use crate::OwnerId;

/// A session to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// Id chosen by the client, or a UUID v7.
    pub id: SessionId,
    /// The agent.
    pub agent: String,
    /// The agent's own mode.
    pub agent_mode: String,
    /// The permission mode.
    pub permission_mode: String,
    /// The model.
    pub model: Option<String>,
    /// Variant of the model.
    pub variant: Option<String>,
    /// The workspace on the host.
    pub directory: Option<String>,
    /// Title for people.
    pub title: Option<String>,
    /// MCP servers of this session.
    pub mcp: Option<BTreeMap<String, Value>>,
    /// Skills of this session.
    pub skills: Option<Value>,
    /// Time of creation in milliseconds since 1970; `None` means now.
    pub created_ms: Option<i64>,
    /// The origin of the session.
    pub origin: SessionOrigin,
    /// The process that runs the session.
    pub owner: OwnerId,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The client's own data.
    pub metadata: Option<Map<String, Value>>,
    /// The account that pays.
    pub account: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// Id of the access token that created the session.
    pub token: Option<String>,
}

/// The origin of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SessionOrigin {
    /// A person or a client started it: `viv run`, `viv task`, the API.
    #[default]
    Started,
    /// The session replays another session.
    Replay,
    /// The session runs one command of `viv exec`.
    Exec,
    /// The session was imported from a bundle.
    Import,
}

impl SessionOrigin {
    /// Returns the text in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Replay => "replay",
            Self::Exec => "exec",
            Self::Import => "import",
        }
    }
}

impl NewSession {
    /// Returns a session of `agent` with default values.
    pub fn new(id: SessionId, agent: impl Into<String>, owner: OwnerId) -> Self {
        Self {
            id,
            agent: agent.into(),
            agent_mode: "default".into(),
            permission_mode: "default".into(),
            model: None,
            variant: None,
            directory: None,
            title: None,
            mcp: None,
            skills: None,
            created_ms: None,
            origin: SessionOrigin::default(),
            owner,
            labels: BTreeMap::new(),
            metadata: None,
            account: None,
            user: None,
            token: None,
        }
    }
}

/// A row of the sessions index.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// The part that clients see.
    pub info: SessionInfo,
    /// The outcome of a session that has ended.
    pub outcome: Option<SessionOutcome>,
    /// Number of owners so far. An owner of an earlier epoch has lost the session.
    pub epoch: u64,
    /// The process that runs the session, or ran it last.
    pub owner: OwnerId,
    /// Id of the access token that created the session.
    pub token: Option<String>,
}

/// The outcome of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum SessionOutcome {
    Completed,
    Error,
    Terminated,
    /// The journal is damaged.
    Damaged,
}

impl SessionOutcome {
    /// Returns the text in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Error => "error",
            Self::Terminated => "terminated",
            Self::Damaged => "damaged",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let all = [Self::Completed, Self::Error, Self::Terminated, Self::Damaged];
        all.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

impl From<protocol::SessionEndReason> for SessionOutcome {
    fn from(reason: protocol::SessionEndReason) -> Self {
        match reason {
            protocol::SessionEndReason::Completed => Self::Completed,
            protocol::SessionEndReason::Error => Self::Error,
            protocol::SessionEndReason::Terminated => Self::Terminated,
        }
    }
}

/// A change of a session; `None` means unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionPatch {
    /// The agent's own mode.
    pub agent_mode: Option<String>,
    /// The permission mode.
    pub permission_mode: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Title for people.
    pub title: Option<String>,
    /// The agent's own session id.
    pub native_session_id: Option<String>,
    /// Number of the last event.
    pub event_count: Option<u64>,
    /// The outcome. The outcome of a session that has ended does not change.
    pub outcome: Option<SessionOutcome>,
    /// All labels after the change.
    pub labels: Option<BTreeMap<String, String>>,
    /// The whole metadata after the change.
    pub metadata: Option<Map<String, Value>>,
    /// The start of the last message.
    pub last_prompt: Option<String>,
    /// The numbers to add to the counts.
    pub tally: SessionTally,
}

/// A page of the list of sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// Sessions, newest first.
    pub sessions: Vec<SessionRecord>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<SessionListCursor>,
}

/// A position in the list of sessions. New sessions do not move it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionListCursor(pub(super) i64);

impl fmt::Display for SessionListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SessionListCursor {
    type Err = SessionIndexError;
    fn from_str(text: &str) -> Result<Self, SessionIndexError> {
        text.parse().map(Self).map_err(|_| SessionIndexError::Cursor(text.to_owned()))
    }
}

/// A row with its cursor.
pub(super) struct SessionRow {
    pub(super) cursor: SessionListCursor,
    pub(super) record: SessionRecord,
}

impl SessionRow {
    /// The columns that [`SessionRow::read`] expects, in any order.
    pub(super) const COLUMNS: &str = "place, id, name, agent, agent_mode, permission_mode, model, variant, directory, \
         title, mcp, skills, native_session_id, event_count, created_ms, updated_ms, outcome, epoch, owner, status, status_ms, \
         labels, metadata, account, user, token, turns, cost_picos, denials, last_prompt";

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let outcome = parse_column(row, "outcome", |text| SessionOutcome::parse(text).ok_or("unknown outcome"))?;
        let info = SessionInfo {
            session_id: parse_column(row, "id", str::parse)?.ok_or(rusqlite::Error::InvalidQuery)?,
            name: row.get("name")?,
            agent: row.get("agent")?,
            agent_mode: row.get("agent_mode")?,
            permission_mode: row.get("permission_mode")?,
            model: row.get("model")?,
            variant: row.get("variant")?,
            native_session_id: row.get("native_session_id")?,
            ended: outcome.is_some(),
            damaged: outcome == Some(SessionOutcome::Damaged),
            event_count: row.get("event_count")?,
            created_at: row.get("created_ms")?,
            updated_at: row.get("updated_ms")?,
            directory: row.get("directory")?,
            title: row.get("title")?,
            mcp: parse_column(row, "mcp", |text| serde_json::from_str(text))?,
            skills: parse_column(row, "skills", |text| serde_json::from_str(text))?,
            status: parse_column(row, "status", |text| SessionStatus::from_name(text).ok_or("unknown status"))?
                .unwrap_or_default(),
            status_since: row.get("status_ms")?,
            labels: parse_column(row, "labels", |text| serde_json::from_str(text))?.unwrap_or_default(),
            metadata: parse_column(row, "metadata", |text| serde_json::from_str(text))?,
            account: row.get("account")?,
            user: row.get("user")?,
            turns: row.get("turns")?,
            cost_picos: row.get("cost_picos")?,
            denials: row.get("denials")?,
            last_prompt: row.get("last_prompt")?,
        };
        let owner = OwnerId::from_database(row.get("owner")?);
        let record = SessionRecord { info, outcome, epoch: row.get("epoch")?, owner, token: row.get("token")? };
        Ok(Self { cursor: SessionListCursor(row.get("place")?), record })
    }
}

/// Parses a text column; returns `None` for NULL.
fn parse_column<T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    row: &Row<'_>,
    column: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<Option<T>> {
    let Some(text) = row.get::<_, Option<String>>(column)? else { return Ok(None) };
    let index = row.as_ref().column_index(column)?;
    let value =
        parse(&text).map_err(|error| rusqlite::Error::FromSqlConversionFailure(index, Type::Text, error.into()))?;
    Ok(Some(value))
}
