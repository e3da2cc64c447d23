//! `viv serve`: the session API server.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::policy::EffectivePolicy;
use axum::Router;
use jail::Spawner;
use mcp::{McpHost, McpSettings};
use protocol::{ProblemCode, SessionId};
use server::{
    AccessToken, AgentInstaller, AuthMode, EventFilter, McpEndpoint, RemoteStop, ServeError, ServerConfig,
    ServerListeners, TlsConfig, TokenScope,
};
use session::{SessionError, SessionOptions, Sessions};
use store::{DataDir, SessionIndex, SystemClock};

use crate::agents::{self, AgentSpec};
use crate::args::ServeArguments;
use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::network_arguments::NetworkArguments;
use crate::output::{self, message};
use crate::policy::{PolicyContext, choose};
use crate::{host, log, task, tokens, ui, upstream};

/// Most time for running turns to end when the server stops.
const DRAIN: Duration = Duration::from_secs(60);
/// Time after which all parts of a server have started.
const STARTUP: Duration = Duration::from_secs(1);

/// Prints the addresses, a warning about plain text that other machines can read, and the place of the token.
fn announce(addresses: &[std::net::SocketAddr], scheme: &str, token_file: Option<&Path>, json: bool) {
    for address in addresses {
        if json {
            let _ = output::print_json(&serde_json::json!({"listening": format!("{scheme}://{address}")}));
        } else {
            message!("\x1b[1mlistening\x1b[0m  {scheme}://{address}");
        }
    }
    let is_plain = |address: &std::net::SocketAddr| scheme == "http" && !address.ip().is_loopback();
    if !json && addresses.iter().any(is_plain) {
        message!("\x1b[1mwarning\x1b[0m    other machines can connect; tokens and sessions are sent as plain text");
        message!("           for TLS: --tls-cert FILE --tls-key FILE");
    }
    if let Some(token_file) = token_file.filter(|_| !json) {
        message!("\x1b[1mtoken\x1b[0m      in {}", token_file.display());
        message!("\x1b[1minspector\x1b[0m  viv ui prints a link");
    }
}

/// Runs `viv serve` until SIGINT or SIGTERM.
pub(crate) async fn carry_out(
    arguments: ServeArguments,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    log::start_server();
    host::raise_descriptor_limit();
    let config = config.with_env_file(None)?;
    let tls = tls(&arguments)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let directory = host::data_dir(&config)?;
    let _lock = directory.lock_server()?;
    let policy = choose(
        &PolicyContext::of(&config, json).with_network(&NetworkArguments::default()),
        Some(arguments.policy.as_deref().unwrap_or("balanced")),
        &[],
    )?;
    let policy = Arc::new(policy);
    let sessions = open(&config, policy.clone(), spawner).await?;
    let token_file = directory.root().join("api.token");
    let auth = if arguments.no_auth {
        AuthMode::None
    } else {
        AuthMode::Stored(vec![token(&token_file)?], Arc::new(tokens::open(&config)?))
    };
    let mut listeners = ServerListeners::default();
    listeners.tcp.push(arguments.listen);
    listeners.unix = Some(directory.socket());
    listeners.tls = tls;
    let shown_token = (!arguments.no_auth).then_some(token_file.as_path());
    let announce = |addresses: &[std::net::SocketAddr]| {
        ui::note_address(&directory, scheme, addresses);
        announce(addresses, scheme, shown_token, json);
    };
    let options =
        SessionOptions { normalizer: Some(Arc::new(upstream::request_normalizer(&config)?)), ..host::options(&config) };
    let mcp_host = McpHost::new(McpSettings { sessions: sessions.clone(), options: options.clone(), workspace: None });
    let served = ServerConfig {
        options,
        mcp: Some(McpEndpoint(Router::new().route_service("/mcp", mcp::http_service(mcp_host.clone())))),
        audit: Some(directory.audit_log()),
        installer: Some(installer(&config)),
        remote_stop: Some(remote_stop(&directory)),
        task_runner: Some(task::task_runner(&config, &policy, &sessions)),
        events: EventFilter::from_name(&arguments.events).unwrap_or_default(),
        workspace_roots: workspace_roots(&arguments)?,
        hosts: arguments.allow_host.clone(),
        origins: arguments.allow_origin.clone(),
        ..ServerConfig::new(auth)
    };
    let stop = drained(sessions.clone(), arguments.drain.or(config.file.sessions.drain).unwrap_or(DRAIN));
    let shutdown = async move {
        stop.await;
        mcp_host.close().await;
    };
    let serving = server::serve(listeners, served, sessions, announce, shutdown);
    release_memory_after_start(serving).await.map_err(not_bound)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the sessions of a server: they go on after a crash of their agents, and with the messages that were queued
/// when the last server stopped or died.
async fn open(config: &Config, policy: Arc<EffectivePolicy>, spawner: Spawner) -> Result<Sessions, Failure> {
    let sessions = host::open_sessions(config, policy, spawner).await?;
    sessions.survive_crashes();
    sessions.continue_interrupted()?;
    Ok(sessions)
}

/// Completes when the server may stop: after the first signal, when the running turns have ended or `most` has passed.
/// A second signal stops it at once.
fn drained(sessions: Sessions, most: Duration) -> impl Future<Output = ()> {
    // Signals are caught from here on, not only when the future is polled.
    let signal = host::stop_requested();
    async move {
        signal.await;
        let again = host::stop_requested();
        tokio::select! {
            left = sessions.drain(most) => tracing::info!(left, "drained"),
            () = again => tracing::warn!("a second signal: interrupting the running turns"),
        }
    }
}

/// Runs the server, and returns memory that only the start needed to the kernel.
async fn release_memory_after_start<T>(serving: impl Future<Output = T>) -> T {
    let mut serving = pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended,
        () = tokio::time::sleep(STARTUP) => {}
    }
    if let Err(error) = jail::release_startup_memory() {
        tracing::debug!(%error, "cannot release the memory of the start");
    }
    serving.await
}

/// Returns the installer of agents, the same as `viv agents install`.
fn installer(config: &Config) -> AgentInstaller {
    let config = config.clone();
    AgentInstaller(Arc::new(move |name: &str, again: bool| {
        let wanted = AgentSpec::parse(name).map_err(|failure| failure.problem())?;
        agents::install(&config, &wanted, again).map_err(|failure| failure.problem())
    }))
}

/// Returns the function that stops sessions of other processes, the same as `viv sessions stop`.
fn remote_stop(directory: &DataDir) -> RemoteStop {
    let directory = directory.clone();
    RemoteStop(Arc::new(move |id: SessionId| {
        let directory = directory.clone();
        let end = async move {
            let record = SessionIndex::open(&directory, Arc::new(SystemClock))?.find(id.as_str())?;
            let owner = ApiClient::of_owner(&directory, &record.owner).await;
            let unreachable = || Failure::from(SessionError::RunByAnotherProcess(id.clone()));
            owner.ok_or_else(unreachable)?.terminate(&id).await
        };
        Box::pin(async move { end.await.map_err(|failure: Failure| failure.problem()) })
    }))
}

/// Returns the directories of `--workspace-root`, without links; fails if one does not exist.
fn workspace_roots(arguments: &ServeArguments) -> Result<Arc<[PathBuf]>, Failure> {
    let root = |path: &PathBuf| match path.canonicalize() {
        Ok(root) if root.is_dir() => Ok(root),
        Ok(_) => Err(Failure::new(
            ProblemCode::InvalidRequest,
            format!("workspace root `{}` is not a directory", path.display()),
        )),
        Err(error) => {
            let what = format!("cannot open the workspace root `{}`", path.display());
            Err(Failure::new(ProblemCode::InvalidRequest, what).because(&error))
        }
    };
    let roots: Result<Vec<_>, _> = arguments.workspace_root.iter().map(root).collect();
    Ok(roots.map_err(|failure| failure.help("viv serve --workspace-root=\"$HOME/work\""))?.into())
}

fn not_bound(error: ServeError) -> Failure {
    let code = match &error {
        ServeError::Audit { path, .. } => {
            let look = format!("ls -l {}", path.display());
            return Failure::from_error(ProblemCode::ConfigInvalid, &error).help(look);
        }
        ServeError::TokenRequired(_) => ProblemCode::InvalidRequest,
        ServeError::Tcp { .. } | ServeError::Unix { .. } => ProblemCode::ProxyBindError,
    };
    Failure::from_error(code, &error).help("viv serve --listen 127.0.0.1:0")
}

/// Returns the TLS configuration; `None` without a certificate.
fn tls(arguments: &ServeArguments) -> Result<Option<TlsConfig>, Failure> {
    let (Some(certificate), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) else { return Ok(None) };
    let refused = |error| {
        let show = format!("openssl x509 -noout -subject -in {}", certificate.display());
        Failure::from_error(ProblemCode::ConfigInvalid, &error).help(show)
    };
    TlsConfig::read(certificate, key).map(Some).map_err(refused)
}

/// Returns the admin token of the API. The first start creates its file, readable by the owner only.
fn token(path: &Path) -> Result<AccessToken, Failure> {
    let unusable = |error: &dyn std::error::Error| {
        Failure::new(ProblemCode::ConfigInvalid, format!("cannot use the token file `{}`", path.display()))
            .because(error)
    };
    match std::fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(AccessToken::new(text.trim(), [TokenScope::Admin])),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(unusable(&error)),
        _ => {}
    }
    let text = format!("viv_adm_{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| unusable(&error))?;
    writeln!(file, "{text}").map_err(|error| unusable(&error))?;
    Ok(AccessToken::new(&text, [TokenScope::Admin]))
}
