//! One request on a listener: who asks, for what, and what is answered.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::{
    attachment::TokenLookup,
    call::Caller,
    coding::{Coding, UnpackError},
    endpoint::{ApiDialect, Route, in_models_path},
    headers,
    identity::{AuthenticationError, GatewayLimits},
    models,
    query::percent_decoded,
    refusal::{Refusal, ResponseBody, whole},
    tasks::Tasks,
    till::Till,
};

/// What every connection of a listener is served with, on its lane.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) admit: TokenLookup,
    pub(crate) till: Till,
    pub(crate) limits: GatewayLimits,
    pub(crate) tasks: Tasks,
}

impl Desk {
    /// Whoever sent a request, if it shows a token that opens something here.
    fn caller(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, Refusal> {
        // No token is empty: with that one it is asked how somebody without any is refused here.
        let mut refused = None;
        for token in headers::tokens(headers).chain([""]) {
            match (self.admit)(token) {
                Ok(identity) => return Ok(Caller { identity, desk: self.clone() }),
                // Whoever shows a token is told about that one.
                Err(why) => _ = refused.get_or_insert(why),
            }
        }
        Err(Refusal::NotAdmitted(refused.unwrap_or(AuthenticationError::OtherSession)))
    }
}

/// Answers one request; errors take the shape of the caller's own API.
pub(crate) async fn serve(desk: Arc<Desk>, request: Request<Incoming>) -> Result<Response<ResponseBody>, Infallible> {
    let route = Route::of(request.method(), request.uri().path());
    let dialect = match route {
        Route::Call(endpoint) => endpoint.dialect(),
        _ => ApiDialect::guess(request.uri().path(), request.headers()),
    };
    Ok(answer(&desk, route, dialect, request).await.unwrap_or_else(|refusal| refusal.respond(dialect)))
}

async fn answer(
    desk: &Arc<Desk>,
    route: Route,
    dialect: ApiDialect,
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
        Route::Models => {
            let names = models::named_by(&caller.identity, &desk.till.prices);
            Ok(whole(StatusCode::OK, &models::list(dialect, &names)))
        }
        Route::Model => {
            let name = in_models_path(&path).map(percent_decoded).unwrap_or_default();
            let names = models::named_by(&caller.identity, &desk.till.prices);
            let name = names.into_iter().find(|known| *known == name).ok_or(Refusal::ModelUnknown(name))?;
            Ok(whole(StatusCode::OK, &models::one(dialect, &name)))
        }
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
