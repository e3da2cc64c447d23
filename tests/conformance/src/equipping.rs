//! What a session is given beside its prompt: skills, and servers of MCP.

use std::path::Path;

use protocol::{CreateSession, TurnOutcome};
use serde_json::json;
use session::Timing;

use crate::stage::{Answer, Stage, World};

const SKILL: &str = "---\nname: tidy\ndescription: Tidies up as VIVTIDYSKILL says\n---\nPut things in order.\n";

/// A server of MCP in a few lines of shell: one tool.
const SERVER: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"vivpolish","description":"polishes","inputSchema":{"type":"object"}}]}' ;;
    *) result='{}' ;;
  esac
  [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

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
    let heard = hears(world, "vivpolish", |folder, request| {
        std::fs::write(folder.join("workspace/server.sh"), SERVER).unwrap();
        let server = json!({"type": "local", "command": ["sh", "/workspace/server.sh"]});
        request.mcp = Some([("shop".to_owned(), server)].into());
    });
    assert!(heard.await, "the model never heard of the tool");
}
