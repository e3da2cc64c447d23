//! How failures leave: always as a problem document, always with a code.
//!
//! A handler's error carries its problem as an extension of the response; `shape`, the outermost layer,
//! writes it down. What the framework refuses by itself is put into the same shape there.

use std::panic::AssertUnwindSafe;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base::error_chain;
use futures_util::FutureExt;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW, CONTENT_TYPE, HeaderValue, VARY,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, StatusCode};
use protocol::{Problem, ProblemCode};
use sandbox::FilesError;
use serde_json::Value;
use session::SessionError;

use crate::request_id::RequestId;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct ApiError(Box<Problem>);

impl ApiError {
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code, detail)))
    }

    /// A failure told with everything that caused it.
    pub(crate) fn caused(code: ProblemCode, error: &dyn std::error::Error) -> Self {
        Self::new(code, error_chain(error))
    }

    /// Something could not be kept on disk; `what` says what.
    pub(crate) fn unkept(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let full = store::is_disk_full(error);
        let failed = |code| Self::new(code, format!("{what}: {}", error_chain(error)));
        if full { failed(ProblemCode::DiskFull).hint("df -h") } else { failed(ProblemCode::JournalUnavailable) }
    }

    /// A line that can be pasted to mend it.
    pub(crate) fn hint(mut self, line: &str) -> Self {
        self.0.hint = Some(line.to_owned());
        self
    }

    /// Something a program may want to know beside the code.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.0.extensions.insert(name.to_owned(), value);
        self
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.0.status
    }
}

impl From<Box<Problem>> for ApiError {
    fn from(problem: Box<Problem>) -> Self {
        Self(problem)
    }
}

impl From<FilesError> for ApiError {
    fn from(error: FilesError) -> Self {
        Self::new(error.code(), error_chain(&error))
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let mut problem = Problem::new(error.code(), told(&error));
        problem.hint = error.hint();
        problem.extensions = error.details();
        if problem.status >= 500 {
            tracing::error!(code = problem.code, detail = problem.detail, "a call failed");
        }
        Self(Box::new(problem))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self.0);
        response
    }
}

/// `404`: no such route.
pub(crate) async fn route_not_found(request: Request) -> ApiError {
    let what = format!("there is no route `{}`", request.uri().path());
    ApiError::new(ProblemCode::RouteNotFound, what).hint("viv api GET /openapi.json")
}

/// `405`: the route is there, the method is not.
pub(crate) async fn method_not_allowed(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    ApiError::new(ProblemCode::MethodNotAllowed, format!("`{path}` does not take {method}"))
}

/// Writes every failure down as a problem document, panics included.
pub(crate) async fn shape(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let response = AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
        // What panicked is in the log, by the panic hook; a client learns nothing from it.
        ApiError::new(ProblemCode::Internal, "the server failed; its log says how").into_response()
    });
    let failed = response.status().is_client_error() || response.status().is_server_error();
    if failed { document(response, id) } else { response }
}

fn document(mut response: Response, id: Option<RequestId>) -> Response {
    let given = response.extensions_mut().remove::<Box<Problem>>();
    let mut problem = given.unwrap_or_else(|| Box::new(refused_by_framework(response.status())));
    problem.request_id = id.map(|id| id.0);
    problem.hint = problem.hint.take().or_else(|| Some(usual_hint(&problem).to_owned()));
    let status = response.status();
    let mut shaped = (status, axum::Json(&*problem)).into_response();
    let headers = shaped.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    keep(response.headers(), headers);
    shaped
}

/// The methods a route does take are worth telling; and a page that may call may read why it was refused.
const KEPT: [HeaderName; 4] = [ALLOW, VARY, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS];

fn keep(from: &HeaderMap, to: &mut HeaderMap) {
    for name in KEPT {
        if let Some(value) = from.get(&name) {
            to.insert(name, value.clone());
        }
    }
}

/// What mends most failures of a kind, where nobody knew better.
fn usual_hint(problem: &Problem) -> &'static str {
    const HINTS: [(ProblemCode, &str); 10] = [
        (ProblemCode::TokenInvalid, "viv tokens create --scope=drive"),
        (ProblemCode::PermissionDenied, "viv tokens create --scope=admin"),
        (ProblemCode::SessionEnded, "viv sessions ls"),
        (ProblemCode::PermissionNotPending, "viv perms ls"),
        (ProblemCode::QuestionNotPending, "viv perms ls"),
        (ProblemCode::MessageNotQueued, "viv sessions ls"),
        (ProblemCode::MessageNotFound, "viv sessions ls"),
        (ProblemCode::GrantNotFound, "viv sessions ls"),
        (ProblemCode::TaskNotFound, "viv api GET /v1/tasks"),
        (ProblemCode::PolicyInvalid, "viv policy schema"),
    ];
    let known = HINTS.iter().find(|(known, _)| known.as_str() == problem.code);
    // What this machine lacks is told by the one, what may be asked by the other.
    let other = if problem.status >= 500 { "viv doctor" } else { "viv api GET /openapi.json" };
    known.map_or(other, |(_, hint)| *hint)
}

pub(crate) fn refused_by_framework(status: StatusCode) -> Problem {
    let code = code_of(status);
    Problem { status: status.as_u16(), ..Problem::new(code, status.canonical_reason().unwrap_or("refused")) }
}

/// The code that goes with a status the framework chose.
pub(crate) fn code_of(status: StatusCode) -> ProblemCode {
    match status {
        StatusCode::NOT_FOUND => ProblemCode::RouteNotFound,
        StatusCode::METHOD_NOT_ALLOWED => ProblemCode::MethodNotAllowed,
        StatusCode::PAYLOAD_TOO_LARGE => ProblemCode::BodyTooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ProblemCode::UnsupportedMediaType,
        status if status.is_server_error() => ProblemCode::Internal,
        _ => ProblemCode::InvalidRequest,
    }
}

/// A failure of a session in one line; of a policy, everything that is wrong with it.
fn told(error: &SessionError) -> String {
    let SessionError::Policy(policy) = error else { return error_chain(error) };
    let findings: Vec<String> = policy.findings().iter().map(ToString::to_string).collect();
    format!("{policy}: {}", findings.join("; "))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn check(path: &str) -> (u16, Problem) {
        async fn panicking() -> &'static str {
            panic!("the secret of the house")
        }
        let routes = Router::new()
            .route("/panic", get(panicking))
            .route("/teapot", get(|| async { (StatusCode::IM_A_TEAPOT, "plain words") }));
        let app: Router = routes.layer(from_fn(shape)).layer(from_fn(crate::request_id::name));
        let response = app.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_panic_is_a_problem_that_tells_nothing() {
        let (status, problem) = check("/panic").await;
        assert_eq!((status, problem.code.as_str()), (500, "internal"));
        assert!(!serde_json::to_string(&problem).unwrap().contains("secret"));
        assert!(problem.request_id.is_some());
    }

    #[tokio::test]
    async fn what_the_framework_refuses_is_a_problem_too() {
        let (status, problem) = check("/teapot").await;
        assert_eq!((status, problem.status, problem.code.as_str()), (418, 418, "invalid_request"));
    }
}
