//! Timed output of a scripted response: bytes, delays, broken connections and hangs.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use futures_util::stream;

use super::{
    reply::{ReplyPart, ScriptedReply},
    script::StreamPace,
};
use crate::upstream::{ResponseStream, UpstreamFailure};

/// One step of sending a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OutputStep {
    Bytes(Bytes),
    Wait(Duration),
    Cut,
    Hang,
}

/// Returns a response body that performs `steps` in order.
pub(super) fn stream_steps(steps: Vec<OutputStep>) -> ResponseStream {
    Box::pin(stream::unfold(VecDeque::from(steps), |mut remaining| async {
        loop {
            match remaining.pop_front()? {
                OutputStep::Bytes(bytes) => return Some((Ok(bytes), remaining)),
                OutputStep::Wait(time) => tokio::time::sleep(time).await,
                OutputStep::Cut => {
                    remaining.clear();
                    return Some((Err(UpstreamFailure::Cut), remaining));
                }
                OutputStep::Hang => std::future::pending().await,
            }
        }
    }))
}

/// Returns the steps of a response that is one document.
///
/// Delays and hangs come first, `raw` parts replace the document, and `cut` sends only its first half.
pub(super) fn document_steps(reply: &ScriptedReply, body: &str) -> Vec<OutputStep> {
    let mut steps: Vec<OutputStep> = reply
        .parts
        .iter()
        .filter_map(|part| match part {
            ReplyPart::Wait(time) => Some(OutputStep::Wait(*time)),
            ReplyPart::Hang => Some(OutputStep::Hang),
            _ => None,
        })
        .collect();
    let raw: String = reply
        .parts
        .iter()
        .filter_map(|part| if let ReplyPart::Raw(raw) = part { Some(&**raw) } else { None })
        .collect();
    let body = if raw.is_empty() { body.to_owned() } else { raw };
    if reply.parts.contains(&ReplyPart::Cut) {
        steps.push(OutputStep::Bytes(Bytes::copy_from_slice(&body.as_bytes()[..body.len() / 2])));
        steps.push(OutputStep::Cut);
    } else {
        steps.push(OutputStep::Bytes(Bytes::from(body)));
    }
    steps
}

/// Splits `text` into pieces of `pace.chars` characters.
pub(super) fn split_text(text: &str, pace: StreamPace) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(pace.chars.max(1)).map(|chunk| chunk.iter().collect()).collect()
}
