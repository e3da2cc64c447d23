//! `viv logs`: what happened in a session, for people: prompts, texts, tools, model calls with tokens and cost.
//!
//! `viv sessions events` shows every event by type and number instead.

use protocol::{Event, EventBody, Item, ItemKind, ItemRole, LlmCall, TurnOutcome};

use super::SessionCatalog;
use super::summary::text_of;
use super::watch::{EventSelection, JournalRange, walk};
use crate::args::LogsArguments;
use crate::failure::Failure;
use crate::human_time::duration;
use crate::output;
use crate::timeline::{self, Timeline};

/// Prints the log of a session. Without `--follow`, a log that is longer than the terminal is shown in the pager.
pub(super) async fn print(catalog: &SessionCatalog<'_>, arguments: &LogsArguments) -> Result<(), Failure> {
    let session = catalog.id(&arguments.session)?;
    let selection = EventSelection { after: 0, follow: arguments.follow, kinds: arguments.kind.clone() };
    let (mut timeline, mut whole) = (Timeline::default(), String::new());
    let range = JournalRange { after: 0, follow: arguments.follow };
    let each = |event: &Event| -> Result<bool, Failure> {
        if !selection.includes(event) {
            return Ok(true);
        }
        let text = lines(&mut timeline, event);
        if !arguments.follow {
            whole.push_str(&text);
            return Ok(true);
        }
        match output::write_text(&text) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| true).map_err(|error| Failure::output_failed(&error)),
        }
    };
    walk(&catalog.directory, &catalog.index, &session, range, each).await?;
    if arguments.follow {
        return Ok(());
    }
    let bill = if arguments.kind.is_empty() { format!("{}\n", timeline.full_bill()) } else { String::new() };
    output::print_paged(&(whole + &bill))
}

/// Returns the lines of an event; empty for events that mean nothing to a person.
fn lines(timeline: &mut Timeline, event: &Event) -> String {
    match &event.draft.body {
        EventBody::ItemCompleted(completed) if is_prompt(&completed.item) => {
            timeline.note(event, "\x1b[36m", "›", "prompt", &text_of(&completed.item))
        }
        EventBody::LlmCall(call) => {
            let shown = model_call(call);
            timeline.note(event, "\x1b[2m", "$", "model", &shown)
        }
        EventBody::TurnEnded(turn) => match turn.outcome {
            Some(TurnOutcome::Failed) => timeline.note(event, "\x1b[31m", "✖", "turn", "failed"),
            Some(TurnOutcome::TimedOut) => timeline.note(event, "\x1b[31m", "✖", "turn", "timed out"),
            Some(TurnOutcome::Interrupted) => timeline.note(event, "\x1b[33m", "■", "turn", "interrupted"),
            _ => String::new(),
        },
        EventBody::WorkspaceChanged(changed) => {
            let [added, modified, deleted] = [&changed.added, &changed.modified, &changed.deleted].map(Vec::len);
            let text = format!("{added} added, {modified} modified, {deleted} deleted");
            timeline.note(event, "\x1b[34m", "±", "changes", &text)
        }
        EventBody::SessionEnded(ended) => match &ended.message {
            Some(message) => timeline.note(event, "\x1b[2m", "■", "ended", message),
            None => String::new(),
        },
        _ => timeline.render(event),
    }
}

fn is_prompt(item: &Item) -> bool {
    item.kind == ItemKind::Message && item.role == Some(ItemRole::User) && !text_of(item).is_empty()
}

/// Returns model, tokens, cost and time of a call in one line.
fn model_call(call: &LlmCall) -> String {
    let usage = &call.usage;
    let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    let cached =
        if usage.cache_read_tokens > 0 { format!(" ({} cached)", usage.cache_read_tokens) } else { String::new() };
    let model = call.model_answered.as_deref().unwrap_or(&call.model);
    let cost = timeline::cost(call.cost_picos, u64::from(call.unpriced.is_some()));
    let (output, time) = (usage.output_tokens, duration(call.duration_micros / 1000));
    let failed = if call.status >= 400 { format!(" · failed with {}", call.status) } else { String::new() };
    format!("{model} · {input} in{cached}, {output} out · {cost} · {time}{failed}")
}
