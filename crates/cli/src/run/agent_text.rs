//! The agent's messages, streamed to a person without repetition.
//!
//! Each message ends its line. The text is untrusted and passes a [`PrintableStream`].

use std::collections::HashMap;

use base::PrintableStream;
use protocol::{ContentPart, EventBody, Item, ItemId, ItemKind, ItemRole};

/// The messages that are being streamed.
#[derive(Debug, Default)]
pub(super) struct AgentText {
    open: HashMap<ItemId, OpenMessage>,
    /// Message whose line has not ended.
    line: Option<ItemId>,
}

/// A message that is not complete yet.
#[derive(Debug, Default)]
struct OpenMessage {
    text: String,
    stream: PrintableStream,
}

impl AgentText {
    /// Returns the text of an event to show; empty unless it belongs to a message of the agent.
    pub(super) fn render(&mut self, body: &EventBody) -> String {
        match body {
            EventBody::ItemStarted(started) if is_agent_message(&started.item) => {
                self.open.insert(started.item.item_id.clone(), OpenMessage::default());
                String::new()
            }
            EventBody::ItemDelta(delta) => self.push(&delta.item_id, &delta.delta),
            EventBody::ItemCompleted(completed) => self.complete(&completed.item),
            _ => String::new(),
        }
    }

    /// Returns whether the last line has not ended.
    pub(super) fn is_mid_line(&self) -> bool {
        self.line.is_some()
    }

    /// Notes that other output ended the line.
    pub(super) fn line_ended(&mut self) {
        self.line = None;
    }

    fn push(&mut self, id: &ItemId, words: &str) -> String {
        // Items that did not start as messages are reasoning.
        let Some(message) = self.open.get_mut(id) else { return String::new() };
        message.text.push_str(words);
        let passed = message.stream.push(words);
        let mut shown = if self.line.as_ref().is_some_and(|other| other != id) { "\n" } else { "" }.to_owned();
        match passed.as_str().chars().next_back() {
            None => return String::new(),
            Some('\n') => self.line = None,
            Some(_) => self.line = Some(id.clone()),
        }
        shown.push_str(passed.as_str());
        shown
    }

    fn complete(&mut self, item: &Item) -> String {
        let id = &item.item_id;
        let (Some(streamed), Some(text)) = (self.open.get(id).map(|message| message.text.clone()), text_of(item))
        else {
            self.open.remove(id);
            return String::new();
        };
        let mut shown = String::new();
        if let Some(rest) = text.strip_prefix(&streamed) {
            shown.push_str(&self.push(id, rest));
        } else {
            // The final text differs from the streamed one, so it is shown again on its own line.
            shown.push_str(self.end_line(id));
            shown.push_str(&self.push(id, &text));
        }
        shown.push_str(self.end_line(id));
        self.open.remove(id);
        shown
    }

    fn end_line(&mut self, id: &ItemId) -> &'static str {
        if self.line.as_ref() != Some(id) {
            return "";
        }
        self.line = None;
        "\n"
    }
}

/// Returns whether an item is a message for the person. Reasoning and messages of sub-agents are not.
fn is_agent_message(item: &Item) -> bool {
    let thought = item.content.iter().any(|part| matches!(part, ContentPart::Reasoning { .. }));
    item.kind == ItemKind::Message && item.role == Some(ItemRole::Assistant) && item.parent_id.is_none() && !thought
}

/// Returns the text of a message; `None` if it is empty.
fn text_of(item: &Item) -> Option<String> {
    let texts = item.content.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    Some(texts.collect::<String>()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use protocol::{ItemDelta, ItemEvent, ItemStatus, ReasoningVisibility};

    use super::*;

    fn item(id: u64, content: Vec<ContentPart>) -> ItemEvent {
        let (item_id, status) = (ItemId::numbered(1, id), ItemStatus::InProgress);
        let (kind, role) = (ItemKind::Message, Some(ItemRole::Assistant));
        ItemEvent { item: Item { item_id, native_item_id: None, parent_id: None, kind, role, content, status } }
    }

    fn started(id: u64) -> EventBody {
        EventBody::ItemStarted(item(id, Vec::new()))
    }

    fn delta(id: u64, delta: &str) -> EventBody {
        EventBody::ItemDelta(ItemDelta {
            item_id: ItemId::numbered(1, id),
            native_item_id: None,
            delta: delta.to_owned(),
        })
    }

    fn completed(id: u64, text: &str) -> EventBody {
        EventBody::ItemCompleted(item(id, vec![ContentPart::Text { text: text.to_owned() }]))
    }

    #[track_caller]
    fn check(events: &[EventBody], expected: &[&str]) {
        let mut speech = AgentText::default();
        let shown: Vec<_> = events.iter().map(|body| speech.render(body)).collect();
        assert_eq!(shown, expected);
        assert!(!speech.is_mid_line() && speech.open.is_empty(), "{speech:?}");
    }

    #[test]
    fn text_is_streamed_once() {
        let events = [started(1), delta(1, "one "), delta(1, "two"), completed(1, "one two")];
        check(&events, &["", "one ", "two", "\n"]);
        check(&[started(1), completed(1, "whole")], &["", "whole\n"]);
        check(&[started(1), delta(1, "one"), completed(1, "one two\n")], &["", "one", " two\n"]);
    }

    #[test]
    fn concurrent_messages_never_share_a_line() {
        let events = [
            started(1),
            started(2),
            delta(1, "a"),
            delta(2, "b"),
            completed(1, "a"),
            delta(2, "c"),
            completed(2, "bc"),
        ];
        check(&events, &["", "", "a", "\nb", "", "c", "\n"]);
    }

    #[test]
    fn a_changed_final_text_is_shown_in_full() {
        check(&[started(1), delta(1, "And th"), completed(1, "Well.")], &["", "And th", "\nWell.\n"]);
    }

    #[test]
    fn reasoning_is_not_shown() {
        let thought =
            |text: &str| ContentPart::Reasoning { text: text.into(), visibility: ReasoningVisibility::Public };
        let (begun, done) = (item(1, vec![thought("")]), item(1, vec![thought("hm")]));
        check(&[EventBody::ItemStarted(begun), delta(1, "hm"), EventBody::ItemCompleted(done)], &["", "", ""]);
    }

    #[test]
    fn split_escape_sequences_are_removed() {
        let events = [started(1), delta(1, "a\x1b]52;c"), delta(1, ";x\x07b"), completed(1, "a\x1b]52;c;x\x07b")];
        check(&events, &["", "a", "b", "\n"]);
    }
}
