//! The document that describes this API, made from the handlers themselves.
//!
//! What every route has in common is written once, here: how a failure looks, and which failures there are.
//! The document is OpenAPI 3.1; what it says is held against the server by tests.

use protocol::Problem;
use utoipa::openapi::path::{HttpMethod, Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, ObjectBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{OpenApi, ToSchema};

use crate::idempotency::MAX_KEY;

/// What the document says beside the routes.
#[derive(OpenApi)]
#[openapi(
    info(title = "Vivarium", description = "Coding agents under glass: the session API.", license(name = "Apache-2.0")),
    components(schemas(Problem)),
    tags(
        (name = "meta", description = "The server itself."),
        (name = "agents", description = "The agents that can be started."),
        (name = "sessions", description = "Sessions and what they are told."),
        (name = "tasks", description = "What is to be done in a sandbox, and what came of it."),
        (name = "events", description = "What happened."),
        (name = "pending", description = "What agents ask, and the answers."),
        (name = "changes", description = "What sessions changed, and what becomes of it."),
        (name = "fs", description = "Files of a session's workspace."),
        (name = "usage", description = "What model calls cost."),
    ),
)]
pub(crate) struct Document;

/// Routes that need no token.
const OPEN: [&str; 2] = ["/v1/health", "/openapi.json"];

/// Adds what all routes have in common.
pub(crate) fn finish(mut document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    document.components.get_or_insert_default().add_security_scheme("token", bearer);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            describe(operation);
            let open = OPEN.contains(&path.as_str());
            if !open {
                operation.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
            }
            if method == HttpMethod::Post {
                name_it(operation);
            }
            for status in failures(path, &method, operation) {
                let said = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
                let refusal = problem(said.unwrap_or("Refused"));
                operation.responses.responses.entry(status.to_string()).or_insert_with(|| refusal.into());
            }
            operation.responses.responses.insert("default".to_owned(), problem("Any other failure").into());
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
    let all = [
        (HttpMethod::Get, item.get.as_mut()),
        (HttpMethod::Put, item.put.as_mut()),
        (HttpMethod::Post, item.post.as_mut()),
        (HttpMethod::Patch, item.patch.as_mut()),
        (HttpMethod::Delete, item.delete.as_mut()),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation?)))
}

/// The doc comment of a handler begins with its route, which the document says already.
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

/// Every call that makes or changes something can be given a name.
fn name_it(operation: &mut Operation) {
    let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(MAX_KEY));
    let said = "A name for this request: sent again with the same one, it is not done again but answered as before.";
    let parameter = ParameterBuilder::new().name("Idempotency-Key").parameter_in(ParameterIn::Header);
    let parameter = parameter.description(Some(said)).schema(Some(text)).build();
    operation.parameters.get_or_insert_default().push(RefOr::T(parameter));
}

/// The failures worth a line of their own; `default` stands for the rest.
fn failures(path: &str, method: &HttpMethod, operation: &Operation) -> Vec<u16> {
    let mut statuses = Vec::new();
    if !OPEN.contains(&path) {
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

fn problem(said: &str) -> utoipa::openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    ResponseBuilder::new().description(said).content("application/problem+json", content).build()
}
