//! Messages that were taken, by the name their client gave them: sent twice, taken once.

use std::collections::{HashMap, VecDeque};

use crate::Accepted;

/// So many names are remembered in one session; a client repeats a message within seconds, not after hundreds.
const REMEMBERED: usize = 256;

/// Messages that were taken.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    taken: HashMap<String, Accepted>,
    order: VecDeque<String>,
}

impl Receipts {
    /// What was answered to the message of that name.
    pub(crate) fn find(&self, client_message_id: Option<&str>) -> Option<Accepted> {
        self.taken.get(client_message_id?).cloned()
    }

    /// Remembers what is answered to the message of that name.
    pub(crate) fn keep(&mut self, client_message_id: Option<&str>, accepted: &Accepted) {
        let Some(id) = client_message_id else { return };
        if self.taken.insert(id.to_owned(), accepted.clone()).is_some() {
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

    fn accepted(turn: &str) -> Accepted {
        Accepted { turn_id: TurnId::new(turn).unwrap(), sequence: 1, queued: false }
    }

    #[test]
    fn the_same_name_gives_the_same_receipt() {
        let mut receipts = Receipts::default();
        receipts.keep(Some("a"), &accepted("trn_1"));
        receipts.keep(None, &accepted("trn_2"));
        assert_eq!(receipts.find(Some("a")), Some(accepted("trn_1")));
        assert_eq!(receipts.find(Some("b")), None);
        assert_eq!(receipts.find(None), None);
    }

    #[test]
    fn old_names_are_forgotten_so_that_memory_stays_bounded() {
        let mut receipts = Receipts::default();
        for number in 0..1000 {
            receipts.keep(Some(&number.to_string()), &accepted("trn_1"));
        }
        assert_eq!((receipts.taken.len(), receipts.order.len()), (REMEMBERED, REMEMBERED));
        assert!(receipts.find(Some("999")).is_some());
        assert!(receipts.find(Some("0")).is_none());
    }
}
