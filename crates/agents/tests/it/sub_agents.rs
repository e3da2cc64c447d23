//! Sub-agents of Codex, whose turns are separate from the main turn.

use agents::{Dialogue as _, DialogueOutput, LaunchContext, NormalizedDialogue, Prompt, by_name, skeleton};
use protocol::TurnOutcome;
use serde_json::{Value, json};

use crate::modes::sent;

/// Returns Codex in a turn of the main thread `t`, with a sub-agent working on thread `s`.
fn codex_with_sub_agent() -> NormalizedDialogue {
    let context = LaunchContext { epoch: 1, ..LaunchContext::default() };
    let mut dialogue = NormalizedDialogue::new(by_name("codex").unwrap().new_dialogue(&context));
    dialogue.open();
    dialogue.read_line(br#"{"id":1,"result":{}}"#);
    dialogue.read_line(br#"{"id":2,"result":{"thread":{"id":"t"}}}"#);
    dialogue.send_prompt(&Prompt::text("hi"));
    notify(&mut dialogue, "turn/started", json!({ "threadId": "t", "turn": { "id": "ours" } }));
    let spawn = json!({ "type": "collabAgentToolCall", "id": "c", "tool": "spawnAgent", "status": "completed",
        "receiverThreadIds": ["s"], "agentsStates": {} });
    notify(&mut dialogue, "item/completed", json!({ "threadId": "t", "turnId": "ours", "item": spawn }));
    notify(&mut dialogue, "turn/started", json!({ "threadId": "s", "turn": { "id": "theirs" } }));
    dialogue
}

fn notify(dialogue: &mut NormalizedDialogue, method: &str, params: Value) -> Vec<DialogueOutput> {
    dialogue.read_line(json!({ "method": method, "params": params }).to_string().as_bytes())
}

fn ended(thread: &str, status: &str) -> Value {
    json!({ "threadId": thread, "turn": { "id": "any", "status": status, "error": { "message": "no" } } })
}

#[test]
fn turn_ends_after_its_last_sub_agent() {
    let mut dialogue = codex_with_sub_agent();
    assert_eq!(notify(&mut dialogue, "turn/completed", ended("t", "completed")), []);
    let outputs = notify(&mut dialogue, "turn/completed", ended("s", "completed"));
    assert_eq!(outputs, [DialogueOutput::TurnEnded(TurnOutcome::Completed)]);
}

#[test]
fn failed_sub_agent_does_not_fail_the_turn() {
    let mut dialogue = codex_with_sub_agent();
    let error = json!({ "threadId": "s", "turnId": "theirs", "willRetry": false, "error": { "message": "no" } });
    let lines = skeleton(&notify(&mut dialogue, "error", error));
    assert!(lines.iter().all(|line| line.contains(" in #") && line.contains(" status ")), "{lines:?}");
    assert_eq!(notify(&mut dialogue, "turn/completed", ended("s", "failed")), []);
    let outputs = notify(&mut dialogue, "turn/completed", ended("t", "completed"));
    assert_eq!(outputs, [DialogueOutput::TurnEnded(TurnOutcome::Completed)]);
}

#[test]
fn interrupt_stops_all_sub_agents() {
    let mut dialogue = codex_with_sub_agent();
    let lines = sent(&dialogue.interrupt());
    let stopped: Vec<_> = lines.iter().map(|line| (&line["method"], &line["params"]["threadId"])).collect();
    assert_eq!(stopped, [(&json!("turn/interrupt"), &json!("t")), (&json!("turn/interrupt"), &json!("s"))]);
    // A sub-agent that starts later is interrupted as well.
    let late = sent(&notify(&mut dialogue, "turn/started", json!({ "threadId": "l", "turn": { "id": "late" } })));
    assert!(late.iter().any(|line| line["params"] == json!({ "threadId": "l", "turnId": "late" })), "{late:?}");
    for (thread, expected) in
        [("t", &[][..]), ("s", &[]), ("l", &[DialogueOutput::TurnEnded(TurnOutcome::Interrupted)])]
    {
        assert_eq!(notify(&mut dialogue, "turn/completed", ended(thread, "interrupted")), expected, "{thread}");
    }
}
