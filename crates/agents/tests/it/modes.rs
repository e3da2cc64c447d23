//! Permission modes that dialogues implement, and answers of persons.

use agents::{Dialogue as _, DialogueOutput, LaunchContext, NormalizedDialogue, Prompt, by_name, skeleton};
use protocol::{EventBody, PermissionId, PermissionReply, QuestionId, TurnOutcome};
use serde_json::{Value, json};

fn dialogue(agent: &str, mode: &str) -> NormalizedDialogue {
    let context = LaunchContext { epoch: 1, permission_mode: Some(mode.to_owned()), ..LaunchContext::default() };
    NormalizedDialogue::new(by_name(agent).unwrap().new_dialogue(&context))
}

/// Returns the lines that are sent to the agent.
pub(crate) fn sent(outputs: &[DialogueOutput]) -> Vec<Value> {
    let lines = outputs.iter().filter_map(|output| match output {
        DialogueOutput::Send(line) => Some(serde_json::from_str(line).unwrap()),
        _ => None,
    });
    lines.collect()
}

fn asks(outputs: &[DialogueOutput]) -> bool {
    outputs.iter().any(|output| match output {
        DialogueOutput::Event(draft) => matches!(draft.body, EventBody::PermissionRequested(_)),
        _ => false,
    })
}

fn acp_request(kind: &str) -> String {
    let options = json!([
        { "optionId": "a", "kind": "allow_always" },
        { "optionId": "o", "kind": "allow_once" },
        { "optionId": "r", "kind": "reject_once" },
    ]);
    let call = json!({ "toolCallId": "c", "kind": kind, "title": "t" });
    let params = json!({ "sessionId": "s", "toolCall": call, "options": options });
    json!({ "jsonrpc": "2.0", "id": 4, "method": "session/request_permission", "params": params }).to_string()
}

#[test]
fn acp_permission_mode_decides_which_requests_are_shown() {
    for (mode, kind, expected) in [
        ("default", "edit", true),
        ("default", "execute", true),
        ("acceptEdits", "edit", false),
        ("acceptEdits", "execute", true),
        ("bypass", "edit", false),
        ("bypass", "execute", false),
        ("plan", "fetch", true),
    ] {
        for agent in ["gemini", "opencode", "copilot"] {
            let outputs = dialogue(agent, mode).read_line(acp_request(kind).as_bytes());
            assert_eq!(asks(&outputs), expected, "{agent} {mode} {kind}");
            let allowed = json!({ "outcome": { "outcome": "selected", "optionId": "o" } });
            let answered = sent(&outputs).iter().any(|line| line["result"] == allowed);
            assert_eq!(answered, !expected, "{agent} {mode} {kind}");
        }
    }
}

#[test]
fn plan_mode_denies_changes_without_asking() {
    for agent in ["gemini", "opencode", "copilot"] {
        for kind in ["edit", "execute", "delete", "move", "other", "switch_mode"] {
            let outputs = dialogue(agent, "plan").read_line(acp_request(kind).as_bytes());
            assert!(!asks(&outputs), "{agent} {kind}");
            assert_eq!(sent(&outputs)[0]["result"]["outcome"]["optionId"], "r", "{agent} {kind}");
        }
    }
    for method in ["item/commandExecution/requestApproval", "item/fileChange/requestApproval"] {
        let request = json!({ "method": method, "id": 0, "params": { "itemId": "c" } }).to_string();
        let outputs = dialogue("codex", "plan").read_line(request.as_bytes());
        assert_eq!(sent(&outputs), [json!({ "id": 0, "result": { "decision": "decline" } })], "{method}");
    }
    let meta = json!({ "codex_approval_kind": "mcp_tool_call" });
    let params = json!({ "serverName": "shop", "message": "May it?", "_meta": meta });
    let request = json!({ "method": "mcpServer/elicitation/request", "id": 0, "params": params }).to_string();
    let outputs = dialogue("codex", "plan").read_line(request.as_bytes());
    assert_eq!(sent(&outputs), [json!({ "id": 0, "result": { "action": "decline" } })]);
}

fn tool_request(id: &str, tool: &str) -> String {
    let request = json!({ "subtype": "can_use_tool", "tool_name": tool, "input": {} });
    json!({ "type": "control_request", "request_id": id, "request": request }).to_string()
}

#[test]
fn control_protocol_denies_changes_until_the_plan_is_approved() {
    for (agent, writes, looks, leaves) in
        [("claude", "Write", "WebFetch", "ExitPlanMode"), ("qwen", "run_shell_command", "web_fetch", "exit_plan_mode")]
    {
        let mut dialogue = dialogue(agent, "plan");
        let outputs = dialogue.read_line(tool_request("1", writes).as_bytes());
        assert!(!asks(&outputs), "{agent}");
        assert_eq!(sent(&outputs)[0]["response"]["response"]["behavior"], "deny", "{agent}");
        assert!(asks(&dialogue.read_line(tool_request("2", looks).as_bytes())), "{agent}");
        for (place, word, still) in [(1, "no", true), (2, "yes", false)] {
            dialogue.read_line(tool_request("3", leaves).as_bytes());
            dialogue.answer_question(&QuestionId::numbered(1, place), Some(&[vec![word.to_owned()]]));
            assert_eq!(asks(&dialogue.read_line(tool_request("4", writes).as_bytes())), !still, "{agent} after {word}");
        }
    }
}

#[test]
fn acp_reply_selects_the_option_of_its_kind() {
    for (reply, option) in
        [(PermissionReply::Once, "o"), (PermissionReply::Always, "a"), (PermissionReply::Reject, "r")]
    {
        let mut dialogue = dialogue("gemini", "default");
        dialogue.read_line(acp_request("execute").as_bytes());
        let outputs = dialogue.answer_permission(&PermissionId::numbered(1, 1), reply);
        assert_eq!(sent(&outputs)[0]["result"]["outcome"]["optionId"], option);
        assert_eq!(dialogue.answer_permission(&PermissionId::numbered(1, 1), reply), []);
    }
}

#[test]
fn acp_turn_with_a_withdrawn_request_is_interrupted() {
    let answer = |id: u8, result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    for refused_before in [false, true] {
        let mut dialogue = dialogue("copilot", "default");
        dialogue.open();
        dialogue.read_line(answer(1, json!({})).as_bytes());
        dialogue.read_line(answer(2, json!({ "sessionId": "s" })).as_bytes());
        dialogue.send_prompt(&Prompt::text("go"));
        dialogue.read_line(acp_request("execute").as_bytes());
        if refused_before {
            dialogue.answer_permission(&PermissionId::numbered(1, 1), PermissionReply::Reject);
        }
        dialogue.interrupt();
        // Some agents handle the withdrawal like a denial and end the turn normally.
        let outputs = dialogue.read_line(answer(3, json!({ "stopReason": "end_turn" })).as_bytes());
        assert!(outputs.contains(&DialogueOutput::TurnEnded(TurnOutcome::Interrupted)), "{outputs:?}");
    }
}

#[test]
fn acp_requests_for_host_files_are_refused() {
    let write = json!({ "jsonrpc": "2.0", "id": 9, "method": "fs/write_text_file", "params": { "path": "/etc/x" } });
    let outputs = dialogue("opencode", "bypass").read_line(write.to_string().as_bytes());
    assert_eq!(sent(&outputs)[0]["error"]["code"], -32601);
}

#[test]
fn replayed_events_of_an_old_session_are_not_emitted() {
    let context = LaunchContext { native_session_id: Some("old".to_owned()), ..LaunchContext::default() };
    let mut dialogue = NormalizedDialogue::new(by_name("opencode").unwrap().new_dialogue(&context));
    dialogue.open();
    let lines = sent(&dialogue.read_line(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    assert_eq!(lines[0]["method"], "session/load");
    assert_eq!(lines[0]["params"]["sessionId"], "old");
    let chunk = br#"{"jsonrpc":"2.0","method":"session/update","params":{"update":
        {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"once more"}}}}"#;
    assert_eq!(dialogue.read_line(chunk), []);
    let opened = dialogue.read_line(br#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    assert_eq!(opened, [DialogueOutput::NativeSession("old".to_owned())]);
    assert_eq!(dialogue.read_line(chunk).len(), 2);
}

fn outcomes(outputs: &[DialogueOutput]) -> Vec<TurnOutcome> {
    let ends = outputs.iter().filter_map(|output| match output {
        DialogueOutput::TurnEnded(outcome) => Some(*outcome),
        _ => None,
    });
    ends.collect()
}

#[test]
fn session_that_cannot_be_opened_fails_every_prompt() {
    for agent in ["gemini", "codex"] {
        let refusal = br#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"no such session"}}"#;
        let mut early = dialogue(agent, "default");
        early.open();
        early.read_line(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(early.send_prompt(&Prompt::text("hi")), []);
        assert_eq!(outcomes(&early.read_line(refusal)), [TurnOutcome::Failed], "{agent}");
        assert_eq!(outcomes(&early.send_prompt(&Prompt::text("hi"))), [TurnOutcome::Failed], "{agent}");

        let mut late = dialogue(agent, "default");
        late.open();
        late.read_line(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(outcomes(&late.read_line(refusal)), [], "{agent} has no turn to end");
        assert_eq!(outcomes(&late.send_prompt(&Prompt::text("hi"))), [TurnOutcome::Failed], "{agent}");
    }
}

#[test]
fn session_that_cannot_be_resumed_is_replaced_with_an_error() {
    let context = LaunchContext { native_session_id: Some("old".to_owned()), ..LaunchContext::default() };
    let mut dialogue = NormalizedDialogue::new(by_name("gemini").unwrap().new_dialogue(&context));
    dialogue.open();
    dialogue.read_line(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    dialogue.send_prompt(&Prompt::text("hi"));
    let refusal = json!({ "jsonrpc": "2.0", "id": 2, "error": { "message": "no", "data": { "details": "gone" } } });
    let outputs = dialogue.read_line(refusal.to_string().as_bytes());
    assert_eq!(outcomes(&outputs), []);
    assert_eq!(skeleton(&outputs), ["error"]);
    assert_eq!(sent(&outputs)[0]["method"], "session/new");
    let opened = dialogue.read_line(br#"{"jsonrpc":"2.0","id":3,"result":{"sessionId":"new"}}"#);
    assert_eq!(opened[0], DialogueOutput::NativeSession("new".to_owned()));
    assert_eq!(sent(&opened)[0]["params"]["sessionId"], "new");
}

#[test]
fn queued_prompt_can_be_interrupted() {
    for agent in ["gemini", "codex"] {
        let mut dialogue = dialogue(agent, "default");
        dialogue.open();
        dialogue.send_prompt(&Prompt::text("hi"));
        assert_eq!(dialogue.interrupt(), [DialogueOutput::TurnEnded(TurnOutcome::Interrupted)], "{agent}");
        dialogue.read_line(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let opened = dialogue.read_line(br#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","thread":{"id":"s"}}}"#);
        assert_eq!(opened, [DialogueOutput::NativeSession("s".to_owned())], "{agent}");
    }
}

#[test]
fn acp_plan_mode_is_set_before_the_first_prompt() {
    let copilot = "https://agentclientprotocol.com/protocol/session-modes#plan";
    for (agent, mode) in [("gemini", "plan"), ("opencode", "plan"), ("copilot", copilot)] {
        let mut dialogue = dialogue(agent, "plan");
        dialogue.open();
        dialogue.send_prompt(&Prompt::text("hi"));
        dialogue.read_line(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let lines = sent(&dialogue.read_line(br#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}"#));
        assert_eq!(lines[0]["method"], "session/set_mode");
        assert_eq!(lines[0]["params"]["modeId"], mode);
        assert_eq!(lines[1]["method"], "session/prompt");
    }
}

#[test]
fn codex_accepts_edits_only_in_accept_edits_mode() {
    let edit = br#"{"method":"item/fileChange/requestApproval","id":0,"params":{"itemId":"c"}}"#;
    let outputs = dialogue("codex", "acceptEdits").read_line(edit);
    assert_eq!(sent(&outputs), [json!({ "id": 0, "result": { "decision": "accept" } })]);
    assert!(asks(&dialogue("codex", "default").read_line(edit)));
    let command = br#"{"method":"item/commandExecution/requestApproval","id":0,"params":{"itemId":"c"}}"#;
    assert!(asks(&dialogue("codex", "acceptEdits").read_line(command)));
}

#[test]
fn codex_always_uses_the_proposed_rule() {
    let mut dialogue = dialogue("codex", "default");
    let amendment = json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": ["touch"] } });
    let params = json!({ "itemId": "c", "availableDecisions": ["accept", amendment, "cancel"] });
    let request = json!({ "method": "item/commandExecution/requestApproval", "id": 0, "params": params });
    dialogue.read_line(request.to_string().as_bytes());
    let outputs = dialogue.answer_permission(&PermissionId::numbered(1, 1), PermissionReply::Always);
    assert_eq!(sent(&outputs)[0]["result"]["decision"], amendment);
}

#[test]
fn claude_always_adds_a_session_rule_and_changes_no_mode() {
    let rule = json!({ "type": "addRules", "rules": [{ "toolName": "Bash" }], "destination": "localSettings" });
    let mode = json!({ "type": "setMode", "mode": "acceptEdits", "destination": "session" });
    let request =
        json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "permission_suggestions": [rule, mode] });
    let line = json!({ "type": "control_request", "request_id": "u", "request": request });
    let mut dialogue = dialogue("claude", "default");
    dialogue.read_line(line.to_string().as_bytes());
    let outputs = dialogue.answer_permission(&PermissionId::numbered(1, 1), PermissionReply::Always);
    let granted = &sent(&outputs)[0]["response"]["response"]["updatedPermissions"];
    assert_eq!(granted, &json!([{ "type": "addRules", "rules": [{ "toolName": "Bash" }], "destination": "session" }]));
}

#[test]
fn unknown_request_is_answered_with_an_error() {
    let line = br#"{"type":"control_request","request_id":"u","request":{"subtype":"hologram"}}"#;
    let outputs = dialogue("claude", "default").read_line(line);
    assert_eq!(sent(&outputs)[0]["response"]["subtype"], "error");
    let outputs = dialogue("codex", "default").read_line(br#"{"method":"hologram/ask","id":3,"params":{}}"#);
    assert_eq!(sent(&outputs)[0]["error"]["code"], -32601);
}

#[test]
fn codex_is_interrupted_as_soon_as_the_turn_has_an_id() {
    let mut dialogue = dialogue("codex", "default");
    dialogue.open();
    dialogue.read_line(br#"{"id":1,"result":{}}"#);
    dialogue.read_line(br#"{"id":2,"result":{"thread":{"id":"t"}}}"#);
    dialogue.send_prompt(&Prompt::text("hi"));
    assert_eq!(dialogue.interrupt(), []);
    let lines = sent(&dialogue.read_line(br#"{"id":3,"result":{"turn":{"id":"u"}}}"#));
    assert_eq!(lines[0]["method"], "turn/interrupt");
    assert_eq!(lines[0]["params"], json!({ "threadId": "t", "turnId": "u" }));
}

#[test]
fn control_protocol_answers_use_the_key_of_the_agent() {
    for (agent, tool, key) in [("claude", "AskUserQuestion", "Which colour?"), ("qwen", "ask_user_question", "0")] {
        let mut dialogue = dialogue(agent, "default");
        let question = json!({ "question": "Which colour?", "options": [{ "label": "Red" }, { "label": "Blue" }] });
        let request = json!({ "subtype": "can_use_tool", "tool_name": tool, "input": { "questions": [question] } });
        let line = json!({ "type": "control_request", "request_id": "r", "request": request });
        dialogue.read_line(line.to_string().as_bytes());
        let answered = dialogue.answer_question(&QuestionId::numbered(1, 1), Some(&[vec!["Blue".to_owned()]]));
        let input = &sent(&answered)[0]["response"]["response"]["updatedInput"];
        assert_eq!(input["answers"], json!({ key: "Blue" }), "{agent}");
    }
}
