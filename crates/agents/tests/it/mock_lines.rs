//! The dialogue of the mock agent.

use agents::{
    Agent, AgentError, Dialogue as _, DialogueOutput, LaunchContext, MockAgent, NormalizedDialogue, Prompt, skeleton,
};
use proptest::prelude::*;
use protocol::{EventBody, PermissionId, PermissionReply, QuestionId};

fn dialogue(epoch: u32) -> NormalizedDialogue {
    NormalizedDialogue::new(MockAgent.new_dialogue(&LaunchContext { epoch, ..LaunchContext::default() }))
}

fn read(lines: &[&str]) -> Vec<DialogueOutput> {
    let mut dialogue = dialogue(3);
    lines.iter().flat_map(|line| dialogue.read_line(line.as_bytes())).collect()
}

const PERMISSION: &str = r#"{"type":"permission_requested","id":"p1","action":"run_command","metadata":{}}"#;
const QUESTION: &str = r#"{"type":"question_requested","id":"q1","prompt":"?","options":["a"]}"#;

#[test]
fn ids_contain_the_epoch_and_are_stable() {
    let outputs = read(&[
        r#"{"type":"item_started","item":{"id":"i1","kind":"message","role":"assistant","status":"in_progress"}}"#,
        r#"{"type":"item_delta","id":"i1","delta":"x"}"#,
        PERMISSION,
        QUESTION,
    ]);
    let json: Vec<String> = outputs
        .iter()
        .map(|output| match output {
            DialogueOutput::Event(draft) => serde_json::to_string(draft).unwrap(),
            _ => panic!("not an event"),
        })
        .collect();
    assert!(json[0].contains("itm_3_1") && json[1].contains("itm_3_1"));
    assert!(json[2].contains("per_3_1") && json[3].contains("que_3_1"));
}

#[test]
fn answer_is_sent_to_the_agent_once() {
    let mut dialogue = dialogue(1);
    dialogue.read_line(PERMISSION.as_bytes());
    dialogue.read_line(QUESTION.as_bytes());
    let permission = PermissionId::numbered(1, 1);
    let sent = dialogue.answer_permission(&permission, PermissionReply::Always);
    assert_eq!(sent, [DialogueOutput::Send(r#"{"type":"permission_reply","id":"p1","reply":"always"}"#.to_owned())]);
    assert_eq!(dialogue.answer_permission(&permission, PermissionReply::Once), []);
    let answers = vec![vec!["a".to_owned()]];
    let question = QuestionId::numbered(1, 1);
    let sent = dialogue.answer_question(&question, Some(&answers));
    assert_eq!(sent, [DialogueOutput::Send(r#"{"type":"question_reply","id":"q1","answers":[["a"]]}"#.to_owned())]);
    assert_eq!(dialogue.answer_question(&question, None), []);
    assert_eq!(dialogue.interrupt(), [DialogueOutput::Send(r#"{"type":"interrupt"}"#.to_owned())]);
    assert_eq!(
        dialogue.send_prompt(&Prompt::text("hi")),
        [DialogueOutput::Send(r#"{"type":"prompt","text":"hi"}"#.to_owned())]
    );
}

#[test]
fn withdrawn_requests_are_resolved() {
    let outputs = read(&[
        PERMISSION,
        r#"{"type":"permission_withdrawn","id":"p1"}"#,
        QUESTION,
        r#"{"type":"question_withdrawn","id":"q1"}"#,
        r#"{"type":"permission_withdrawn","id":"p9"}"#,
    ]);
    insta::assert_snapshot!("withdrawn", skeleton(&outputs).join("\n"));
}

#[test]
fn unknown_type_is_an_item_and_invalid_line_is_unparsed() {
    let outputs = read(&[
        r#"{"type":"hologram"}"#,
        r#"{"no":"type"}"#,
        r#"{"type":"item_delta"}"#,
        r#"{"type":"item_del"#,
        "[]",
        "",
        "  \t ",
    ]);
    insta::assert_snapshot!("damage", skeleton(&outputs).join("\n"));
    let kept =
        outputs.iter().filter(|output| matches!(output, DialogueOutput::Event(draft) if draft.raw.is_some())).count();
    assert_eq!(kept, 5);
}

#[test]
fn unsupported_permission_mode_is_rejected() {
    let context = |mode: &str| LaunchContext { permission_mode: Some(mode.to_owned()), ..LaunchContext::default() };
    for mode in ["default", "plan", "acceptEdits", "bypass"] {
        let plan = MockAgent.plan(&context(mode)).unwrap();
        assert!(plan.argv.ends_with(&["--mode".to_owned(), mode.to_owned()]));
    }
    let refused = MockAgent.plan(&context("yolo")).unwrap_err();
    assert!(matches!(&refused, AgentError::ModeNotSupported { agent: "mock", .. }));
    assert_eq!(refused.to_string(), "agent `mock` does not support permission mode `yolo`");
}

#[test]
fn launch_plan_is_complete() {
    let context = LaunchContext {
        gateway_url: "http://127.0.0.1:18080".to_owned(),
        token: "tok".to_owned(),
        program: "/host/viv".into(),
        ..LaunchContext::default()
    };
    let plan = MockAgent.plan(&context).unwrap();
    insta::assert_debug_snapshot!("plan", plan);
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
        let mut dialogue = dialogue(1);
        for line in lines {
            dialogue.read_line(&line);
        }
    }

    #[test]
    fn damaged_line_is_recorded(cut in 0usize..200, at in 0usize..200, byte in any::<u8>()) {
        let whole = r#"{"type":"item_completed","item":{"id":"i1","kind":"tool_call","role":"tool","content":[{"type":"file_ref","path":"a","action":"write","diff":"+a"}],"status":"completed"}}"#;
        let mut line = whole.as_bytes().to_vec();
        if let Some(place) = line.get_mut(at) {
            *place = byte;
        }
        line.truncate(cut);
        let outputs = dialogue(1).read_line(&line);
        let lost = outputs.is_empty() && !line.trim_ascii().is_empty();
        prop_assert!(!lost, "a line was not recorded");
        let understood = |output: &DialogueOutput| matches!(output, DialogueOutput::Event(draft) if !matches!(draft.body, EventBody::Other { .. }));
        prop_assert!(outputs.iter().all(understood));
    }
}
