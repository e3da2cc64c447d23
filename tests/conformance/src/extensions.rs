//! What a session is given beside its prompt: skills, servers of MCP, and pictures.

use std::path::Path;

use protocol::{Attachment, ContentPart, CreateSession, EventBody, Item, TurnOutcome};
use serde_json::{Value, json};
use session::{SessionTimeouts, UserMessage};

use crate::ability;
use crate::model_script::{SERVED_OUTPUT, say};
use crate::scenario_session::{UserReply, ScenarioSession, Scenario};

const SKILL: &str = include_str!("../equipment/SKILL.md");
const SERVER: &str = include_str!("../equipment/server.sh");
const PICTURE: &[u8] = include_bytes!("../equipment/picture.png");
/// How every PNG begins, in Base64.
const PNG: &str = "iVBORw0KGgo";

/// Opens a session with `complete`, says hello twice and tells whether the model heard of `mark`. The mock looks at nothing
/// it was not told to, so its model never does.
async fn hears(scenario: Scenario, mark: &str, complete: impl FnOnce(&Path, &mut CreateSession)) -> bool {
    let mode = scenario.agent.mode();
    let session: ScenarioSession = scenario.open_as(mode, SessionTimeouts::default(), complete).await;
    // Some agents start their servers beside the first turn; at the second they are there.
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
    let heard = hears(scenario, "VIVTIDYSKILL", |folder, request| {
        std::fs::create_dir_all(folder.join("skills/tidy")).unwrap();
        std::fs::write(folder.join("skills/tidy/SKILL.md"), SKILL).unwrap();
        request.skills = Some(json!({"sources": [{"type": "local", "source": folder.join("skills")}]}));
    });
    assert_eq!(heard.await, agent.id() != "mock", "whether the model heard of the skill");
}

pub(crate) async fn mcp_tools_reach_the_model(scenario: Scenario) {
    let agent = agents::by_name(scenario.agent.name).unwrap();
    if !agent.takes_mcp() && agent.id() != "mock" {
        return;
    }
    // Codex tells its model of a server that has tools and lets it search for them, where the model can do that.
    let (mark, model) = if agent.id() == "codex" { ("- vivshop", Some("gpt-5.5")) } else { ("vivpolish", None) };
    let heard = hears(scenario, mark, |folder, request| {
        serve(folder, request);
        request.model = model.map(str::to_owned);
    });
    assert_eq!(heard.await, agent.id() != "mock", "whether the model heard of the tool");
}

/// Puts a server of one tool into the workspace, and into the session.
fn serve(folder: &Path, request: &mut CreateSession) {
    // The mock has no servers: it shows how a call looks.
    if request.agent == "mock" {
        return;
    }
    std::fs::write(folder.join("workspace/server.sh"), SERVER).unwrap();
    let server = json!({"type": "local", "command": ["sh", "/workspace/server.sh"]});
    request.mcp = Some([("vivshop".to_owned(), server)].into());
}

/// The server runs in the sandbox, and what its tool gives back is told like the result of any other.
pub(crate) async fn mcp_tool_is_called(scenario: Scenario) {
    let agent = agents::by_name(scenario.agent.name).unwrap();
    if !agent.takes_mcp() && agent.id() != "mock" {
        return;
    }
    let mode = scenario.agent.mode();
    let session = scenario.open_as(mode, SessionTimeouts::default(), serve).await;
    // Some agents start their servers beside the first turn; at the second they are there.
    session.turn("hello", UserReply::Yes).await;
    let turn = session.turn(say::SERVED, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.words().contains("It gave: ") && turn.words().contains(SERVED_OUTPUT), "{turn:?}");
    let is_call = |item: &Item| match &item.content[..] {
        [ContentPart::ToolCall { name, .. }] => name.contains("vivpolish"),
        _ => false,
    };
    let is_result = |item: &Item| match item.content.first() {
        Some(ContentPart::ToolResult { output, .. }) => output.contains(SERVED_OUTPUT),
        _ => false,
    };
    let completed = |wanted: &dyn Fn(&Item) -> bool| {
        turn.has(|event| matches!(event, EventBody::ItemCompleted(done) if wanted(&done.item)))
    };
    assert!(completed(&is_call) && completed(&is_result), "{turn:?}");
    session.close().await;
}

/// A picture that goes with the words is in the request as its vendor's API shows pictures, not as a name or as text.
pub(crate) async fn image_reaches_the_model(scenario: Scenario) {
    if !scenario.agent.takes_pictures() {
        return;
    }
    let mode = scenario.agent.mode();
    let complete = |folder: &Path, _: &mut CreateSession| {
        std::fs::write(folder.join("workspace/picture.png"), PICTURE).unwrap();
    };
    let session = scenario.open_as(mode, SessionTimeouts::default(), complete).await;
    let mime = Some("image/png".to_owned());
    let attachments = vec![Attachment { path: "picture.png".to_owned(), mime, filename: None }];
    let turn = session.turn_of(UserMessage { attachments, ..UserMessage::text(say::LOOK) }, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(session.requests().iter().any(shows_picture), "{turn:?}");
    observed_capabilities::note_picture(session.agent.name);
    session.close().await;
}

/// Whether a block with a picture stands anywhere in a request.
fn shows_picture(request: &Value) -> bool {
    match request {
        Value::Object(block) => {
            let named = matches!(request["type"].as_str(), Some("image" | "image_url" | "input_image"));
            let is_block = named || block.contains_key("inlineData");
            (is_block && request.to_string().contains(PNG)) || block.values().any(shows_picture)
        }
        Value::Array(entries) => entries.iter().any(shows_picture),
        _ => false,
    }
}
