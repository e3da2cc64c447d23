//! Text commands and their events.

use crate::harness::{MockHarness, ModelReply, UserReply, texts};
use agents::{DialogueOutput, skeleton};
use mock::ProcessEnd;
use protocol::{EventBody, PermissionReply};

#[track_caller]
fn check(command: &str, answers: &[UserReply]) -> Vec<DialogueOutput> {
    let mut harness = MockHarness::new(vec![ModelReply::Text("Well.")]);
    let outputs = harness.turn(command, answers);
    let name = command.split_whitespace().next().unwrap().trim_start_matches('/');
    insta::assert_snapshot!(name, skeleton(&outputs).join("\n"));
    assert_eq!(harness.close(), ProcessEnd::Exit(0));
    outputs
}

#[test]
fn text_commands_produce_every_item() {
    for command in [
        "/demo",
        "/echo hi there",
        "/markdown",
        "/reasoning",
        "/status",
        "/image",
        "/plan",
        "/tool",
        "/file",
        "/fetch http://127.0.0.1:9/",
        "/mcp",
        "/subagent",
        "/error",
        "/unknown",
        "/unparsed",
        "/slow 2",
        "/garbage",
        "/memory 4096",
    ] {
        check(command, &[]);
    }
}

#[test]
fn text_commands_produce_permissions_and_questions() {
    check("/permission", &[UserReply::Permission(PermissionReply::Once)]);
    check("/run echo hello", &[UserReply::Permission(PermissionReply::Once)]);
    check("/question", &[UserReply::Question(Some("blue"))]);
}

#[test]
fn several_questions_have_all_details() {
    let outputs = check("/questions", &[UserReply::Questions(&[&["blue"], &["small", "large"]])]);
    let question = outputs.iter().find_map(|output| match output {
        DialogueOutput::Event(draft) => match &draft.body {
            EventBody::QuestionRequested(question) => Some(question),
            _ => None,
        },
        _ => None,
    });
    let question = question.expect("a question");
    assert_eq!(
        (question.prompt.as_str(), &question.options[..]),
        ("Which colour?", &["red".to_owned(), "blue".to_owned()][..])
    );
    let questions = &question.metadata.as_ref().unwrap()["questions"];
    assert_eq!(questions[0]["header"], "Colour");
    assert_eq!(questions[0]["options"][1]["description"], "like the sea");
    assert_eq!((&questions[0]["multiSelect"], &questions[1]["multiSelect"]), (&false.into(), &true.into()));
    let [colour, sizes] = &question.prompts()[..] else { panic!("{question:?}") };
    assert_eq!((colour.header.as_deref(), colour.multi_select), (Some("Colour"), false));
    assert_eq!((sizes.descriptions[0].as_str(), sizes.multi_select), ("for a pocket", true));
    assert!(texts(&outputs).contains(&"blue; small, large".to_owned()), "{:?}", texts(&outputs));
}

#[test]
fn help_lists_every_command() {
    let outputs = check("/help", &[]);
    for name in ["/demo", "/bigline", "/end"] {
        assert!(texts(&outputs)[0].contains(name));
    }
}

#[test]
fn command_works_without_a_model() {
    let mut harness = MockHarness::new(vec![ModelReply::Status(500, "down")]);
    let outputs = harness.turn("/tool ping", &[]);
    assert_eq!(texts(&outputs), ["ping"]);
}

#[test]
fn flood_arrives_complete() {
    let mut harness = MockHarness::new(vec![]);
    let outputs = harness.turn("/flood 5000", &[]);
    let deltas = outputs.iter().filter(|output| match output {
        DialogueOutput::Event(draft) => matches!(draft.body, EventBody::ItemDelta(_)),
        _ => false,
    });
    assert_eq!(deltas.count(), 5000);
}

#[test]
fn line_of_ten_megabytes_is_recorded_as_digest_and_head() {
    let mut harness = MockHarness::new(vec![]);
    let outputs = harness.turn("/bigline 10485760", &[]);
    let [.., DialogueOutput::Event(draft), DialogueOutput::TurnEnded(_)] = &outputs[..] else {
        panic!("{} outputs", outputs.len())
    };
    let EventBody::AgentUnparsed(body) = &draft.body else { panic!("{draft:?}") };
    assert_eq!(body.raw_hash.as_ref().unwrap().len(), 64);
    let raw = draft.raw.as_ref().unwrap();
    assert_eq!(raw["bytes"], 10_485_760);
    assert!(raw.to_string().len() < 8192);
}

#[test]
fn slow_answer_can_be_interrupted() {
    let mut harness = MockHarness::new(vec![]);
    harness.prompt_until("/slow 1000000", |body| matches!(body, EventBody::ItemDelta(_)));
    harness.interrupt();
    insta::assert_snapshot!("slow_interrupted", skeleton(&harness.outputs).join("\n"));
}

#[test]
fn process_ends_as_requested() {
    for (command, ending) in [
        ("/crash", ProcessEnd::Abort),
        ("/hang", ProcessEnd::Hang),
        ("/exit 7", ProcessEnd::Exit(7)),
        ("/exit", ProcessEnd::Exit(1)),
        ("/end", ProcessEnd::Exit(0)),
    ] {
        let (ended, outputs) = MockHarness::new(vec![]).last_prompt(command);
        assert_eq!(ended, ending, "{command}");
        let over = outputs.iter().any(|output| matches!(output, DialogueOutput::TurnEnded(_)));
        assert_eq!(over, command == "/end", "{command}");
    }
}
