//! What goes out over time: bytes, pauses, and the ways an answer can break.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use futures_util::stream;

use super::{
    document::Pace,
    reply::{Reply, Spoken},
};
use crate::upstream::{ResponseStream, UpstreamFailure};

/// One thing that happens to an answer on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Emission {
    Bytes(Bytes),
    Wait(Duration),
    Cut,
    Hang,
}

/// Plays emissions as the frames of an answer.
pub(super) fn play(emissions: Vec<Emission>) -> ResponseStream {
    Box::pin(stream::unfold(VecDeque::from(emissions), |mut left| async {
        loop {
            match left.pop_front()? {
                Emission::Bytes(bytes) => return Some((Ok(bytes), left)),
                Emission::Wait(time) => tokio::time::sleep(time).await,
                Emission::Cut => {
                    left.clear();
                    return Some((Err(UpstreamFailure::Cut), left));
                }
                Emission::Hang => std::future::pending().await,
            }
        }
    }))
}

/// A whole document: the pauses come first, `raw` takes its place, and `cut` breaks it in half.
pub(super) fn document(reply: &Reply, body: &str) -> Vec<Emission> {
    let mut emissions: Vec<Emission> = reply
        .parts
        .iter()
        .filter_map(|part| match part {
            Spoken::Wait(time) => Some(Emission::Wait(*time)),
            Spoken::Hang => Some(Emission::Hang),
            _ => None,
        })
        .collect();
    let raw: String =
        reply.parts.iter().filter_map(|part| if let Spoken::Raw(raw) = part { Some(&**raw) } else { None }).collect();
    let body = if raw.is_empty() { body.to_owned() } else { raw };
    if reply.parts.contains(&Spoken::Cut) {
        emissions.push(Emission::Bytes(Bytes::copy_from_slice(&body.as_bytes()[..body.len() / 2])));
        emissions.push(Emission::Cut);
    } else {
        emissions.push(Emission::Bytes(Bytes::from(body)));
    }
    emissions
}

/// Cuts `text` into the pieces a stream is paced by.
pub(super) fn chunks(text: &str, pace: Pace) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(pace.chars.max(1)).map(|chunk| chunk.iter().collect()).collect()
}
