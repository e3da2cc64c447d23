//! Streamed messages and reasoning.

use protocol::{ContentPart, Item, ItemId, ItemKind, ItemRole, ItemStatus, ReasoningVisibility};

use super::Transcript;

/// The kind of streamed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKind {
    Message,
    Thought,
}

impl TextKind {
    /// Returns the content of an item before its first text, so that readers can tell reasoning from messages.
    fn initial_content(self) -> Vec<ContentPart> {
        match self {
            Self::Message => Vec::new(),
            Self::Thought => vec![self.content(String::new())],
        }
    }

    fn content(self, text: String) -> ContentPart {
        match self {
            Self::Message => ContentPart::Text { text },
            Self::Thought => ContentPart::Reasoning { text, visibility: ReasoningVisibility::Public },
        }
    }
}

/// A text that is still streaming.
#[derive(Debug)]
pub(super) struct OpenText {
    key: String,
    kind: TextKind,
    item: Item,
    text: String,
}

impl Transcript {
    /// Appends to the text `key`, and starts it if needed.
    pub(crate) fn append_text(&mut self, key: &str, kind: TextKind, parent: Option<ItemId>, words: &str) {
        let at = self.find(key, kind, parent.as_ref()).unwrap_or_else(|| {
            let item = self.begin(kind, parent);
            self.open_texts.push(OpenText { key: key.to_owned(), kind, item, text: String::new() });
            self.open_texts.len() - 1
        });
        if !words.is_empty() {
            self.open_texts[at].text.push_str(words);
            let item = self.open_texts[at].item.clone();
            self.push_delta(&item, words);
        }
    }

    /// Completes the text `key`, whose full content is `text`, and starts it if it was not streamed.
    pub(crate) fn complete_text(
        &mut self,
        key: &str,
        kind: TextKind,
        parent: Option<ItemId>,
        text: &str,
        status: ItemStatus,
    ) {
        let mut item = match self.find(key, kind, parent.as_ref()) {
            Some(at) => self.open_texts.remove(at).item,
            None => self.begin(kind, parent),
        };
        item.content = vec![kind.content(text.to_owned())];
        self.complete_item(item, status);
    }

    /// Completes all open texts with the content so far.
    pub(crate) fn finish_texts(&mut self, status: ItemStatus) {
        for open in std::mem::take(&mut self.open_texts) {
            self.end(open, status);
        }
    }

    /// Completes the open texts below `parent`, because another item starts there.
    pub(crate) fn finish_texts_under(&mut self, parent: Option<&ItemId>, status: ItemStatus) {
        while let Some(at) = self.open_texts.iter().position(|open| open.item.parent_id.as_ref() == parent) {
            let open = self.open_texts.remove(at);
            self.end(open, status);
        }
    }

    /// Completes all open texts except `key`, for agents that do not mark the end of a text.
    pub(crate) fn finish_other_texts(&mut self, key: &str) {
        while let Some(at) = self.open_texts.iter().position(|open| open.key != key) {
            let open = self.open_texts.remove(at);
            self.end(open, ItemStatus::Completed);
        }
    }

    fn begin(&mut self, kind: TextKind, parent: Option<ItemId>) -> Item {
        let mut item = self.new_item(ItemKind::Message, ItemRole::Assistant);
        item.parent_id = parent;
        item.content = kind.initial_content();
        self.start_item(&item);
        item
    }

    fn end(&mut self, open: OpenText, status: ItemStatus) {
        let OpenText { kind, mut item, text, .. } = open;
        if !text.is_empty() {
            item.content = vec![kind.content(text)];
        }
        self.complete_item(item, status);
    }

    fn find(&self, key: &str, kind: TextKind, parent: Option<&ItemId>) -> Option<usize> {
        self.open_texts
            .iter()
            .position(|open| open.key == key && open.kind == kind && open.item.parent_id.as_ref() == parent)
    }
}
