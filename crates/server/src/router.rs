//! The table of routes.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use session::Sessions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::audit::AuditLog;
use crate::config::ServerConfig;
use crate::idempotency::InFlightRequests;
use crate::openapi::{ApiDocument, complete};
use crate::query_guard::{self, KnownParameters};
use crate::routes::{
    agents, bundles, changes, events, feed, files, grants, health, messages, metrics, openapi, pending, ports, queue,
    replays, session_policy, sessions, tasks, terminal, usage, whoami,
};
use crate::serve::ServeError;
use crate::state::{AppContext, AppState};
use crate::task_registry::TaskRegistry;
use crate::{access, cors, drain, error, host_guard, idempotency, inspector, request_id};

/// Most bytes of a body that is not a message.
pub(crate) const SMALL_BODY: usize = 1 << 20;

/// Returns the router for `sessions`. Event streams end when `stopping` is cancelled.
pub fn app(sessions: Sessions, config: ServerConfig, stopping: CancellationToken) -> Result<Router, ServeError> {
    build(sessions, config, stopping, TaskTracker::new())
}

/// Returns the router. `running_calls` owns the calls that change something and the draining of bodies.
pub(crate) fn build(
    sessions: Sessions,
    config: ServerConfig,
    stopping: CancellationToken,
    running_calls: TaskTracker,
) -> Result<Router, ServeError> {
    let audit = config.audit.as_deref().map(open_audit_log).transpose()?;
    let tasks = TaskRegistry::new(sessions.directory().tasks());
    let state = AppState::new(AppContext {
        sessions,
        config,
        document: OnceLock::new(),
        parameters: OnceLock::new(),
        audit,
        in_flight: InFlightRequests::default(),
        requests: OnceLock::new(),
        tasks,
        running_calls: running_calls.clone(),
        stopping,
    });
    let guard = from_fn_with_state(state.clone(), query_guard::refuse_unknown);
    let (routes, document) = OpenApiRouter::with_openapi(ApiDocument::openapi())
        .merge(open())
        .merge(
            reading().route_layer(guard.clone()).route_layer(from_fn_with_state(state.clone(), access::require_read)),
        )
        .merge(
            with_idempotency(driving(&state.config).route_layer(guard.clone()), &state)
                .route_layer(from_fn_with_state(state.clone(), access::require_drive)),
        )
        .merge(
            with_idempotency(answering().route_layer(guard.clone()), &state)
                .route_layer(from_fn_with_state(state.clone(), access::require_answer)),
        )
        .merge(
            with_idempotency(administering().route_layer(guard), &state)
                .route_layer(from_fn_with_state(state.clone(), access::require_admin)),
        )
        .split_for_parts();
    // The document describes the routes, so it is set after they are built.
    let mut document = complete(document);
    let _ = state.parameters.set(KnownParameters::of(&mut document));
    let _ = state.document.set(document.to_pretty_json().unwrap_or_default());
    let mcp = state.config.mcp.clone().map(|endpoint| endpoint.into_routes(&state)).unwrap_or_default();
    let app = routes
        .merge(inspector::pages())
        .merge(mcp)
        .fallback(error::route_not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn_with_state(state.clone(), cors::allow_listed_origins))
        .layer(from_fn_with_state(state.clone(), host_guard::require_known_host))
        .layer(from_fn(error::write_problems))
        .layer(from_fn(request_id::assign))
        .layer(DefaultBodyLimit::max(SMALL_BODY))
        .layer(from_fn_with_state(running_calls, drain::drain_bodies))
        .with_state(state);
    Ok(app)
}

fn open_audit_log(path: &Path) -> Result<Arc<AuditLog>, ServeError> {
    let opened = AuditLog::open(path).map(Arc::new);
    opened.map_err(|source| ServeError::Audit { path: path.to_owned(), source })
}

/// Adds idempotency keys.
fn with_idempotency(routes: OpenApiRouter<AppState>, state: &AppState) -> OpenApiRouter<AppState> {
    routes.route_layer(from_fn_with_state(state.clone(), idempotency::run_once))
}

/// Routes that need no scope. `whoami` checks the token itself.
fn open() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(health::show))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(openapi::show))
        .routes(routes!(whoami::show))
}

/// Routes with the scope `read`.
fn reading() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(agents::list))
        .routes(routes!(agents::modes))
        .routes(routes!(agents::models))
        .routes(routes!(pending::all_pending))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show))
        .routes(routes!(events::page))
        .routes(routes!(events::stream))
        .routes(routes!(terminal::open))
        .routes(routes!(feed::page))
        .routes(routes!(feed::stream))
        .routes(routes!(pending::pending))
        .routes(routes!(queue::list))
        .routes(routes!(ports::list))
        .routes(routes!(grants::list))
        .routes(routes!(sessions::policy))
        .routes(routes!(changes::show))
        .routes(routes!(changes::list_sets))
        .routes(routes!(bundles::export))
        .routes(routes!(usage::of_session))
        .routes(routes!(usage::list))
        .routes(routes!(metrics::show))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::show))
        .routes(routes!(files::entries))
        .routes(routes!(files::read))
        .routes(routes!(files::stat))
}

/// Routes with the scope `drive`.
fn driving(config: &ServerConfig) -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(messages::send))
        .routes(routes!(messages::stream))
        .layer(DefaultBodyLimit::max(config.message_bytes))
        .routes(routes!(sessions::create, sessions::rename))
        .routes(routes!(queue::remove))
        .routes(routes!(sessions::resume))
        .routes(routes!(sessions::interrupt))
        .routes(routes!(sessions::terminate))
        .routes(routes!(sessions::fork))
        .routes(routes!(ports::connect))
        .routes(routes!(replays::replay))
        .routes(routes!(tasks::create))
        .routes(routes!(changes::apply))
        .routes(routes!(changes::discard))
        .routes(routes!(session_policy::narrow))
        .routes(routes!(files::write))
        .routes(routes!(files::remove))
        .routes(routes!(files::make_directory))
        .routes(routes!(files::rename))
        .routes(routes!(files::upload))
}

/// Routes with the scope `answer`.
fn answering() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(pending::permission))
        .routes(routes!(pending::question))
        .routes(routes!(pending::reject))
        .routes(routes!(grants::revoke))
}

/// Routes with the scope `admin`.
fn administering() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(sessions::remove))
        .routes(routes!(session_policy::grant))
        .routes(routes!(bundles::import))
        .routes(routes!(agents::install))
}
