//! Comparison of two journals, without the fields that differ between any two runs.
//!
//! Events of the agent and the session are compared in order. Model calls and network events are compared as sets,
//! because they run concurrently and their order is random.

use std::collections::HashMap;

use gateway::RequestNormalizer;
use protocol::{Event, EventBody, SessionEndReason};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

/// Fields that differ between any two runs, or that only a recording or only a replay has.
const RUN_SPECIFIC: [&str; 19] = [
    "account",
    "address",
    "answered_by",
    "asked_by",
    "body",
    "bytes",
    "bytes_sent",
    "cost_picos",
    "duration_micros",
    "native_item_id",
    "policy",
    "raw_hash",
    "replayOf",
    "sandbox_id",
    "session_id",
    "ttft_micros",
    "upstream",
    "user",
    "wall_micros",
];

/// How an event is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventOrder {
    /// In order with other events.
    Ordered,
    /// As a member of a set.
    Unordered,
}

/// Returns the lines in which two journals differ, `-` for the first and `+` for the second; empty when they are equal.
pub fn compare(recorded: &[Event], replayed: &[Event], normalizer: &RequestNormalizer) -> Vec<String> {
    let (recorded, replayed) = (ComparableLines::of(recorded, normalizer), ComparableLines::of(replayed, normalizer));
    let mut differences = difference(&recorded.ordered, &replayed.ordered);
    differences.extend(difference(&recorded.unordered, &replayed.unordered));
    differences
}

struct ComparableLines {
    ordered: String,
    unordered: String,
}

impl ComparableLines {
    fn of(events: &[Event], normalizer: &RequestNormalizer) -> Self {
        let (mut ordered, mut unordered) = (String::new(), Vec::new());
        let mut ids = IdNumbers::default();
        for event in events {
            let Some(order) = event_order(&event.draft.body) else { continue };
            let text = line(&event.draft.body, normalizer, &mut ids);
            match order {
                EventOrder::Ordered => ordered.push_str(&text),
                // How often a denied connection is retried, and how retries are grouped, is random.
                EventOrder::Unordered if is_denial(&event.draft.body) && unordered.contains(&text) => {}
                EventOrder::Unordered => unordered.push(text),
            }
        }
        unordered.sort();
        Self { ordered, unordered: unordered.concat() }
    }
}

/// Returns how an event is compared; `None` for an event that adds nothing to other events.
fn event_order(body: &EventBody) -> Option<EventOrder> {
    match body {
        // `item.completed` has the whole item; how it was split into deltas is random.
        EventBody::ItemStarted(_)
        | EventBody::ItemDelta(_)
        | EventBody::MessageQueued(_)
        | EventBody::MessageRemoved(_)
        | EventBody::SessionRegistered(_)
        | EventBody::SessionStatus(_)
        | EventBody::SessionUpdated(_)
        | EventBody::HostDraining(_)
        | EventBody::SessionRecovered(_) => None,
        EventBody::SessionEnded(ended) => (ended.reason == SessionEndReason::Error).then_some(EventOrder::Ordered),
        EventBody::AnthropicRequest(_)
        | EventBody::AnthropicResponse(_)
        | EventBody::OpenaiRequest(_)
        | EventBody::OpenaiResponse(_)
        | EventBody::GeminiRequest(_)
        | EventBody::GeminiResponse(_)
        | EventBody::UpstreamError(_)
        | EventBody::LlmCall(_)
        | EventBody::EgressAllowed(_)
        | EventBody::EgressDenied(_)
        | EventBody::PolicyEffective(_)
        | EventBody::PolicyNarrowed(_)
        | EventBody::PolicyWidened(_)
        | EventBody::WorkspaceChanged(_) => Some(EventOrder::Unordered),
        _ => Some(EventOrder::Ordered),
    }
}

fn line(body: &EventBody, normalizer: &RequestNormalizer, ids: &mut IdNumbers) -> String {
    let event = serde_json::to_value(body).unwrap_or_default();
    let mut data = event["data"].clone();
    if let Some(denial) = data.as_object_mut().filter(|_| is_denial(body)) {
        denial.remove("count");
    }
    // Numbers and digests of change sets depend on the files of the host, and process ids on the order of their start.
    if let Some(changed) = data.as_object_mut().filter(|_| matches!(body, EventBody::WorkspaceChanged(_))) {
        for field in ["set", "digest", "left_processes"] {
            changed.remove(field);
        }
    }
    // Title, labels and metadata come from the client and do not change the session.
    if let EventBody::SessionStarted(_) = body
        && let Some(metadata) = data["metadata"].as_object_mut()
    {
        for field in ["title", "labels", "metadata"] {
            metadata.remove(field);
        }
    }
    // Ids of unordered events depend on their order, so they are removed rather than numbered.
    let numbered = event_order(body) == Some(EventOrder::Ordered);
    scrub(&mut data, numbered.then_some(ids));
    normalizer.normalize_value(&mut data);
    format!("{} {data}\n", body.kind())
}

fn is_denial(body: &EventBody) -> bool {
    matches!(body, EventBody::EgressDenied(_))
}

/// Removes run-specific fields, and replaces ids by numbers.
fn scrub(value: &mut Value, mut ids: Option<&mut IdNumbers>) {
    match value {
        Value::Object(fields) => scrub_fields(fields, ids),
        Value::Array(values) => values.iter_mut().for_each(|value| scrub(value, ids.as_deref_mut())),
        _ => {}
    }
}

fn scrub_fields(fields: &mut Map<String, Value>, mut ids: Option<&mut IdNumbers>) {
    fields.retain(|name, _| !RUN_SPECIFIC.contains(&name.as_str()));
    for (name, value) in fields.iter_mut() {
        match (value, ids.as_deref_mut()) {
            (Value::String(text), Some(ids)) if is_id_field(name) => *text = ids.number(text),
            (Value::String(text), None) if is_id_field(name) => text.clear(),
            (value, ids) => scrub(value, ids),
        }
    }
}

/// Returns whether a field holds an id.
fn is_id_field(field: &str) -> bool {
    field.ends_with("_id") || field == "granted_by"
}

/// Numbers ids in the order of their first use.
#[derive(Default)]
struct IdNumbers(HashMap<String, usize>);

impl IdNumbers {
    fn number(&mut self, id: &str) -> String {
        let next = self.0.len() + 1;
        format!("#{}", self.0.entry(id.to_owned()).or_insert(next))
    }
}

fn difference(recorded: &str, replayed: &str) -> Vec<String> {
    let diff = TextDiff::from_lines(recorded, replayed);
    let changes = diff.iter_all_changes().filter_map(|change| {
        let signal = match change.tag() {
            ChangeTag::Equal => return None,
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        Some(format!("{signal} {}", change.value().trim_end()))
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use protocol::{EventDraft, SessionId};
    use serde_json::json;

    use super::*;

    fn event(kind: &str, data: Value) -> Event {
        let body = serde_json::from_value(json!({"type": kind, "data": data})).unwrap();
        Event {
            event_id: "evt_1".into(),
            sequence: 1,
            time: String::new(),
            session_id: SessionId::new("s").unwrap(),
            draft: EventDraft::agent(body),
        }
    }

    fn message(id: &str, text: &str) -> Event {
        event(
            "item.completed",
            json!({"item": {"item_id": id, "kind": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "text", "text": text}]}}),
        )
    }

    fn call(id: &str, model: &str, cost: u64) -> Event {
        let usage = json!({"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 0, "cache_write_tokens": 0,
            "cache_write_1h_tokens": 0});
        event(
            "llm.call",
            json!({"call_id": id, "model": model, "upstream": id, "usage": usage, "cost_picos": cost, "status": 200,
                "ttft_micros": cost, "duration_micros": cost}),
        )
    }

    #[track_caller]
    fn check(recorded: &[Event], replayed: &[Event], expected: usize) {
        let differences = compare(recorded, replayed, &RequestNormalizer::new(&[]).unwrap());
        assert_eq!(differences.len(), expected, "{differences:#?}");
    }

    #[test]
    fn ids_times_prices_and_call_order_are_ignored() {
        let recorded =
            [call("call_1", "a", 5), call("call_2", "b", 7), message("itm_1", "took 12ms"), message("itm_2", "x")];
        let replayed =
            [message("itm_7", "took 13ms"), call("call_9", "b", 0), call("call_8", "a", 0), message("itm_9", "x")];
        check(&recorded, &replayed, 0);
    }

    #[test]
    fn number_of_denied_connections_is_ignored_but_not_their_hosts() {
        let denied = |host: &str, count: Option<u64>| {
            event("egress.denied", json!({"host": host, "port": 443, "rule": "net.enabled: false", "count": count}))
        };
        let once = [denied("a.example.com", None)];
        check(&once, &[denied("a.example.com", None), denied("a.example.com", Some(3))], 0);
        check(&once, &[denied("a.example.com", Some(1))], 0);
        check(&once, &[denied("b.example.com", None)], 2);
    }

    #[test]
    fn different_text_calls_and_order_of_messages_are_reported() {
        check(&[message("i", "yes")], &[message("i", "no")], 2);
        check(&[call("c", "a", 0)], &[], 1);
        // Items are numbered in order, so both messages differ.
        check(&[message("i", "1"), message("j", "2")], &[message("i", "2"), message("j", "1")], 4);
    }
}
