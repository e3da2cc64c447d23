//! Two journals side by side, without what differs between any two runs.
//!
//! What agent and session did is compared in order. Model calls, and what the sandbox saw, are compared as sets:
//! they run beside each other, and which of two comes first is chance.

use std::collections::HashMap;

use gateway::RequestNormalizer;
use protocol::{Event, EventBody, SessionEndReason};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

/// Fields that are never the same twice, or that only a recording or only a replay has.
const OF_THE_RUN: [&str; 17] = [
    "account",
    "address",
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

/// Where an event is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// In order.
    Conversation,
    /// In any order.
    Beside,
}

/// The lines in which two journals differ, `-` of the first and `+` of the second; none: they tell the same.
pub fn compare(recorded: &[Event], replayed: &[Event], normal: &RequestNormalizer) -> Vec<String> {
    let (recorded, replayed) = (Lines::of(recorded, normal), Lines::of(replayed, normal));
    let mut differences = difference(&recorded.conversation, &replayed.conversation);
    differences.extend(difference(&recorded.beside, &replayed.beside));
    differences
}

struct Lines {
    conversation: String,
    beside: String,
}

impl Lines {
    fn of(events: &[Event], normal: &RequestNormalizer) -> Self {
        let (mut conversation, mut beside) = (String::new(), Vec::new());
        let mut names = Names::default();
        for event in events {
            let Some(where_to) = lane(&event.draft.body) else { continue };
            let text = line(&event.draft.body, normal, &mut names);
            match where_to {
                Lane::Conversation => conversation.push_str(&text),
                // How often somebody knocks at a closed door, and which knocks are told together, is chance.
                Lane::Beside if is_denial(&event.draft.body) && beside.contains(&text) => {}
                Lane::Beside => beside.push(text),
            }
        }
        beside.sort();
        Self { conversation, beside: beside.concat() }
    }
}

/// Where an event is compared; none: it tells nothing that is not told elsewhere.
fn lane(body: &EventBody) -> Option<Lane> {
    match body {
        // What an item became is in its completion; how it was cut on the way is chance.
        EventBody::ItemStarted(_)
        | EventBody::ItemDelta(_)
        | EventBody::MessageQueued(_)
        | EventBody::MessageRemoved(_)
        | EventBody::SessionRegistered(_)
        | EventBody::SessionRecovered(_) => None,
        EventBody::SessionEnded(ended) => (ended.reason == SessionEndReason::Error).then_some(Lane::Conversation),
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
        | EventBody::WorkspaceChanged(_) => Some(Lane::Beside),
        _ => Some(Lane::Conversation),
    }
}

fn line(body: &EventBody, normal: &RequestNormalizer, names: &mut Names) -> String {
    let event = serde_json::to_value(body).unwrap_or_default();
    let mut data = event["data"].clone();
    if let Some(denial) = data.as_object_mut().filter(|_| is_denial(body)) {
        denial.remove("count");
    }
    // Calls are told apart by what they say: their numbers depend on which came first.
    let numbered = lane(body) == Some(Lane::Conversation);
    scrub(&mut data, numbered.then_some(names));
    normal.normalize_value(&mut data);
    format!("{} {data}\n", body.kind())
}

fn is_denial(body: &EventBody) -> bool {
    matches!(body, EventBody::EgressDenied(_))
}

/// Takes out what is of the run, and numbers what is named.
fn scrub(value: &mut Value, mut names: Option<&mut Names>) {
    match value {
        Value::Object(fields) => scrub_fields(fields, names),
        Value::Array(values) => values.iter_mut().for_each(|value| scrub(value, names.as_deref_mut())),
        _ => {}
    }
}

fn scrub_fields(fields: &mut Map<String, Value>, mut names: Option<&mut Names>) {
    fields.retain(|name, _| !OF_THE_RUN.contains(&name.as_str()));
    for (name, value) in fields.iter_mut() {
        match (value, names.as_deref_mut()) {
            (Value::String(text), Some(names)) if is_name(name) => *text = names.of(text),
            (Value::String(text), None) if is_name(name) => text.clear(),
            (value, names) => scrub(value, names),
        }
    }
}

/// Whether a field holds the id of something.
fn is_name(field: &str) -> bool {
    field.ends_with("_id") || field == "granted_by"
}

/// Ids, numbered in the order in which they come.
#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    fn of(&mut self, id: &str) -> String {
        let next = self.0.len() + 1;
        format!("#{}", self.0.entry(id.to_owned()).or_insert(next))
    }
}

fn difference(recorded: &str, replayed: &str) -> Vec<String> {
    let diff = TextDiff::from_lines(recorded, replayed);
    let changes = diff.iter_all_changes().filter_map(|change| {
        let sign = match change.tag() {
            ChangeTag::Equal => return None,
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        Some(format!("{sign} {}", change.value().trim_end()))
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

    fn said(id: &str, text: &str) -> Event {
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
    fn ids_times_prices_and_the_order_of_calls_make_no_difference() {
        let recorded = [call("call_1", "a", 5), call("call_2", "b", 7), said("itm_1", "took 12ms"), said("itm_2", "x")];
        let replayed = [said("itm_7", "took 13ms"), call("call_9", "b", 0), call("call_8", "a", 0), said("itm_9", "x")];
        check(&recorded, &replayed, 0);
    }

    #[test]
    fn how_often_a_closed_door_is_tried_makes_no_difference_and_which_door_does() {
        let denied = |host: &str, count: Option<u64>| {
            event("egress.denied", json!({"host": host, "port": 443, "rule": "net.enabled: false", "count": count}))
        };
        let once = [denied("a.example.com", None)];
        check(&once, &[denied("a.example.com", None), denied("a.example.com", Some(3))], 0);
        check(&once, &[denied("a.example.com", Some(1))], 0);
        check(&once, &[denied("b.example.com", None)], 2);
    }

    #[test]
    fn other_words_other_calls_and_another_order_of_words_do() {
        check(&[said("i", "yes")], &[said("i", "no")], 2);
        check(&[call("c", "a", 0)], &[], 1);
        // Items are numbered as they come, so both are other items.
        check(&[said("i", "1"), said("j", "2")], &[said("i", "2"), said("j", "1")], 4);
    }
}
