//! An answer on its way through a translation: bytes in, bytes out.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::Value;

use super::{Asked, Translation, chat, from_chat::Listener, from_messages, message::Message, response::Response};
use crate::{
    endpoint::ApiDialect,
    meter::SseReader,
    refusal::error_body,
    upstream::{ResponseStream, UpstreamFailure, UpstreamResponse},
};

/// The longest document, and the longest event, that is translated.
const DOCUMENT_BYTES: usize = 32 << 20;
const EVENT_BYTES: usize = 8 << 20;

/// Translates a stream, event by event.
pub(super) trait EventTranslator: Send {
    /// Takes the data of one event and writes what it means.
    fn event(&mut self, data: &[u8], out: &mut BytesMut) -> Result<(), UpstreamFailure>;
    /// The upstream's stream has ended.
    fn end(&mut self, out: &mut BytesMut) -> Result<(), UpstreamFailure>;
}

/// Puts `answer` into the words of who asked.
pub(super) async fn translate(asked: Asked, answer: UpstreamResponse) -> Result<UpstreamResponse, UpstreamFailure> {
    let UpstreamResponse { status, mut headers, frames, hide_usage } = answer;
    headers.remove(header::CONTENT_LENGTH);
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if status.is_success() && kind.starts_with("text/event-stream") {
        let frames = translate_events(translator(&asked), frames);
        return Ok(UpstreamResponse { status, headers, frames, hide_usage });
    }
    let body = collect(frames).await?;
    let document = if status.is_success() { document(&asked, &body)? } else { error(&asked, status, &body) };
    Ok(whole(status, headers, &document))
}

fn translator(asked: &Asked) -> Box<dyn EventTranslator> {
    let estimate = asked.input_estimate;
    match asked.translation {
        Translation::MessagesToChat => Box::new(Listener::new(Message::default(), estimate)),
        Translation::ResponsesToChat => Box::new(Listener::new(Response::new(asked.custom_tools.clone()), estimate)),
        Translation::ChatToMessages => Box::new(from_messages::Stream::default()),
    }
}

fn document(asked: &Asked, body: &[u8]) -> Result<Value, UpstreamFailure> {
    let estimate = asked.input_estimate;
    match asked.translation {
        Translation::MessagesToChat => {
            Listener::new(Message::default(), estimate).whole(body).map(Message::into_document)
        }
        Translation::ResponsesToChat => {
            Listener::new(Response::new(asked.custom_tools.clone()), estimate).whole(body).map(Response::into_document)
        }
        Translation::ChatToMessages => {
            from_messages::document(body).map_err(|error| UpstreamFailure::InvalidResponse(error.to_string()))
        }
    }
}

/// An error of the one vendor as the other would put it.
fn error(asked: &Asked, status: StatusCode, body: &[u8]) -> Value {
    let told = serde_json::from_slice::<Value>(body).ok();
    let message = told.as_ref().and_then(|told| told.get("error")).map(chat::error_message);
    let message = message.unwrap_or_else(|| format!("the upstream answered {status}"));
    let dialect = match asked.translation {
        Translation::MessagesToChat => ApiDialect::Anthropic,
        Translation::ChatToMessages | Translation::ResponsesToChat => ApiDialect::Openai,
    };
    error_body(dialect, status, &message)
}

fn whole(status: StatusCode, mut headers: HeaderMap, document: &Value) -> UpstreamResponse {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = Bytes::from(document.to_string());
    let frames = Box::pin(stream::once(async { Ok(body) }));
    UpstreamResponse { status, headers, frames, hide_usage: false }
}

async fn collect(mut frames: ResponseStream) -> Result<BytesMut, UpstreamFailure> {
    let mut body = BytesMut::new();
    while let Some(bytes) = frames.next().await {
        body.extend_from_slice(&bytes?);
        if body.len() > DOCUMENT_BYTES {
            return Err(UpstreamFailure::TooLong { limit: DOCUMENT_BYTES });
        }
    }
    Ok(body)
}

struct Events {
    frames: ResponseStream,
    reader: SseReader,
    translator: Box<dyn EventTranslator>,
}

/// The translated stream. Each frame of the upstream becomes at most one of ours.
fn translate_events(translator: Box<dyn EventTranslator>, frames: ResponseStream) -> ResponseStream {
    let events = Events { frames, reader: SseReader::new(EVENT_BYTES), translator };
    Box::pin(stream::unfold(Some(events), |events| async {
        let mut events = events?;
        loop {
            let mut out = BytesMut::new();
            let (result, ended) = match events.frames.next().await {
                Some(Ok(bytes)) => (events.take(&bytes, &mut out), false),
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

impl Events {
    fn take(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        let Self { reader, translator, .. } = self;
        let mut result = Ok(());
        reader.push(bytes, |data| {
            if result.is_ok() {
                result = translator.event(data, out);
            }
        })?;
        result
    }

    fn finish(&mut self, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        let Self { reader, translator, .. } = self;
        let mut result = Ok(());
        reader.finish(|data| result = translator.event(data, out));
        result?;
        translator.end(out)
    }
}
