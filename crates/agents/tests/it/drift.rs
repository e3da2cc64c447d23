//! More than the protocol knows: what an ACP agent says beyond it is kept, and what it says within it is understood.

use agents::{LaunchContext, Output};
use protocol::{ContentPart, EventBody, ItemKind};
use serde_json::{Value, json};

/// What was kept raw, and what was said, when `updates` came.
fn told(updates: &[Value]) -> (Vec<Value>, String) {
    let agent = agents::by_name("opencode").unwrap();
    let mut dialogue = agent.dialogue(&LaunchContext::default());
    let (mut kept, mut said) = (Vec::new(), String::new());
    for update in updates {
        let params = json!({ "sessionId": "s", "update": update });
        let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }).to_string();
        for output in dialogue.line(line.as_bytes()) {
            let Output::Event(draft) = output else { continue };
            match draft.body {
                EventBody::ItemDelta(delta) => said.push_str(&delta.delta),
                EventBody::ItemCompleted(done) if done.item.kind == ItemKind::Unknown => kept.extend(draft.raw),
                EventBody::ItemStarted(begun) => {
                    let calls = begun.item.content.iter().filter_map(|part| match part {
                        ContentPart::ToolCall { name, .. } => Some(format!("[{name}]")),
                        _ => None,
                    });
                    said.extend(calls);
                }
                _ => {}
            }
        }
    }
    (kept, said)
}

#[test]
fn a_field_that_the_protocol_has_not_is_kept_once_and_the_words_are_said() {
    let chunk = |text: &str| {
        let content = json!({ "type": "text", "text": text });
        json!({ "sessionUpdate": "agent_message_chunk", "content": content, "mood": "good" })
    };
    let (kept, said) = told(&[chunk("one "), chunk("two")]);
    assert_eq!(said, "one two");
    assert_eq!(kept, [chunk("one ")]);
}

#[test]
fn a_call_of_a_new_kind_is_a_call_and_its_kind_is_kept() {
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "look ahead", "kind": "dream" });
    let (kept, said) = told(std::slice::from_ref(&call));
    assert_eq!(said, "[look ahead]");
    assert_eq!(kept, [call]);
}

#[test]
fn an_update_that_the_protocol_has_not_is_kept_whole_every_time() {
    let update = json!({ "sessionUpdate": "hologram", "content": 1 });
    let (kept, said) = told(&[update.clone(), update.clone()]);
    assert_eq!(said, "");
    assert_eq!(kept.iter().map(|line| &line["params"]["update"]).collect::<Vec<_>>(), [&update, &update]);
}
