//! The blocks of an answer, put in order: pieces of several may come interleaved.
//!
//! Blocks are numbered from 0 without gaps and exactly one is open at a time. Pieces of a block whose
//! turn has not come wait for it.

use bytes::BytesMut;
use serde::de::IgnoredAny;

use super::narrator::{Narrator, Opening};
use crate::upstream::UpstreamFailure;

/// What may wait for its turn.
const WAITING_BYTES: usize = 8 << 20;

/// The blocks of one answer.
#[derive(Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// The one whose turn it is; it is the only one that can be open.
    current: usize,
}

struct Block {
    kind: Kind,
    open: bool,
    /// What is not sent yet.
    waiting: String,
    /// The arguments of a tool call so far, to know when they are whole.
    arguments: String,
}

enum Kind {
    Text,
    Thinking,
    Tool { call: u64, id: Option<String>, name: Option<String> },
}

/// A piece of a tool call.
pub(super) struct ToolPiece<'a> {
    /// Which call it belongs to, where the server says so.
    pub(super) call: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) arguments: &'a str,
}

impl Blocks {
    /// More text.
    pub(super) fn text(&mut self, text: &str) {
        if !matches!(self.blocks.last(), Some(Block { kind: Kind::Text, .. })) {
            self.add(Kind::Text);
        }
        self.extend_last(text);
    }

    /// More of a thought.
    pub(super) fn thinking(&mut self, text: &str) {
        if !matches!(self.blocks.last(), Some(Block { kind: Kind::Thinking, .. })) {
            self.add(Kind::Thinking);
        }
        self.extend_last(text);
    }

    /// More of a tool call.
    pub(super) fn tool(&mut self, piece: &ToolPiece<'_>) {
        let call = self.call_of(piece);
        let found =
            self.blocks.iter().position(|block| matches!(block.kind, Kind::Tool { call: other, .. } if other == call));
        let index = found.unwrap_or_else(|| self.add(Kind::Tool { call, id: None, name: None }));
        if index < self.current {
            // Its arguments were whole: what comes after is no part of them.
            return;
        }
        let block = &mut self.blocks[index];
        if let Kind::Tool { id, name, .. } = &mut block.kind {
            // Some servers repeat the name with every piece, some send it empty after the first.
            *id = id.take().or_else(|| piece.id.filter(|id| !id.is_empty()).map(str::to_owned));
            *name = name.take().or_else(|| piece.name.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        block.waiting.push_str(piece.arguments);
        block.arguments.push_str(piece.arguments);
    }

    /// Whether there is a tool call among them.
    pub(super) fn has_tool(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.kind, Kind::Tool { .. }))
    }

    /// Sends all that can be sent now.
    pub(super) fn send(&mut self, narrator: &mut dyn Narrator, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        while let Some(block) = self.blocks.get_mut(self.current) {
            if !block.send(self.current, false, narrator, out) {
                break;
            }
            let is_last = self.current + 1 == self.blocks.len();
            if is_last || !self.blocks[self.current].is_whole() {
                break;
            }
            self.close_current(narrator, out);
        }
        let waiting: usize = self.blocks.iter().skip(self.current).map(|block| block.waiting.len()).sum();
        if waiting > WAITING_BYTES {
            return Err(UpstreamFailure::TooLong { limit: WAITING_BYTES });
        }
        Ok(())
    }

    /// Sends and closes every block: nothing more comes.
    pub(super) fn close(&mut self, narrator: &mut dyn Narrator, out: &mut BytesMut) {
        while let Some(block) = self.blocks.get_mut(self.current) {
            block.send(self.current, true, narrator, out);
            self.close_current(narrator, out);
        }
    }

    fn call_of(&self, piece: &ToolPiece<'_>) -> u64 {
        if let Some(call) = piece.call {
            return call;
        }
        let calls = self.blocks.iter().filter_map(|block| match &block.kind {
            Kind::Tool { call, id, .. } => Some((*call, id.as_deref())),
            _ => None,
        });
        let calls: Vec<(u64, Option<&str>)> = calls.collect();
        // Without a number, an id that is new begins a call, and what has no id goes on with the last one.
        match piece.id {
            Some(wanted) => {
                let known = calls.iter().find(|(_, id)| *id == Some(wanted)).map(|(call, _)| *call);
                known.unwrap_or_else(|| calls.iter().map(|(call, _)| call + 1).max().unwrap_or(0))
            }
            None => calls.last().map_or(0, |(call, _)| *call),
        }
    }

    fn add(&mut self, kind: Kind) -> usize {
        self.blocks.push(Block { kind, open: false, waiting: String::new(), arguments: String::new() });
        self.blocks.len() - 1
    }

    fn extend_last(&mut self, text: &str) {
        if let Some(block) = self.blocks.last_mut() {
            block.waiting.push_str(text);
        }
    }

    fn close_current(&mut self, narrator: &mut dyn Narrator, out: &mut BytesMut) {
        narrator.close(self.current, out);
        // What was sent is not needed again.
        self.blocks[self.current].arguments = String::new();
        self.current += 1;
    }
}

impl Block {
    /// Opens the block and sends what waits; false: it cannot be opened yet.
    fn send(&mut self, index: usize, last_chance: bool, narrator: &mut dyn Narrator, out: &mut BytesMut) -> bool {
        if !self.open {
            let Some(opening) = self.opening(index, last_chance) else { return false };
            narrator.open(index, opening, out);
            self.open = true;
        }
        if !self.waiting.is_empty() {
            narrator.grow(index, &std::mem::take(&mut self.waiting), out);
        }
        true
    }

    /// A tool call cannot begin before its name is known, unless nothing more comes.
    fn opening(&self, index: usize, last_chance: bool) -> Option<Opening> {
        match &self.kind {
            Kind::Text => Some(Opening::Text),
            Kind::Thinking => Some(Opening::Thinking),
            Kind::Tool { id, name, .. } => {
                let name = name.as_deref().or(last_chance.then_some("unnamed"))?.to_owned();
                Some(Opening::Tool { id: id.clone().unwrap_or_else(|| format!("call_{index}")), name })
            }
        }
    }

    /// Whether nothing can follow in this block once another one has begun.
    fn is_whole(&self) -> bool {
        match self.kind {
            Kind::Text | Kind::Thinking => true,
            Kind::Tool { .. } => {
                self.arguments.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
            }
        }
    }
}
