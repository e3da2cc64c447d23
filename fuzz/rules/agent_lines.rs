//! Invariants for arbitrary output lines of any agent; a violation panics.
//!
//! The first line of an input is the name of the agent, the other lines are its output.

use agents::{Dialogue as _, DialogueOutput, LaunchContext, NormalizedDialogue, Prompt, by_name};
use protocol::{EventBody, PermissionReply};

/// Checks that events survive JSON, that items start before they change or end, and that permission requests and
/// questions can be answered and turns interrupted at any time.
pub(crate) fn agent_lines(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let name = lines.next().and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    let Some(agent) = by_name(name) else { return };
    let mut checker =
        DialogueChecker { dialogue: NormalizedDialogue::new(agent.new_dialogue(&context())), open: Vec::new() };
    let opened = checker.dialogue.open();
    checker.check_outputs(opened);
    let prompted = checker.dialogue.send_prompt(&Prompt::text("hello"));
    checker.check_outputs(prompted);
    for (number, line) in lines.enumerate() {
        let outputs = checker.dialogue.read_line(line);
        checker.check_outputs(outputs);
        if number % 16 == 15 {
            let outputs = checker.dialogue.interrupt();
            checker.check_outputs(outputs);
        }
    }
    let remaining = checker.dialogue.close_open_items();
    checker.check_outputs(remaining);
    assert!(checker.open.is_empty(), "open items at the end: {:?}", checker.open);
}

/// A dialogue with the ids of its open items.
struct DialogueChecker {
    dialogue: NormalizedDialogue,
    open: Vec<String>,
}

impl DialogueChecker {
    fn check_outputs(&mut self, outputs: Vec<DialogueOutput>) {
        for output in outputs {
            let DialogueOutput::Event(draft) = output else { continue };
            // The first round trip may drop null fields; after that nothing may change.
            let reread = read_back(&draft.body);
            assert_eq!(read_back(&reread), reread, "an event survives JSON");
            self.observe(draft.body);
        }
    }

    fn observe(&mut self, body: EventBody) {
        match body {
            EventBody::ItemStarted(started) => self.open.push(started.item.item_id.to_string()),
            EventBody::ItemDelta(delta) => {
                assert!(
                    self.open.contains(&delta.item_id.to_string()),
                    "item {} changes before it starts",
                    delta.item_id
                );
            }
            EventBody::ItemCompleted(completed) => {
                let id = completed.item.item_id.to_string();
                assert!(self.open.contains(&id), "item {id} ends before it starts");
                self.open.retain(|open| *open != id);
            }
            EventBody::PermissionRequested(request) => {
                let outputs = self.dialogue.answer_permission(&request.permission_id, PermissionReply::Once);
                self.check_outputs(outputs);
            }
            EventBody::QuestionRequested(request) => {
                let outputs = self.dialogue.answer_question(&request.question_id, Some(&[vec!["yes".to_owned()]]));
                self.check_outputs(outputs);
            }
            _ => {}
        }
    }
}

fn read_back(body: &EventBody) -> EventBody {
    serde_json::from_str(&serde_json::to_string(body).unwrap()).unwrap()
}

fn context() -> LaunchContext {
    LaunchContext {
        epoch: 1,
        gateway_url: "http://127.0.0.1:1".to_owned(),
        token: "t".to_owned(),
        ..Default::default()
    }
}
