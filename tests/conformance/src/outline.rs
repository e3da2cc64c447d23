//! The form of a session: what happened in which order, without the words.
//!
//! Every agent that plays a scenario must have the form that the mock has. The mock's form is a snapshot, which the
//! mock alone makes; whoever else plays is compared with it and never changes it.
//!
//! One rule says what is left out, for all alike:
//! - what the host saw meanwhile: model calls, policies, the workspace;
//! - how an agent says how it stands: items of kind `status` and `system`, but for a plan;
//! - when a sub-agent did what it did, which has no order with what the agent did meanwhile: it stands behind the
//!   beginning of its call;
//! - how many pieces words come in: all that an item grows by is one line;
//! - ids, times, words and what a provider adds;
//! - of the mock's form, what the table of capabilities says that the other agent does not have.
//!
//! Where an agent still differs, `differences` says so.

use std::collections::HashMap;
use std::path::PathBuf;

use agents::Capabilities;
use protocol::{ContentPart, Event, EventBody, Item, ItemId, ItemKind};
use similar::TextDiff;

use crate::differences;

/// Checks the form of a session, from its first event to its last.
#[track_caller]
pub(crate) fn check(agent: &'static str, scenario: &str, events: &[Event]) {
    check_order(agent, events);
    let form = of(events);
    if agent == "mock" {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        return settings.bind(|| insta::assert_snapshot!(scenario, form.join("\n")));
    }
    let expected = possible(&snapshot(scenario), Capabilities::of(agent));
    let (expected, form) = (expected.join("\n") + "\n", form.join("\n") + "\n");
    let difference = TextDiff::from_lines(&expected, &form).unified_diff().context_radius(0).to_string();
    let (known, why) = known_differences::of(agent, scenario);
    assert!(
        difference.trim() == known.trim(),
        "{agent} differs from the mock in {scenario} by\n{difference}and was known to by\n{known}\n({why})\n\
         Its form is\n{form}"
    );
}

/// What the mock did, line by line.
#[track_caller]
fn snapshot(scenario: &str) -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/snapshots");
    let text = std::fs::read_to_string(folder.join(format!("{scenario}.snap")));
    let text = text.unwrap_or_else(|_| panic!("the mock has not played {scenario}"));
    // A snapshot begins with a header between two rules.
    let body = text.splitn(3, "---\n").nth(2).unwrap_or_default();
    body.lines().map(str::to_owned).collect()
}

/// The mock's form, without what an agent does not have.
fn possible(form: &[String], can: Capabilities) -> Vec<String> {
    let lacks = |line: &str| {
        (!can.permissions && line.starts_with("permission."))
            || (!can.questions && line.starts_with("question."))
            || (!can.reasoning && line.contains("[reasoning]"))
    };
    form.iter().filter(|line| !lacks(line)).cloned().collect()
}

/// The form of what happened.
fn of(events: &[Event]) -> Vec<String> {
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
            body => of_others(body),
        };
        let (own, call) = places(body, &shown);
        lines.extend(line.map(|text| OutlineLine { text, own, call }));
    }
    let (mut form, own) = (Vec::new(), lines.iter().filter(|line| line.call.is_none()));
    own.for_each(|line| write(line, &lines, &mut form));
    form.dedup_by(|line, before| line == before && line.starts_with("item.delta"));
    form
}

/// A line of the form.
struct OutlineLine<'a> {
    text: String,
    /// The call that begins here.
    own: Option<&'a ItemId>,
    /// The call in which a sub-agent did it.
    call: Option<&'a ItemId>,
}

/// Where the line of an event belongs: the call that it begins, and the one in which it happened.
fn places<'a>(body: &'a EventBody, shown: &HashMap<&'a ItemId, &'a Item>) -> (Option<&'a ItemId>, Option<&'a ItemId>) {
    let (begins, item) = match body {
        EventBody::ItemStarted(event) => (true, Some(&event.item)),
        EventBody::ItemCompleted(event) => (false, Some(&event.item)),
        EventBody::ItemDelta(delta) => (false, shown.get(&delta.item_id).copied()),
        _ => (false, None),
    };
    let own = item.filter(|item| begins && item.kind == ItemKind::ToolCall).map(|item| &item.item_id);
    let above = |item: &'a Item| item.parent_id.as_ref().and_then(|id| shown.get(id)).copied();
    // A result is where its call is.
    let in_call = item.and_then(|item| match item.kind {
        ItemKind::ToolResult => above(above(item)?),
        _ => above(item),
    });
    (own, in_call.filter(|item| item.kind == ItemKind::ToolCall).map(|item| &item.item_id))
}

/// Writes a line, and behind it all that happened in the call which begins there.
fn write(line: &OutlineLine<'_>, lines: &[OutlineLine<'_>], form: &mut Vec<String>) {
    form.push(line.text.clone());
    if let Some(call) = line.own {
        lines.iter().filter(|line| line.call == Some(call)).for_each(|line| write(line, lines, form));
    }
}

fn of_others(body: &EventBody) -> Option<String> {
    let kind = body.kind();
    Some(match body {
        EventBody::SessionStarted(_)
        | EventBody::TurnStarted(_)
        | EventBody::MessageQueued(_)
        | EventBody::SessionRecovered(_)
        | EventBody::GrantCreated(_)
        | EventBody::GrantRevoked(_) => kind.to_owned(),
        EventBody::SessionEnded(ended) => format!("{kind} {} by {}", word(&ended.reason), word(&ended.terminated_by)),
        EventBody::TurnEnded(turn) => format!("{kind} {}", word(&turn.outcome)),
        EventBody::PermissionRequested(asked) | EventBody::PermissionResolved(asked) => {
            format!("{kind} {}", word(&asked.status))
        }
        EventBody::QuestionRequested(asked) | EventBody::QuestionResolved(asked) => {
            format!("{kind} {}", word(&asked.status))
        }
        EventBody::Error(error) => format!("{kind} {}", error.code.as_deref().unwrap_or_default()),
        _ => return None,
    })
}

/// Whether an item belongs to the form.
fn is_shown(item: &Item) -> bool {
    let plan = item.content.iter().any(|part| matches!(part, ContentPart::Json { .. }));
    plan || !matches!(item.kind, ItemKind::Status | ItemKind::System)
}

fn item(item: &Item, shown: &HashMap<&ItemId, &Item>) -> String {
    let parent = item.parent_id.as_ref().and_then(|id| shown.get(id)).map(|parent| word(&parent.kind));
    let parent = parent.map(|kind| format!(" in {kind}")).unwrap_or_default();
    let parts: Vec<&str> = item.content.iter().map(part).collect();
    let role = item.role.map(|role| word(&role)).unwrap_or_default();
    format!("{role} {}{parent} [{}]", word(&item.kind), parts.join(", "))
}

fn part(part: &ContentPart) -> &'static str {
    match part {
        ContentPart::Text { .. } => "text",
        ContentPart::Json { .. } => "json",
        ContentPart::ToolCall { .. } => "tool_call",
        ContentPart::ToolResult { .. } => "tool_result",
        ContentPart::FileRef { diff: Some(_), .. } => "file_ref with diff",
        ContentPart::FileRef { diff: None, .. } => "file_ref",
        ContentPart::Reasoning { .. } => "reasoning",
        ContentPart::Image { .. } => "image",
        ContentPart::Status { .. } => "status",
    }
}

/// An enum's name on the wire.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap();
    value.as_str().unwrap_or_default().to_owned()
}

/// The form has no ids, so that they fit is seen here: what begins ends once, and grows between the two.
#[track_caller]
fn check_order(agent: &str, events: &[Event]) {
    let (mut items, mut asked): (HashMap<String, bool>, HashMap<String, bool>) = Default::default();
    for event in events {
        let fits = match &event.draft.body {
            EventBody::ItemStarted(event) => items.insert(event.item.item_id.to_string(), true).is_none(),
            EventBody::ItemDelta(delta) => items.get(delta.item_id.as_str()) == Some(&true),
            EventBody::ItemCompleted(event) => items.insert(event.item.item_id.to_string(), false) == Some(true),
            EventBody::PermissionRequested(new) => asked.insert(new.permission_id.to_string(), true).is_none(),
            EventBody::PermissionResolved(old) => asked.insert(old.permission_id.to_string(), false) == Some(true),
            EventBody::QuestionRequested(new) => asked.insert(new.question_id.to_string(), true).is_none(),
            EventBody::QuestionResolved(old) => asked.insert(old.question_id.to_string(), false) == Some(true),
            _ => true,
        };
        assert!(fits, "{agent}: out of order: {event:#?}");
    }
    let open = items.iter().chain(&asked).filter(|(_, open)| **open).map(|(id, _)| id);
    assert_eq!(open.collect::<Vec<_>>(), [""; 0], "{agent}: left open");
}
