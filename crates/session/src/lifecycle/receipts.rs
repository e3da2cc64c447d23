//! Receipts of accepted messages by client id, so that a message that is sent twice is accepted once.

use std::collections::{HashMap, VecDeque};

use base::Digest;
use protocol::{Attachment, ContentPart};

use crate::{AcceptedMessage, UserMessage};

/// Receipts kept for one session. A client repeats a message within seconds, not after hundreds of messages.
const MAX_RECEIPTS: usize = 256;

/// The receipts of one session, oldest first.
#[derive(Debug, Default)]
pub(crate) struct MessageReceipts {
    by_id: HashMap<String, MessageReceipt>,
    order: VecDeque<String>,
}

/// The reply to an accepted message, and the digest of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageReceipt {
    pub(crate) accepted: AcceptedMessage,
    pub(crate) digest: MessageDigest,
}

/// The digest of a message's text and of the paths of its attachments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageDigest(Digest);

impl MessageDigest {
    pub(crate) fn of(message: &UserMessage) -> Self {
        Self::new(&message.text, &message.attachments)
    }

    pub(crate) fn new(text: &str, attachments: &[Attachment]) -> Self {
        Self::compute(text, attachments.iter().map(|attachment| attachment.path.as_str()))
    }

    /// Returns the digest of a recorded message.
    pub(crate) fn recorded(parts: &[ContentPart]) -> Self {
        let text = parts.iter().find_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let paths = parts.iter().filter_map(|part| match part {
            ContentPart::Image { path, .. } | ContentPart::FileRef { path, .. } => Some(path.as_str()),
            _ => None,
        });
        Self::compute(text.unwrap_or_default(), paths)
    }

    fn compute<'a>(text: &'a str, paths: impl Iterator<Item = &'a str>) -> Self {
        // Paths contain no zero byte, so a path cannot be mistaken for text.
        let all: Vec<&str> = std::iter::once(text).chain(paths).collect();
        Self(Digest::of(all.join("\0").as_bytes()))
    }
}

impl MessageReceipts {
    /// Returns the receipt of the message with that client id.
    pub(crate) fn find(&self, client_message_id: Option<&str>) -> Option<&MessageReceipt> {
        self.by_id.get(client_message_id?)
    }

    /// Adds a receipt; does nothing without a client id. Drops the oldest receipt when there are too many.
    pub(crate) fn insert(&mut self, client_message_id: Option<&str>, receipt: MessageReceipt) {
        let Some(id) = client_message_id else { return };
        if self.by_id.insert(id.to_owned(), receipt).is_some() {
            return;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > MAX_RECEIPTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::TurnId;

    use super::*;

    fn receipt(turn: &str) -> MessageReceipt {
        let accepted = AcceptedMessage { turn_id: TurnId::new(turn).unwrap(), sequence: 1, queued: false };
        MessageReceipt { accepted, digest: MessageDigest::new("hello", &[]) }
    }

    #[test]
    fn same_client_id_returns_the_same_receipt() {
        let mut receipts = MessageReceipts::default();
        receipts.insert(Some("a"), receipt("trn_1"));
        receipts.insert(None, receipt("trn_2"));
        assert_eq!(receipts.find(Some("a")), Some(&receipt("trn_1")));
        assert_eq!(receipts.find(Some("b")), None);
        assert_eq!(receipts.find(None), None);
    }

    #[test]
    fn oldest_receipts_are_dropped() {
        let mut receipts = MessageReceipts::default();
        for number in 0..1000 {
            receipts.insert(Some(&number.to_string()), receipt("trn_1"));
        }
        assert_eq!((receipts.by_id.len(), receipts.order.len()), (MAX_RECEIPTS, MAX_RECEIPTS));
        assert!(receipts.find(Some("999")).is_some());
        assert!(receipts.find(Some("0")).is_none());
    }

    #[test]
    fn digest_covers_text_and_attachments_also_from_the_journal() {
        let file = |path: &str| Attachment { path: path.to_owned(), mime: None, filename: None };
        let hello = MessageDigest::new("hello", &[file("a.txt")]);
        let recorded = |path: &str| {
            let path = path.to_owned();
            let file = ContentPart::FileRef { path, action: protocol::FileAction::Read, diff: None };
            MessageDigest::recorded(&[ContentPart::Text { text: "hello".to_owned() }, file])
        };
        assert_eq!(recorded("a.txt"), hello);
        assert_ne!(recorded("b.txt"), hello);
        assert_ne!(MessageDigest::new("hello", &[]), hello);
    }
}
