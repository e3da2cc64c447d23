//! What the calls of one moment have to record, by journal.

use std::sync::Arc;

use protocol::EventDraft;
use store::{Journal, LedgerOperation, LedgerReply};
use tokio::sync::oneshot;

use super::{NotOpened, Opened, Record, Settling, Written};

/// What is to be written into journals, one sheet for each.
#[derive(Default)]
pub(super) struct Sheets(Vec<Sheet>);

struct Sheet {
    journal: Arc<dyn Journal>,
    drafts: Vec<EventDraft>,
    /// Whose they are, and how many.
    writers: Vec<(usize, Writer)>,
}

/// Whoever has something recorded.
pub(super) enum Writer {
    Opening(oneshot::Sender<Opened>),
    Appending(oneshot::Sender<Written>),
    Closing(LedgerOperation, Box<dyn FnOnce(Written, LedgerReply) + Send>),
}

impl Sheets {
    pub(super) fn add(&mut self, record: Record, writer: Writer) {
        let Record { journal, drafts } = record;
        let count = drafts.len();
        // Few lanes serve more than a few sessions in one moment.
        match self.0.iter_mut().find(|sheet| Arc::ptr_eq(&sheet.journal, &journal)) {
            Some(sheet) => {
                sheet.drafts.extend(drafts);
                sheet.writers.push((count, writer));
            }
            None => self.0.push(Sheet { journal, drafts, writers: vec![(count, writer)] }),
        }
    }

    /// Writes all of it; says which calls can be settled now.
    pub(super) fn write(self) -> Vec<Settling> {
        let mut settling = Vec::new();
        for sheet in self.0 {
            sheet.write(&mut settling);
        }
        settling
    }
}

impl Sheet {
    /// Writes it whole; or, where that fails, what each has to say on its own.
    fn write(self, settling: &mut Vec<Settling>) {
        let Self { journal, drafts, writers } = self;
        let store = |drafts: &[EventDraft]| match drafts {
            [] => Ok(()),
            drafts => journal.store(drafts).map(drop).map_err(Arc::new),
        };
        let whole = store(&drafts);
        let (mut rest, alone) = (&drafts[..], writers.len() == 1);
        for (count, writer) in writers {
            let (own, others) = rest.split_at(count);
            rest = others;
            let written = if whole.is_ok() || alone { whole.clone() } else { store(own) };
            match writer {
                Writer::Opening(waiting) => drop(waiting.send(Opened::Done(written.map_err(NotOpened::Unrecorded)))),
                Writer::Appending(waiting) => drop(waiting.send(written)),
                Writer::Closing(step, then) => settling.push(Settling { step, written, then }),
            }
        }
    }
}
