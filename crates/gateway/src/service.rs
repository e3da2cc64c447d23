//! The HTTP service of a listener: authenticates each request and routes it.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::{
    attachment::{AttachmentTasks, TokenLookup},
    call::{Billing, CallHandler},
    coding::{Coding, UnpackError},
    endpoint::{ApiDialect, Route, in_models_path},
    headers,
    identity::{AuthenticationError, GatewayLimits},
    models,
    query::percent_decoded,
    refusal::{CallRefusal, ResponseBody, json_response},
};

/// The context of one connection: its listener's settings and its worker's tasks.
#[derive(Clone)]
pub(crate) struct ConnectionContext {
    pub(crate) lookup: TokenLookup,
    pub(crate) billing: Billing,
    pub(crate) limits: GatewayLimits,
    pub(crate) tasks: AttachmentTasks,
}

impl ConnectionContext {
    /// Returns a handler for the client whose token is in `headers`. Fails if no token is accepted.
    fn authenticate(self: &Arc<Self>, headers: &HeaderMap) -> Result<CallHandler, CallRefusal> {
        // No token is empty, so the last lookup returns the error for a request without one.
        let mut first_error = None;
        for token in headers::tokens(headers).chain([""]) {
            match (self.lookup)(token) {
                Ok(identity) => return Ok(CallHandler { identity, context: self.clone() }),
                // The error is about the token that the client sent, if it sent one.
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        Err(CallRefusal::NotAuthenticated(first_error.unwrap_or(AuthenticationError::OtherSession)))
    }
}

/// Answers one request. Errors have the format of the client's API.
pub(crate) async fn serve(
    context: Arc<ConnectionContext>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let route = Route::of(request.method(), request.uri().path());
    let dialect = match route {
        Route::Call(endpoint) => endpoint.dialect(),
        _ => ApiDialect::guess(request.uri().path(), request.headers()),
    };
    Ok(answer(&context, route, dialect, request).await.unwrap_or_else(|refusal| refusal.respond(dialect)))
}

async fn answer(
    context: &Arc<ConnectionContext>,
    route: Route,
    dialect: ApiDialect,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, CallRefusal> {
    // A health check reveals nothing, and clients send it before they have a token.
    if route == Route::Hello {
        return Ok(Response::new(Either::Left(Full::default())));
    }
    let handler = context.authenticate(request.headers())?;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match route {
        Route::Hello | Route::Unknown => Err(CallRefusal::RouteNotFound { method, path }),
        Route::WrongMethod => Err(CallRefusal::MethodNotAllowed { method, path }),
        Route::WebSocket => Err(CallRefusal::NoWebSocket),
        Route::Models => {
            let names = models::allowed_models(&handler.identity, &context.billing.prices);
            Ok(json_response(StatusCode::OK, &models::list(dialect, &names)))
        }
        Route::Model => {
            let name = in_models_path(&path).map(percent_decoded).unwrap_or_default();
            let names = models::allowed_models(&handler.identity, &context.billing.prices);
            let name = names.into_iter().find(|known| *known == name).ok_or(CallRefusal::ModelUnknown(name))?;
            Ok(json_response(StatusCode::OK, &models::one(dialect, &name)))
        }
        Route::Call(endpoint) => {
            let (mut parts, body) = request.into_parts();
            let coding = Coding::of(&parts.headers).map_err(CallRefusal::BodyEncoded)?;
            let body = read_body(body, context.limits.request_bytes).await?;
            let body = unpack(coding, body, context.limits.request_bytes).await?;
            parts.headers.remove(header::CONTENT_ENCODING);
            handler.handle(endpoint, &parts, body).await
        }
    }
}

async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, CallRefusal> {
    // A content length above the limit is refused before anything is read.
    if body.size_hint().lower() > limit as u64 {
        return Err(CallRefusal::BodyTooLarge { limit });
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(CallRefusal::BodyTooLarge { limit }),
        Err(_) => Err(CallRefusal::BodyCut),
    }
}

/// Returns the decompressed body. The limit applies to its decompressed size as well.
async fn unpack(coding: Option<Coding>, body: Bytes, limit: usize) -> Result<Bytes, CallRefusal> {
    let Some(coding) = coding else { return Ok(body) };
    // Decompression takes a while, and this thread serves other connections.
    let unpacked = tokio::task::spawn_blocking(move || coding.unpack(body, limit)).await;
    match unpacked {
        Ok(Ok(body)) => body.ok_or(CallRefusal::BodyTooLarge { limit }),
        Ok(Err(UnpackError::Broken(coding))) => {
            Err(CallRefusal::BodyInvalid(format!("the data is not valid {}", coding.name())))
        }
        Ok(Err(UnpackError::Cut)) | Err(_) => Err(CallRefusal::BodyCut),
    }
}
