//! Damaged recordings: no dialogue panics, loses the order or loses a line.

use std::collections::BTreeSet;

use agents::DialogueOutput;
use proptest::prelude::*;
use protocol::{ContentPart, EventBody, ItemKind, TurnOutcome};
use serde_json::{Value, json};

use crate::order::check_order;
use crate::replay::{FixtureLine, fixtures, play_damaged};

/// A random change of a conversation.
#[derive(Debug, Clone)]
enum LineDamage {
    Drop,
    Repeat,
    Swap,
    Cut,
    Flip(u8),
    Insert(Vec<u8>),
    Replace(Value),
}

fn damage() -> impl Strategy<Value = LineDamage> {
    let values = prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!("x")),
        Just(json!(-1)),
        Just(json!([[{}]])),
    ];
    prop_oneof![
        Just(LineDamage::Drop),
        Just(LineDamage::Repeat),
        Just(LineDamage::Swap),
        Just(LineDamage::Cut),
        any::<u8>().prop_map(LineDamage::Flip),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(LineDamage::Insert),
        values.prop_map(LineDamage::Replace),
    ]
}

fn apply(lines: &mut Vec<FixtureLine>, damage: &LineDamage, at: usize, inside: usize) {
    if lines.is_empty() {
        return;
    }
    let (at, other) = (at % lines.len(), inside % lines.len());
    match damage {
        LineDamage::Drop => drop(lines.remove(at)),
        LineDamage::Repeat => lines.insert(at, lines[at].clone()),
        LineDamage::Swap => lines.swap(at, other),
        LineDamage::Cut | LineDamage::Flip(_) | LineDamage::Insert(_) | LineDamage::Replace(_) => {
            spoil(&mut lines[at], damage, inside);
        }
    }
}

fn spoil(line: &mut FixtureLine, damage: &LineDamage, inside: usize) {
    let FixtureLine::Agent(bytes) = line else { return };
    let inside = inside % bytes.len().max(1);
    match damage {
        LineDamage::Cut => bytes.truncate(inside),
        LineDamage::Flip(byte) => {
            if let Some(place) = bytes.get_mut(inside) {
                *place = *byte;
            }
        }
        LineDamage::Insert(more) => {
            let inside = inside.min(bytes.len());
            bytes.splice(inside..inside, more.iter().copied());
        }
        LineDamage::Replace(new) => {
            if let Ok(mut value) = serde_json::from_slice::<Value>(bytes) {
                let mut left = inside % 40;
                replace(&mut value, new, &mut left);
                *bytes = value.to_string().into_bytes();
            }
        }
        LineDamage::Drop | LineDamage::Repeat | LineDamage::Swap => {}
    }
}

/// Replaces the `left`-th value below `value` by `new`.
fn replace(value: &mut Value, new: &Value, left: &mut usize) {
    if *left == 0 {
        *value = new.clone();
        *left = usize::MAX;
        return;
    }
    *left -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|field| descend(field, new, left)),
        Value::Array(list) => list.iter_mut().for_each(|entry| descend(entry, new, left)),
        _ => {}
    }
}

fn descend(value: &mut Value, new: &Value, left: &mut usize) {
    if *left != usize::MAX {
        replace(value, new, left);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_lines_keep_the_order(
        which in any::<prop::sample::Index>(),
        spoils in prop::collection::vec((damage(), any::<usize>(), any::<usize>()), 1..6),
    ) {
        let fixture = which.get(fixtures());
        let mut lines: Vec<FixtureLine> = fixture.lines.iter().map(FixtureLine::of).collect();
        for (damage, at, inside) in &spoils {
            apply(&mut lines, damage, *at, *inside);
        }
        let outputs = play_damaged(&fixture.agent, &lines);
        check_order(&outputs);
    }

    #[test]
    fn invalid_json_is_always_recorded(agent in 0usize..8, bytes in prop::collection::vec(any::<u8>(), 1..60)) {
        let agent = agents::all().nth(agent).unwrap().id();
        prop_assume!(serde_json::from_slice::<Value>(&bytes).is_err() && !bytes.trim_ascii().is_empty());
        let outputs = play_damaged(agent, &[FixtureLine::Agent(bytes)]);
        let recorded_count = outputs.iter().filter(|output| matches!(output, DialogueOutput::Event(draft) if draft.raw.is_some()));
        prop_assert_eq!(recorded_count.count(), 1);
    }
}

/// Lines that no agent prints: 10 MB, invalid UTF-8, an incomplete line, an unknown type.
fn unknown_lines() -> [FixtureLine; 4] {
    let lines: [Vec<u8>; 4] = [
        vec![b'x'; 10 << 20],
        b"\xff\xfe{\"type\":\xc3\x28}".to_vec(),
        br#"{"type":"assistant","message":{"#.to_vec(),
        br#"{"type":"hologram","method":"hologram/moved"}"#.to_vec(),
    ];
    lines.map(FixtureLine::Agent)
}

fn recorded_count(outputs: &[DialogueOutput]) -> usize {
    let kept = |output: &&DialogueOutput| matches!(output, DialogueOutput::Event(draft) if is_odd(&draft.body) && draft.raw.is_some());
    outputs.iter().filter(kept).count()
}

fn is_odd(body: &EventBody) -> bool {
    match body {
        EventBody::AgentUnparsed(_) => true,
        EventBody::ItemCompleted(completed) => completed.item.kind == ItemKind::Unknown,
        _ => false,
    }
}

/// Returns the outcomes of the turns and the text of all messages.
fn outcomes_and_text(outputs: &[DialogueOutput]) -> (Vec<TurnOutcome>, String) {
    let (mut ends, mut text) = (Vec::new(), String::new());
    for output in outputs {
        match output {
            DialogueOutput::TurnEnded(outcome) => ends.push(*outcome),
            DialogueOutput::Event(draft) => {
                if let EventBody::ItemCompleted(completed) = &draft.body {
                    let parts = completed.item.content.iter().filter_map(|part| match part {
                        ContentPart::Text { text } => Some(text.as_str()),
                        _ => None,
                    });
                    text.extend(parts);
                }
            }
            _ => {}
        }
    }
    (ends, text)
}

#[test]
fn every_agent_records_unknown_lines() {
    for agent in agents::all() {
        assert_eq!(
            recorded_count(&play_damaged(agent.id(), &unknown_lines())),
            unknown_lines().len(),
            "{}",
            agent.id()
        );
    }
}

#[test]
fn unknown_lines_do_not_disturb_a_turn() {
    let mut agents_seen = BTreeSet::new();
    for fixture in fixtures() {
        let whole: Vec<FixtureLine> = fixture.lines.iter().map(FixtureLine::of).collect();
        // One conversation of each agent is enough, because of the lines of 10 MB.
        if !agents_seen.insert(&fixture.agent) {
            continue;
        }
        let middle = whole.len() / 2;
        let spoiled = [&whole[..middle], &unknown_lines(), &whole[middle..]].concat();
        let (expected, outputs) = (play_damaged(&fixture.agent, &whole), play_damaged(&fixture.agent, &spoiled));
        assert_eq!(outcomes_and_text(&outputs), outcomes_and_text(&expected), "{} {}", fixture.agent, fixture.scenario);
        assert!(!outcomes_and_text(&expected).0.is_empty(), "{} {} ends no turn", fixture.agent, fixture.scenario);
        assert_eq!(recorded_count(&outputs), recorded_count(&expected) + unknown_lines().len(), "{}", fixture.agent);
        check_order(&outputs);
    }
    assert_eq!(agents_seen.len(), agents::all().count() - 1, "an agent has no fixture");
}
