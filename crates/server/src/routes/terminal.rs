//! Handler for the terminal of an interactive session: a WebSocket.
//!
//! Binary frames carry bytes: output to the client, typed input from the client. Text frames carry JSON: `status` and
//! `resized` to the client, `resize` and `redraw` from the client. A caller without the scope `drive` only watches; its
//! input is ignored.

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use protocol::{ProblemCode, SessionId};
use sandbox::WindowSize;
use serde_json::json;
use session::{TerminalUpdate, TerminalViewer, ViewerAccess};

use crate::access::{Caller, TokenScope};
use crate::error::ApiError;
use crate::extract::Path;
use crate::state::AppState;
use crate::wire::terminal::TerminalCommand;

/// Most bytes of one frame of a client.
const MAX_FRAME: usize = 1 << 20;

/// `GET /v1/sessions/{session_id}/terminal`: opens the terminal of an interactive session as a WebSocket.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/terminal",
    operation_id = "get_terminal",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 101, description = "A WebSocket. Binary frames carry bytes of the terminal; text frames carry JSON (docs/api.md).")),
)]
pub(crate) async fn open(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<SessionId>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|error| ApiError::new(ProblemCode::InvalidRequest, error.body_text()))?;
    let access = if caller.drives { ViewerAccess::Type } else { ViewerAccess::Watch };
    let viewer = state.sessions.view_terminal(&id, access)?;
    let upgrade = upgrade.max_message_size(MAX_FRAME).max_frame_size(MAX_FRAME);
    Ok(upgrade.on_upgrade(move |socket| TerminalSocket { socket, viewer, state, caller }.serve()))
}

struct TerminalSocket {
    socket: WebSocket,
    viewer: TerminalViewer,
    state: AppState,
    caller: Caller,
}

impl TerminalSocket {
    /// Serves the socket until the agent ends, the client leaves, its token is revoked, or the server stops.
    async fn serve(mut self) {
        let reason = self.exchange().await;
        let Some(reason) = reason else { return };
        let code = if reason == "ended" { close_code::NORMAL } else { close_code::AWAY };
        let frame = CloseFrame { code, reason: reason.into() };
        // The client may be gone.
        let _ = self.socket.send(Message::Close(Some(frame))).await;
    }

    /// Returns the reason to close the socket; `None` when the client has left.
    async fn exchange(&mut self) -> Option<&'static str> {
        let (stopping, heartbeat) = (self.state.stopping.clone(), self.state.config.heartbeat);
        self.send(self.status()).await?;
        loop {
            tokio::select! {
                update = self.viewer.next() => match update {
                    Some(TerminalUpdate::Output(bytes)) => self.send(Message::Binary(bytes.into())).await?,
                    Some(TerminalUpdate::Resized(_)) => self.send(self.status()).await?,
                    None => return Some("ended"),
                },
                message = self.socket.recv() => self.receive(message?.ok()?).await?,
                () = stopping.cancelled() => return Some("the server stops"),
                () = tokio::time::sleep(heartbeat) => {
                    let scope = if self.caller.drives { TokenScope::Drive } else { TokenScope::Read };
                    if !self.caller.is_still_allowed(&self.state, scope) {
                        return Some("the token was revoked");
                    }
                    self.send(Message::Ping(Vec::new().into())).await?;
                }
            }
        }
    }

    async fn send(&mut self, message: Message) -> Option<()> {
        self.socket.send(message).await.ok()
    }

    fn status(&self) -> Message {
        let WindowSize { rows, columns } = self.viewer.size();
        let access = if self.viewer.access() == ViewerAccess::Type { "type" } else { "watch" };
        Message::Text(
            json!({ "type": "status", "access": access, "rows": rows, "columns": columns }).to_string().into(),
        )
    }

    /// Handles a frame of the client; returns `None` when the client leaves.
    async fn receive(&mut self, message: Message) -> Option<()> {
        match message {
            Message::Binary(bytes) => self.viewer.write(bytes.to_vec()).await,
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(TerminalCommand::Resize { rows, columns }) => self.viewer.resize(WindowSize { rows, columns }),
                Ok(TerminalCommand::Redraw) => self.send(Message::Binary(self.viewer.snapshot().into())).await?,
                Err(error) => {
                    let problem = json!({ "type": "error", "message": error.to_string() });
                    self.send(Message::Text(problem.to_string().into())).await?;
                }
            },
            Message::Close(_) => return None,
            Message::Ping(_) | Message::Pong(_) => {}
        }
        Some(())
    }
}
