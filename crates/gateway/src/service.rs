//! One request on a session's listener: who asks, for what, and what is answered.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::{
    call::Caller,
    endpoint::{Dialect, Route},
    headers,
    refusal::{Refusal, ResponseBody, whole},
};

/// Answers one request; errors take the shape of the caller's own API.
pub(crate) async fn serve(caller: Caller, request: Request<Incoming>) -> Result<Response<ResponseBody>, Infallible> {
    let route = Route::of(request.method(), request.uri().path());
    let dialect = match route {
        Route::Call(endpoint) => endpoint.dialect(),
        _ => Dialect::guess(request.uri().path(), request.headers()),
    };
    Ok(answer(&caller, route, dialect, request).await.unwrap_or_else(|refusal| refusal.respond(dialect)))
}

async fn answer(
    caller: &Caller,
    route: Route,
    dialect: Dialect,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    // A sign of life tells nothing, and clients ask for it before they have a token to show.
    if route == Route::Hello {
        return Ok(Response::new(Either::Left(Full::default())));
    }
    let admitted = headers::tokens(request.headers()).any(|token| caller.identity.token.admits(token));
    if !admitted {
        return Err(Refusal::TokenInvalid);
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match route {
        Route::Hello | Route::Unknown => Err(Refusal::RouteNotFound { method, path }),
        Route::WrongMethod => Err(Refusal::MethodNotAllowed { method, path }),
        Route::WebSocket => Err(Refusal::NoWebSocket),
        Route::Models => Ok(whole(StatusCode::OK, &models(dialect, &caller.identity.upstream.models()))),
        Route::Call(endpoint) => {
            let (parts, body) = request.into_parts();
            let body = read_body(body, caller.identity.limits.request_bytes).await?;
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
