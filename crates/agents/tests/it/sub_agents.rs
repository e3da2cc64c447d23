//! Sub-agents of codex: threads beside ours, whose turns are not ours.

use agents::{Dialogue, DialogueOutput, LaunchContext, NormalizedDialogue, Prompt, by_name, skeleton};
use protocol::TurnOutcome;
use serde_json::{Value, json};

use crate::modes::sent;

/// Codex at a turn of our thread `t`, for which a sub-agent is at work on thread `s`.
fn at_work() -> Box<dyn Dialogue> {
    let context = LaunchContext { epoch: 1, ..LaunchContext::default() };
    let mut dialogue = NormalizedDialogue::new(by_name("codex").unwrap().new_dialogue(&context));
    dialogue.open();
    dialogue.read_line(br#"{"id":1,"result":{}}"#);
    dialogue.read_line(br#"{"id":2,"result":{"thread":{"id":"t"}}}"#);
    dialogue.send_prompt(&Prompt::text("hi"));
    tell(&mut dialogue, "turn/started", json!({ "threadId": "t", "turn": { "id": "ours" } }));
    let spawn = json!({ "type": "collabAgentToolCall", "id": "c", "tool": "spawnAgent", "status": "completed",
        "receiverThreadIds": ["s"], "agentsStates": {} });
    tell(&mut dialogue, "item/completed", json!({ "threadId": "t", "turnId": "ours", "item": spawn }));
    tell(&mut dialogue, "turn/started", json!({ "threadId": "s", "turn": { "id": "theirs" } }));
    dialogue
}

fn tell(dialogue: &mut dyn Dialogue, method: &str, params: Value) -> Vec<DialogueOutput> {
    dialogue.read_line(json!({ "method": method, "params": params }).to_string().as_bytes())
}

fn ended(thread: &str, status: &str) -> Value {
    json!({ "threadId": thread, "turn": { "id": "any", "status": status, "error": { "message": "no" } } })
}

#[test]
fn a_turn_ends_when_its_last_sub_agent_is_done() {
    let mut dialogue = at_work();
    assert_eq!(tell(&mut dialogue, "turn/completed", ended("t", "completed")), []);
    let outputs = tell(&mut dialogue, "turn/completed", ended("s", "completed"));
    assert_eq!(outputs, [DialogueOutput::TurnEnded(TurnOutcome::Completed)]);
}

#[test]
fn a_sub_agent_that_fails_fails_alone() {
    let mut dialogue = at_work();
    let error = json!({ "threadId": "s", "turnId": "theirs", "willRetry": false, "error": { "message": "no" } });
    let told = skeleton(&tell(&mut dialogue, "error", error));
    assert!(told.iter().all(|line| line.contains(" in #") && line.contains(" status ")), "{told:?}");
    assert_eq!(tell(&mut dialogue, "turn/completed", ended("s", "failed")), []);
    let outputs = tell(&mut dialogue, "turn/completed", ended("t", "completed"));
    assert_eq!(outputs, [DialogueOutput::TurnEnded(TurnOutcome::Completed)]);
}

#[test]
fn whoever_stops_the_turn_stops_its_sub_agents() {
    let mut dialogue = at_work();
    let lines = sent(&dialogue.interrupt());
    let stopped: Vec<_> = lines.iter().map(|line| (&line["method"], &line["params"]["threadId"])).collect();
    assert_eq!(stopped, [(&json!("turn/interrupt"), &json!("t")), (&json!("turn/interrupt"), &json!("s"))]);
    // One that only now begins is stopped as well.
    let late = sent(&tell(&mut dialogue, "turn/started", json!({ "threadId": "l", "turn": { "id": "late" } })));
    assert!(late.iter().any(|line| line["params"] == json!({ "threadId": "l", "turnId": "late" })), "{late:?}");
    for (thread, expected) in
        [("t", &[][..]), ("s", &[]), ("l", &[DialogueOutput::TurnEnded(TurnOutcome::Interrupted)])]
    {
        assert_eq!(tell(&mut dialogue, "turn/completed", ended(thread, "interrupted")), expected, "{thread}");
    }
}
