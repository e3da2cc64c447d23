//! Skills, MCP servers and images of a session.

use std::path::Path;

use protocol::{Attachment, ContentPart, CreateSession, EventBody, Item, TurnOutcome};
use serde_json::{Value, json};
use session::{SessionTimeouts, UserMessage};

use crate::model_script::{MCP_OUTPUT, prompts};
use crate::observed_capabilities;
use crate::scenario_session::{Scenario, ScenarioSession, UserReply};

const SKILL: &str = include_str!("../equipment/SKILL.md");
const SERVER: &str = include_str!("../equipment/server.sh");
const IMAGE: &[u8] = include_bytes!("../equipment/picture.png");
/// The first bytes of every PNG, in Base64.
const PNG: &str = "iVBORw0KGgo";

/// Opens a session with `complete`, sends two prompts, and returns whether `mark` is in the bodies of the model calls.
/// The mock ignores skills and servers.
async fn model_receives(scenario: Scenario, mark: &str, complete: impl FnOnce(&Path, &mut CreateSession)) -> bool {
    let mode = scenario.agent.mode();
    let session: ScenarioSession = scenario.open_with_request(mode, SessionTimeouts::default(), complete).await;
    // Some agents start their servers during the first turn.
    for prompt in ["hello", "hello again"] {
        let turn = session.turn(prompt, UserReply::Yes).await;
        assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    }
    let bodies = session.bodies();
    session.close().await;
    bodies.windows(mark.len()).any(|window| window == mark.as_bytes())
}

pub(crate) async fn skills_reach_the_model(scenario: Scenario) {
    let agent = agents::by_name(scenario.agent.name).unwrap();
    if agent.skill_root().is_none() {
        return;
    }
    let received = model_receives(scenario, "VIVTIDYSKILL", |folder, request| {
        std::fs::create_dir_all(folder.join("skills/tidy")).unwrap();
        std::fs::write(folder.join("skills/tidy/SKILL.md"), SKILL).unwrap();
        request.skills = Some(json!({"sources": [{"type": "local", "source": folder.join("skills")}]}));
    });
    assert_eq!(received.await, agent.id() != "mock", "whether the model received of the skill");
}

pub(crate) async fn mcp_tools_reach_the_model(scenario: Scenario) {
    let agent = agents::by_name(scenario.agent.name).unwrap();
    if !agent.takes_mcp() && agent.id() != "mock" {
        return;
    }
    // Codex tells its model only the name of a server, and the model searches for its tools.
    let (mark, model) = if agent.id() == "codex" { ("- vivshop", Some("gpt-5.5")) } else { ("vivpolish", None) };
    let received = model_receives(scenario, mark, |folder, request| {
        serve(folder, request);
        request.model = model.map(str::to_owned);
    });
    assert_eq!(received.await, agent.id() != "mock", "whether the model received of the tool");
}

/// Adds an MCP server with one tool to the workspace and to the session.
fn serve(folder: &Path, request: &mut CreateSession) {
    // The mock has no MCP servers and simulates the call.
    if request.agent == "mock" {
        return;
    }
    std::fs::write(folder.join("workspace/server.sh"), SERVER).unwrap();
    let server = json!({"type": "local", "command": ["sh", "/workspace/server.sh"]});
    request.mcp = Some([("vivshop".to_owned(), server)].into());
}

/// The server runs in the sandbox, and the result of its tool is reported like any other result.
pub(crate) async fn mcp_tool_is_called(scenario: Scenario) {
    let agent = agents::by_name(scenario.agent.name).unwrap();
    if !agent.takes_mcp() && agent.id() != "mock" {
        return;
    }
    let mode = scenario.agent.mode();
    let session = scenario.open_with_request(mode, SessionTimeouts::default(), serve).await;
    // Some agents start their servers during the first turn.
    session.turn("hello", UserReply::Yes).await;
    let turn = session.turn(prompts::MCP_TOOL, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.text().contains("It gave: ") && turn.text().contains(MCP_OUTPUT), "{turn:?}");
    let is_call = |item: &Item| match &item.content[..] {
        [ContentPart::ToolCall { name, .. }] => name.contains("vivpolish"),
        _ => false,
    };
    let is_result = |item: &Item| match item.content.first() {
        Some(ContentPart::ToolResult { output, .. }) => output.contains(MCP_OUTPUT),
        _ => false,
    };
    let completed = |wanted: &dyn Fn(&Item) -> bool| {
        turn.has(|event| matches!(event, EventBody::ItemCompleted(done) if wanted(&done.item)))
    };
    assert!(completed(&is_call) && completed(&is_result), "{turn:?}");
    session.close().await;
}

/// An attached image is in the request as an image of the vendor's API, not as a name or text.
pub(crate) async fn image_reaches_the_model(scenario: Scenario) {
    if !scenario.agent.accepts_images() {
        return;
    }
    let mode = scenario.agent.mode();
    let complete = |folder: &Path, _: &mut CreateSession| {
        std::fs::write(folder.join("workspace/picture.png"), IMAGE).unwrap();
    };
    let session = scenario.open_with_request(mode, SessionTimeouts::default(), complete).await;
    let mime = Some("image/png".to_owned());
    let attachments = vec![Attachment { path: "picture.png".to_owned(), mime, filename: None }];
    let turn =
        session.send_and_wait(UserMessage { attachments, ..UserMessage::text(prompts::LOOK) }, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(session.requests().iter().any(contains_image), "{turn:?}");
    observed_capabilities::note_image(session.agent.name);
    session.close().await;
}

/// Returns whether a request contains an image block.
fn contains_image(request: &Value) -> bool {
    match request {
        Value::Object(block) => {
            let named = matches!(request["type"].as_str(), Some("image" | "image_url" | "input_image"));
            let is_block = named || block.contains_key("inlineData");
            (is_block && request.to_string().contains(PNG)) || block.values().any(contains_image)
        }
        Value::Array(entries) => entries.iter().any(contains_image),
        _ => false,
    }
}
