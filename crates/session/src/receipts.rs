//! Messages that were taken, by the name their client gave them: sent twice, taken once.

use std::collections::{HashMap, VecDeque};

use base::Digest;
use protocol::{Attachment, ContentPart};

use crate::{AcceptedMessage, UserMessage};

/// So many names are remembered in one session; a client repeats a message within seconds, not after hundreds.
const REMEMBERED: usize = 256;

/// Messages that were taken.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    taken: HashMap<String, Receipt>,
    order: VecDeque<String>,
}

/// What was answered to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) accepted: AcceptedMessage,
    pub(crate) content: Content,
}

/// What a message says, by its digest: its words, and the paths of the files that go with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content(Digest);

impl Content {
    pub(crate) fn of(message: &UserMessage) -> Self {
        Self::new(&message.text, &message.attachments)
    }

    pub(crate) fn new(text: &str, attachments: &[Attachment]) -> Self {
        Self::digest(text, attachments.iter().map(|attachment| attachment.path.as_str()))
    }

    /// The same, of a message as it stands on record.
    pub(crate) fn recorded(parts: &[ContentPart]) -> Self {
        let text = parts.iter().find_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let paths = parts.iter().filter_map(|part| match part {
            ContentPart::Image { path, .. } | ContentPart::FileRef { path, .. } => Some(path.as_str()),
            _ => None,
        });
        Self::digest(text.unwrap_or_default(), paths)
    }

    fn digest<'a>(text: &'a str, paths: impl Iterator<Item = &'a str>) -> Self {
        // No path holds a zero byte, so none can stand for words.
        let all: Vec<&str> = std::iter::once(text).chain(paths).collect();
        Self(Digest::of(all.join("\0").as_bytes()))
    }
}

impl Receipts {
    /// What was answered to the message of that name.
    pub(crate) fn find(&self, client_message_id: Option<&str>) -> Option<&Receipt> {
        self.taken.get(client_message_id?)
    }

    /// Remembers what is answered to the message of that name.
    pub(crate) fn keep(&mut self, client_message_id: Option<&str>, receipt: Receipt) {
        let Some(id) = client_message_id else { return };
        if self.taken.insert(id.to_owned(), receipt).is_some() {
            return;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.taken.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::TurnId;

    use super::*;

    fn receipt(turn: &str) -> Receipt {
        let accepted = AcceptedMessage { turn_id: TurnId::new(turn).unwrap(), sequence: 1, queued: false };
        Receipt { accepted, content: Content::new("hello", &[]) }
    }

    #[test]
    fn the_same_name_gives_the_same_receipt() {
        let mut receipts = Receipts::default();
        receipts.keep(Some("a"), receipt("trn_1"));
        receipts.keep(None, receipt("trn_2"));
        assert_eq!(receipts.find(Some("a")), Some(&receipt("trn_1")));
        assert_eq!(receipts.find(Some("b")), None);
        assert_eq!(receipts.find(None), None);
    }

    #[test]
    fn old_names_are_forgotten_so_that_memory_stays_bounded() {
        let mut receipts = Receipts::default();
        for number in 0..1000 {
            receipts.keep(Some(&number.to_string()), receipt("trn_1"));
        }
        assert_eq!((receipts.taken.len(), receipts.order.len()), (REMEMBERED, REMEMBERED));
        assert!(receipts.find(Some("999")).is_some());
        assert!(receipts.find(Some("0")).is_none());
    }

    #[test]
    fn a_message_is_known_by_its_words_and_its_files_also_from_its_record() {
        let file = |path: &str| Attachment { path: path.to_owned(), mime: None, filename: None };
        let hello = Content::new("hello", &[file("a.txt")]);
        let recorded = |path: &str| {
            let path = path.to_owned();
            let file = ContentPart::FileRef { path, action: protocol::FileAction::Read, diff: None };
            Content::recorded(&[ContentPart::Text { text: "hello".to_owned() }, file])
        };
        assert_eq!(recorded("a.txt"), hello);
        assert_ne!(recorded("b.txt"), hello);
        assert_ne!(Content::new("hello", &[]), hello);
    }
}
