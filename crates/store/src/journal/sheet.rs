//! Records that are written in one go: line after line, each with the digest of the one before.

use jiff::Timestamp;
use protocol::{Draft, Event, SessionId};

use super::stamp::Stamp;
use super::{JournalError, line};
use crate::Digest;

/// What is about to be written, and where the journal stands once it is.
pub(super) struct Sheet {
    pub(super) stamp: Stamp,
    pub(super) prev: Digest,
    lines: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
}

impl Sheet {
    /// An empty one for a journal that stands at `stamp` and `prev`, in the place of what was in `room`.
    pub(super) fn new(stamp: Stamp, prev: Digest, mut room: Vec<u8>) -> Self {
        room.clear();
        Self { stamp, prev, lines: room, ends: Vec::new() }
    }

    /// Makes each of `drafts` the event that comes next.
    pub(super) fn fill(
        &mut self,
        session: &SessionId,
        now: Timestamp,
        drafts: Vec<Draft>,
    ) -> Result<Vec<Event>, JournalError> {
        self.ends.reserve(drafts.len());
        let time = self.stamp.advance(now);
        drafts.into_iter().map(|draft| self.add(session, &time, draft)).collect()
    }

    fn add(&mut self, session: &SessionId, time: &str, draft: Draft) -> Result<Event, JournalError> {
        let (event, stamp) = self.stamp.next(session, time, draft)?;
        let start = self.lines.len();
        line::encode(&event, self.prev, &mut self.lines)?;
        self.ends.push(self.lines.len());
        self.prev = line::digest(&self.lines[start..]);
        self.stamp = stamp;
        Ok(event)
    }

    /// All of it, as it is written.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.lines
    }

    /// Where each line begins, with the number of its record.
    pub(super) fn starts(&self) -> impl Iterator<Item = (u64, usize)> {
        let first = self.stamp.sequence + 1 - self.ends.len() as u64;
        (first..).zip(std::iter::once(0).chain(self.ends.iter().copied()).take(self.ends.len()))
    }

    /// Each line, newline included.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.starts().zip(&self.ends).map(|((_, start), end)| &self.lines[start..*end])
    }

    /// The room that its lines took up.
    pub(super) fn into_room(self) -> Vec<u8> {
        self.lines
    }
}
