//! The journal of a session, as it is or as it grows: `viv sessions events`, and whoever else reads it in order.

use std::io::Write;
use std::time::Duration;

use protocol::{Event, EventBody, SessionId};
use store::{DataDir, JournalReader, SessionIndex};

use crate::failure::Failure;
use crate::timeline::Timeline;

/// Another process writes the journal, so it is looked at this often.
const LOOK: Duration = Duration::from_millis(100);
/// Events read at a time.
const PAGE: usize = 500;

/// Which events are shown.
pub(super) struct EventSelection {
    /// Those after this number.
    pub(super) after: u64,
    /// Also those that come, until the session has ended.
    pub(super) follow: bool,
    /// Those of these types or families; all of them when there is none.
    pub(super) kinds: Vec<String>,
}

impl EventSelection {
    fn has(&self, event: &Event) -> bool {
        let kind = event.draft.body.kind();
        let family = kind.split_once('.').map(|(family, _)| family);
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind || Some(wanted.as_str()) == family)
    }
}

/// Prints the events that are wanted.
pub(super) async fn events(
    directory: &DataDir,
    index: &SessionIndex,
    session: &SessionId,
    wanted: EventSelection,
    json: bool,
) -> Result<(), Failure> {
    let mut timeline = Timeline::default();
    let part = JournalRange { after: wanted.after, follow: wanted.follow };
    walk(directory, index, session, part, |event| Ok(!wanted.has(event) || show(event, json, &mut timeline)?)).await
}

/// Which part of a journal is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JournalRange {
    /// Events after this number.
    pub(super) after: u64,
    /// Also those that come, until the session has ended.
    pub(super) follow: bool,
}

/// Hands over event after event, until there is none or `each` has enough.
pub(super) async fn walk(
    directory: &DataDir,
    index: &SessionIndex,
    session: &SessionId,
    part: JournalRange,
    mut each: impl FnMut(&Event) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let reader = JournalReader::open(directory.journal(session), session.clone())?;
    let mut seen = part.after;
    loop {
        let page = reader.after(seen, PAGE)?;
        for event in &page {
            seen = event.sequence;
            if !each(event)? {
                return Ok(());
            }
        }
        let ended = page.last().is_some_and(|event| matches!(event.draft.body, EventBody::SessionEnded(_)));
        if ended || (page.is_empty() && (!part.follow || index.get(session)?.info.ended)) {
            return Ok(());
        }
        if page.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Prints one event; whether anybody still reads.
pub(super) fn show(event: &Event, json: bool, timeline: &mut Timeline) -> Result<bool, Failure> {
    let mut to = anstream::stdout().lock();
    let written = if json {
        serde_json::to_string(event).map_err(std::io::Error::other).and_then(|line| writeln!(to, "{line}"))
    } else {
        timeline.show_all(event, &mut to)
    };
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::output_failed(&error)),
    }
}
