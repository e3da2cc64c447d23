//! Refusals: the errors that the gateway itself returns, in the format of the client's API.
//!
//! A refusal that a retry cannot change has the header `x-should-retry: false`. Otherwise clients would retry for
//! minutes before they show the error to the user.

use std::time::Duration;

use base::{BudgetFull, error_chain};
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{Either, Full};
use policy::RuleRef;
use protocol::ProblemCode;
use serde_json::{Value, json};
use store::{JournalError, LedgerError, LimitAmount, LimitWindow, StorageExceeded};

use crate::{
    call::{Tee, WriteError},
    endpoint::{ApiDialect, ModelEndpoint},
    identity::AuthenticationError,
    upstream::UpstreamFailure,
};

/// When a call that did not get held money is worth another try.
const RETRY_AFTER_SECONDS: &str = "5";

/// The body of a response: a document of the gateway, or the bytes of an upstream.
pub(crate) type ResponseBody = Either<Full<Bytes>, Tee>;

/// Why a request was not answered by a model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallRefusal {
    #[error(transparent)]
    NotAuthenticated(AuthenticationError),
    #[error("the model gateway has no route `{method} {path}`")]
    RouteNotFound { method: Method, path: String },
    #[error("the model gateway does not accept `{method}` for `{path}`")]
    MethodNotAllowed { method: Method, path: String },
    #[error("the model gateway does not support WebSocket; send a `POST`")]
    NoWebSocket,
    #[error("the request body is too large: the limit is {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error(
        "the request needs {needed} bytes of memory to be translated for its upstream, and a session may hold {capacity} (limits.in_flight)"
    )]
    TranslationTooLarge { needed: usize, capacity: usize },
    #[error("the request body is incomplete")]
    BodyCut,
    #[error("no byte of the request body arrived for {} ms (limits.body_idle)", .0.as_millis())]
    BodyIdle(Duration),
    #[error("the request body did not arrive within {} ms (limits.body_total)", .0.as_millis())]
    BodySlow(Duration),
    #[error(transparent)]
    InFlightFull(#[from] BudgetFull),
    #[error("{0}")]
    StorageFull(StorageExceeded),
    #[error("unsupported content encoding `{0}`; use gzip, deflate, zstd or none")]
    BodyEncoded(String),
    #[error("invalid request body: {0}")]
    BodyInvalid(String),
    #[error("{}", exceeded_limit(.0))]
    BudgetSpent(store::LimitExceeded),
    #[error("{}; the held amount is released when the running calls end", exceeded_limit(.0))]
    BudgetHeld(store::LimitExceeded),
    #[error("field `{field}` refused: {reason}")]
    FieldRefused { field: String, reason: String },
    #[error("the call could cost {}, which is more than the maximum for one call", dollars(*.0))]
    CostTooHigh(u64),
    #[error("model `{model}` denied by the policy: `{}` in {}", .rule.text, .rule.location())]
    ModelDenied { model: String, rule: RuleRef },
    #[error("model `{model}` has no known price, and {reason}")]
    PriceUnknown { model: String, reason: String },
    #[error("model `{0}` does not exist or is not allowed; `GET /v1/models` lists the models")]
    ModelUnknown(String),
    #[error("the session has ended")]
    SessionEnded,
    #[error("cannot record the call, so it was not sent")]
    NotRecorded,
    #[error("cannot hold the call in the ledger, so it was not sent")]
    NotHeld,
    #[error(transparent)]
    Upstream(#[from] UpstreamFailure),
}

impl From<WriteError> for CallRefusal {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Ledger(LedgerError::Refused(exceeded)) => Self::BudgetSpent(exceeded),
            WriteError::Ledger(LedgerError::TooMuch(picos)) => Self::CostTooHigh(picos),
            WriteError::Ledger(error) => {
                tracing::error!(error = error_chain(&error), "cannot hold a call in the ledger");
                Self::NotHeld
            }
            WriteError::Journal(error) => match *error {
                JournalError::Ended => Self::SessionEnded,
                JournalError::StorageLimit(exceeded) => Self::StorageFull(exceeded),
                _ => {
                    tracing::error!(error = error_chain(&error), "cannot record a call in the journal");
                    Self::NotRecorded
                }
            },
        }
    }
}

impl CallRefusal {
    /// Returns the HTTP status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            // A request that is missing in a recording will always be. Agents give up soonest at this status.
            Self::NotAuthenticated(AuthenticationError::OtherSession | AuthenticationError::KeyInvalid)
            | Self::SessionEnded
            | Self::StorageFull(_)
            | Self::ModelDenied { .. }
            | Self::Upstream(UpstreamFailure::NotRecorded(_)) => StatusCode::FORBIDDEN,
            Self::RouteNotFound { .. } | Self::ModelUnknown(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoWebSocket => StatusCode::UPGRADE_REQUIRED,
            Self::BodyTooLarge { .. } | Self::TranslationTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyIdle(_) | Self::BodySlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::BudgetHeld(_) | Self::InFlightFull(_) | Self::Upstream(UpstreamFailure::InFlightFull(_)) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::BodyEncoded(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyCut
            | Self::FieldRefused { .. }
            | Self::BodyInvalid(_)
            | Self::PriceUnknown { .. }
            | Self::Upstream(
                UpstreamFailure::Unsupported { .. }
                | UpstreamFailure::Untranslatable(_)
                | UpstreamFailure::Unsendable(_),
            ) => StatusCode::BAD_REQUEST,
            // A limit per minute and held money are the only ones that a retry can satisfy.
            Self::BudgetSpent(exceeded) if exceeded.limit.window == LimitWindow::Minute => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::BudgetSpent(_) | Self::CostTooHigh(_) | Self::Upstream(UpstreamFailure::BudgetExhausted) => {
                StatusCode::PAYMENT_REQUIRED
            }
            Self::NotAuthenticated(AuthenticationError::Unavailable(_)) | Self::NotRecorded | Self::NotHeld => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Upstream(UpstreamFailure::Silent(_)) => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    fn can_be_retried(&self) -> bool {
        let retried = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
        !self.status().is_client_error() || retried.contains(&self.status())
    }

    /// Returns the stable error code, if there is one that says more than the status.
    pub(crate) fn code(&self) -> Option<ProblemCode> {
        match self {
            Self::BudgetSpent(_) | Self::CostTooHigh(_) | Self::Upstream(UpstreamFailure::BudgetExhausted) => {
                Some(ProblemCode::BudgetExceeded)
            }
            Self::BudgetHeld(_) => Some(ProblemCode::BudgetHeld),
            Self::FieldRefused { .. } => Some(ProblemCode::InvalidRequest),
            Self::ModelDenied { .. } => Some(ProblemCode::PolicyDenied),
            Self::PriceUnknown { .. } => Some(ProblemCode::PriceUnknown),
            Self::NotAuthenticated(AuthenticationError::OtherSession | AuthenticationError::KeyInvalid) => {
                Some(ProblemCode::TokenInvalid)
            }
            Self::Upstream(UpstreamFailure::NotRecorded(_)) => Some(ProblemCode::ReplayMiss),
            Self::InFlightFull(_) | Self::Upstream(UpstreamFailure::InFlightFull(_)) => {
                Some(ProblemCode::HostLimitExceeded)
            }
            Self::BodyIdle(_) | Self::BodySlow(_) => Some(ProblemCode::Timeout),
            Self::StorageFull(exceeded) => Some(exceeded.code()),
            _ => None,
        }
    }

    /// Returns the response, in the format of `dialect`.
    pub(crate) fn respond(&self, dialect: ApiDialect) -> Response<ResponseBody> {
        tracing::debug!(status = self.status().as_u16(), "refused a request: {self}");
        let mut body = error_body(dialect, self.status(), &self.to_string());
        if let (Some(code), ApiDialect::Openai) = (self.code(), dialect) {
            body["error"]["code"] = code.as_str().into();
        }
        if let (Self::FieldRefused { field, .. }, ApiDialect::Openai) = (self, dialect) {
            body["error"]["param"] = field.as_str().into();
        }
        let mut response = json_response(self.status(), &body);
        if matches!(self, Self::BudgetHeld(_)) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        if let Some(code) = self.code() {
            response.headers_mut().insert("x-viv-code", HeaderValue::from_static(code.as_str()));
        }
        if self.code() == Some(ProblemCode::HostLimitExceeded) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if !self.can_be_retried() {
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

/// Describes which limit is exceeded, and by how much.
fn exceeded_limit(exceeded: &store::LimitExceeded) -> String {
    let store::LimitExceeded { limit, spent, held, asked } = exceeded;
    let name = &limit.name;
    match limit.max {
        LimitAmount::Picos(most) => {
            let left = most.saturating_sub(spent.saturating_add(*held));
            let (most, spent, held, asked) = (dollars(most), dollars(*spent), dollars(*held), dollars(*asked));
            let problem = if left == 0 { "budget exhausted" } else { "budget too small for this call" };
            let left = dollars(left);
            format!(
                "{problem}: the call could cost {asked}; `{name}` allows {most} ({spent} spent, {held} held, {left} left)"
            )
        }
        LimitAmount::Tokens(most) => format!(
            "token limit exceeded: the call could use {asked} tokens; `{name}` allows {most} for models without a known \
             price ({spent} used, {held} held)"
        ),
        LimitAmount::Requests(most) => format!("request limit exceeded: `{name}` allows {most} model requests"),
    }
}

/// Formats pico-dollars as dollars, with at least two decimal places and no trailing zeros after them.
fn dollars(picos: u64) -> String {
    let (whole, rest) = (picos / 1_000_000_000_000, picos % 1_000_000_000_000);
    let digits = format!("{rest:012}");
    let (cents, finer) = digits.split_at(2);
    format!("${whole}.{cents}{}", finer.trim_end_matches('0'))
}

/// Returns a response with a JSON document of the gateway.
pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns an error document in the format of `dialect`.
pub(crate) fn error_body(dialect: ApiDialect, status: StatusCode, message: &str) -> Value {
    match dialect {
        ApiDialect::Anthropic => {
            json!({"type": "error", "error": {"type": anthropic_type(status), "message": message}})
        }
        ApiDialect::Openai => {
            json!({"error": {"message": message, "type": openai_type(status), "param": null, "code": null}})
        }
        ApiDialect::Gemini => {
            json!({"error": {"code": status.as_u16(), "message": message, "status": gemini_status(status)}})
        }
    }
}

/// Returns an error event for a stream of `endpoint`, of which `sent` has arrived. Starts with a blank line, because the
/// event before may be incomplete.
pub(crate) fn error_event(endpoint: ModelEndpoint, failure: &UpstreamFailure, sent: &[u8]) -> Bytes {
    let exhausted = matches!(failure, UpstreamFailure::BudgetExhausted);
    let status = if exhausted { StatusCode::PAYMENT_REQUIRED } else { StatusCode::BAD_GATEWAY };
    if endpoint == ModelEndpoint::Responses {
        let code = if exhausted { "insufficient_quota" } else { "server_error" };
        let event = failed_response(code, &failure.to_string(), sent);
        return Bytes::from(format!("\n\nevent: response.failed\ndata: {event}\n\n"));
    }
    let dialect = endpoint.dialect();
    let body = error_body(dialect, status, &failure.to_string());
    let name = if dialect == ApiDialect::Anthropic { "event: error\n" } else { "" };
    Bytes::from(format!("\n\n{name}data: {body}\n\n"))
}

/// Returns the last event of a stream of the Responses API that failed after `sent`.
fn failed_response(code: &str, message: &str, sent: &[u8]) -> Value {
    let after_last = |name: &[u8]| memchr::memmem::rfind(sent, name).map(|at| &sent[at + name.len()..]);
    let number = after_last(br#""sequence_number":"#).map(<[u8]>::trim_ascii_start).and_then(|rest| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse::<u64>().ok()
    });
    // Every event with a response starts with its id.
    let id = memchr::memmem::find(sent, br#""resp_"#).and_then(|at| {
        let rest = &sent[at + 1..];
        std::str::from_utf8(&rest[..memchr::memchr(b'"', rest)?]).ok()
    });
    json!({
        "type": "response.failed",
        "sequence_number": number.map_or(0, |number| number + 1),
        "response": {
            "id": id.unwrap_or("resp_failed"), "object": "response", "created_at": 0, "status": "failed",
            "error": {"code": code, "message": message}, "incomplete_details": null, "instructions": null,
            "metadata": {}, "model": "", "output": [], "parallel_tool_calls": true, "temperature": null,
            "tool_choice": "auto", "tools": [], "top_p": null, "usage": null,
        },
    })
}

/// Returns Anthropic's error type for a status.
pub(crate) fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 | 405 | 415 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        408 | 504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
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
        400 | 405 | 413 | 415 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        402 | 429 => "RESOURCE_EXHAUSTED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        503 => "UNAVAILABLE",
        408 | 504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}

#[cfg(test)]
mod tests {
    use store::{LimitScope, UsageLimit};

    use super::*;

    #[test]
    fn error_has_the_format_of_the_dialect() {
        let body = |dialect| error_body(dialect, StatusCode::FORBIDDEN, "no");
        let error = json!({"type": "permission_error", "message": "no"});
        assert_eq!(body(ApiDialect::Anthropic), json!({"type": "error", "error": error}));
        let error = json!({"message": "no", "type": "permission_error", "param": null, "code": null});
        assert_eq!(body(ApiDialect::Openai), json!({"error": error}));
        let error = json!({"code": 403, "message": "no", "status": "PERMISSION_DENIED"});
        assert_eq!(body(ApiDialect::Gemini), json!({"error": error}));
    }

    #[test]
    fn budget_message_tells_an_exhausted_budget_from_a_small_one() {
        let limit = |most| UsageLimit { name: "b", scope: LimitScope::Key, window: LimitWindow::Ever, max: most };
        let dollar = 1_000_000_000_000;
        let message = |spent_picos, held| {
            exceeded_limit(&store::LimitExceeded {
                limit: limit(LimitAmount::Picos(dollar)),
                spent: spent_picos,
                held,
                asked: 2 * dollar,
            })
        };
        assert_eq!(
            message(150_000_000, 0),
            "budget too small for this call: the call could cost $2.00; `b` allows $1.00 ($0.00015 spent, $0.00 held, \
             $0.99985 left)"
        );
        assert!(message(dollar - 1, 1).starts_with("budget exhausted: the call could cost $2.00; `b` allows $1.00"));
    }

    #[test]
    fn picos_are_formatted_as_dollars() {
        assert_eq!(dollars(2_000_000_000_000), "$2.00");
        assert_eq!(dollars(62_500), "$0.0000000625");
        assert_eq!(dollars(1_230_000_000_000), "$1.23");
    }

    #[test]
    fn error_event_ends_an_incomplete_event() {
        let event = error_event(ModelEndpoint::Messages, &UpstreamFailure::Cut, b"");
        assert!(event.starts_with(b"\n\nevent: error\ndata: {") && event.ends_with(b"}\n\n"));
    }
}
