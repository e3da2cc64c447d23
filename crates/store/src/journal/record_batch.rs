//! A batch of records that is written with one write.

use base::Digest;
use jiff::Timestamp;
use protocol::SessionId;

use super::encoded_drafts::{EncodedDraft, EncodedDrafts};
use super::line::{self, LineHeader};
use super::position::JournalPosition;
use super::{JournalError, StoredRange};

/// Lines to write, and the position of the journal after the write.
pub(super) struct RecordBatch {
    pub(super) position: JournalPosition,
    pub(super) prev: Digest,
    lines: Vec<u8>,
    /// The end of each line in `lines`.
    ends: Vec<usize>,
}

impl RecordBatch {
    /// Returns an empty batch for a journal at `position` whose last line has the digest `prev`. Reuses `buffer`.
    pub(super) fn new(position: JournalPosition, prev: Digest, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { position, prev, lines: buffer, ends: Vec::new() }
    }

    /// Adds each of `drafts` as the next record, all with the time `now`.
    pub(super) fn fill(
        &mut self,
        session: &SessionId,
        now: Timestamp,
        drafts: &EncodedDrafts,
    ) -> Result<StoredRange, JournalError> {
        self.ends.reserve(drafts.iter().len());
        let (first, time) = (self.position.sequence + 1, self.position.set_time(now));
        let stored = StoredRange { session: session.clone(), first, time };
        for draft in drafts.iter() {
            self.add(session, &stored.time, draft)?;
        }
        Ok(stored)
    }

    fn add(&mut self, session: &SessionId, time: &str, draft: EncodedDraft<'_>) -> Result<(), JournalError> {
        let (position, start) = (self.position.next(draft.ends_session)?, self.lines.len());
        let header = LineHeader { sequence: position.sequence, time, session, prev: self.prev };
        line::encode(header, draft, &mut self.lines)?;
        self.ends.push(self.lines.len());
        self.prev = line::digest(&self.lines[start..]);
        self.position = position;
        Ok(())
    }

    /// Returns the bytes to write.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.lines
    }

    /// Returns the number of each record, with the offset of its line in the batch.
    pub(super) fn starts(&self) -> impl Iterator<Item = (u64, usize)> {
        let first = self.position.sequence + 1 - self.ends.len() as u64;
        (first..).zip(std::iter::once(0).chain(self.ends.iter().copied()).take(self.ends.len()))
    }

    /// Returns each line with its newline.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.starts().zip(&self.ends).map(|((_, start), end)| &self.lines[start..*end])
    }

    /// Returns the buffer of the lines, to be used again.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.lines
    }
}
