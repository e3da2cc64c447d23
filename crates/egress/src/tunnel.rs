//! A tunnel: opened for one name, and carrying TLS for that name alone; or anything, where a rule says `raw`.

use std::io;

use policy::{Endpoint, Host};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    attempt::Traffic,
    client_stream::Client,
    connector::Gate,
    copy::{Way, one_way},
    refusal::Refusal,
    peek_reader::Source,
    tls::{ClientHello, HelloError, NextRecord, RETRY_BYTES, is_retry, next_record},
};

/// Why a tunnel ended early.
#[derive(Debug)]
pub(crate) enum TunnelError {
    /// What the client sent may not pass. Nothing of it did.
    Refused(Refusal),
    /// One side went away.
    Broken(io::Error),
}

impl From<io::Error> for TunnelError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Carries a client's TLS connection to `upstream`, if it is one for `endpoint`.
pub(crate) async fn carry(
    client: &mut Client<impl AsyncRead + Unpin, impl AsyncWrite + Unpin>,
    mut upstream: TcpStream,
    endpoint: &Endpoint,
    gate: &Gate,
    traffic: &Traffic,
) -> Result<(), TunnelError> {
    let (reader, mut up_sink) = upstream.split();
    let mut up_source = Source::new(reader);
    let hello = first_hello(&mut client.source, endpoint, gate).await?;
    let hello = client.source.take(hello);
    up_sink.write_all(&hello).await?;
    traffic.add_sent(hello.len());

    // An alert is shorter than a retry, and the server closes after it.
    let answered = timeout(gate.limits.connect_timeout, up_source.has(RETRY_BYTES)).await;
    answered.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
    let retry = is_retry(up_source.ahead());
    let outward = async {
        if retry {
            second_hello(&mut client.source, &mut up_sink, endpoint, traffic).await?;
        }
        Ok(one_way(&mut client.source, &mut up_sink, traffic, Way::Out).await?)
    };
    let inward = async { Ok(one_way(&mut up_source, &mut client.sink, traffic, Way::In).await?) };
    tokio::try_join!(outward, inward).map(|_| ())
}

/// Carries whatever either side says, to exactly the address that was judged: whichever side speaks first.
pub(crate) async fn carry_raw(
    client: &mut Client<impl AsyncRead + Unpin, impl AsyncWrite + Unpin>,
    mut upstream: TcpStream,
    traffic: &Traffic,
) -> Result<(), TunnelError> {
    let (reader, mut up_sink) = upstream.split();
    let mut up_source = Source::new(reader);
    let outward = one_way(&mut client.source, &mut up_sink, traffic, Way::Out);
    let inward = one_way(&mut up_source, &mut client.sink, traffic, Way::In);
    tokio::try_join!(outward, inward)?;
    Ok(())
}

/// Waits for the ClientHello that a tunnel begins with, and returns its length, if it is for `endpoint`.
pub(crate) async fn first_hello(
    source: &mut Source<impl AsyncRead + Unpin>,
    endpoint: &Endpoint,
    gate: &Gate,
) -> Result<usize, TunnelError> {
    let hello = timeout(gate.limits.head_timeout, hello_for(source, endpoint));
    hello.await.unwrap_or(Err(TunnelError::Refused(Refusal::TooSlow)))
}

/// Looks at the ClientHello that comes next: how long it is, if it is for `endpoint`.
async fn hello_for(source: &mut Source<impl AsyncRead + Unpin>, endpoint: &Endpoint) -> Result<usize, TunnelError> {
    loop {
        match ClientHello::read(source.ahead()) {
            Ok(Some((hello, length))) => {
                check(&hello, endpoint).map_err(TunnelError::Refused)?;
                return Ok(length);
            }
            Ok(None) => {}
            Err(error) => return Err(TunnelError::Refused(refuse(error))),
        }
        if source.fill().await? == 0 {
            return Err(TunnelError::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// Passes on what a client sends up to its second hello, and that, if it is still for `endpoint`.
async fn second_hello(
    source: &mut Source<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
    endpoint: &Endpoint,
    traffic: &Traffic,
) -> Result<(), TunnelError> {
    loop {
        if !source.has(5).await? {
            return Ok(());
        }
        let (bytes, last) = match next_record(source.ahead()) {
            Some(NextRecord::Other(length)) if source.has(length).await? => (source.take(length), false),
            Some(NextRecord::Other(_)) | None => return Ok(()),
            Some(NextRecord::Handshake) => {
                let length = hello_for(source, endpoint).await?;
                (source.take(length), true)
            }
        };
        sink.write_all(&bytes).await?;
        traffic.add_sent(bytes.len());
        if last {
            return Ok(());
        }
    }
}

/// A name is asked for by that name; an address cannot be, and so by none.
fn check(hello: &ClientHello, endpoint: &Endpoint) -> Result<(), Refusal> {
    let remedy = "connect with TLS to the host the tunnel was opened for";
    match (&hello.server_name, &endpoint.host) {
        (Some(named), asked) if named == asked => Ok(()),
        (None, Host::Address(_)) => Ok(()),
        (Some(named), asked) => Err(Refusal::built_in(
            format!("the server name `{named}` in TLS is not the tunnel's host `{asked}`"),
            remedy,
        )),
        (None, asked) => Err(Refusal::built_in(
            format!("there is no server name in TLS, it must be the tunnel's host `{asked}`"),
            remedy,
        )),
    }
}

fn refuse(error: HelloError) -> Refusal {
    let remedy = match error {
        HelloError::NotTls => {
            "speak TLS through the tunnel; for plain HTTP ask the proxy for an `http://` target; for anything else write \
             `raw` before the host under `net.allowlist`"
        }
        HelloError::Malformed(_) => "use a TLS client that follows RFC 8446",
        HelloError::Hidden => "switch Encrypted Client Hello off in the client",
    };
    Refusal::built_in(error.to_string(), remedy)
}
