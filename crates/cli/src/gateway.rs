//! `viv gateway serve`: the gateway for clients without a sandbox. A key identifies the client.

mod key_auth;
mod slot;

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use protocol::ProblemCode;

use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, message};
use crate::{host, log, upstream};
pub(crate) use key_auth::KeyAuth;

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Serve model APIs to clients with a key of `viv keys`
    Serve(GatewayServeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct GatewayServeArguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:18080")]
    listen: SocketAddr,
    /// Configured upstream (default: the upstream of sessions)
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
}

/// Runs `viv gateway …`.
pub(crate) async fn carry_out(command: GatewayCommand, config: Config, json: bool) -> Result<ExitCode, Failure> {
    let GatewayCommand::Serve(arguments) = command;
    log::start_server();
    host::raise_descriptor_limit();
    let config = config.with_env_file(None)?;
    let upstream = match &arguments.upstream {
        Some(name) => upstream::find_upstream(&config, name)?,
        None => upstream::default_upstream(&config)?,
    };
    let directory = host::data_dir(&config)?;
    let gateway = host::gateway(&config)?;
    // Settling blocks the thread, so the runtime must be told.
    tokio::task::block_in_place(|| gateway.settle_unknown_calls(&directory))?;
    let not_bound = |error: std::io::Error| {
        Failure::new(ProblemCode::ProxyBindError, format!("cannot listen on {}", arguments.listen))
            .because(&error)
            .help("viv gateway serve --listen 127.0.0.1:0")
    };
    let listener = TcpListener::bind(arguments.listen).map_err(not_bound)?;
    let address = listener.local_addr().map_err(not_bound)?;
    let journal_bytes = config.file.limits.budget().key_journal_bytes;
    let auth = Arc::new(KeyAuth::open(directory, upstream, host::limits(&config)?, journal_bytes)?);
    let authenticate = Arc::new(move |token: &str| auth.authenticate(token));
    let attachment = gateway.serve(listener, host::limits(&config)?, authenticate).map_err(not_bound)?;
    let stopped = host::stop_requested();
    announce(address, json);
    stopped.await;
    attachment.close().await;
    Ok(ExitCode::SUCCESS)
}

fn announce(address: SocketAddr, json: bool) {
    if !address.ip().is_loopback() {
        message!(
            "\x1b[1mwarning\x1b[0m    {address} is not a loopback address and serves plain HTTP: others on the network can read \
             keys and prompts\n           help: viv gateway serve --listen 127.0.0.1:18080"
        );
    }
    if json {
        // The parent process may read the address from a pipe; one that closed it does not need the address.
        let _ = output::print_json(&serde_json::json!({"listening": format!("http://{address}")}));
    } else {
        message!("\x1b[1mlistening\x1b[0m  http://{address}");
        message!("\x1b[1mkeys\x1b[0m       viv keys create --account NAME --budget USD --ttl 1h");
    }
}
