//! One request on a listener: who asks, for what, and what is answered.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::{
    attachment::Admit,
    call::Caller,
    coding::{Coding, UnpackError},
    endpoint::{Dialect, Route},
    headers,
    identity::Limits,
    refusal::{Refusal, ResponseBody, whole},
    tasks::Tasks,
    till::Till,
};

/// What every connection of a listener is served with.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) admit: Admit,
    pub(crate) till: Till,
    pub(crate) limits: Limits,
    pub(crate) tasks: Tasks,
}

impl Desk {
    /// Whoever sent a request, if it shows a token that opens something here.
    fn caller(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let identity = headers::tokens(headers).find_map(|token| (self.admit)(token)).ok_or(Refusal::TokenInvalid)?;
        Ok(Caller { identity, till: self.till.clone(), tasks: self.tasks.clone() })
    }
}

/// Answers one request; errors take the shape of the caller's own API.
pub(crate) async fn serve(desk: Desk, request: Request<Incoming>) -> Result<Response<ResponseBody>, Infallible> {
    let route = Route::of(request.method(), request.uri().path());
    let dialect = match route {
        Route::Call(endpoint) => endpoint.dialect(),
        _ => Dialect::guess(request.uri().path(), request.headers()),
    };
    Ok(answer(&desk, route, dialect, request).await.unwrap_or_else(|refusal| refusal.respond(dialect)))
}

async fn answer(
    desk: &Desk,
    route: Route,
    dialect: Dialect,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    // A sign of life tells nothing, and clients ask for it before they have a token to show.
    if route == Route::Hello {
        return Ok(Response::new(Either::Left(Full::default())));
    }
    let caller = desk.caller(request.headers())?;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match route {
        Route::Hello | Route::Unknown => Err(Refusal::RouteNotFound { method, path }),
        Route::WrongMethod => Err(Refusal::MethodNotAllowed { method, path }),
        Route::WebSocket => Err(Refusal::NoWebSocket),
        Route::Models => Ok(whole(StatusCode::OK, &models(dialect, &caller.identity.upstream.models()))),
        Route::Call(endpoint) => {
            let (mut parts, body) = request.into_parts();
            let coding = Coding::of(&parts.headers).map_err(Refusal::BodyEncoded)?;
            let body = read_body(body, desk.limits.request_bytes).await?;
            let body = unpack(coding, body, desk.limits.request_bytes).await?;
            parts.headers.remove(header::CONTENT_ENCODING);
            caller.call(endpoint, &parts, body).await
        }
    }
}

async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, Refusal> {
    // A length that is told beforehand is refused before any of it is read.
    if body.size_hint().lower() > limit as u64 {
        return Err(Refusal::BodyTooLarge { limit });
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::BodyTooLarge { limit }),
        Err(_) => Err(Refusal::BodyCut),
    }
}

/// The body in plain bytes. The limit is for these, too: what is small when packed need not be so when opened.
async fn unpack(coding: Option<Coding>, body: Bytes, limit: usize) -> Result<Bytes, Refusal> {
    let Some(coding) = coding else { return Ok(body) };
    // This takes a while, and others are served on this thread.
    let opened = tokio::task::spawn_blocking(move || coding.unpack(body, limit)).await;
    match opened {
        Ok(Ok(body)) => body.ok_or(Refusal::BodyTooLarge { limit }),
        Ok(Err(UnpackError::Broken(coding))) => Err(Refusal::BodyInvalid(format!("it is not {}", coding.name()))),
        Ok(Err(UnpackError::Cut)) | Err(_) => Err(Refusal::BodyCut),
    }
}

fn models(dialect: Dialect, names: &[String]) -> Value {
    match dialect {
        Dialect::Anthropic => {
            let data: Vec<Value> = names
                .iter()
                .map(|name| json!({"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}))
                .collect();
            json!({"data": data, "has_more": false, "first_id": names.first(), "last_id": names.last()})
        }
        Dialect::Openai => {
            let data: Vec<Value> = names
                .iter()
                .map(|name| json!({"id": name, "object": "model", "created": 0, "owned_by": "vivarium"}))
                .collect();
            json!({"object": "list", "data": data})
        }
        Dialect::Gemini => {
            let models: Vec<Value> =
                names.iter().map(|name| json!({"name": format!("models/{name}"), "displayName": name})).collect();
            json!({"models": models})
        }
    }
}
