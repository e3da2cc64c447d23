//! What the gateway says when it does not pass a call on, in the caller's own words.
//!
//! A refusal that would be refused again carries `x-should-retry: false`: clients that back off and try
//! again would hide it from the person for minutes.

use base::error_chain;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{Either, Full};
use policy::RuleRef;
use protocol::ProblemCode;
use serde_json::{Value, json};
use store::{JournalError, LedgerError, LimitAmount, LimitWindow};

use crate::{
    call::{Tee, WriteError},
    endpoint::ApiDialect,
    identity::AuthenticationError,
    upstream::UpstreamFailure,
};

/// What a session's listener answers with: words of ours, or an upstream's bytes.
pub(crate) type ResponseBody = Either<Full<Bytes>, Tee>;

/// Why a request got no answer of a model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallRefusal {
    #[error(transparent)]
    NotAuthenticated(AuthenticationError),
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
    #[error(
        "the request body is encoded with `{0}`, which is not taken here; send it plain, or with gzip, deflate or zstd"
    )]
    BodyEncoded(String),
    #[error("the request body cannot be read: {0}")]
    BodyInvalid(String),
    #[error("{}", spent(.0))]
    BudgetSpent(store::LimitExceeded),
    #[error("the call could cost {}, more than any one call may", dollars(*.0))]
    CostTooHigh(u64),
    #[error("the policy does not allow the model `{model}`: `{}` in {}", .rule.text, .rule.location())]
    ModelDenied { model: String, rule: RuleRef },
    #[error("the model `{0}` has no known price; name one in the configuration to use it")]
    PriceUnknown(String),
    #[error("there is no model `{0}` here that this caller may use; `GET /v1/models` lists those there are")]
    ModelUnknown(String),
    #[error("the session has ended")]
    SessionEnded,
    #[error("the call could not be recorded, so it was not made")]
    NotRecorded,
    #[error("the call could not be entered in the ledger, so it was not made")]
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
            WriteError::Journal(error) if matches!(*error, JournalError::Ended) => Self::SessionEnded,
            WriteError::Journal(error) => {
                tracing::error!(error = error_chain(&error), "cannot record a call in the journal");
                Self::NotRecorded
            }
        }
    }
}

impl CallRefusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            // A request that is not in a recording never will be: of all statuses, agents give up soonest at this one.
            Self::NotAuthenticated(AuthenticationError::OtherSession | AuthenticationError::KeyInvalid)
            | Self::SessionEnded
            | Self::ModelDenied { .. }
            | Self::Upstream(UpstreamFailure::NotRecorded(_)) => StatusCode::FORBIDDEN,
            Self::RouteNotFound { .. } | Self::ModelUnknown(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoWebSocket => StatusCode::UPGRADE_REQUIRED,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyEncoded(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyCut
            | Self::BodyInvalid(_)
            | Self::PriceUnknown(_)
            | Self::Upstream(
                UpstreamFailure::Unsupported { .. }
                | UpstreamFailure::Untranslatable(_)
                | UpstreamFailure::Unsendable(_),
            ) => StatusCode::BAD_REQUEST,
            // Of a minute there is more in the next one, so this is the one limit that is worth a second try.
            Self::BudgetSpent(refusal) if refusal.limit.window == LimitWindow::Minute => StatusCode::TOO_MANY_REQUESTS,
            Self::BudgetSpent(_) | Self::CostTooHigh(_) => StatusCode::PAYMENT_REQUIRED,
            Self::NotAuthenticated(AuthenticationError::Unavailable(_)) | Self::NotRecorded | Self::NotHeld => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Upstream(UpstreamFailure::Silent(_)) => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    fn may_be_retried(&self) -> bool {
        !self.status().is_client_error() || self.status() == StatusCode::TOO_MANY_REQUESTS
    }

    /// What a program may know about it, where a code of ours says more than the status.
    pub(crate) fn code(&self) -> Option<ProblemCode> {
        match self {
            Self::BudgetSpent(_) | Self::CostTooHigh(_) => Some(ProblemCode::BudgetExceeded),
            Self::ModelDenied { .. } => Some(ProblemCode::PolicyDenied),
            Self::PriceUnknown(_) => Some(ProblemCode::PriceUnknown),
            Self::NotAuthenticated(AuthenticationError::OtherSession | AuthenticationError::KeyInvalid) => {
                Some(ProblemCode::TokenInvalid)
            }
            Self::Upstream(UpstreamFailure::NotRecorded(_)) => Some(ProblemCode::ReplayMiss),
            _ => None,
        }
    }

    /// The answer, in the caller's shape.
    pub(crate) fn respond(&self, dialect: ApiDialect) -> Response<ResponseBody> {
        tracing::debug!(status = self.status().as_u16(), "refused: {self}");
        let mut body = error_body(dialect, self.status(), &self.to_string());
        if let (Some(code), ApiDialect::Openai) = (self.code(), dialect) {
            body["error"]["code"] = code.as_str().into();
        }
        let mut response = json_response(self.status(), &body);
        if let Some(code) = self.code() {
            response.headers_mut().insert("x-viv-code", HeaderValue::from_static(code.as_str()));
        }
        if !self.may_be_retried() {
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

/// Which limit is used up, in words a person can act on.
fn spent(refusal: &store::LimitExceeded) -> String {
    let store::LimitExceeded { limit, spent, held, asked } = refusal;
    let name = &limit.name;
    match limit.most {
        LimitAmount::Picos(most) => {
            let left = most.saturating_sub(spent.saturating_add(*held));
            let (most, spent, held, asked) = (dollars(most), dollars(*spent), dollars(*held), dollars(*asked));
            let what = if left == 0 { "the budget is used up" } else { "this call does not fit into the budget" };
            format!(
                "{what}: it could cost {asked}, and `{name}` allows {most}, of which {spent} is spent, {held} held and {} left",
                dollars(left)
            )
        }
        LimitAmount::Requests(most) => format!("the model requests are used up: `{name}` allows {most}"),
    }
}

/// Pico-dollars as people write them, with as many digits as it takes to tell.
fn dollars(picos: u64) -> String {
    let (whole, rest) = (picos / 1_000_000_000_000, picos % 1_000_000_000_000);
    let digits = format!("{rest:012}");
    let (cents, finer) = digits.split_at(2);
    format!("${whole}.{cents}{}", finer.trim_end_matches('0'))
}

/// An answer of ours, as JSON.
pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error as the vendor of `dialect` would put it.
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

/// An error in the middle of an event stream. Starts with a blank line: the event before may be unfinished.
pub(crate) fn error_event(dialect: ApiDialect, message: &str) -> Bytes {
    let body = error_body(dialect, StatusCode::BAD_GATEWAY, message);
    let name = if dialect == ApiDialect::Anthropic { "event: error\n" } else { "" };
    Bytes::from(format!("\n\n{name}data: {body}\n\n"))
}

pub(crate) fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 | 405 | 415 => "invalid_request_error",
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
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}

#[cfg(test)]
mod tests {
    use store::{LimitScope, UsageLimit};

    use super::*;

    #[test]
    fn an_error_has_the_shape_of_its_vendor() {
        let body = |dialect| error_body(dialect, StatusCode::FORBIDDEN, "no");
        let error = json!({"type": "permission_error", "message": "no"});
        assert_eq!(body(ApiDialect::Anthropic), json!({"type": "error", "error": error}));
        let error = json!({"message": "no", "type": "permission_error", "param": null, "code": null});
        assert_eq!(body(ApiDialect::Openai), json!({"error": error}));
        let error = json!({"code": 403, "message": "no", "status": "PERMISSION_DENIED"});
        assert_eq!(body(ApiDialect::Gemini), json!({"error": error}));
    }

    #[test]
    fn a_budget_says_whether_nothing_is_left_or_too_little() {
        let limit = |most| UsageLimit { name: "b", scope: LimitScope::Key, window: LimitWindow::Ever, most };
        let dollar = 1_000_000_000_000;
        let told = |spent_picos, held| {
            spent(&store::LimitExceeded {
                limit: limit(LimitAmount::Picos(dollar)),
                spent: spent_picos,
                held,
                asked: 2 * dollar,
            })
        };
        assert_eq!(
            told(150_000_000, 0),
            "this call does not fit into the budget: it could cost $2.00, and `b` allows $1.00, of which $0.00015 is \
             spent, $0.00 held and $0.99985 left"
        );
        assert!(told(dollar - 1, 1).starts_with("the budget is used up: it could cost $2.00, and `b` allows $1.00"));
    }

    #[test]
    fn money_is_told_in_dollars() {
        assert_eq!(dollars(2_000_000_000_000), "$2.00");
        assert_eq!(dollars(62_500), "$0.0000000625");
        assert_eq!(dollars(1_230_000_000_000), "$1.23");
    }

    #[test]
    fn an_error_event_ends_whatever_was_open() {
        let event = error_event(ApiDialect::Anthropic, "cut");
        assert!(event.starts_with(b"\n\nevent: error\ndata: {") && event.ends_with(b"}\n\n"));
    }
}
