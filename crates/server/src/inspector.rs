//! The Inspector: the web UI at `/ui/`, embedded by `build.rs`.
//!
//! The page shows data of agents and models, so its policy forbids inline scripts, inline styles, other origins and frames.
//! The assets need no token: they are the same for everybody. Files of `assets/` have their digest in their name, so a
//! browser keeps them; the page itself is checked at each load. Not here: the page (`web/`), its data (the API).

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, VARY,
};
use http::{StatusCode, header};

use crate::error::route_not_found;
use crate::state::AppState;

/// One file of the built Inspector.
struct Asset {
    /// The path below `/ui/`.
    path: &'static str,
    /// The first half of its SHA-256.
    tag: &'static str,
    bytes: &'static [u8],
    /// The compressed bytes, if that is shorter.
    gzip: Option<&'static [u8]>,
}

/// The files of the built Inspector; empty if it was not built.
const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/inspector_assets.rs"));

/// The page of a program that was built without the Inspector.
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><title>viv</title><h1>The Inspector is not part of this build</h1>\
<p>Build it, then build viv again:</p>\
<pre>npm --prefix web ci\nnpm --prefix web run build\ncargo build --bin viv</pre>\
<p>The session API works without it. Its description is at <a href=\"/openapi.json\">/openapi.json</a>.</p></html>";

/// Scripts only from this server, and no text that becomes a script or markup without the sanitiser.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";

/// Returns the routes of the Inspector. They need no token.
pub(crate) fn pages() -> Router<AppState> {
    Router::new()
        .route("/", get(start))
        .route("/ui", get(|| async { Redirect::permanent("/ui/") }))
        .route("/ui/", get(|headers: HeaderMap| async move { page(&headers) }))
        .route("/ui/{*path}", get(file))
}

/// `GET /`: leads a browser to the Inspector.
async fn start(request: Request) -> Response {
    let accepted = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    if accepted.is_some_and(|kinds| kinds.contains("text/html")) {
        return Redirect::to("/ui/").into_response();
    }
    route_not_found(request).await.into_response()
}

async fn file(Path(path): Path<String>, headers: HeaderMap, request: Request) -> Response {
    match ASSETS.iter().find(|asset| asset.path == path) {
        Some(asset) => send(asset, &headers),
        None => route_not_found(request).await.into_response(),
    }
}

fn page(headers: &HeaderMap) -> Response {
    match ASSETS.iter().find(|asset| asset.path == "index.html") {
        Some(asset) => send(asset, headers),
        None => guarded((StatusCode::OK, [(CONTENT_TYPE, "text/html; charset=utf-8")], NOT_BUILT).into_response()),
    }
}

fn send(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", asset.tag);
    let has = |name: HeaderName, wanted: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains(wanted))
    };
    let (body, packed) = match asset.gzip.filter(|_| has(ACCEPT_ENCODING, "gzip")) {
        Some(gzip) => (gzip, true),
        None => (asset.bytes, false),
    };
    let unchanged = has(IF_NONE_MATCH, &tag);
    let mut response = if unchanged { StatusCode::NOT_MODIFIED.into_response() } else { body.into_response() };
    let kept = if asset.path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(asset.path)));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static(kept));
    fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        fields.insert(ETAG, tag);
    }
    if packed && !unchanged {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    guarded(response)
}

/// Returns `response` with the headers that keep the page to itself.
fn guarded(mut response: Response) -> Response {
    const HEADERS: [(HeaderName, &str); 5] = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
