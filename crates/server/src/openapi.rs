//! The OpenAPI 3.1 document of the API, generated from the handlers.
//!
//! This file adds the parts that all routes share: the problem document and the error responses. Tests compare the
//! document with the server.

use protocol::Problem;
use utoipa::openapi::path::{HttpMethod, Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, ObjectBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{OpenApi, ToSchema};

use crate::idempotency::MAX_KEY;

/// The parts of the document that do not come from routes.
#[derive(OpenApi)]
#[openapi(
    info(title = "Vivarium", description = "The session API of Vivarium, which runs coding agents in sandboxes.", license(name = "Apache-2.0")),
    components(schemas(Problem)),
    tags(
        (name = "meta", description = "The server itself."),
        (name = "agents", description = "Agents and their installation."),
        (name = "sessions", description = "Sessions and their messages."),
        (name = "tasks", description = "Tasks and their reports."),
        (name = "events", description = "Events of sessions, as pages and live streams."),
        (name = "pending", description = "Permission requests, questions and grants."),
        (name = "changes", description = "Change sets of sessions."),
        (name = "fs", description = "Files in a session's workspace."),
        (name = "usage", description = "Tokens and cost of model calls."),
    ),
)]
pub(crate) struct ApiDocument;

/// Routes that need no token.
const PUBLIC_ROUTES: [&str; 4] = ["/v1/health", "/healthz", "/readyz", "/openapi.json"];

/// Adds the parts that all routes share.
pub(crate) fn complete(mut document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    document.components.get_or_insert_default().add_security_scheme("token", bearer);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            describe(operation);
            let open = PUBLIC_ROUTES.contains(&path.as_str());
            if !open {
                operation.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
            }
            if method == HttpMethod::Post {
                add_idempotency_key(operation);
            }
            for status in failures(path, &method, operation) {
                let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
                let refusal = problem(reason.unwrap_or("Refused"));
                operation.responses.responses.entry(status.to_string()).or_insert_with(|| refusal.into());
            }
            operation.responses.responses.insert("default".to_owned(), problem("Any other error").into());
        }
    }
    document
}

pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
    let all = [
        (HttpMethod::Get, item.get.as_mut()),
        (HttpMethod::Put, item.put.as_mut()),
        (HttpMethod::Post, item.post.as_mut()),
        (HttpMethod::Patch, item.patch.as_mut()),
        (HttpMethod::Delete, item.delete.as_mut()),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation?)))
}

/// Sets the summary from the handler's doc comment, without the route at its start.
fn describe(operation: &mut Operation) {
    let text = [operation.summary.take(), operation.description.take()].into_iter().flatten();
    let text = text.collect::<Vec<_>>().join(" ").replace('\n', " ");
    let words = match text.split_once("`: ") {
        Some((route, words)) if route.starts_with('`') => words.to_owned(),
        _ => text,
    };
    let mut letters = words.trim().chars();
    let sentence: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    operation.summary = (!sentence.is_empty()).then_some(sentence);
}

/// Adds the parameter `Idempotency-Key`.
fn add_idempotency_key(operation: &mut Operation) {
    let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(MAX_KEY));
    let description =
        "Name of this request. A repeated request with the same key does not run again and gets the recorded response.";
    let parameter = ParameterBuilder::new().name("Idempotency-Key").parameter_in(ParameterIn::Header);
    let parameter = parameter.description(Some(description)).schema(Some(text)).build();
    operation.parameters.get_or_insert_default().push(RefOr::T(parameter));
}

/// Returns the statuses of the errors to list; `default` covers the others.
fn failures(path: &str, method: &HttpMethod, operation: &Operation) -> Vec<u16> {
    let mut statuses = Vec::new();
    if !PUBLIC_ROUTES.contains(&path) {
        statuses.extend([400, 401, 403]);
    }
    if path.contains('{') || path.starts_with("/v1/fs/") {
        statuses.push(404);
    }
    if *method != HttpMethod::Get {
        statuses.extend([409, 500]);
    }
    if *method == HttpMethod::Post {
        statuses.push(422);
    }
    if operation.request_body.is_some() {
        statuses.extend([413, 415, 422]);
    }
    statuses
}

fn problem(description: &str) -> utoipa::openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    ResponseBuilder::new().description(description).content("application/problem+json", content).build()
}
