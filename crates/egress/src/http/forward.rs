//! One request to the host it names, and its answer back. One request a connection, on both sides.

use std::io;

use policy::Endpoint;
use secret::Redactor;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::{
    response_head::Answer,
    body::{BodyError, Relay},
    framing::Framing,
    request::Request,
};
use crate::{attempt::Traffic, client_stream::Client, identity::EgressLimits, inject::Dressed, copy::Way, peek_reader::Source};

/// Interim answers before the real one.
const INTERIM_ANSWERS: usize = 8;

/// Why a request was not answered to its end.
#[derive(Debug)]
pub(crate) enum ForwardError {
    /// The client's own fault; it has not been answered.
    Request(String),
    /// The host's fault, before anything of its answer was passed on.
    Answer(String),
    /// Broken in the middle: nothing more can be said to anyone.
    Broken(String),
}

/// Sends `request` to `upstream` and passes the answer on.
pub(crate) async fn forward(
    client: &mut Client<impl AsyncRead + Unpin, impl AsyncWrite + Unpin>,
    upstream: impl AsyncRead + AsyncWrite,
    (dressed, framing): (Dressed<'_>, Framing),
    endpoint: &Endpoint,
    (limits, traffic): (&EgressLimits, &Traffic),
) -> Result<(), ForwardError> {
    let Client { source: mut up_source, sink: mut up_sink } = Client::new(tokio::io::split(upstream));
    let Dressed { request, headers, mut veils } = dressed;
    let head = request.origin_head(endpoint, framing, &headers);
    let Client { source, sink } = client;
    let sending = async {
        let sent = async {
            up_sink.write_all(&head).await.map_err(BodyError::Write)?;
            traffic.add_sent(head.len());
            let in_chunks = framing == Framing::Chunked;
            Relay { source, sink: &mut up_sink, traffic, way: Way::Out, in_chunks, veils: &mut [] }.run(framing).await
        };
        match sent.await {
            // A host may answer and close before it has read everything: its answer counts.
            Ok(()) | Err(BodyError::Write(_)) => std::future::pending().await,
            Err(error @ (BodyError::Read(_) | BodyError::Malformed(_))) => error,
        }
    };
    tokio::select! {
        error = sending => Err(ForwardError::Request(error.to_string())),
        answered = answer(&mut up_source, sink, (request, &mut veils), (limits, traffic)) => answered,
    }
}

async fn answer(
    source: &mut Source<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
    (request, veils): (&Request, &mut [Redactor]),
    (limits, traffic): (&EgressLimits, &Traffic),
) -> Result<(), ForwardError> {
    let refused = |what: &dyn std::fmt::Display| ForwardError::Answer(format!("its answer cannot be read: {what}"));
    for _ in 0..=INTERIM_ANSWERS {
        let head = source.head(limits.head_bytes).await.map_err(|error| refused(&error))?;
        traffic.add_received(head.len());
        let answer = Answer::parse(&head, limits.header_lines).map_err(|what| refused(&what))?;
        let framing = answer.framing(&request.method).map_err(|what| refused(&what))?;
        if answer.status == 101 {
            return Err(refused(&"it switched the protocol, and nobody asked it to"));
        }
        // A client of HTTP/1.0 knows no chunks: its body ends where the connection does.
        let in_chunks = framing == Framing::Chunked && request.minor_version == 1;
        if answer.is_interim() {
            if request.minor_version == 1 {
                write(sink, &veiled(veils, answer.client_head(false))).await?;
            }
            continue;
        }
        write(sink, &veiled(veils, answer.client_head(in_chunks))).await?;
        let relay = Relay { source, sink, traffic, way: Way::In, in_chunks, veils };
        relay.run(framing).await.map_err(|error| ForwardError::Broken(error.to_string()))?;
        return sink.shutdown().await.map_err(broken);
    }
    Err(refused(&"it never ends"))
}

/// A whole head, without what must not be in it.
fn veiled(veils: &mut [Redactor], head: Vec<u8>) -> Vec<u8> {
    veils.iter_mut().fold(head, |head, veil| {
        let mut covered = veil.pass(head.into()).to_vec();
        covered.extend(veil.finish());
        covered
    })
}

async fn write(sink: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), ForwardError> {
    sink.write_all(bytes).await.map_err(broken)
}

fn broken(error: io::Error) -> ForwardError {
    ForwardError::Broken(error.to_string())
}
