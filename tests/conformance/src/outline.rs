//! The outline of a session: its events in order, without texts.
//!
//! The outline of every agent must equal the outline of the mock. The mock's outline is a snapshot that only the mock
//! updates.
//!
//! The outline leaves out, for all agents:
//! - events of the host: model calls, policies, the workspace;
//! - items of kind `status` and `system`, except plans;
//! - the times of sub-agent items, which follow the start of their call;
//! - the number of deltas of an item: they become one line;
//! - ids, times, texts and provider data;
//! - events that need a capability that the agent lacks.
//!
//! `known_differences` lists the remaining differences.

use std::collections::HashMap;
use std::path::PathBuf;

use agents::{Capabilities, content_part_name};
use protocol::{ContentPart, Event, EventBody, Item, ItemId, ItemKind};
use similar::TextDiff;

use crate::known_differences;

/// Checks the outline of a whole session.
#[track_caller]
pub(crate) fn check(agent: &'static str, scenario: &str, events: &[Event]) {
    check_order(agent, events);
    let outline = outline_of(events);
    if agent == "mock" {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        return settings.bind(|| insta::assert_snapshot!(scenario, outline.join("\n")));
    }
    let expected = without_missing_capabilities(&snapshot(scenario), Capabilities::of(agent));
    let (expected, outline) = (expected.join("\n") + "\n", outline.join("\n") + "\n");
    let difference = TextDiff::from_lines(&expected, &outline).unified_diff().context_radius(0).to_string();
    let (known, reason) = known_differences::of(agent, scenario);
    assert!(
        difference.trim() == known.trim(),
        "{agent} differs from the mock in {scenario} by\n{difference}but the known difference is\n{known}\n({reason})\n\
         Outline:\n{outline}"
    );
}

/// Returns the lines of the mock's outline.
#[track_caller]
fn snapshot(scenario: &str) -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/snapshots");
    let text = std::fs::read_to_string(folder.join(format!("{scenario}.snap")));
    let text = text.unwrap_or_else(|_| panic!("there is no snapshot of the mock for {scenario}"));
    // A snapshot starts with a header between two `---` lines.
    let body = text.splitn(3, "---\n").nth(2).unwrap_or_default();
    body.lines().map(str::to_owned).collect()
}

/// Returns the mock's outline without events that need a missing capability.
fn without_missing_capabilities(outline: &[String], can: Capabilities) -> Vec<String> {
    let lacks = |line: &str| {
        (!can.permissions && line.starts_with("permission."))
            || (!can.questions && line.starts_with("question."))
            || (!can.reasoning && line.contains("[reasoning]"))
    };
    outline.iter().filter(|line| !lacks(line)).cloned().collect()
}

/// Returns the outline of a list of events.
fn outline_of(events: &[Event]) -> Vec<String> {
    let (mut lines, mut shown): (Vec<OutlineLine<'_>>, HashMap<&ItemId, &Item>) = Default::default();
    for event in events {
        let body = &event.draft.body;
        let line = match body {
            EventBody::ItemStarted(event) if is_shown(&event.item) => {
                shown.insert(&event.item.item_id, &event.item);
                Some(format!("item.started {}", item(&event.item, &shown)))
            }
            EventBody::ItemDelta(delta) => {
                shown.get(&delta.item_id).map(|grows| format!("item.delta {}", item(grows, &shown)))
            }
            EventBody::ItemCompleted(event) if is_shown(&event.item) => {
                Some(format!("item.completed {} {}", item(&event.item, &shown), word(&event.item.status)))
            }
            body => describe_other(body),
        };
        let (own, call) = calls_of(body, &shown);
        lines.extend(line.map(|text| OutlineLine { text, own, call }));
    }
    let (mut outline, own) = (Vec::new(), lines.iter().filter(|line| line.call.is_none()));
    own.for_each(|line| write(line, &lines, &mut outline));
    outline.dedup_by(|line, before| line == before && line.starts_with("item.delta"));
    outline
}

/// A line of the outline.
struct OutlineLine<'a> {
    text: String,
    /// The call that starts with this line.
    own: Option<&'a ItemId>,
    /// The call of the sub-agent that caused the event.
    call: Option<&'a ItemId>,
}

/// Returns the call that an event starts, and the call inside which it happened.
fn calls_of<'a>(
    body: &'a EventBody,
    shown: &HashMap<&'a ItemId, &'a Item>,
) -> (Option<&'a ItemId>, Option<&'a ItemId>) {
    let (begins, item) = match body {
        EventBody::ItemStarted(event) => (true, Some(&event.item)),
        EventBody::ItemCompleted(event) => (false, Some(&event.item)),
        EventBody::ItemDelta(delta) => (false, shown.get(&delta.item_id).copied()),
        _ => (false, None),
    };
    let own = item.filter(|item| begins && item.kind == ItemKind::ToolCall).map(|item| &item.item_id);
    let above = |item: &'a Item| item.parent_id.as_ref().and_then(|id| shown.get(id)).copied();
    // A result belongs to the same call as its tool call.
    let in_call = item.and_then(|item| match item.kind {
        ItemKind::ToolResult => above(above(item)?),
        _ => above(item),
    });
    (own, in_call.filter(|item| item.kind == ItemKind::ToolCall).map(|item| &item.item_id))
}

/// Writes a line, followed by the lines inside the call that it starts.
fn write(line: &OutlineLine<'_>, lines: &[OutlineLine<'_>], outline: &mut Vec<String>) {
    outline.push(line.text.clone());
    if let Some(call) = line.own {
        lines.iter().filter(|line| line.call == Some(call)).for_each(|line| write(line, lines, outline));
    }
}

fn describe_other(body: &EventBody) -> Option<String> {
    let kind = body.kind();
    Some(match body {
        EventBody::SessionStarted(_)
        | EventBody::TurnStarted(_)
        | EventBody::MessageQueued(_)
        | EventBody::SessionRecovered(_)
        | EventBody::GrantCreated(_)
        | EventBody::GrantRevoked(_) => kind.to_owned(),
        // The status follows from the other events.
        EventBody::SessionEnded(ended) => format!("{kind} {} by {}", word(&ended.reason), word(&ended.terminated_by)),
        EventBody::TurnEnded(turn) => format!("{kind} {}", word(&turn.outcome)),
        EventBody::PermissionRequested(request) | EventBody::PermissionResolved(request) => {
            format!("{kind} {}", word(&request.status))
        }
        EventBody::QuestionRequested(request) | EventBody::QuestionResolved(request) => {
            format!("{kind} {}", word(&request.status))
        }
        EventBody::Error(error) => format!("{kind} {}", error.code.as_deref().unwrap_or_default()),
        _ => return None,
    })
}

/// Returns whether an item is part of the outline.
fn is_shown(item: &Item) -> bool {
    let plan = item.content.iter().any(|part| matches!(part, ContentPart::Json { .. }));
    plan || !matches!(item.kind, ItemKind::Status | ItemKind::System)
}

fn item(item: &Item, shown: &HashMap<&ItemId, &Item>) -> String {
    let parent = item.parent_id.as_ref().and_then(|id| shown.get(id)).map(|parent| word(&parent.kind));
    let parent = parent.map(|kind| format!(" in {kind}")).unwrap_or_default();
    let parts: Vec<&str> = item.content.iter().map(content_part_name).collect();
    let role = item.role.map(|role| word(&role)).unwrap_or_default();
    format!("{role} {}{parent} [{}]", word(&item.kind), parts.join(", "))
}

/// Returns the name of an enum variant on the wire.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap();
    value.as_str().unwrap_or_default().to_owned()
}

/// Checks ids, which the outline leaves out: every item and request starts and ends once, with deltas between.
#[track_caller]
fn check_order(agent: &str, events: &[Event]) {
    let (mut items, mut requests): (HashMap<String, bool>, HashMap<String, bool>) = Default::default();
    for event in events {
        let fits = match &event.draft.body {
            EventBody::ItemStarted(event) => items.insert(event.item.item_id.to_string(), true).is_none(),
            EventBody::ItemDelta(delta) => items.get(delta.item_id.as_str()) == Some(&true),
            EventBody::ItemCompleted(event) => items.insert(event.item.item_id.to_string(), false) == Some(true),
            EventBody::PermissionRequested(new) => requests.insert(new.permission_id.to_string(), true).is_none(),
            EventBody::PermissionResolved(old) => requests.insert(old.permission_id.to_string(), false) == Some(true),
            EventBody::QuestionRequested(new) => requests.insert(new.question_id.to_string(), true).is_none(),
            EventBody::QuestionResolved(old) => requests.insert(old.question_id.to_string(), false) == Some(true),
            _ => true,
        };
        assert!(fits, "{agent}: out of order: {event:#?}");
    }
    let open = items.iter().chain(&requests).filter(|(_, open)| **open).map(|(id, _)| id);
    assert_eq!(open.collect::<Vec<_>>(), [""; 0], "{agent}: left open");
}
