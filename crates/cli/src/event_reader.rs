//! The events of a session for a person who also answers requests.
//!
//! While the person thinks, events are read on: a request that is answered elsewhere ends its prompt. All events are
//! returned in order.

use std::collections::VecDeque;
use std::pin::pin;

use base::PrintableText;
use protocol::{
    Event, EventBody, Permission, PermissionId, PermissionStatus, Question, QuestionId, QuestionStatus, RequestMetadata,
};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::message;
use crate::session_access::EventSource;

/// Reads events, also while a person is asked.
pub(crate) struct EventReader {
    source: EventSource,
    /// Events that arrived while the person was asked.
    waiting: VecDeque<Event>,
}

/// A request that a person is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OpenRequest<'a> {
    Permission(&'a PermissionId),
    Question(&'a QuestionId),
}

impl EventReader {
    pub(crate) fn new(source: EventSource) -> Self {
        Self { source, waiting: VecDeque::new() }
    }

    /// Returns the next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        match self.waiting.pop_front() {
            Some(event) => Ok(Some(event)),
            None => self.source.next().await,
        }
    }

    /// Waits for the answer of the person; returns `None`, and says so, if the request was resolved elsewhere.
    pub(crate) async fn unless_resolved<T>(
        &mut self,
        request: OpenRequest<'_>,
        answer: impl Future<Output = T>,
    ) -> Result<Option<T>, Failure> {
        if let Some(how) = self.waiting.iter().find_map(|event| request.resolution(&event.draft.body)) {
            message!("{:>22}{how}", "");
            return Ok(None);
        }
        let mut answer = pin!(answer);
        loop {
            let event = tokio::select! {
                biased;
                answer = &mut answer => return Ok(Some(answer)),
                event = self.source.next() => event?,
            };
            let Some(event) = event else { return Ok(None) };
            let resolution = request.resolution(&event.draft.body);
            self.waiting.push_back(event);
            if let Some(how) = resolution {
                // The prompt has not ended its line.
                message!("\n{:>22}{how}", "");
                return Ok(None);
            }
        }
    }
}

impl OpenRequest<'_> {
    /// Returns how an event resolves this request, as a line for the person.
    fn resolution(self, body: &EventBody) -> Option<String> {
        match (self, body) {
            (Self::Permission(id), EventBody::PermissionResolved(resolved)) if resolved.permission_id == *id => {
                Some(permission_resolution(resolved))
            }
            (Self::Question(id), EventBody::QuestionResolved(resolved)) if resolved.question_id == *id => {
                Some(question_resolution(resolved))
            }
            _ => None,
        }
    }
}

fn permission_resolution(resolved: &Permission) -> String {
    match resolved.status {
        PermissionStatus::Accept => format!("{}: allowed once", answered(resolved.metadata.as_ref())),
        PermissionStatus::AcceptForSession => {
            format!("{}: allowed for this session", answered(resolved.metadata.as_ref()))
        }
        _ => rejection(resolved.metadata.as_ref(), "denied"),
    }
}

fn question_resolution(resolved: &Question) -> String {
    match resolved.status {
        QuestionStatus::Answered => answered(resolved.metadata.as_ref()),
        _ => rejection(resolved.metadata.as_ref(), "rejected"),
    }
}

/// Returns a note that the request was answered elsewhere, with the name of the caller if the session recorded it.
fn answered(metadata: Option<&Value>) -> String {
    match RequestMetadata::read(metadata).answered_by {
        Some(caller) => format!("answered elsewhere by {}", PrintableText::clean_line(&caller)),
        None => "answered elsewhere".to_owned(),
    }
}

/// Returns why a request was rejected, by the reason that the session recorded.
fn rejection(metadata: Option<&Value>, verb: &str) -> String {
    match RequestMetadata::read(metadata).reason.as_deref() {
        None => format!("{}: {verb}", answered(metadata)),
        Some("expired") => format!("not answered in time: {verb}"),
        Some("withdrawn") => "the agent withdrew the request".to_owned(),
        Some(_) => "the turn has ended: the request needs no answer".to_owned(),
    }
}
