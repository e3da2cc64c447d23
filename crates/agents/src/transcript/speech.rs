//! Words and thoughts, as they stream.

use protocol::{ContentPart, Item, ItemId, ItemKind, ItemRole, ItemStatus, ReasoningVisibility};

use super::Transcript;

/// Whether words are meant for the person or for the agent itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    Message,
    Thought,
}

impl Speech {
    /// What an item of it holds before its first word: a reader knows words from thoughts while they come.
    fn blank(self) -> Vec<ContentPart> {
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

/// Words that are still coming.
#[derive(Debug)]
pub(super) struct OpenSpeech {
    key: String,
    speech: Speech,
    item: Item,
    text: String,
}

impl Transcript {
    /// More words of the speech `key`; the first ones begin it.
    pub(crate) fn say(&mut self, key: &str, speech: Speech, parent: Option<ItemId>, words: &str) {
        let at = self.find(key, speech, parent.as_ref()).unwrap_or_else(|| {
            let item = self.begin(speech, parent);
            self.speech.push(OpenSpeech { key: key.to_owned(), speech, item, text: String::new() });
            self.speech.len() - 1
        });
        if !words.is_empty() {
            self.speech[at].text.push_str(words);
            let item = self.speech[at].item.clone();
            self.delta(&item, words);
        }
    }

    /// The speech `key` is over; all of it was `text`. One that was never streamed is told whole.
    pub(crate) fn said(&mut self, key: &str, speech: Speech, parent: Option<ItemId>, text: &str, status: ItemStatus) {
        let mut item = match self.find(key, speech, parent.as_ref()) {
            Some(at) => self.speech.remove(at).item,
            None => self.begin(speech, parent),
        };
        item.content = vec![speech.content(text.to_owned())];
        self.completed(item, status);
    }

    /// Ends all speech as far as it came.
    pub(crate) fn finish_speech(&mut self, status: ItemStatus) {
        for open in std::mem::take(&mut self.speech) {
            self.end(open, status);
        }
    }

    /// Ends the speech below `parent`: something else begins there.
    pub(crate) fn finish_speech_in(&mut self, parent: Option<&ItemId>, status: ItemStatus) {
        while let Some(at) = self.speech.iter().position(|open| open.item.parent_id.as_ref() == parent) {
            let open = self.speech.remove(at);
            self.end(open, status);
        }
    }

    /// Ends every speech but `key`: agents that do not mark the end of words begin others instead.
    pub(crate) fn finish_other_speech(&mut self, key: &str) {
        while let Some(at) = self.speech.iter().position(|open| open.key != key) {
            let open = self.speech.remove(at);
            self.end(open, ItemStatus::Completed);
        }
    }

    fn begin(&mut self, speech: Speech, parent: Option<ItemId>) -> Item {
        let mut item = self.item(ItemKind::Message, ItemRole::Assistant);
        item.parent_id = parent;
        item.content = speech.blank();
        self.started(&item);
        item
    }

    fn end(&mut self, open: OpenSpeech, status: ItemStatus) {
        let OpenSpeech { speech, mut item, text, .. } = open;
        if !text.is_empty() {
            item.content = vec![speech.content(text)];
        }
        self.completed(item, status);
    }

    fn find(&self, key: &str, speech: Speech, parent: Option<&ItemId>) -> Option<usize> {
        self.speech
            .iter()
            .position(|open| open.key == key && open.speech == speech && open.item.parent_id.as_ref() == parent)
    }
}
