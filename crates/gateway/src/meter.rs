//! The usage meter: reads usage, model and stop reason from a response while it passes.
//!
//! Memory is bounded by one event of a stream. A count in a stream is a running total, so a later count replaces an
//! earlier one.

mod anthropic;
mod gemini;
mod openai;
mod sse;
mod visible;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use protocol::Usage;

use crate::{endpoint::ApiDialect, upstream::UpstreamFailure};

pub(crate) use sse::SseReader;
pub(crate) use visible::visible_tokens;

/// The most bytes of one event.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// The facts that a meter read from a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MeterReading {
    /// The reported tokens.
    pub(crate) usage: Usage,
    /// The model that the response names.
    pub(crate) model: Option<String>,
    /// The reason why the model stopped.
    pub(crate) stop_reason: Option<String>,
    /// The error that the response reports.
    pub(crate) error: Option<String>,
    /// The service tier that the response names.
    pub(crate) service_tier: Option<String>,
    /// The web searches that the vendor made.
    pub(crate) searches: u64,
    /// Whether the response is complete.
    pub(crate) complete: bool,
}

/// Meters one response.
pub(crate) struct UsageMeter {
    dialect: ApiDialect,
    events: Option<SseReader>,
    reading: MeterReading,
}

impl UsageMeter {
    /// Makes a meter for a response in `dialect`: an event stream, or one JSON document.
    pub(crate) fn new(dialect: ApiDialect, stream: bool) -> Self {
        Self { dialect, events: stream.then(|| SseReader::new(MAX_EVENT_BYTES)), reading: MeterReading::default() }
    }

    /// Takes the next bytes of the response. Fails if one event is too long.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), UpstreamFailure> {
        let Self { dialect, events, reading } = self;
        let Some(events) = events else { return Ok(()) };
        events.push(bytes, |data| read_event(*dialect, data, reading))
    }

    /// Returns the reading so far.
    pub(crate) fn reading(&self) -> &MeterReading {
        &self.reading
    }

    /// Returns the reading of a response that has ended. `body` is the complete response.
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

/// Words to search for in every event: a cheap test before the event is parsed. The search is prepared once.
struct WordFinder<const N: usize>(LazyLock<[Finder<'static>; N], fn() -> [Finder<'static>; N]>);

impl<const N: usize> WordFinder<N> {
    const fn new(words: fn() -> [Finder<'static>; N]) -> Self {
        Self(LazyLock::new(words))
    }

    /// Returns whether `data` contains any of the words.
    fn is_in(&self, data: &[u8]) -> bool {
        self.0.iter().any(|word| word.find(data).is_some())
    }

    /// Returns whether `data` has any of the words, which include their quotes, as a field that is not null.
    fn have_value(&self, data: &[u8]) -> bool {
        let has_value = |at: usize, word: &Finder<'_>| {
            let rest = data[at + word.needle().len()..].trim_ascii_start();
            rest.strip_prefix(b":").is_some_and(|value| !value.trim_ascii_start().starts_with(b"null"))
        };
        self.0.iter().any(|word| word.find_iter(data).any(|at| has_value(at, word)))
    }
}
