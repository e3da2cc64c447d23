//! Handlers for ports inside a sandbox: list them, and connect to one.
//!
//! A connection is the raw bytes of the port, after an upgrade. A page that something inside serves is hostile, so the API
//! never serves it under its own origin.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::{ProblemCode, SessionId};

use crate::error::ApiError;
use crate::state::AppState;
use crate::wire::{PortList, PortRow};

/// The protocol name of an upgraded connection.
const PROTOCOL: &str = "viv-port";

/// `GET /v1/sessions/{session_id}/ports`: lists the TCP ports on which a program listens inside the sandbox.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/ports",
    operation_id = "list_ports",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "The ports, by number.", body = PortList)),
)]
pub(crate) async fn list(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<Json<PortList>, ApiError> {
    let ports = state.sessions.ports(&id).await?.into_iter().map(PortRow::from).collect();
    Ok(Json(PortList { ports }))
}

/// `GET /v1/sessions/{session_id}/ports/{port}/stream`: connects to a port on the loopback inside the sandbox. The request
/// must ask for an upgrade to `viv-port`; after the answer 101, the connection carries the bytes of the port.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/ports/{port}/stream",
    operation_id = "connect_port",
    tag = "sessions",
    params(("session_id" = SessionId, Path), ("port" = u16, Path)),
    responses((status = 101, description = "The connection is open.")),
)]
pub(crate) async fn connect(
    State(state): State<AppState>,
    Path((id, port)): Path<(SessionId, u16)>,
    mut request: Request,
) -> Result<Response, ApiError> {
    // A browser cannot send this upgrade, so no page can reach a port through the API.
    if request.headers().get(UPGRADE).map(HeaderValue::as_bytes) != Some(PROTOCOL.as_bytes()) {
        let why = format!("the request must have `Connection: upgrade` and `Upgrade: {PROTOCOL}`");
        return Err(ApiError::new(ProblemCode::InvalidRequest, why));
    }
    let connection = state.sessions.connect_port(&id, port).await?;
    let upgraded = hyper::upgrade::on(&mut request);
    let stopping = state.stopping.clone();
    state.running_calls.spawn(async move {
        let Ok(outside) = upgraded.await else { return };
        tokio::select! {
            // A side that resets its connection ends both.
            _ = connection.relay(TokioIo::new(outside)) => {}
            () = stopping.cancelled() => {}
        }
    });
    let headers = [(CONNECTION, "upgrade"), (UPGRADE, PROTOCOL)];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}
