//! A client for the session API of the processes that run this data directory's sessions.

use std::io::Write;
use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::{
    CreateSession, Event, PermissionId, PermissionReply, Problem, ProblemCode, QuestionId, SessionId, SessionInfo,
};
use serde_json::{Value, json};
use store::{DataDir, OwnerId, SessionRecord};
use tokio::net::UnixStream;
use tokio_tungstenite::{WebSocketStream, tungstenite};
use tokio_util::task::TaskTracker;

use crate::failure::Failure;

/// Calls the session API of one process over its Unix socket.
#[derive(Debug, Clone)]
pub(crate) struct ApiClient {
    socket: PathBuf,
    /// The tasks of open connections. Each one ends when its response is read or dropped.
    connections: TaskTracker,
}

impl ApiClient {
    /// Connects to the server of `directory`; `None` if no server answers.
    pub(crate) async fn connect(directory: &DataDir) -> Option<Self> {
        Self::at(directory.socket()).await
    }

    /// Connects to the process that claimed `owner`, such as a `viv run`; `None` if it does not answer.
    pub(crate) async fn of_owner(directory: &DataDir, owner: &OwnerId) -> Option<Self> {
        Self::at(directory.owner_socket(owner)).await
    }

    async fn at(socket: PathBuf) -> Option<Self> {
        let client = Self { socket, connections: TaskTracker::new() };
        client.call(Method::GET, "/v1/health", None).await.ok().map(|_| client)
    }

    pub(crate) async fn create(&self, id: &SessionId, request: &CreateSession) -> Result<SessionInfo, Failure> {
        let body = serde_json::to_value(request).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        self.call(Method::POST, &format!("/v1/sessions/{id}"), Some(body)).await?;
        let info = self.call(Method::GET, &format!("/v1/sessions/{id}"), None).await?;
        serde_json::from_slice(&info).map_err(|error| not_understood(&error))
    }

    pub(crate) async fn send(&self, id: &SessionId, text: &str) -> Result<(), Failure> {
        let path = format!("/v1/sessions/{id}/messages");
        self.call(Method::POST, &path, Some(json!({"message": text}))).await.map(drop)
    }

    pub(crate) async fn reply(
        &self,
        id: &SessionId,
        permission: &PermissionId,
        reply: PermissionReply,
    ) -> Result<(), Failure> {
        let path = format!("/v1/sessions/{id}/permissions/{permission}/reply");
        self.call(Method::POST, &path, Some(json!({"reply": reply}))).await.map(drop)
    }

    pub(crate) async fn answer(
        &self,
        id: &SessionId,
        question: &QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), Failure> {
        let path = format!("/v1/sessions/{id}/questions/{question}");
        match answers {
            Some(answers) => {
                let body = json!({"answers": answers});
                self.call(Method::POST, &format!("{path}/reply"), Some(body)).await.map(drop)
            }
            None => self.call(Method::POST, &format!("{path}/reject"), Some(json!({}))).await.map(drop),
        }
    }

    pub(crate) async fn terminate(&self, id: &SessionId) -> Result<(), Failure> {
        self.call(Method::POST, &format!("/v1/sessions/{id}/terminate"), None).await.map(drop)
    }

    /// Forks the session `id`, or continues it if it has ended; the new session is `new`.
    pub(crate) async fn fork(&self, id: &SessionId, new: &SessionId) -> Result<SessionInfo, Failure> {
        let body = json!({"sessionId": new});
        let made = self.call(Method::POST, &format!("/v1/sessions/{id}/fork"), Some(body)).await?;
        serde_json::from_slice(&made).map_err(|error| not_understood(&error))
    }

    /// Connects to the server of `directory`; fails with a hint if none is running.
    pub(crate) async fn required(directory: &DataDir) -> Result<Self, Failure> {
        let none = || {
            Failure::new(ProblemCode::ServerNotRunning, "no server is running on this data directory").help("viv serve")
        };
        Self::connect(directory).await.ok_or_else(none)
    }

    /// Connects to the process that runs a session: its owner if that answers, else the server.
    pub(crate) async fn of_session(directory: &DataDir, record: &SessionRecord) -> Result<Self, Failure> {
        match Self::of_owner(directory, &record.owner).await {
            Some(client) => Ok(client),
            None => Self::required(directory).await,
        }
    }

    /// Connects to every process that runs sessions of `directory`.
    pub(crate) async fn all_owners(directory: &DataDir) -> Vec<Self> {
        let owners = std::fs::read_dir(directory.owners()).into_iter().flatten().flatten();
        let sockets =
            owners.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "sock"));
        let mut found = Vec::new();
        for socket in sockets.chain([directory.socket()]) {
            found.extend(Self::at(socket).await);
        }
        found
    }

    /// Calls a path and returns the answer as JSON.
    pub(crate) async fn json(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, Failure> {
        let answer = self.call(method, path, body).await?;
        serde_json::from_slice(&answer).map_err(|error| not_understood(&error))
    }

    /// Streams an answer to `to`.
    pub(crate) async fn copy(&self, path: &str, to: &mut dyn Write) -> Result<(), Failure> {
        pour(self.request(Method::GET, path, None).await?.into_body(), to).await
    }

    /// Streams the answer of any call to `to`; JSON documents are indented.
    pub(crate) async fn show(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        to: &mut dyn Write,
    ) -> Result<(), Failure> {
        let response = self.request(method, path, body).await?;
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if kind.is_none_or(|kind| !kind.starts_with("application/json")) {
            return pour(response.into_body(), to).await;
        }
        let answer = response.into_body().collect().await.map_err(|error| unreachable(&error))?.to_bytes();
        let document: Value = serde_json::from_slice(&answer).map_err(|error| not_understood(&error))?;
        writeln!(to, "{document:#}").map_err(|error| Failure::output_failed(&error))
    }

    /// Posts bytes and returns the answer as JSON.
    pub(crate) async fn upload(&self, path: &str, bytes: Bytes) -> Result<Value, Failure> {
        let response = self.exchange(Method::POST, path, Some("application/octet-stream"), bytes).await?;
        let answer = response.into_body().collect().await.map_err(|error| unreachable(&error))?.to_bytes();
        serde_json::from_slice(&answer).map_err(|error| not_understood(&error))
    }

    /// Streams the events of a session after the sequence number `after`.
    pub(crate) async fn events_after(&self, id: &SessionId, after: u64) -> Result<EventStream, Failure> {
        let path = format!("/v1/sessions/{id}/events/sse?events=all&offset={after}");
        let response = self.request(Method::GET, &path, None).await?;
        Ok(EventStream { body: response.into_body(), buffer: Vec::new() })
    }

    /// Opens a WebSocket.
    pub(crate) async fn web_socket(&self, path: &str) -> Result<WebSocketStream<UnixStream>, Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| unreachable(&error))?;
        let opened = tokio_tungstenite::client_async(format!("ws://localhost{path}"), stream).await;
        match opened {
            Ok((socket, _)) => Ok(socket),
            // The refusal has no body here; the ordinary call says why.
            Err(tungstenite::Error::Http(_)) => match self.call(Method::GET, path, None).await {
                Err(failure) => Err(failure),
                Ok(_) => Err(Failure::new(ProblemCode::Internal, "the server opened no WebSocket")),
            },
            Err(error) => Err(unreachable(&error)),
        }
    }

    /// Connects to a port inside the sandbox of a session; returns the bytes of the port.
    pub(crate) async fn connect_port(&self, id: &SessionId, port: u16) -> Result<TokioIo<Upgraded>, Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        self.connections.spawn(connection.with_upgrades());
        let request = Request::builder()
            .uri(format!("/v1/sessions/{id}/ports/{port}/stream"))
            .header("host", "localhost")
            .header("connection", "upgrade")
            .header("upgrade", "viv-port")
            .body(Full::<Bytes>::default())
            .map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        let response = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(problem_of(response).await);
        }
        Ok(TokioIo::new(hyper::upgrade::on(response).await.map_err(|error| unreachable(&error))?))
    }

    /// Calls a path and returns the body of the answer; fails unless the status is a success.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Bytes, Failure> {
        let response = self.request(method, path, body).await?;
        Ok(response.into_body().collect().await.map_err(|error| unreachable(&error))?.to_bytes())
    }

    async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Result<Response<Incoming>, Failure> {
        let kind = body.as_ref().map(|_| "application/json");
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.exchange(method, path, kind, body).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        kind: Option<&str>,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        self.connections.spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let request =
            request.body(Full::new(body)).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        let response = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(problem_of(response).await)
    }
}

/// Writes a body to `to` and flushes after each frame, because a stream may last for hours.
async fn pour(mut body: Incoming, to: &mut dyn Write) -> Result<(), Failure> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unreachable(&error))?;
        let written = to.write_all(frame.data_ref().map_or(&[][..], |data| data)).and_then(|()| to.flush());
        written.map_err(|error| Failure::output_failed(&error))?;
    }
    Ok(())
}

async fn problem_of(response: Response<Incoming>) -> Failure {
    let status: StatusCode = response.status();
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => problem.into(),
        Err(_) => Failure::new(ProblemCode::Internal, format!("the server answered {status}")),
    }
}

fn unreachable(error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::ServerNotRunning, "the process that runs the session does not answer")
        .because(error)
        .help("viv serve")
}

fn not_understood(error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::Internal, "cannot parse the server's answer").because(error)
}

/// Server-sent events of one session.
pub(crate) struct EventStream {
    body: Incoming,
    buffer: Vec<u8>,
}

impl EventStream {
    /// Returns the next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = parse(&block)? {
                    return Ok(Some(event));
                }
                continue;
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    let frame = frame.map_err(|error| unreachable(&error))?;
                    self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                }
            }
        }
    }
}

/// Parses one block of the stream; `None` if the block has no `data` field.
fn parse(block: &[u8]) -> Result<Option<Event>, Failure> {
    let text = String::from_utf8_lossy(block);
    let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
    if data.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&data.join("\n")).map(Some).map_err(|error| not_understood(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_and_retries_are_skipped() {
        for block in [": ping\n\n", "retry: 2000\n\n", "event: x\nid: 3\n\n"] {
            assert!(parse(block.as_bytes()).unwrap().is_none(), "{block}");
        }
    }
}
