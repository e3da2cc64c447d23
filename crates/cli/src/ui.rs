//! `viv ui`: a link to the Inspector of the running server, with a short-lived token.
//!
//! The token is in the fragment of the link, which a browser never sends to a server. `--open` starts the browser on a
//! private file that leads to the link, because other users of the machine can see the arguments of a process.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use protocol::ProblemCode;
use serde_json::json;
use store::DataDir;

use crate::args::parse_lifetime;
use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::output::{self, message};
use crate::tokens::{self, ScopeWord};

/// The file of the data directory with the address of the running server.
const ADDRESS_FILE: &str = "api.url";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  viv ui\n  viv ui --open\n  viv ui --scope=read --ttl=1h")]
pub(crate) struct UiArguments {
    /// Open the link in a browser
    #[arg(long)]
    open: bool,
    /// Scope of the token in the link; repeatable
    #[arg(long = "scope", value_enum, default_values_t = [ScopeWord::Read, ScopeWord::Drive, ScopeWord::Answer])]
    scopes: Vec<ScopeWord>,
    /// Lifetime of the token, e.g. 1h
    #[arg(long, value_name = "TIME", default_value = "12h", value_parser = parse_lifetime)]
    ttl: Duration,
}

/// Runs `viv ui`.
pub(crate) async fn carry_out(arguments: UiArguments, config: Config, json: bool) -> Result<ExitCode, Failure> {
    let directory = host::data_dir(&config)?;
    ApiClient::required(&directory).await?;
    let address = std::fs::read_to_string(directory.root().join(ADDRESS_FILE)).map_err(|error| {
        Failure::new(ProblemCode::ServerNotRunning, "the address of the server is not known").because(&error)
    })?;
    let UiArguments { open, scopes, ttl } = arguments;
    let secret = tokens::issue(&tokens::open(&config)?, scopes, Some("viv ui".to_owned()), Some(ttl))?;
    let link = format!("{}/ui/#token={}", address.trim(), secret.reveal());
    if open {
        open_browser(directory.root(), &link)?;
        message!("opened the Inspector at {}/ui/", address.trim());
    } else if json {
        output::print_json(&json!({"link": link, "token_id": secret.id}))?;
    } else {
        output::print(&format!("{link}\n"))?;
        message!("The link signs a browser in. Keep it private. Revoke it with: viv tokens revoke {}", secret.id);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the address of a server that has started, for `viv ui`. A server without the file still serves.
pub(crate) fn note_address(directory: &DataDir, scheme: &str, addresses: &[SocketAddr]) {
    let Some(address) = addresses.first() else { return };
    let path = directory.root().join(ADDRESS_FILE);
    if let Err(error) = write_private(&path, &format!("{scheme}://{}\n", reachable(*address))) {
        tracing::warn!(%error, path = %path.display(), "cannot write the address of the server");
    }
}

/// Returns an address at which a program of this machine reaches a server that listens on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn open_browser(folder: &Path, link: &str) -> Result<(), Failure> {
    let path = folder.join("ui.html");
    let page = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={link}\"><title>viv</title>\n");
    let help = "viv ui";
    write_private(&path, &page).map_err(|error| {
        Failure::new(ProblemCode::Internal, format!("cannot write `{}`", path.display())).because(&error).help(help)
    })?;
    let started = Command::new("xdg-open")
        .arg(PathBuf::from(&path))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match started {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let what = format!("cannot open a browser: `xdg-open` ended with {status}");
            Err(Failure::new(ProblemCode::Internal, what).help(help))
        }
        Err(error) => Err(Failure::new(ProblemCode::Internal, "cannot run `xdg-open`").because(&error).help(help)),
    }
}

/// Writes a file that only its owner can read. A file of an earlier server is replaced, not written through.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_on_every_address_is_reached_on_loopback() {
        let shown = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(shown("0.0.0.0:2468"), "127.0.0.1:2468");
        assert_eq!(shown("[::]:2468"), "[::1]:2468");
        assert_eq!(shown("192.0.2.7:80"), "192.0.2.7:80");
    }
}
