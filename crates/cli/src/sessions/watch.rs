//! Reading the journal of a session in order, also while it grows.

use std::time::Duration;

use protocol::{Event, EventBody, SessionId};
use store::{DataDir, JournalReader, SessionIndex};

use crate::failure::Failure;
use crate::output;
use crate::timeline::Timeline;

/// Polling interval for a journal that another process writes.
const POLL: Duration = Duration::from_millis(100);
/// Number of events that are read at a time.
const PAGE: usize = 500;

/// Selection of events to show.
pub(super) struct EventSelection {
    /// Only events after this sequence number.
    pub(super) after: u64,
    /// Whether to wait for new events until the session ends.
    pub(super) follow: bool,
    /// Types or families of events; empty for all.
    pub(super) kinds: Vec<String>,
}

impl EventSelection {
    pub(super) fn includes(&self, event: &Event) -> bool {
        let kind = event.draft.body.kind();
        let family = kind.split_once('.').map(|(family, _)| family);
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind || Some(wanted.as_str()) == family)
    }
}

/// Prints the selected events.
pub(super) async fn events(
    directory: &DataDir,
    index: &SessionIndex,
    session: &SessionId,
    selection: EventSelection,
    json: bool,
) -> Result<(), Failure> {
    let mut timeline = Timeline::default();
    let range = JournalRange { after: selection.after, follow: selection.follow };
    walk(directory, index, session, range, |event| Ok(!selection.includes(event) || show(event, json, &mut timeline)?))
        .await
}

/// Range of a journal to read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JournalRange {
    /// Only events after this sequence number.
    pub(super) after: u64,
    /// Whether to wait for new events until the session ends.
    pub(super) follow: bool,
}

/// Calls `each` for every event of the range, until `each` returns false.
pub(super) async fn walk(
    directory: &DataDir,
    index: &SessionIndex,
    session: &SessionId,
    range: JournalRange,
    mut each: impl FnMut(&Event) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let reader = JournalReader::open(directory.journal(session), session.clone())?;
    let mut seen = range.after;
    loop {
        let page = reader.after(seen, PAGE)?;
        for event in &page {
            seen = event.sequence;
            if !each(event)? {
                return Ok(());
            }
        }
        let ended = page.last().is_some_and(|event| matches!(event.draft.body, EventBody::SessionEnded(_)));
        if ended || (page.is_empty() && (!range.follow || index.get(session)?.info.ended)) {
            return Ok(());
        }
        if page.is_empty() {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Prints one event; returns false if the output was closed.
pub(super) fn show(event: &Event, json: bool, timeline: &mut Timeline) -> Result<bool, Failure> {
    let written = if json {
        let line = serde_json::to_string(event).map_err(std::io::Error::other);
        line.and_then(|line| output::write_json(&format!("{line}\n")))
    } else {
        output::write_text(&timeline.render_all(event))
    };
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::output_failed(&error)),
    }
}
