//! Images in prompts, and approval of MCP tools in Codex.

use agents::{Dialogue as _, DialogueOutput, LaunchContext, NormalizedDialogue, Prompt, PromptImage, by_name};
use protocol::{Attachment, EventBody, PermissionId, PermissionReply};
use serde_json::{Value, json};

use crate::modes::sent;

fn prompt() -> Prompt {
    let path = "a.png".to_owned();
    let attachments = vec![Attachment { path: path.clone(), mime: Some("image/png".into()), filename: None }];
    let pictures = vec![PromptImage { path, mime: "image/png".to_owned(), data: "aGk=".to_owned() }];
    Prompt { text: "Look.".to_owned(), attachments, images: pictures }
}

/// Returns a dialogue after these responses of the agent.
fn opened(agent: &str, answers: &[Value]) -> NormalizedDialogue {
    let context = LaunchContext { epoch: 1, ..LaunchContext::default() };
    let mut dialogue = NormalizedDialogue::new(by_name(agent).unwrap().new_dialogue(&context));
    dialogue.open();
    for answer in answers {
        dialogue.read_line(answer.to_string().as_bytes());
    }
    dialogue
}

/// Returns the part of the message to `agent` at `pointer` that contains the image.
fn sent_image(agent: &str, answers: &[Value], pointer: &str) -> Value {
    let lines = sent(&opened(agent, answers).send_prompt(&prompt()));
    lines.iter().find_map(|line| line.pointer(pointer)).cloned().unwrap_or_else(|| panic!("{agent}: {lines:?}"))
}

#[test]
fn images_are_sent_in_every_protocol_that_supports_them() {
    const NAMED: &str = "Look.\n[attached file: a.png]";
    let words = json!({ "type": "text", "text": NAMED });
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" });
    assert_eq!(sent_image("claude", &[], "/message/content"), json!([words, { "type": "image", "source": source }]));
    let thread = [json!({ "id": 1, "result": {} }), json!({ "id": 2, "result": { "thread": { "id": "t" } } })];
    let url = json!({ "type": "image", "url": "data:image/png;base64,aGk=" });
    assert_eq!(sent_image("codex", &thread, "/params/input"), json!([words, url]));
    let image = json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" });
    assert_eq!(sent_image("pi", &[], "/images"), json!([image]));
    assert_eq!(sent_image("qwen", &[], "/message/content"), json!(NAMED));
    for (takes, expected) in [(true, json!([words, image])), (false, json!([words]))] {
        let can = json!({ "promptCapabilities": { "image": takes } });
        let begun = json!({ "jsonrpc": "2.0", "id": 1, "result": { "protocolVersion": 1, "agentCapabilities": can } });
        let session = json!({ "jsonrpc": "2.0", "id": 2, "result": { "sessionId": "s" } });
        assert_eq!(sent_image("opencode", &[begun, session], "/params/prompt"), expected);
    }
}

/// Returns the answer to Codex' request to approve an MCP tool.
fn answered(reply: PermissionReply) -> Value {
    let mut dialogue = opened("codex", &[]);
    let meta = json!({ "codex_approval_kind": "mcp_tool_call", "tool_params": { "x": 1 } });
    let schema = json!({ "type": "object", "properties": {} });
    let params = json!({ "serverName": "shop", "threadId": "t", "turnId": "u", "mode": "form", "message": "May I?",
        "requestedSchema": schema, "_meta": meta });
    let request = json!({ "id": 0, "method": "mcpServer/elicitation/request", "params": params });
    let outputs = dialogue.read_line(request.to_string().as_bytes());
    let permission: Option<PermissionId> = outputs.iter().find_map(|output| match output {
        DialogueOutput::Event(draft) => match &draft.body {
            EventBody::PermissionRequested(request) if request.action == "mcp__shop" => {
                Some(request.permission_id.clone())
            }
            _ => None,
        },
        _ => None,
    });
    sent(&dialogue.answer_permission(&permission.expect("it asks"), reply)).remove(0)
}

#[test]
fn codex_requests_approval_of_mcp_tools() {
    let once = json!({ "action": "accept", "content": {} });
    let always = json!({ "action": "accept", "content": {}, "_meta": { "persist": "session" } });
    assert_eq!(answered(PermissionReply::Once), json!({ "id": 0, "result": once }));
    assert_eq!(answered(PermissionReply::Always), json!({ "id": 0, "result": always }));
    assert_eq!(answered(PermissionReply::Reject), json!({ "id": 0, "result": { "action": "decline" } }));
}
