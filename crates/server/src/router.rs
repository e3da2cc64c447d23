//! The table of routes.

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
use crate::idempotency::InFlight;
use crate::openapi::{Document, finish};
use crate::routes::{
    agents, pending, bundles, changes, events, feed, files, grants, health, messages, metrics, openapi, queue, session_policy,
    replays, sessions, tasks, usage,
};
use crate::serve::ServeError;
use crate::state::{AppState, Parts};
use crate::task_registry::Tasks;
use crate::{access, cors, error, host_guard, idempotency, drain, request_id};

/// Bytes of a body that is not a message.
pub(crate) const SMALL_BODY: usize = 1 << 20;

/// All routes over `sessions`. When `stopping` is cancelled every event stream ends.
pub fn app(sessions: Sessions, config: ServerConfig, stopping: CancellationToken) -> Result<Router, ServeError> {
    build(sessions, config, stopping, TaskTracker::new())
}

/// The same; `changing` counts the calls that change something until they are done.
pub(crate) fn build(
    sessions: Sessions,
    config: ServerConfig,
    stopping: CancellationToken,
    changing: TaskTracker,
) -> Result<Router, ServeError> {
    let audit = config.audit.as_deref().map(|path| match AuditLog::open(path) {
        Ok(log) => Ok(Arc::new(log)),
        Err(source) => Err(ServeError::Audit { path: path.to_owned(), source }),
    });
    let audit = audit.transpose()?;
    let tasks = Tasks::new(sessions.directory().tasks());
    let state = AppState::new(Parts {
        sessions,
        config,
        document: OnceLock::new(),
        audit,
        in_flight: InFlight::default(),
        requests: OnceLock::new(),
        tasks,
        changing,
        stopping,
    });
    let (routes, document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(open())
        .merge(reading().route_layer(from_fn_with_state(state.clone(), access::may_read)))
        .merge(once(driving(&state.config), &state).route_layer(from_fn_with_state(state.clone(), access::may_drive)))
        .merge(once(answering(), &state).route_layer(from_fn_with_state(state.clone(), access::may_answer)))
        .merge(once(administering(), &state).route_layer(from_fn_with_state(state.clone(), access::may_administer)))
        .split_for_parts();
    // Set once, here: the document is made of the routes that it is served beside.
    let _ = state.document.set(finish(document).to_pretty_json().unwrap_or_default());
    let app = routes
        .fallback(error::route_not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn_with_state(state.clone(), cors::listed_origins))
        .layer(from_fn_with_state(state.clone(), host_guard::known_host))
        .layer(from_fn(error::shape))
        .layer(from_fn(request_id::name))
        .layer(DefaultBodyLimit::max(SMALL_BODY))
        .layer(from_fn(drain::linger))
        .with_state(state);
    Ok(app)
}

/// What has a name is done once.
fn once(routes: OpenApiRouter<AppState>, state: &AppState) -> OpenApiRouter<AppState> {
    routes.route_layer(from_fn_with_state(state.clone(), idempotency::once))
}

/// For everybody.
fn open() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(health::show)).routes(routes!(openapi::show))
}

/// For who may look.
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
        .routes(routes!(feed::page))
        .routes(routes!(feed::stream))
        .routes(routes!(pending::pending))
        .routes(routes!(queue::list))
        .routes(routes!(grants::list))
        .routes(routes!(sessions::policy))
        .routes(routes!(changes::show))
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

/// For who may make sessions and tell them what to do.
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

/// For who may answer in a person's place.
fn answering() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(pending::permission))
        .routes(routes!(pending::question))
        .routes(routes!(pending::reject))
        .routes(routes!(grants::revoke))
}

/// For who may do everything.
fn administering() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(sessions::remove))
        .routes(routes!(session_policy::grant))
        .routes(routes!(bundles::import))
        .routes(routes!(agents::install))
}
