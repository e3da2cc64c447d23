//! Extractors whose rejections are problem documents.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::{ApiError, code_of};

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let whole = Request::from_parts(parts.clone(), body);
        let bytes = Bytes::from_request(whole, state).await;
        let bytes = bytes.map_err(|rejection| rejected(rejection.status(), &rejection.body_text()))?;
        let again = Request::from_parts(parts, Body::from(bytes.clone()));
        let axum::Json(body) = axum::Json::<T>::from_request(again, state)
            .await
            .map_err(|rejection| rejected(rejection.status(), &rejection.body_text()))?;
        // serde would read a list as the fields in source order.
        if bytes.trim_ascii_start().starts_with(b"[") {
            return Err(rejected(StatusCode::UNPROCESSABLE_ENTITY, "the body is a list; expected an object"));
        }
        Ok(Self(body))
    }
}

/// An optional JSON body.
pub(crate) struct OptionalJson<T>(pub(crate) Option<T>);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        use hyper::body::Body as _;

        if request.body().is_end_stream() {
            return Ok(Self(None));
        }
        let Json(body) = Json::<Option<T>>::from_request(request, state).await?;
        Ok(Self(body))
    }
}

/// The parameters of a path.
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let read = read.map(|axum::extract::Path(parameters)| Self(parameters));
        read.map_err(|rejection| rejected(rejection.status(), &rejection.body_text()))
    }
}

/// The parameters of a query.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let read = read.map(|axum::extract::Query(parameters)| Self(parameters));
        read.map_err(|rejection| rejected(rejection.status(), &rejection.body_text()))
    }
}

fn rejected(status: StatusCode, text: &str) -> ApiError {
    ApiError::new(code_of(status), plain_message(text))
}

/// Returns the parser's message without Rust type names.
fn plain_message(text: &str) -> String {
    let text = text
        .replace("Failed to deserialize the JSON body into the target type: ", "invalid body: ")
        .replace("Failed to parse the request body as JSON: ", "the body is not JSON: ")
        .replace("Failed to deserialize query string: ", "invalid query: ")
        .replace("Failed to buffer the request body: ", "cannot read the body: ");
    let Some((before, after)) = text.split_once("expected struct ") else { return text };
    let rest = after.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
    let rest = rest
        .strip_prefix(" with ")
        .and_then(|rest| rest.split_once(" element"))
        .map_or(rest, |(_, rest)| rest.strip_prefix('s').unwrap_or(rest));
    format!("{before}expected an object{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_type_names_are_removed_from_messages() {
        let message = "Failed to deserialize the JSON body into the target type: invalid type: integer `5`, \
            expected struct CreateSession at line 1 column 1";
        let expected = "invalid body: invalid type: integer `5`, expected an object at line 1 column 1";
        assert_eq!(plain_message(message), expected);
        assert_eq!(
            plain_message("invalid length 1, expected struct Rename with 2 elements at"),
            "invalid length 1, expected an object at"
        );
        assert_eq!(plain_message("missing field `agent`"), "missing field `agent`");
    }
}
