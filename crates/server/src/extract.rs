//! Extractors whose refusals are problems of ours.

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
        let read = axum::Json::<T>::from_request(request, state).await;
        read.map(|axum::Json(body)| Self(body)).map_err(|rejection| refused(rejection.status(), rejection.body_text()))
    }
}

/// A JSON body that may be left out.
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
        read.map_err(|rejection| refused(rejection.status(), rejection.body_text()))
    }
}

/// The parameters of a query.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let read = read.map(|axum::extract::Query(parameters)| Self(parameters));
        read.map_err(|rejection| refused(rejection.status(), rejection.body_text()))
    }
}

fn refused(status: StatusCode, text: String) -> ApiError {
    ApiError::new(code_of(status), text)
}
