//! Refuses query parameters that a route does not have.
//!
//! A filter with a typing error would otherwise return everything. The known parameters are those of the OpenAPI document,
//! so the document and the server cannot differ.

use std::collections::{HashMap, HashSet};

use axum::extract::{MatchedPath, Query, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, Uri};
use protocol::ProblemCode;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{HttpMethod, ParameterIn};

use crate::error::ApiError;
use crate::openapi::operations;
use crate::state::AppState;

/// Other spellings of parameters that routes accept.
const ALIASES: [(&str, &str); 2] = [("includeRaw", "include_raw"), ("sessionId", "session_id")];

/// The query parameters of each route.
#[derive(Debug, Default)]
pub(crate) struct KnownParameters(HashMap<String, HashMap<Method, HashSet<String>>>);

impl KnownParameters {
    /// Returns the parameters that `document` lists.
    pub(crate) fn of(document: &mut utoipa::openapi::OpenApi) -> Self {
        let mut known: HashMap<String, HashMap<Method, HashSet<String>>> = HashMap::new();
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                let parameters = operation.parameters.iter().flatten().filter_map(|parameter| match parameter {
                    RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
                    _ => None,
                });
                known.entry(path.clone()).or_default().insert(http_method(&method), parameters.collect());
            }
        }
        Self(known)
    }

    /// Returns the first parameter of `query` that the route does not have, and those that it has.
    fn unknown(&self, path: &str, method: &Method, uri: &Uri) -> Option<(String, Vec<String>)> {
        let known = self.0.get(path)?.get(method)?;
        let canonical =
            |name: &str| ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name).to_owned();
        // A query that cannot be parsed is refused by its route.
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
        let mut names = pairs.into_iter().map(|(name, _)| name);
        let unknown = names.find(|name| !known.contains(&canonical(name)))?;
        let mut known: Vec<String> = known.iter().cloned().collect();
        known.sort();
        Some((unknown, known))
    }
}

fn http_method(method: &HttpMethod) -> Method {
    match method {
        HttpMethod::Put => Method::PUT,
        HttpMethod::Post => Method::POST,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
        _ => Method::GET,
    }
}

/// Fails with 400 if the query has a parameter that the route does not have.
pub(crate) async fn refuse_unknown(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let found = match (state.parameters.get(), path) {
        (Some(parameters), Some(path)) => parameters.unknown(path, request.method(), request.uri()),
        _ => None,
    };
    let Some((name, known)) = found else { return Ok(next.run(request).await) };
    let rest = if known.is_empty() { "has none".to_owned() } else { format!("has {}", known.join(", ")) };
    let detail = format!("unknown query parameter `{name}`; this route {rest}");
    Err(ApiError::new(ProblemCode::InvalidRequest, detail))
}
