//! Error responses: every failed call returns a problem document with a code.
//!
//! The client gets the code, one sentence and a hint. The causes of the failure go to the log, with the request id. A
//! handler's error travels as an extension of the response; [`write_problems`], the outermost layer, turns it into the
//! document. Refusals of the framework become problem documents there too.

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
use session::{ReplaySessionError, SessionError};

use crate::request_id::RequestId;

/// The failure of a call: a problem for the client, and its causes for the log.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    problem: Box<Problem>,
    causes: Option<String>,
}

impl ApiError {
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self { problem: Box::new(Problem::new(code, detail)), causes: None }
    }

    /// Returns a problem with the sentence of `error`; its causes are only logged.
    pub(crate) fn caused(code: ProblemCode, error: &dyn std::error::Error) -> Self {
        Self::new(code, error.to_string()).with_causes(error)
    }

    /// Returns the problem that something could not be stored or read; `detail` names it.
    pub(crate) fn storage(detail: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let full = store::is_disk_full(error);
        let code = if full { ProblemCode::DiskFull } else { ProblemCode::JournalUnavailable };
        let failed = Self::new(code, detail).with_causes(error);
        if full { failed.with_hint("df -h") } else { failed }
    }

    fn with_causes(mut self, error: &dyn std::error::Error) -> Self {
        self.causes = Some(error_chain(error));
        self
    }

    /// Sets the hint: a command that helps.
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        self.problem.hint = Some(hint.to_owned());
        self
    }

    /// Adds a field to the problem document.
    pub(crate) fn with_extension(mut self, name: &str, value: Value) -> Self {
        self.problem.extensions.insert(name.to_owned(), value);
        self
    }

    /// Logs a failure of the server, and at debug level a refusal with causes.
    fn log(&self) {
        let Problem { code, detail, request_id, .. } = &*self.problem;
        let (detail, request_id) = (detail.as_deref(), request_id.as_deref());
        let causes = self.causes.as_deref();
        if self.problem.status >= 500 {
            tracing::error!(code, detail, causes, request_id, "call failed");
        } else if causes.is_some() {
            tracing::debug!(code, detail, causes, request_id, "call refused");
        }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.problem.status
    }
}

impl From<Box<Problem>> for ApiError {
    fn from(problem: Box<Problem>) -> Self {
        Self { problem, causes: None }
    }
}

impl From<FilesError> for ApiError {
    fn from(error: FilesError) -> Self {
        Self::caused(error.code(), &error)
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let mut failed = Self::new(error.code(), session_sentence(&error)).with_causes(&error);
        failed.problem.hint = error.hint();
        failed.problem.extensions = error.details();
        failed
    }
}

impl From<ReplaySessionError> for ApiError {
    fn from(error: ReplaySessionError) -> Self {
        let code = error.code();
        let failed = Self::caused(code, &error);
        match error {
            ReplaySessionError::Session(error) => error.into(),
            ReplaySessionError::Workspace { differences, .. } => {
                failed.with_extension("differences", serde_json::json!(differences))
            }
            // The cause says which part of the recording is missing, or which rule is wrong.
            ReplaySessionError::Recording(cause) => Self::caused(code, &cause),
            ReplaySessionError::NormalizerRules(cause) => Self::caused(code, &cause),
            _ => failed,
        }
    }
}

/// Returns the sentence for the client.
///
/// This is usually the error's own sentence. Some errors only name the part that failed: then it is the sentence of the
/// cause, which describes the client's input or a requirement of the machine. A policy error lists all findings.
fn session_sentence(error: &SessionError) -> String {
    match error {
        SessionError::Policy(policy) => {
            let findings: Vec<String> = policy.findings().iter().map(ToString::to_string).collect();
            format!("{policy}: {}", findings.join("; "))
        }
        SessionError::Agent(cause) => cause.to_string(),
        SessionError::Mcp(cause) => error_chain(cause),
        SessionError::Skills(cause) => error_chain(cause),
        SessionError::Sandbox(cause) => error_chain(cause),
        SessionError::Directory { source, .. } | SessionError::ProjectPolicy { source, .. } => {
            format!("{error}: {source}")
        }
        _ => error.to_string(),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns the 404 of an unknown route.
pub(crate) async fn route_not_found(request: Request) -> ApiError {
    let detail = format!("there is no route `{}`", request.uri().path());
    ApiError::new(ProblemCode::RouteNotFound, detail).with_hint("viv api GET /openapi.json")
}

/// Returns the 405 of a route that does not support the method.
pub(crate) async fn method_not_allowed(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    ApiError::new(ProblemCode::MethodNotAllowed, format!("`{path}` does not support {method}"))
}

/// Turns every failed response into a problem document, panics included.
pub(crate) async fn write_problems(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let response = AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
        // The panic hook has logged the panic. Its message is not for the client.
        ApiError::new(ProblemCode::Internal, "internal error; see the log of the server").into_response()
    });
    let failed = response.status().is_client_error() || response.status().is_server_error();
    let is_foreign = response.extensions().get::<ForeignErrors>().is_some();
    if failed && !is_foreign { problem_response(response, id) } else { response }
}

/// Marks a response of a protocol with its own form of errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForeignErrors;

fn problem_response(mut response: Response, id: Option<RequestId>) -> Response {
    let given = response.extensions_mut().remove::<ApiError>();
    let mut error = given.unwrap_or_else(|| Box::new(framework_problem(response.status())).into());
    error.problem.request_id = id.map(|id| id.0);
    error.log();
    let mut problem = error.problem;
    problem.hint = problem.hint.take().or_else(|| Some(default_hint(&problem).to_owned()));
    let status = response.status();
    let mut shaped = (status, axum::Json(&*problem)).into_response();
    let headers = shaped.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    copy_headers(response.headers(), headers);
    shaped
}

/// Headers of the original response that stay: the supported methods, and the CORS headers for pages.
const COPIED_HEADERS: [HeaderName; 4] = [ALLOW, VARY, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS];

fn copy_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for name in COPIED_HEADERS {
        if let Some(value) = from.get(&name) {
            to.insert(name, value.clone());
        }
    }
}

/// Returns the hint for problems without a specific hint.
fn default_hint(problem: &Problem) -> &'static str {
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
    // `doctor` shows missing requirements of the machine, the document shows valid requests.
    let other = if problem.status >= 500 { "viv doctor" } else { "viv api GET /openapi.json" };
    known.map_or(other, |(_, hint)| *hint)
}

/// Returns the problem of a refusal by the framework.
fn framework_problem(status: StatusCode) -> Problem {
    let code = code_of(status);
    Problem { status: status.as_u16(), ..Problem::new(code, status.canonical_reason().unwrap_or("refused")) }
}

/// Returns the code for a status that the framework chose.
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
            panic!("a secret")
        }
        let routes = Router::new()
            .route("/panic", get(panicking))
            .route("/teapot", get(|| async { (StatusCode::IM_A_TEAPOT, "plain words") }));
        let app: Router = routes.layer(from_fn(write_problems)).layer(from_fn(crate::request_id::assign));
        let response = app.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn panic_becomes_a_problem_without_its_message() {
        let (status, problem) = check("/panic").await;
        assert_eq!((status, problem.code.as_str()), (500, "internal"));
        assert!(!serde_json::to_string(&problem).unwrap().contains("secret"));
        assert!(problem.request_id.is_some());
    }

    #[test]
    fn causes_are_not_in_the_problem() {
        let error = ApiError::storage("cannot store the task", &std::io::Error::other("a path of the host"));
        assert_eq!(error.problem.detail.as_deref(), Some("cannot store the task"));
        assert_eq!(error.causes.as_deref(), Some("a path of the host"));
    }

    #[tokio::test]
    async fn refusal_of_the_framework_becomes_a_problem() {
        let (status, problem) = check("/teapot").await;
        assert_eq!((status, problem.status, problem.code.as_str()), (418, 418, "invalid_request"));
    }
}
