//! The summary of a session, read from its journal: prompt, result, outcome, time, cost, changes and denials.
//!
//! The index lags behind the journal and has no prompts. The journal has everything, also for a session that is running.

use protocol::{
    ContentPart, Event, EventBody, Item, ItemKind, ItemRole, PermissionId, PermissionStatus, QuestionId,
    SessionEndReason, SessionInfo, TurnOutcome, Usage,
};
use serde::Serialize;
use store::{DataDir, JournalReader};

use crate::failure::Failure;

/// Number of events that are read at a time.
const PAGE: usize = 1000;

/// The summary of one session. The fields are part of the JSON output; fields are only added.
#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionSummary {
    /// `idle`, `running`, `waiting`, `ended` or `damaged`.
    pub(crate) state: &'static str,
    /// How the last turn ended, or the session before its first turn.
    pub(crate) outcome: Option<&'static str>,
    /// The first and the last prompt.
    pub(crate) prompt: Option<String>,
    pub(crate) last_prompt: Option<String>,
    /// The last message of the agent.
    pub(crate) result: Option<String>,
    pub(crate) turns: u64,
    /// Time in turns, in milliseconds; the running turn is not counted.
    pub(crate) duration_ms: u64,
    pub(crate) calls: u64,
    pub(crate) usage: Usage,
    pub(crate) cost_picos: i64,
    /// Number of calls to models without a known price. Their cost is not in `cost_picos`.
    pub(crate) unpriced_calls: u64,
    pub(crate) changes: ChangeCounts,
    /// Connections and permission requests that were denied.
    pub(crate) denials: Vec<String>,
    /// The session that this one continues or was forked from.
    pub(crate) continues: Option<String>,
    #[serde(skip)]
    open_requests: Vec<String>,
    #[serde(skip)]
    turn_since: Option<jiff::Timestamp>,
}

/// Number of paths by kind of change.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(crate) struct ChangeCounts {
    pub(crate) added: usize,
    pub(crate) modified: usize,
    pub(crate) deleted: usize,
}

impl SessionSummary {
    /// Reads the summary of a session. The journal of a damaged session is not read.
    pub(crate) fn read(directory: &DataDir, info: &SessionInfo) -> Result<Self, Failure> {
        let mut summary = Self::default();
        summary.update(directory, info, 0)?;
        Ok(summary)
    }

    /// Adds the events after `seen`, and returns the number of the last one. The journal of a damaged session is not read.
    pub(crate) fn update(&mut self, directory: &DataDir, info: &SessionInfo, mut seen: u64) -> Result<u64, Failure> {
        if !info.damaged {
            let reader = JournalReader::open(directory.journal(&info.session_id), info.session_id.clone())?;
            loop {
                let page = reader.after(seen, PAGE)?;
                let Some(last) = page.last() else { break };
                seen = last.sequence;
                for event in &page {
                    self.add(event);
                }
            }
        }
        self.state = self.state_of(info);
        Ok(seen)
    }

    fn state_of(&self, info: &SessionInfo) -> &'static str {
        match info {
            SessionInfo { damaged: true, .. } => "damaged",
            SessionInfo { ended: true, .. } => "ended",
            _ if !self.open_requests.is_empty() => "waiting",
            _ if self.turn_since.is_some() => "running",
            _ => "idle",
        }
    }

    /// Adds one event.
    pub(crate) fn add(&mut self, event: &Event) {
        let time = event.time.parse::<jiff::Timestamp>().ok();
        match &event.draft.body {
            EventBody::SessionStarted(started) => self.continues = origin(started.metadata.as_ref()),
            EventBody::TurnStarted(_) => {
                self.turns += 1;
                self.turn_since = time;
                self.outcome = None;
            }
            EventBody::TurnEnded(turn) => {
                self.outcome = turn.outcome.map(turn_outcome);
                self.end_turn(time);
            }
            EventBody::SessionEnded(ended) => {
                self.end_turn(time);
                self.open_requests.clear();
                self.outcome = self.outcome.or(Some(end_reason(ended.reason)));
            }
            EventBody::ItemCompleted(completed) => self.add_item(&completed.item),
            EventBody::LlmCall(call) => {
                self.calls += 1;
                self.usage += call.usage;
                self.cost_picos += call.cost_picos;
                self.unpriced_calls += u64::from(call.unpriced.is_some());
            }
            EventBody::WorkspaceChanged(changed) => {
                let (added, modified) = (changed.added.len(), changed.modified.len());
                self.changes = ChangeCounts { added, modified, deleted: changed.deleted.len() };
            }
            EventBody::EgressDenied(connection) => {
                self.denials.push(format!("{}:{} ({})", connection.host, connection.port, connection.rule));
            }
            body => self.add_request(body),
        }
    }

    fn add_request(&mut self, body: &EventBody) {
        match body {
            EventBody::PermissionRequested(asked) => self.open_requests.push(permission_key(&asked.permission_id)),
            EventBody::PermissionResolved(resolved) => {
                self.close_request(&permission_key(&resolved.permission_id));
                if !matches!(resolved.status, PermissionStatus::Accept | PermissionStatus::AcceptForSession) {
                    self.denials.push(format!("permission {}", resolved.action));
                }
            }
            EventBody::QuestionRequested(asked) => self.open_requests.push(question_key(&asked.question_id)),
            EventBody::QuestionResolved(resolved) => self.close_request(&question_key(&resolved.question_id)),
            _ => {}
        }
    }

    fn close_request(&mut self, key: &str) {
        self.open_requests.retain(|open| open != key);
    }

    fn end_turn(&mut self, time: Option<jiff::Timestamp>) {
        if let (Some(since), Some(now)) = (self.turn_since.take(), time) {
            self.duration_ms += u64::try_from(now.duration_since(since).as_millis()).unwrap_or(0);
        }
    }

    fn add_item(&mut self, item: &Item) {
        if item.kind != ItemKind::Message || item.parent_id.is_some() {
            return;
        }
        let text = text_of(item);
        match item.role {
            _ if text.is_empty() => {}
            Some(ItemRole::User) => {
                self.prompt.get_or_insert_with(|| text.clone());
                self.last_prompt = Some(text);
            }
            Some(ItemRole::Assistant) => self.result = Some(text),
            _ => {}
        }
    }

    /// Returns whether a text that a person looks for is in the prompts or in the result.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let all = [&self.prompt, &self.last_prompt, &self.result];
        all.into_iter().flatten().any(|part| part.to_lowercase().contains(&text))
    }
}

fn permission_key(id: &PermissionId) -> String {
    format!("p {id}")
}

fn question_key(id: &QuestionId) -> String {
    format!("q {id}")
}

/// Returns the text of a message.
pub(crate) fn text_of(item: &Item) -> String {
    let texts = item.content.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn origin(metadata: Option<&serde_json::Value>) -> Option<String> {
    let metadata = metadata?;
    let origin = metadata.get("continues").or_else(|| metadata.get("forkedFrom"))?;
    origin.get("sessionId")?.as_str().map(ToOwned::to_owned)
}

fn turn_outcome(outcome: TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Completed => "completed",
        TurnOutcome::Failed => "failed",
        TurnOutcome::TimedOut => "timed out",
        TurnOutcome::Interrupted => "interrupted",
    }
}

fn end_reason(reason: SessionEndReason) -> &'static str {
    match reason {
        SessionEndReason::Completed => "completed",
        SessionEndReason::Error => "failed",
        SessionEndReason::Terminated => "stopped",
    }
}
