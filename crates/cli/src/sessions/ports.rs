//! `viv sessions ports` and `viv sessions forward`: ports on which something listens inside a session's sandbox.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;

use hyper::Method;
use protocol::{ProblemCode, SessionId};
use serde_json::Value;
use store::{DataDir, SessionRecord};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::ApiClient;
use crate::failure::Failure;
use crate::output::message;
use crate::signals::StopSignals;
use crate::table::{TextTable, print, print_json};

/// A port inside, and the port of the host's loopback on which it is opened: `3000` or `3000:8080`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForwardedPort {
    inside: u16,
    host: u16,
}

impl FromStr for ForwardedPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (inside, host) = text.split_once(':').unwrap_or((text, text));
        let port =
            |part: &str| part.parse::<u16>().map_err(|_| format!("invalid port `{part}`; write 3000 or 3000:8080"));
        match port(inside)? {
            0 => Err("invalid port `0`: nothing listens there".to_owned()),
            inside => Ok(Self { inside, host: port(host)? }),
        }
    }
}

/// Runs `viv sessions ports`.
pub(super) async fn list(directory: &DataDir, record: &SessionRecord, json: bool) -> Result<(), Failure> {
    let client = ApiClient::of_session(directory, record).await?;
    let told = client.json(Method::GET, &format!("/v1/sessions/{}/ports", record.info.session_id), None).await?;
    if json {
        return print_json(&told["ports"]);
    }
    let ports: Vec<&Value> = told["ports"].as_array().into_iter().flatten().collect();
    let name = record.info.name.as_deref().unwrap_or(record.info.session_id.as_str());
    if ports.is_empty() {
        message!("nothing listens inside {name}");
        return Ok(());
    }
    let row = |one: &&Value| {
        let number = |key: &str| one[key].as_u64().map(|value| value.to_string()).unwrap_or_default();
        let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        [number("port"), text("address"), number("pid"), text("process")]
    };
    let rows = ports.iter().map(row).collect();
    print(&TextTable { head: ["PORT", "ADDRESS", "PID", "PROCESS"], rows }.text())?;
    message!("viv sessions forward {name} {}", ports[0]["port"]);
    Ok(())
}

/// Runs `viv sessions forward`: serves the ports on 127.0.0.1 of the host until Ctrl-C.
pub(super) async fn forward(
    directory: &DataDir,
    record: &SessionRecord,
    ports: &[ForwardedPort],
) -> Result<ExitCode, Failure> {
    let client = ApiClient::of_session(directory, record).await?;
    let id = &record.info.session_id;
    let mut signals = StopSignals::listen()?;
    let mut listening = JoinSet::new();
    for port in ports {
        let listener = bind(*port).await?;
        // A port without a listener, or a session without a sandbox, is told before anybody connects.
        drop(client.connect_port(id, port.inside).await?);
        let address = listener.local_addr().map_err(|error| cannot_bind(*port, &error))?;
        message!("http://{address} → port {} inside; Ctrl-C ends", port.inside);
        listening.spawn(serve(listener, client.clone(), id.clone(), port.inside));
    }
    let stop = signals.received().await;
    listening.shutdown().await;
    Ok(stop.exit_code())
}

async fn bind(port: ForwardedPort) -> Result<TcpListener, Failure> {
    // Only the loopback: other machines must not reach what an agent serves.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.host));
    TcpListener::bind(address).await.map_err(|error| cannot_bind(port, &error))
}

fn cannot_bind(port: ForwardedPort, error: &std::io::Error) -> Failure {
    let ForwardedPort { inside, host } = port;
    Failure::new(ProblemCode::ProxyBindError, format!("cannot listen on 127.0.0.1:{host}"))
        .because(error)
        .help(format!("viv sessions forward @last {inside}:0"))
}

/// Accepts connections and connects each one to the port inside. The task owns its connections.
async fn serve(listener: TcpListener, client: ApiClient, id: SessionId, port: u16) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((outside, _)) => drop(open.spawn(relay(outside, client.clone(), id.clone(), port))),
                Err(error) => tracing::debug!(%error, "cannot accept a connection"),
            },
            Some(_) = open.join_next() => {}
        }
    }
}

async fn relay(mut outside: TcpStream, client: ApiClient, id: SessionId, port: u16) {
    match client.connect_port(&id, port).await {
        // A side that resets its connection ends both.
        Ok(mut inside) => drop(tokio::io::copy_bidirectional(&mut outside, &mut inside).await),
        Err(failure) => message!("connection to port {port}: {failure}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_parsed() {
        assert_eq!("3000".parse(), Ok(ForwardedPort { inside: 3000, host: 3000 }));
        assert_eq!("3000:8080".parse(), Ok(ForwardedPort { inside: 3000, host: 8080 }));
        assert_eq!("3000:0".parse(), Ok(ForwardedPort { inside: 3000, host: 0 }));
        for bad in ["", "0", "a", "3000:", "70000", "1:2:3", "-1"] {
            assert!(bad.parse::<ForwardedPort>().is_err(), "`{bad}` was accepted");
        }
    }
}
