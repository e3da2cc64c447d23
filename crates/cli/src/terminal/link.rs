//! The way to the terminal of a session: in this process, or in the process that runs the session.

use futures_util::{SinkExt, StreamExt};
use protocol::{ProblemCode, SessionId};
use sandbox::WindowSize;
use serde_json::{Value, json};
use session::{TerminalUpdate, TerminalViewer};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::client::ApiClient;
use crate::failure::Failure;

/// The way to the terminal of a session.
pub(crate) enum TerminalLink {
    /// The session runs in this process.
    Local(TerminalViewer),
    /// The session runs in another process.
    Remote(Box<WebSocketStream<UnixStream>>),
}

impl TerminalLink {
    /// Connects to the terminal of a session in another process.
    pub(crate) async fn connect(client: &ApiClient, id: &SessionId) -> Result<Self, Failure> {
        let socket = client.web_socket(&format!("/v1/sessions/{id}/terminal")).await?;
        Ok(Self::Remote(Box::new(socket)))
    }

    /// Returns the next update; `None` when the agent has ended. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<TerminalUpdate>, Failure> {
        let socket = match self {
            Self::Local(viewer) => return Ok(viewer.next().await),
            Self::Remote(socket) => socket,
        };
        loop {
            match socket.next().await {
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(TerminalUpdate::Output(bytes.to_vec()))),
                Some(Ok(Message::Text(text))) => {
                    if let Some(size) = status_size(&text) {
                        return Ok(Some(TerminalUpdate::Resized(size)));
                    }
                }
                Some(Ok(Message::Close(Some(frame)))) if frame.reason.as_str() != "ended" => {
                    let what = format!("the server closed the terminal: {}", frame.reason);
                    return Err(Failure::new(ProblemCode::StreamError, what).help("viv sessions ls"));
                }
                Some(Ok(Message::Close(_))) => return Ok(None),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(lost(&error)),
                None => return Err(lost(&Error::ConnectionClosed)),
            }
        }
    }

    /// Sends typed bytes.
    pub(crate) async fn write(&mut self, bytes: Vec<u8>) -> Result<(), Failure> {
        match self {
            Self::Local(viewer) => viewer.write(bytes).await,
            Self::Remote(socket) => send(socket, Message::Binary(bytes.into())).await?,
        }
        Ok(())
    }

    /// Resizes the window.
    pub(crate) async fn resize(&mut self, size: WindowSize) -> Result<(), Failure> {
        match self {
            Self::Local(viewer) => viewer.resize(size),
            Self::Remote(socket) => {
                let command = json!({ "type": "resize", "rows": size.rows, "columns": size.columns });
                send(socket, Message::Text(command.to_string().into())).await?;
            }
        }
        Ok(())
    }

    /// Returns the bytes that draw the present screen; a session in another process sends them as its next update.
    pub(crate) async fn redraw(&mut self) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Local(viewer) => Ok(viewer.snapshot()),
            Self::Remote(socket) => {
                send(socket, Message::Text(json!({ "type": "redraw" }).to_string().into())).await?;
                Ok(Vec::new())
            }
        }
    }
}

async fn send(socket: &mut WebSocketStream<UnixStream>, message: Message) -> Result<(), Failure> {
    match socket.send(message).await {
        // The end of the agent is read next.
        Ok(()) | Err(Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(_)) => Ok(()),
        Err(error) => Err(lost(&error)),
    }
}

fn status_size(text: &str) -> Option<WindowSize> {
    let status: Value = serde_json::from_str(text).ok()?;
    let side = |name: &str| status[name].as_u64().and_then(|side| u16::try_from(side).ok());
    Some(WindowSize { rows: side("rows")?, columns: side("columns")? })
}

fn lost(error: &Error) -> Failure {
    Failure::new(ProblemCode::StreamError, "lost the connection to the session's terminal")
        .because(error)
        .help("viv sessions ls")
}
