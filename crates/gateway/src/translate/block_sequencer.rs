//! Sequencing of the content blocks of a response whose pieces may arrive interleaved.
//!
//! Blocks are numbered from 0 without gaps and at most one is open at a time. Pieces of later blocks are buffered
//! until the earlier blocks are complete.

use bytes::BytesMut;
use serde::de::IgnoredAny;

use super::stream_encoder::{BlockStart, StreamEncoder};
use crate::upstream::UpstreamFailure;

/// Limit on the bytes buffered for blocks that are not open yet.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// Buffers the blocks of one response and writes them in order.
#[derive(Default)]
pub(super) struct BlockSequencer {
    blocks: Vec<BufferedBlock>,
    /// Index of the only block that can be open; all earlier blocks are closed.
    current: usize,
}

struct BufferedBlock {
    kind: BufferedBlockKind,
    open: bool,
    /// Text that is not written yet.
    pending: String,
    /// All arguments of a tool call so far, to detect when they are complete JSON.
    arguments: String,
    /// The signature of reasoning.
    signature: Option<String>,
}

enum BufferedBlockKind {
    Text,
    Thinking,
    Tool { call: u64, id: Option<String>, name: Option<String> },
}

/// A piece of a tool call in a stream.
pub(super) struct ToolCallDelta<'a> {
    /// Number of the tool call, if the server sends one.
    pub(super) call: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) arguments: &'a str,
}

impl BlockSequencer {
    /// Appends text.
    pub(super) fn push_text(&mut self, text: &str) {
        if !matches!(self.blocks.last(), Some(BufferedBlock { kind: BufferedBlockKind::Text, .. })) {
            self.add_block(BufferedBlockKind::Text);
        }
        self.extend_last(text);
    }

    /// Appends thinking text.
    pub(super) fn push_thinking(&mut self, text: &str) {
        if !matches!(self.blocks.last(), Some(BufferedBlock { kind: BufferedBlockKind::Thinking, .. })) {
            self.add_block(BufferedBlockKind::Thinking);
        }
        self.extend_last(text);
    }

    /// Signs the reasoning before, or adds reasoning without text for the signature.
    pub(super) fn push_signature(&mut self, signature: String) {
        let is_unsigned =
            |block: &BufferedBlock| matches!(block.kind, BufferedBlockKind::Thinking) && block.signature.is_none();
        if !self.blocks.last().is_some_and(is_unsigned) {
            self.add_block(BufferedBlockKind::Thinking);
        }
        if let Some(block) = self.blocks.last_mut() {
            block.signature = Some(signature);
        }
    }

    /// Ends the last block, so that the next text starts another one.
    pub(super) fn start_block(&mut self, is_thinking: bool) {
        self.add_block(if is_thinking { BufferedBlockKind::Thinking } else { BufferedBlockKind::Text });
    }

    /// Appends a piece of a tool call.
    pub(super) fn push_tool_call(&mut self, piece: &ToolCallDelta<'_>) {
        let call = self.call_number(piece);
        let found = self
            .blocks
            .iter()
            .position(|block| matches!(block.kind, BufferedBlockKind::Tool { call: other, .. } if other == call));
        let index = found.unwrap_or_else(|| self.add_block(BufferedBlockKind::Tool { call, id: None, name: None }));
        if index < self.current {
            // The arguments were complete, so this piece does not belong to them.
            return;
        }
        let block = &mut self.blocks[index];
        if let BufferedBlockKind::Tool { id, name, .. } = &mut block.kind {
            // Some servers repeat the name with every piece, some send it empty after the first.
            *id = id.take().or_else(|| piece.id.filter(|id| !id.is_empty()).map(str::to_owned));
            *name = name.take().or_else(|| piece.name.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        block.pending.push_str(piece.arguments);
        block.arguments.push_str(piece.arguments);
    }

    /// Returns whether any block is a tool call.
    pub(super) fn has_tool_call(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.kind, BufferedBlockKind::Tool { .. }))
    }

    /// Writes everything that can be written now; fails if too much stays buffered.
    pub(super) fn flush(&mut self, encoder: &mut dyn StreamEncoder, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        while let Some(block) = self.blocks.get_mut(self.current) {
            if !block.flush(self.current, false, encoder, out) {
                break;
            }
            let is_last = self.current + 1 == self.blocks.len();
            if is_last || !self.blocks[self.current].is_complete() {
                break;
            }
            self.close_current(encoder, out);
        }
        let pending: usize = self.blocks.iter().skip(self.current).map(|block| block.pending.len()).sum();
        if pending > MAX_PENDING_BYTES {
            return Err(UpstreamFailure::TooLong { limit: MAX_PENDING_BYTES });
        }
        Ok(())
    }

    /// Writes and closes every block at the end of the response.
    pub(super) fn close_all(&mut self, encoder: &mut dyn StreamEncoder, out: &mut BytesMut) {
        while let Some(block) = self.blocks.get_mut(self.current) {
            block.flush(self.current, true, encoder, out);
            self.close_current(encoder, out);
        }
    }

    /// Returns the number of the tool call that `piece` belongs to.
    fn call_number(&self, piece: &ToolCallDelta<'_>) -> u64 {
        if let Some(call) = piece.call {
            return call;
        }
        let calls = self.blocks.iter().filter_map(|block| match &block.kind {
            BufferedBlockKind::Tool { call, id, .. } => Some((*call, id.as_deref())),
            _ => None,
        });
        let calls: Vec<(u64, Option<&str>)> = calls.collect();
        // Without a number, a new id starts a call and a piece without an id continues the last call.
        match piece.id {
            Some(wanted) => {
                let known = calls.iter().find(|(_, id)| *id == Some(wanted)).map(|(call, _)| *call);
                known.unwrap_or_else(|| calls.iter().map(|(call, _)| call + 1).max().unwrap_or(0))
            }
            None => calls.last().map_or(0, |(call, _)| *call),
        }
    }

    fn add_block(&mut self, kind: BufferedBlockKind) -> usize {
        self.blocks.push(BufferedBlock {
            kind,
            open: false,
            pending: String::new(),
            arguments: String::new(),
            signature: None,
        });
        self.blocks.len() - 1
    }

    fn extend_last(&mut self, text: &str) {
        if let Some(block) = self.blocks.last_mut() {
            block.pending.push_str(text);
        }
    }

    fn close_current(&mut self, encoder: &mut dyn StreamEncoder, out: &mut BytesMut) {
        let signature = self.blocks[self.current].signature.take();
        encoder.close_block(self.current, signature.as_deref(), out);
        // Frees memory: the arguments of a closed block are not needed.
        self.blocks[self.current].arguments = String::new();
        self.current += 1;
    }
}

impl BufferedBlock {
    /// Opens the block and writes its pending text; returns false if it cannot be opened yet.
    fn flush(&mut self, index: usize, is_final: bool, encoder: &mut dyn StreamEncoder, out: &mut BytesMut) -> bool {
        if !self.open {
            let Some(start) = self.start(index, is_final) else { return false };
            encoder.open_block(index, start, out);
            self.open = true;
        }
        if !self.pending.is_empty() {
            encoder.extend_block(index, &std::mem::take(&mut self.pending), out);
        }
        true
    }

    /// Returns how the block starts; `None` for a tool call whose name has not arrived, unless `is_final`.
    fn start(&self, index: usize, is_final: bool) -> Option<BlockStart> {
        match &self.kind {
            BufferedBlockKind::Text => Some(BlockStart::Text),
            BufferedBlockKind::Thinking => Some(BlockStart::Thinking),
            BufferedBlockKind::Tool { id, name, .. } => {
                let name = name.as_deref().or(is_final.then_some("unnamed"))?.to_owned();
                Some(BlockStart::Tool { id: id.clone().unwrap_or_else(|| format!("call_{index}")), name })
            }
        }
    }

    /// Returns whether no more pieces of this block can follow after a later block has started.
    fn is_complete(&self) -> bool {
        match self.kind {
            BufferedBlockKind::Text | BufferedBlockKind::Thinking => true,
            BufferedBlockKind::Tool { .. } => {
                self.arguments.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
            }
        }
    }
}
