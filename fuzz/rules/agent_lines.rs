//! What must hold for any lines of any agent. A broken rule panics.
//!
//! The first line of an input names the agent, the others are what it prints.

use agents::{Dialogue as _, DialogueOutput, LaunchContext, NormalizedDialogue, Prompt, by_name};
use protocol::{EventBody, PermissionReply};

/// Every event can be written and read back, every item begins before it goes on, and what is asked can be answered
/// and stopped at any time.
pub(crate) fn agent_lines(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let name = lines.next().and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    let Some(agent) = by_name(name) else { return };
    let mut heard = Heard { dialogue: NormalizedDialogue::new(agent.new_dialogue(&context())), open: Vec::new() };
    let opened = heard.dialogue.open();
    heard.take(opened);
    let prompted = heard.dialogue.send_prompt(&Prompt::text("hello"));
    heard.take(prompted);
    for (number, line) in lines.enumerate() {
        let outputs = heard.dialogue.read_line(line);
        heard.take(outputs);
        if number % 16 == 15 {
            let outputs = heard.dialogue.interrupt();
            heard.take(outputs);
        }
    }
    let left = heard.dialogue.close_open_items();
    heard.take(left);
    assert!(heard.open.is_empty(), "items stay open at the end: {:?}", heard.open);
}

struct Heard {
    dialogue: NormalizedDialogue,
    open: Vec<String>,
}

impl Heard {
    fn take(&mut self, outputs: Vec<DialogueOutput>) {
        for output in outputs {
            let DialogueOutput::Event(draft) = output else { continue };
            // What is null on the way in is absent from then on; readers only see what was read.
            let kept = read_back(&draft.body);
            assert_eq!(read_back(&kept), kept, "an event survives JSON");
            self.observe(draft.body);
        }
    }

    fn observe(&mut self, body: EventBody) {
        match body {
            EventBody::ItemStarted(started) => self.open.push(started.item.item_id.to_string()),
            EventBody::ItemDelta(delta) => {
                assert!(self.open.contains(&delta.item_id.to_string()), "{} grows before it begins", delta.item_id);
            }
            EventBody::ItemCompleted(completed) => {
                let id = completed.item.item_id.to_string();
                assert!(self.open.contains(&id), "{id} ends before it begins");
                self.open.retain(|open| *open != id);
            }
            EventBody::PermissionRequested(asked) => {
                let outputs = self.dialogue.answer_permission(&asked.permission_id, PermissionReply::Once);
                self.take(outputs);
            }
            EventBody::QuestionRequested(asked) => {
                let outputs = self.dialogue.answer_question(&asked.question_id, Some(&[vec!["yes".to_owned()]]));
                self.take(outputs);
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
