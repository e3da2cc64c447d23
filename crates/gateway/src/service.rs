//! The HTTP service of a listener: authenticates each request and routes it.

use std::{convert::Infallible, sync::Arc};

use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use crate::{
    attachment::{AttachmentTasks, TokenLookup},
    call::{Billing, CallHandler},
    coding::Coding,
    endpoint::{ApiDialect, Route, in_models_path},
    headers,
    identity::{AuthenticationError, GatewayLimits},
    models,
    query::percent_decoded,
    refusal::{CallRefusal, ResponseBody, json_response},
    request_body,
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
            let body = request_body::read(body, coding, &context.limits, &handler.identity.in_flight).await;
            let body = body.inspect_err(|refusal| log_limit(&handler, refusal))?;
            parts.headers.remove(header::CONTENT_ENCODING);
            handler.handle(endpoint, &parts, body).await
        }
    }
}

/// Logs that a request body reached a limit of the host budget.
fn log_limit(handler: &CallHandler, refusal: &CallRefusal) {
    if refusal.code().is_some() {
        let (session, used) = (&handler.identity.session, handler.identity.in_flight.used());
        tracing::warn!(%session, used, "refused a request body: {refusal}");
    }
}
