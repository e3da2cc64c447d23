//! Translation of response bodies: events of a stream one by one, other bodies as one document.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::Value;

use super::{
    ResponseTranslation,
    response_writer::{ResponseTranslator, error_message},
};
use crate::{
    meter::SseReader,
    refusal::error_body,
    upstream::{ResponseStream, UpstreamFailure, UpstreamResponse},
};

/// Size limit of a document.
const MAX_DOCUMENT_BYTES: usize = 32 << 20;
/// Size limit of one event of a stream.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// Translates `response` into the API of the client.
pub(super) async fn translate_response(
    context: ResponseTranslation,
    response: UpstreamResponse,
) -> Result<UpstreamResponse, UpstreamFailure> {
    let UpstreamResponse { status, mut headers, frames, hide_usage } = response;
    headers.remove(header::CONTENT_LENGTH);
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if status.is_success() && kind.starts_with("text/event-stream") {
        let frames = translate_events(context.translator(), frames);
        return Ok(UpstreamResponse { status, headers, frames, hide_usage });
    }
    let body = collect_body(frames).await?;
    let document = if status.is_success() {
        context.translator().translate_document(&body)?
    } else {
        translate_error(&context, status, &body)
    };
    Ok(json_response(status, headers, &document))
}

/// Returns an upstream's error body in the shape of the client's API.
fn translate_error(context: &ResponseTranslation, status: StatusCode, body: &[u8]) -> Value {
    let document = serde_json::from_slice::<Value>(body).ok();
    // A stream of Gemini that fails at once is a list with one error.
    let document = document.as_ref().map(|document| document.get(0).unwrap_or(document));
    let message = document.and_then(|document| document.get("error")).map(error_message);
    let message = message.unwrap_or_else(|| format!("the upstream returned status {status}"));
    error_body(context.client.dialect(), status, &message)
}

fn json_response(status: StatusCode, mut headers: HeaderMap, document: &Value) -> UpstreamResponse {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = Bytes::from(document.to_string());
    let frames = Box::pin(stream::once(async { Ok(body) }));
    UpstreamResponse { status, headers, frames, hide_usage: false }
}

async fn collect_body(mut frames: ResponseStream) -> Result<BytesMut, UpstreamFailure> {
    let mut body = BytesMut::new();
    while let Some(bytes) = frames.next().await {
        body.extend_from_slice(&bytes?);
        if body.len() > MAX_DOCUMENT_BYTES {
            return Err(UpstreamFailure::TooLong { limit: MAX_DOCUMENT_BYTES });
        }
    }
    Ok(body)
}

struct TranslatedEvents {
    frames: ResponseStream,
    reader: SseReader,
    translator: ResponseTranslator,
}

/// Returns the translated stream. Each frame of the upstream becomes at most one frame.
fn translate_events(translator: ResponseTranslator, frames: ResponseStream) -> ResponseStream {
    let events = TranslatedEvents { frames, reader: SseReader::new(MAX_EVENT_BYTES), translator };
    Box::pin(stream::unfold(Some(events), |events| async {
        let mut events = events?;
        loop {
            let mut out = BytesMut::new();
            let (result, ended) = match events.frames.next().await {
                Some(Ok(bytes)) => (events.push(&bytes, &mut out), false),
                Some(Err(failure)) => (Err(failure), true),
                None => (events.finish(&mut out), true),
            };
            match result {
                Err(failure) => return Some((Err(failure), None)),
                Ok(()) if ended && out.is_empty() => return None,
                Ok(()) if out.is_empty() => {}
                Ok(()) => return Some((Ok(out.freeze()), (!ended).then_some(events))),
            }
        }
    }))
}

impl TranslatedEvents {
    fn push(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        let Self { reader, translator, .. } = self;
        let mut result = Ok(());
        reader.push(bytes, |data| {
            if result.is_ok() {
                result = translator.translate_event(data, out);
            }
        })?;
        result
    }

    fn finish(&mut self, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        let Self { reader, translator, .. } = self;
        let mut result = Ok(());
        reader.finish(|data| result = translator.translate_event(data, out));
        result?;
        translator.end(out)
    }
}
