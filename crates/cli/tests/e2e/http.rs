//! A client of the session API for tests: calls, and streams that may break at any byte.

use std::io::BufReader;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::SseReader;

/// Time limit of a stream on a slow machine.
const LONGEST_STREAM: Duration = Duration::from_secs(600);

/// Calls one server.
#[derive(Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
}

/// Status and body of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    /// Returns the turn of an accepted message.
    pub(crate) turn: Option<String>,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// Id and data of a server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) id: u64,
    pub(crate) data: String,
}

impl Frame {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

impl Client {
    pub(crate) fn new(base: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            // Every call opens a new connection, so that no connection of a killed server is reused.
            .max_idle_connections(0)
            .build();
        Self { agent: config.into(), base: base.to_owned() }
    }

    /// Returns `None` if the server was killed meanwhile.
    pub(crate) fn try_post(&self, path: &str, body: &str) -> Option<Answer> {
        let request = self.agent.post(format!("{}{path}", self.base)).content_type("application/json");
        read(request.send(body).ok()?)
    }

    pub(crate) fn try_get(&self, path: &str) -> Option<Answer> {
        read(self.agent.get(format!("{}{path}", self.base)).call().ok()?)
    }

    /// Returns the status of a `GET` with `token`.
    pub(crate) fn status_with(&self, path: &str, token: &str) -> u16 {
        let request = self.agent.get(format!("{}{path}", self.base)).header("authorization", format!("Bearer {token}"));
        request.call().unwrap().status().as_u16()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.try_post(path, body).unwrap()
    }

    #[track_caller]
    pub(crate) fn put(&self, path: &str, body: &str) -> Answer {
        read(self.agent.put(format!("{}{path}", self.base)).send(body).unwrap()).unwrap()
    }

    #[track_caller]
    pub(crate) fn patch(&self, path: &str, body: &str) -> Answer {
        let request = self.agent.patch(format!("{}{path}", self.base)).content_type("application/json");
        read(request.send(body).unwrap()).unwrap()
    }

    /// Posts with the header `If-Match`.
    #[track_caller]
    pub(crate) fn post_matching(&self, path: &str, digest: &str, body: &str) -> Answer {
        let request = self.agent.post(format!("{}{path}", self.base)).content_type("application/json");
        read(request.header("if-match", format!("\"{digest}\"")).send(body).unwrap()).unwrap()
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.try_get(path).unwrap()
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.try_delete(path).unwrap()
    }

    pub(crate) fn try_delete(&self, path: &str) -> Option<Answer> {
        read(self.agent.delete(format!("{}{path}", self.base)).call().ok()?)
    }

    /// Creates a session with the mock agent.
    pub(crate) fn try_create(&self, id: &str) -> Option<Answer> {
        self.try_post(&format!("/v1/sessions/{id}"), &json!({"agent": "mock"}).to_string())
    }

    pub(crate) fn try_send(&self, id: &str, message: &str) -> Option<Answer> {
        self.try_post(&format!("/v1/sessions/{id}/messages"), &json!({"message": message}).to_string())
    }

    /// Streams the events of a session after `after`, until the stream ends or breaks.
    pub(crate) fn events(&self, id: &str, after: u64) -> Option<impl Iterator<Item = Frame> + use<>> {
        let request = self.agent.get(format!("{}/v1/sessions/{id}/events/sse?events=all", self.base));
        let request = request.config().timeout_global(Some(LONGEST_STREAM)).build();
        frames(request.header("Last-Event-ID", after.to_string()).call().ok()?)
    }

    /// Streams the events of all sessions after the cursor `place`, with the cursor of each.
    pub(crate) fn everything(&self, place: Option<&str>) -> Option<impl Iterator<Item = (String, String)> + use<>> {
        let request = self.agent.get(format!("{}/v1/events/sse", self.base));
        let request = request.config().timeout_global(Some(LONGEST_STREAM)).build();
        named_frames(request.header("Last-Event-ID", place.unwrap_or_default()).call().ok()?)
    }

    /// Sends a message and returns the events of its turn.
    pub(crate) fn converse(&self, id: &str, message: &str) -> Option<impl Iterator<Item = Frame> + use<>> {
        self.stream(id, &json!({"message": message}))
    }

    /// Sends a steering message and returns the events of its turn. Queued messages could ask for permissions.
    pub(crate) fn steer(&self, id: &str, message: &str) -> Option<impl Iterator<Item = Frame> + use<>> {
        self.stream(id, &json!({"message": message, "whenBusy": "steer"}))
    }

    fn stream(&self, id: &str, message: &Value) -> Option<impl Iterator<Item = Frame> + use<>> {
        let request = self.agent.post(format!("{}/v1/sessions/{id}/messages/stream?events=all", self.base));
        let request = request.config().timeout_global(Some(LONGEST_STREAM)).build();
        let sent = request.content_type("application/json").send(message.to_string());
        let response = sent.inspect_err(|error| eprintln!("{id} took no message: {error}")).ok()?;
        if response.status() != 200 {
            eprintln!("{id} took no message: {:?}", read(response));
            return None;
        }
        frames(response)
    }
}

fn read(mut response: ureq::http::Response<ureq::Body>) -> Option<Answer> {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (content_type, turn) = (header("content-type").unwrap_or_default(), header("x-viv-turn-id"));
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(64 << 20).read_to_string().ok()?;
    Some(Answer { status, content_type, turn, body })
}

fn frames(response: ureq::http::Response<ureq::Body>) -> Option<impl Iterator<Item = Frame> + use<>> {
    let frames = named_frames(response)?;
    Some(frames.map(|(id, data)| Frame { id: id.parse().unwrap(), data }))
}

/// Streams frames with ids of any form, until the stream ends or breaks.
fn named_frames(response: ureq::http::Response<ureq::Body>) -> Option<impl Iterator<Item = (String, String)> + use<>> {
    if response.status() != 200 {
        return None;
    }
    let frames = SseReader::new(BufReader::new(response.into_body().into_reader()));
    Some(frames.filter(|frame| !frame.id.is_empty()).map(|frame| (frame.id, frame.data)))
}
