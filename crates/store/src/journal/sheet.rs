//! Records that are written in one go: line after line, each with the digest of the one before.

use base::Digest;
use jiff::Timestamp;
use protocol::SessionId;

use super::line::{self, Place};
use super::script::{Said, Script};
use super::stamp::Stamp;
use super::{JournalError, StoredRange};

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

    /// Makes each of what `script` says the record that comes next.
    pub(super) fn fill(
        &mut self,
        session: &SessionId,
        now: Timestamp,
        script: &Script,
    ) -> Result<StoredRange, JournalError> {
        self.ends.reserve(script.said().len());
        let stored =
            StoredRange { session: session.clone(), first: self.stamp.sequence + 1, time: self.stamp.advance(now) };
        for said in script.said() {
            self.add(session, &stored.time, said)?;
        }
        Ok(stored)
    }

    fn add(&mut self, session: &SessionId, time: &str, said: Said<'_>) -> Result<(), JournalError> {
        let (stamp, start) = (self.stamp.next(said.ends_session)?, self.lines.len());
        let place = Place { sequence: stamp.sequence, time, session, prev: self.prev };
        line::put(place, said, &mut self.lines)?;
        self.ends.push(self.lines.len());
        self.prev = line::digest(&self.lines[start..]);
        self.stamp = stamp;
        Ok(())
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
