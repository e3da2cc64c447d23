//! What a session is given beside its prompt: skills, and servers of MCP.

use std::path::Path;

use protocol::{CreateSession, TurnOutcome};
use serde_json::json;
use session::Timing;

use crate::stage::{Answer, Stage, World};

const SKILL: &str = include_str!("../equipment/SKILL.md");
const SERVER: &str = include_str!("../equipment/server.sh");

/// Opens a session with `complete`, says hello twice and tells whether the model heard of `mark`. The mock looks at nothing
/// it was not told to, so its model never does.
async fn hears(world: World, mark: &str, complete: impl FnOnce(&Path, &mut CreateSession)) -> bool {
    let mode = world.player.mode();
    let stage: Stage = world.open_as(mode, Timing::default(), complete).await;
    // Some agents start their servers beside the first turn; at the second they are there.
    for prompt in ["hello", "hello again"] {
        let turn = stage.turn(prompt, Answer::Yes).await;
        assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    }
    let bodies = stage.bodies();
    stage.close().await;
    bodies.windows(mark.len()).any(|window| window == mark.as_bytes())
}

pub(crate) async fn skills_reach_its_model(world: World) {
    let agent = agents::by_name(world.player.agent).unwrap();
    if agent.skill_root().is_none() || agent.id() == "mock" {
        return;
    }
    let heard = hears(world, "VIVTIDYSKILL", |folder, request| {
        std::fs::create_dir_all(folder.join("skills/tidy")).unwrap();
        std::fs::write(folder.join("skills/tidy/SKILL.md"), SKILL).unwrap();
        request.skills = Some(json!({"sources": [{"type": "local", "source": folder.join("skills")}]}));
    });
    assert!(heard.await, "the model never heard of the skill");
}

pub(crate) async fn tools_of_a_server_reach_its_model(world: World) {
    let agent = agents::by_name(world.player.agent).unwrap();
    if !agent.takes_mcp() {
        return;
    }
    // Codex tells its model of a server that has tools and lets it search for them, where the model can do that.
    let (mark, model) = if agent.id() == "codex" { ("- vivshop", Some("gpt-5.5")) } else { ("vivpolish", None) };
    let heard = hears(world, mark, |folder, request| {
        std::fs::write(folder.join("workspace/server.sh"), SERVER).unwrap();
        let server = json!({"type": "local", "command": ["sh", "/workspace/server.sh"]});
        request.mcp = Some([("vivshop".to_owned(), server)].into());
        request.model = model.map(str::to_owned);
    });
    assert!(heard.await, "the model never heard of the tool");
}
