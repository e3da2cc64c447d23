//! Forwarding of one request to its host, and of the response to the client. One request per connection on both sides.

use std::io;

use policy::Endpoint;
use secret::Redactor;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::{
    body::{BodyError, BodyRelay},
    framing::BodyFraming,
    request::ProxyRequest,
    response_head::ResponseHead,
};
use crate::{
    attempt::ConnectionBytes, client_stream::ClientStream, copy::Direction, identity::EgressLimits,
    inject::PreparedRequest, peek_reader::PeekReader,
};

/// Most interim (1xx) responses before the final one.
const INTERIM_RESPONSES: usize = 8;

/// Failure of an exchange.
#[derive(Debug)]
pub(crate) enum ForwardError {
    /// The client's request is invalid. The client has no response yet.
    Request(String),
    /// The host's response is invalid. Nothing of it was forwarded.
    Response(String),
    /// The connection broke during the response, so the client cannot get an error response.
    Broken(String),
}

/// Sends the request to `upstream` and relays the response to `client`.
pub(crate) async fn forward(
    client: &mut ClientStream<impl AsyncRead + Unpin, impl AsyncWrite + Unpin>,
    upstream: impl AsyncRead + AsyncWrite,
    (prepared, framing): (PreparedRequest<'_>, BodyFraming),
    endpoint: &Endpoint,
    (limits, traffic): (&EgressLimits, &ConnectionBytes),
) -> Result<(), ForwardError> {
    let ClientStream { source: mut up_source, sink: mut up_sink } = ClientStream::new(tokio::io::split(upstream));
    let PreparedRequest { request, headers, mut redactors } = prepared;
    let head = request.origin_head(endpoint, framing, &headers);
    let ClientStream { source, sink } = client;
    let sending = async {
        let sent = async {
            up_sink.write_all(&head).await.map_err(BodyError::Write)?;
            traffic.add_sent(head.len());
            let in_chunks = framing == BodyFraming::Chunked;
            BodyRelay {
                source,
                sink: &mut up_sink,
                traffic,
                direction: Direction::Outbound,
                in_chunks,
                redactors: &mut [],
            }
            .run(framing)
            .await
        };
        match sent.await {
            // A host may respond and close before it has read the whole request. Its response counts.
            Ok(()) | Err(BodyError::Write(_)) => std::future::pending().await,
            Err(error @ (BodyError::Read(_) | BodyError::Malformed(_))) => error,
        }
    };
    tokio::select! {
        error = sending => Err(ForwardError::Request(error.to_string())),
        relayed = relay_response(&mut up_source, sink, (request, &mut redactors), (limits, traffic)) => relayed,
    }
}

async fn relay_response(
    source: &mut PeekReader<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
    (request, redactors): (&ProxyRequest, &mut [Redactor]),
    (limits, traffic): (&EgressLimits, &ConnectionBytes),
) -> Result<(), ForwardError> {
    let refused = |defect: &dyn std::fmt::Display| ForwardError::Response(format!("invalid response: {defect}"));
    for _ in 0..=INTERIM_RESPONSES {
        let head = source.read_head(limits.head_bytes).await.map_err(|error| refused(&error))?;
        traffic.add_received(head.len());
        let response = ResponseHead::parse(&head, limits.header_lines).map_err(|defect| refused(&defect))?;
        let framing = response.framing(&request.method).map_err(|defect| refused(&defect))?;
        if response.status == 101 {
            return Err(refused(&"unexpected protocol switch (101)"));
        }
        // HTTP/1.0 has no chunks: the body ends with the connection.
        let in_chunks = framing == BodyFraming::Chunked && request.minor_version == 1;
        if response.is_interim() {
            if request.minor_version == 1 {
                write(sink, &redact(redactors, response.client_head(false))).await?;
            }
            continue;
        }
        write(sink, &redact(redactors, response.client_head(in_chunks))).await?;
        let relay = BodyRelay { source, sink, traffic, direction: Direction::Inbound, in_chunks, redactors };
        relay.run(framing).await.map_err(|error| ForwardError::Broken(error.to_string()))?;
        return sink.shutdown().await.map_err(broken);
    }
    Err(refused(&"too many interim (1xx) responses"))
}

/// Returns a complete head without the secrets of `redactors`.
fn redact(redactors: &mut [Redactor], head: Vec<u8>) -> Vec<u8> {
    redactors.iter_mut().fold(head, |head, redactor| {
        let mut redacted = redactor.redact(head.into()).to_vec();
        redacted.extend(redactor.finish());
        redacted
    })
}

async fn write(sink: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), ForwardError> {
    sink.write_all(bytes).await.map_err(broken)
}

fn broken(error: io::Error) -> ForwardError {
    ForwardError::Broken(error.to_string())
}
