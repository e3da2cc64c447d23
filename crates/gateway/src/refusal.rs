//! What the gateway says when it does not pass a call on, in the caller's own words.
//!
//! A refusal that would be refused again carries `x-should-retry: false`: clients that back off and try
//! again would hide it from the person for minutes.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{Either, Full};
use serde_json::{Value, json};
use store::JournalError;

use crate::{endpoint::Dialect, tee::Tee, upstream::UpstreamFailure};

/// What a session's listener answers with: words of ours, or an upstream's bytes.
pub(crate) type ResponseBody = Either<Full<Bytes>, Tee>;

/// Why a request got no answer of a model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("this listener belongs to another session, or the token is missing")]
    TokenInvalid,
    #[error("the model gateway has no `{method} {path}`")]
    RouteNotFound { method: Method, path: String },
    #[error("the model gateway does not take `{method}` on `{path}`")]
    MethodNotAllowed { method: Method, path: String },
    #[error("the model gateway has no WebSocket; send a `POST`")]
    NoWebSocket,
    #[error("a request body has at most {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("the request body did not arrive whole")]
    BodyCut,
    #[error("the request body cannot be read: {0}")]
    BodyInvalid(String),
    #[error("the session has used up its {limit} model requests")]
    RequestsSpent { limit: u64 },
    #[error(
        "the budget is spent: {} of it is used, and this call may cost up to {}",
        dollars(*spent_picos),
        dollars(*needed_picos)
    )]
    BudgetSpent { spent_picos: i64, needed_picos: i64 },
    #[error("the model `{0}` has no known price; name one in the configuration to use it")]
    PriceUnknown(String),
    #[error("the session has ended")]
    SessionEnded,
    #[error("the call could not be recorded, so it was not made")]
    NotRecorded,
    #[error(transparent)]
    Upstream(#[from] UpstreamFailure),
}

impl From<JournalError> for Refusal {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Ended => Self::SessionEnded,
            _ => Self::NotRecorded,
        }
    }
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::TokenInvalid | Self::SessionEnded => StatusCode::FORBIDDEN,
            Self::RouteNotFound { .. } => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoWebSocket => StatusCode::UPGRADE_REQUIRED,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyCut
            | Self::BodyInvalid(_)
            | Self::PriceUnknown(_)
            | Self::Upstream(UpstreamFailure::Unsupported { .. } | UpstreamFailure::Untranslatable(_)) => {
                StatusCode::BAD_REQUEST
            }
            Self::RequestsSpent { .. } | Self::BudgetSpent { .. } => StatusCode::PAYMENT_REQUIRED,
            Self::NotRecorded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Upstream(UpstreamFailure::Silent(_)) => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// Which limit of the session is used up, by its name in the policy.
    pub(crate) fn spent_limit(&self) -> Option<&'static str> {
        match self {
            Self::RequestsSpent { .. } => Some("max_requests"),
            Self::BudgetSpent { .. } => Some("budget_usd"),
            _ => None,
        }
    }

    fn may_be_retried(&self) -> bool {
        !self.status().is_client_error()
    }

    /// The answer, in the caller's shape.
    pub(crate) fn respond(&self, dialect: Dialect) -> Response<ResponseBody> {
        tracing::debug!(status = self.status().as_u16(), "refused: {self}");
        let mut response = whole(self.status(), &error_body(dialect, self.status(), &self.to_string()));
        if !self.may_be_retried() {
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

/// An answer of ours, as JSON.
pub(crate) fn whole(status: StatusCode, body: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error as the vendor of `dialect` would put it.
pub(crate) fn error_body(dialect: Dialect, status: StatusCode, message: &str) -> Value {
    match dialect {
        Dialect::Anthropic => {
            json!({"type": "error", "error": {"type": anthropic_type(status), "message": message}})
        }
        Dialect::Openai => {
            json!({"error": {"message": message, "type": openai_type(status), "param": null, "code": null}})
        }
        Dialect::Gemini => {
            json!({"error": {"code": status.as_u16(), "message": message, "status": gemini_status(status)}})
        }
    }
}

/// An error in the middle of an event stream. Starts with a blank line: the event before may be unfinished.
pub(crate) fn error_event(dialect: Dialect, message: &str) -> Bytes {
    let body = error_body(dialect, StatusCode::BAD_GATEWAY, message);
    let name = if dialect == Dialect::Anthropic { "event: error\n" } else { "" };
    Bytes::from(format!("\n\n{name}data: {body}\n\n"))
}

pub(crate) fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 | 405 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

/// Pico-dollars as a person reads them; a fraction of a cent is rounded up.
fn dollars(picos: i64) -> String {
    let ten_thousandths = i128::from(picos).div_euclid(100_000_000) + i128::from(picos.rem_euclid(100_000_000) > 0);
    format!("${}.{:04}", ten_thousandths / 10_000, ten_thousandths % 10_000)
}

fn openai_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        402 => "insufficient_quota",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

fn gemini_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 | 405 | 413 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        402 | 429 => "RESOURCE_EXHAUSTED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_shape_of_its_vendor() {
        let body = |dialect| error_body(dialect, StatusCode::FORBIDDEN, "no");
        let error = json!({"type": "permission_error", "message": "no"});
        assert_eq!(body(Dialect::Anthropic), json!({"type": "error", "error": error}));
        let error = json!({"message": "no", "type": "permission_error", "param": null, "code": null});
        assert_eq!(body(Dialect::Openai), json!({"error": error}));
        let error = json!({"code": 403, "message": "no", "status": "PERMISSION_DENIED"});
        assert_eq!(body(Dialect::Gemini), json!({"error": error}));
    }

    #[test]
    fn an_amount_is_told_in_dollars() {
        assert_eq!(
            [0, 1, 500_000_000_000, 12_345_600_000_000].map(dollars),
            ["$0.0000", "$0.0001", "$0.5000", "$12.3456"]
        );
    }

    #[test]
    fn an_error_event_ends_whatever_was_open() {
        let event = error_event(Dialect::Anthropic, "cut");
        assert!(event.starts_with(b"\n\nevent: error\ndata: {") && event.ends_with(b"}\n\n"));
    }
}
