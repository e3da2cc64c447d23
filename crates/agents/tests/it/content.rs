//! Recorded conversations with their full content, which a skeleton leaves out.

use std::collections::BTreeMap;

use agents::DialogueOutput;
use protocol::{ContentPart, EventBody};

use crate::replay::{fixtures, play};

fn part(part: &ContentPart) -> String {
    match part {
        ContentPart::Text { text } => format!("says {text}"),
        ContentPart::Reasoning { text, .. } => format!("thinks {text}"),
        ContentPart::ToolCall { name, arguments, .. } => format!("calls {name} {arguments}"),
        ContentPart::ToolResult { output, .. } => format!("result {output}"),
        ContentPart::FileRef { path, action, diff } => {
            format!("file {path} {action:?}\n{}", diff.as_deref().unwrap_or_default())
        }
        ContentPart::Status { label, detail } => format!("status {label} {}", detail.as_deref().unwrap_or_default()),
        other => format!("{other:?}"),
    }
}

fn content_lines(outputs: &[DialogueOutput]) -> Vec<String> {
    let mut lines = Vec::new();
    for output in outputs {
        match output {
            DialogueOutput::Send(line) => lines.push(format!("> {line}")),
            DialogueOutput::NativeSession(id) => lines.push(format!("session {id}")),
            DialogueOutput::TurnEnded(outcome) => lines.push(format!("turn {outcome:?}")),
            DialogueOutput::Event(draft) => match &draft.body {
                EventBody::ItemCompleted(event) => lines.extend(event.item.content.iter().map(part)),
                EventBody::PermissionRequested(request) => {
                    lines.push(format!("may I {} {}", request.action, request.metadata.clone().unwrap_or_default()));
                }
                EventBody::QuestionRequested(request) => {
                    lines.push(format!("asks {} {:?}", request.prompt, request.options));
                }
                EventBody::Error(error) => lines.push(format!("error {:?} {}", error.code, error.message)),
                _ => {}
            },
        }
    }
    lines
}

#[test]
fn content_of_recorded_conversations_is_unchanged() {
    let mut by_agent: BTreeMap<&str, String> = BTreeMap::new();
    for fixture in fixtures() {
        let content = content_lines(&play(fixture)).join("\n");
        let text = by_agent.entry(&fixture.agent).or_default();
        text.extend(["# ", &fixture.scenario, "\n\n", &content, "\n\n"]);
    }
    for (agent, text) in by_agent {
        insta::assert_snapshot!(agent, text);
    }
}
