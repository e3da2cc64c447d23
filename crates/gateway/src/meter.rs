//! Reads usage, model and stop reason off an answer while it passes.
//!
//! Memory is bounded by one event of a stream. A count in a stream is a total so far: a later one takes the
//! place of an earlier one and is never added to it.

mod anthropic;
mod gemini;
mod openai;
mod sse;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use protocol::Usage;

use crate::{endpoint::ApiDialect, upstream::UpstreamFailure};

pub(crate) use sse::SseReader;

/// The longest single event of a stream.
const EVENT_BYTES: usize = 8 << 20;

/// What was read off an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MeterReading {
    /// Tokens, as far as they were told.
    pub(crate) usage: Usage,
    /// The model that answered.
    pub(crate) model: Option<String>,
    /// Why it stopped.
    pub(crate) stop_reason: Option<String>,
    /// What it said went wrong.
    pub(crate) error: Option<String>,
    /// Whether the answer came to its proper end.
    pub(crate) complete: bool,
}

/// Watches one answer.
pub(crate) struct UsageMeter {
    dialect: ApiDialect,
    events: Option<SseReader>,
    reading: MeterReading,
}

impl UsageMeter {
    /// Watches an answer in `dialect` that is an event stream, or one JSON document.
    pub(crate) fn new(dialect: ApiDialect, stream: bool) -> Self {
        Self { dialect, events: stream.then(|| SseReader::new(EVENT_BYTES)), reading: MeterReading::default() }
    }

    /// Takes the next bytes of the answer.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), UpstreamFailure> {
        let Self { dialect, events, reading } = self;
        let Some(events) = events else { return Ok(()) };
        events.push(bytes, |data| read_event(*dialect, data, reading))
    }

    /// The answer has ended; `body` is all of it.
    pub(crate) fn finish(mut self, body: &[u8]) -> MeterReading {
        match &mut self.events {
            Some(events) => events.finish(|data| read_event(self.dialect, data, &mut self.reading)),
            None => read_document(self.dialect, body, &mut self.reading),
        }
        self.reading
    }
}

fn read_event(dialect: ApiDialect, data: &[u8], reading: &mut MeterReading) {
    match dialect {
        ApiDialect::Anthropic => anthropic::read_event(data, reading),
        ApiDialect::Openai => openai::read_event(data, reading),
        ApiDialect::Gemini => gemini::read_event(data, reading),
    }
}

fn read_document(dialect: ApiDialect, body: &[u8], reading: &mut MeterReading) {
    match dialect {
        ApiDialect::Anthropic => anthropic::read_document(body, reading),
        ApiDialect::Openai => openai::read_document(body, reading),
        ApiDialect::Gemini => gemini::read_document(body, reading),
    }
}

/// Words that are looked for in every event: a cheap look before a costly parse. They are made ready for it once.
struct Words<const N: usize>(LazyLock<[Finder<'static>; N], fn() -> [Finder<'static>; N]>);

impl<const N: usize> Words<N> {
    const fn new(ready: fn() -> [Finder<'static>; N]) -> Self {
        Self(LazyLock::new(ready))
    }

    /// Whether any of them is in `data`.
    fn are_in(&self, data: &[u8]) -> bool {
        self.0.iter().any(|word| word.find(data).is_some())
    }

    /// Whether any of them, as a field (with its quotes), is in `data` with a value other than null.
    fn have_value(&self, data: &[u8]) -> bool {
        let has_value = |at: usize, word: &Finder<'_>| {
            let rest = data[at + word.needle().len()..].trim_ascii_start();
            rest.strip_prefix(b":").is_some_and(|value| !value.trim_ascii_start().starts_with(b"null"))
        };
        self.0.iter().any(|word| word.find_iter(data).any(|at| has_value(at, word)))
    }
}
