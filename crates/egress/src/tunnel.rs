//! Tunnels: TLS for exactly the tunnel's host, or any protocol if the rule says `raw`.

use std::io;

use policy::{Endpoint, Host};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    attempt::ConnectionBytes,
    client_stream::ClientStream,
    connector::Connector,
    copy::{Direction, copy_one_way},
    peek_reader::PeekReader,
    refusal::Refusal,
    tls::{ClientHello, HelloError, NextRecord, RETRY_BYTES, is_retry, next_record},
};

/// The reason why a tunnel ended early.
#[derive(Debug)]
pub(crate) enum TunnelError {
    /// The client's bytes are not allowed. None of them were forwarded.
    Refused(Refusal),
    /// One side failed or closed.
    Broken(io::Error),
}

impl From<io::Error> for TunnelError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Forwards a client's TLS connection to `upstream`, if its server name is that of `endpoint`.
pub(crate) async fn carry(
    client: &mut ClientStream<impl AsyncRead + Unpin, impl AsyncWrite + Unpin>,
    mut upstream: TcpStream,
    endpoint: &Endpoint,
    connector: &Connector,
    traffic: &ConnectionBytes,
) -> Result<(), TunnelError> {
    let (reader, mut up_sink) = upstream.split();
    let mut up_source = PeekReader::new(reader);
    let hello = first_hello(&mut client.source, endpoint, connector).await?;
    let hello = client.source.take(hello);
    up_sink.write_all(&hello).await?;
    traffic.add_sent(hello.len());

    // The server can also send an alert, which is shorter than a retry, and close.
    let answered = timeout(connector.limits.connect_timeout, up_source.fill_to(RETRY_BYTES)).await;
    answered.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
    let retry = is_retry(up_source.buffered());
    let outward = async {
        if retry {
            second_hello(&mut client.source, &mut up_sink, endpoint, traffic).await?;
        }
        Ok(copy_one_way(&mut client.source, &mut up_sink, traffic, Direction::Outbound).await?)
    };
    let inward = async { Ok(copy_one_way(&mut up_source, &mut client.sink, traffic, Direction::Inbound).await?) };
    tokio::try_join!(outward, inward).map(|_| ())
}

/// Forwards any bytes in both directions; either side may speak first.
pub(crate) async fn carry_raw(
    client: &mut ClientStream<impl AsyncRead + Unpin, impl AsyncWrite + Unpin>,
    mut upstream: TcpStream,
    traffic: &ConnectionBytes,
) -> Result<(), TunnelError> {
    let (reader, mut up_sink) = upstream.split();
    let mut up_source = PeekReader::new(reader);
    let outward = copy_one_way(&mut client.source, &mut up_sink, traffic, Direction::Outbound);
    let inward = copy_one_way(&mut up_source, &mut client.sink, traffic, Direction::Inbound);
    tokio::try_join!(outward, inward)?;
    Ok(())
}

/// Waits for the first ClientHello and returns its length; fails if it is not for `endpoint` or too slow.
pub(crate) async fn first_hello(
    source: &mut PeekReader<impl AsyncRead + Unpin>,
    endpoint: &Endpoint,
    connector: &Connector,
) -> Result<usize, TunnelError> {
    let hello = timeout(connector.limits.head_timeout, hello_for(source, endpoint));
    hello.await.unwrap_or(Err(TunnelError::Refused(Refusal::TooSlow)))
}

/// Reads the next ClientHello without consuming it and returns its length; fails if it is not for `endpoint`.
async fn hello_for(source: &mut PeekReader<impl AsyncRead + Unpin>, endpoint: &Endpoint) -> Result<usize, TunnelError> {
    loop {
        match ClientHello::read(source.buffered()) {
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

/// Forwards the client's records up to and including its second hello, if that is for `endpoint`.
async fn second_hello(
    source: &mut PeekReader<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
    endpoint: &Endpoint,
    traffic: &ConnectionBytes,
) -> Result<(), TunnelError> {
    loop {
        if !source.fill_to(5).await? {
            return Ok(());
        }
        let (bytes, last) = match next_record(source.buffered()) {
            Some(NextRecord::Other(length)) if source.fill_to(length).await? => (source.take(length), false),
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

/// Checks the server name: it must be the tunnel's host, and absent if the host is an address.
fn check(hello: &ClientHello, endpoint: &Endpoint) -> Result<(), Refusal> {
    let remedy = "use TLS with the server name of the tunnel's host";
    match (&hello.server_name, &endpoint.host) {
        (Some(named), host) if named == host => Ok(()),
        (None, Host::Address(_)) => Ok(()),
        (Some(named), host) => {
            Err(Refusal::built_in(format!("the TLS server name `{named}` is not the tunnel's host `{host}`"), remedy))
        }
        (None, host) => Err(Refusal::built_in(
            format!("the TLS server name is missing; it must be the tunnel's host `{host}`"),
            remedy,
        )),
    }
}

fn refuse(error: HelloError) -> Refusal {
    let remedy = match error {
        HelloError::NotTls => {
            "use TLS in the tunnel; for plain HTTP send an `http://` target to the proxy; for other protocols write \
             `raw` before the host under `net.allowlist`"
        }
        HelloError::Malformed(_) => "use a TLS client that follows RFC 8446",
        HelloError::EncryptedName => "switch off Encrypted Client Hello in the client",
    };
    Refusal::built_in(error.to_string(), remedy)
}
