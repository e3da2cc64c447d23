//! A server in a separate process: this binary, started with `__serve DIRECTORY`.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use protocol::{Event, EventBody, SessionId};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use server::{ServerListeners, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::stage::{config, open};

/// A server process that is killed when it is dropped.
pub(crate) struct Server(Child);

impl Server {
    /// Limits the size of its files to `bytes`, like a full disk; `None` removes the limit.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let process = Pid::from_raw(self.0.id().try_into().unwrap());
        prlimit(process, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        // The process may already be dead.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server and returns when it responds.
pub(crate) async fn start(directory: &Path) -> Server {
    // The file size limit must cause an error, not a fatal SIGXFSZ.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"trap "" XFSZ; exec "$@""#, "sh"]).arg(std::env::current_exe().unwrap());
    let server = command.arg("__serve").arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let server = Server(server);
    loop {
        if let Ok(mut stream) = UnixStream::connect(socket(directory)).await
            && stream.write_all(b"GET /v1/health HTTP/1.0\r\nhost: localhost\r\n\r\n").await.is_ok()
        {
            let mut answer = String::new();
            if stream.read_to_string(&mut answer).await.is_ok() && answer.contains(r#"{"status":"ok"}"#) {
                return server;
            }
        }
        testkit::poll_pause_async().await;
    }
}

pub(crate) fn socket(directory: &Path) -> PathBuf {
    directory.join("viv.sock")
}

/// Posts to the server and returns the complete response.
pub(crate) async fn post(socket: &Path, path: &str, body: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let head = format!("POST {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json");
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if answer.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(answer) }
}

/// Calls the server and returns the status and the body.
pub(crate) async fn call(socket: &Path, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let kind = if body.starts_with(b"{") { "application/json" } else { "application/octet-stream" };
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: {kind}");
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer[end + 4..].to_vec())
}

/// Checks a journal: contiguous, every turn ended, every request resolved once.
#[track_caller]
pub(crate) fn check_record(session: &SessionId, events: &[Event]) {
    let (mut open, mut asked) = (None, HashMap::new());
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.sequence, index as u64 + 1, "{session}: a gap");
        match &event.draft.body {
            EventBody::TurnStarted(turn) => assert_eq!(open.replace(turn.turn_id.clone()), None, "{session}"),
            EventBody::TurnEnded(turn) => assert_eq!(open.take(), Some(turn.turn_id.clone()), "{session}"),
            EventBody::PermissionRequested(permission) => {
                asked.insert(permission.permission_id.clone(), 0);
            }
            EventBody::PermissionResolved(permission) => *asked.get_mut(&permission.permission_id).unwrap() += 1,
            _ => {}
        }
    }
    assert_eq!(open, None, "{session}: a turn stayed open");
    assert!(asked.values().all(|resolved| *resolved == 1), "{session}: {asked:?}");
}

/// Runs the server process: recovers the sessions and serves until it is killed.
pub(crate) fn be_the_server(directory: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let sessions = open(directory);
        sessions.recover().await.unwrap();
        let listeners =
            ServerListeners { tcp: Vec::new(), unix: Some(socket(directory)), ..ServerListeners::default() };
        serve(listeners, config(), sessions, |_| {}, std::future::pending()).await.unwrap();
    });
    ExitCode::SUCCESS
}
