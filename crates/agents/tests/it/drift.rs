//! Unknown fields and messages are recorded, and known ones are understood.

use agents::{Dialogue as _, DialogueOutput, LaunchContext, NormalizedDialogue, skeleton};
use protocol::{ContentPart, EventBody, ItemKind};
use serde_json::{Value, json};

use crate::replay::{Fixture, fixtures, play};

/// Returns the raw messages that were recorded and the text that was emitted for `updates`.
fn recorded_and_emitted(updates: &[Value]) -> (Vec<Value>, String) {
    let agent = agents::by_name("opencode").unwrap();
    let mut dialogue = NormalizedDialogue::new(agent.new_dialogue(&LaunchContext::default()));
    let (mut kept, mut emitted) = (Vec::new(), String::new());
    for update in updates {
        let params = json!({ "sessionId": "s", "update": update });
        let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }).to_string();
        for output in dialogue.read_line(line.as_bytes()) {
            let DialogueOutput::Event(draft) = output else { continue };
            match draft.body {
                EventBody::ItemDelta(delta) => emitted.push_str(&delta.delta),
                EventBody::ItemCompleted(done) if done.item.kind == ItemKind::Unknown => kept.extend(draft.raw),
                EventBody::ItemStarted(begun) => {
                    let calls = begun.item.content.iter().filter_map(|part| match part {
                        ContentPart::ToolCall { name, .. } => Some(format!("[{name}]")),
                        _ => None,
                    });
                    emitted.extend(calls);
                }
                _ => {}
            }
        }
    }
    (kept, emitted)
}

#[test]
fn unknown_field_is_recorded_once_and_the_text_is_emitted() {
    let chunk = |text: &str| {
        let content = json!({ "type": "text", "text": text });
        json!({ "sessionUpdate": "agent_message_chunk", "content": content, "mood": "good" })
    };
    let (kept, emitted) = recorded_and_emitted(&[chunk("one "), chunk("two")]);
    assert_eq!(emitted, "one two");
    assert_eq!(kept, [chunk("one ")]);
}

#[test]
fn call_of_an_unknown_kind_is_emitted_and_recorded() {
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "look ahead", "kind": "dream" });
    let (kept, emitted) = recorded_and_emitted(std::slice::from_ref(&call));
    assert_eq!(emitted, "[look ahead]");
    assert_eq!(kept, [call]);
}

#[test]
fn unknown_update_is_recorded_every_time() {
    let update = json!({ "sessionUpdate": "hologram", "content": 1 });
    let (kept, emitted) = recorded_and_emitted(&[update.clone(), update.clone()]);
    assert_eq!(emitted, "");
    assert_eq!(kept.iter().map(|line| &line["params"]["update"]).collect::<Vec<_>>(), [&update, &update]);
}

/// Returns the raw messages that were recorded.
fn kept(outputs: &[DialogueOutput]) -> Vec<Value> {
    let drafts = outputs.iter().filter_map(|output| match output {
        DialogueOutput::Event(draft) => Some(draft),
        _ => None,
    });
    let unknown = drafts
        .filter(|draft| matches!(&draft.body, EventBody::ItemCompleted(done) if done.item.kind == ItemKind::Unknown));
    unknown.filter_map(|draft| draft.raw.clone()).collect()
}

/// Returns the skeleton without recorded messages.
fn shape(outputs: &[DialogueOutput]) -> Vec<String> {
    let lines = skeleton(outputs).into_iter().filter(|line| !line.contains(" unknown system "));
    // Ids are removed, because recorded messages have ids as well.
    let unnumbered = |line: String| line.split(' ').filter(|word| !word.starts_with('#')).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<_> = lines.map(unnumbered).collect();
    lines.dedup();
    lines
}

/// Adds an unknown field to every message with `marker` in a recorded conversation. The events must stay the same, and
/// the first such message is recorded.
#[track_caller]
fn check_later_version(agent: &str, scenario: &str, marker: &str, at: &str) {
    let measured = fixtures().iter().find(|one| one.agent == agent && one.scenario == scenario).unwrap();
    let mut lines = measured.lines.clone();
    let mut changed = Vec::new();
    for line in lines.iter_mut().filter(|line| line["agent"].to_string().contains(marker)) {
        let place = line["agent"].pointer_mut(at).unwrap_or_else(|| panic!("{agent} {scenario} has no {at}"));
        place["mood"] = json!({ "of": "version 99" });
        changed.push(line["agent"].clone());
    }
    assert!(changed.len() > 1, "{agent} {scenario} says {marker} {} times", changed.len());
    let later = play(&Fixture { agent: agent.to_owned(), scenario: scenario.to_owned(), lines });
    // Of an ACP message only the update is recorded.
    let first = changed[0].pointer("/params/update").unwrap_or(&changed[0]).clone();
    assert_eq!(kept(&later), [first], "{agent} {scenario} {at}");
    assert_eq!(shape(&later), shape(&play(measured)), "{agent} {scenario} {at}");
}

#[test]
fn unknown_fields_are_recorded_once_in_every_protocol() {
    check_later_version("claude", "command_free", r#""type":"content_block_delta""#, "/event");
    check_later_version("claude", "command_allowed", r#""type":"assistant""#, "/message");
    check_later_version("qwen", "file_written_allowed", r#""type":"assistant""#, "/message/content/0");
    check_later_version("qwen", "command_free", r#""type":"assistant""#, "");
    check_later_version("codex", "command_allowed", r#""method":"item/completed""#, "/params/item");
    check_later_version("codex", "hello", r#""method":"item/agentMessage/delta""#, "/params");
    check_later_version("pi", "command_free", r#""type":"message_update""#, "/assistantMessageEvent");
    check_later_version("pi", "command_free", r#""type":"message_end""#, "/message");
    check_later_version("gemini", "command_allowed", "agent_message_chunk", "/params/update");
    check_later_version("copilot", "command_allowed", "agent_message_chunk", "/params/update/content");
}

#[test]
fn recorded_conversations_have_no_unknown_fields() {
    for fixture in fixtures() {
        assert_eq!(kept(&play(fixture)), [json!(null); 0], "{} {}", fixture.agent, fixture.scenario);
    }
}
