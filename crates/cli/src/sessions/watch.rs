//! `viv sessions events`: the journal, as it is or as it grows.

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

/// Prints events after `after`; with `follow`, until the session has ended.
pub(super) async fn events(
    directory: &DataDir,
    index: &SessionIndex,
    session: &SessionId,
    after: u64,
    follow: bool,
    json: bool,
) -> Result<(), Failure> {
    let reader = JournalReader::open(directory.journal(session), session.clone())?;
    let mut timeline = Timeline::default();
    let mut seen = after;
    loop {
        let page = reader.after(seen, PAGE)?;
        for event in &page {
            seen = event.sequence;
            if !show(event, json, &mut timeline)? {
                return Ok(());
            }
        }
        let ended = page.last().is_some_and(|event| matches!(event.draft.body, EventBody::SessionEnded(_)));
        if ended || (page.is_empty() && (!follow || index.get(session)?.info.ended)) {
            return Ok(());
        }
        if page.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Prints one event; whether anybody still reads.
fn show(event: &Event, json: bool, timeline: &mut Timeline) -> Result<bool, Failure> {
    let mut to = anstream::stdout().lock();
    let written = if json {
        serde_json::to_string(event).map_err(std::io::Error::other).and_then(|line| writeln!(to, "{line}"))
    } else {
        timeline.show_all(event, &mut to)
    };
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::output(&error)),
    }
}
