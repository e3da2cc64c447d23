//! Launch plans of all agents.

use agents::{Agent, AgentError, LaunchContext, McpServers, PermissionMode, all};
use serde_json::json;

fn context() -> LaunchContext {
    LaunchContext {
        epoch: 1,
        gateway_url: "http://127.0.0.1:18080".to_owned(),
        token: "session-token".to_owned(),
        model: Some("some-model".to_owned()),
        native_session_id: Some("old-session".to_owned()),
        program: "/data/agents/it".into(),
        node: Some("/data/node".into()),
        ..LaunchContext::default()
    }
}

#[test]
fn launch_plans_are_unchanged() {
    for agent in all() {
        insta::assert_debug_snapshot!(agent.id(), agent.plan(&context()).unwrap());
    }
}

#[test]
fn agents_see_only_their_program_of_the_host() {
    for agent in all() {
        let plan = agent.plan(&context()).unwrap();
        assert_eq!(plan.workdir, "/workspace");
        let ours = |path: &str| path.starts_with("/opt/") || path == "/run/viv/bin/viv";
        assert!(ours(&plan.argv[0]), "{}", agent.id());
        assert!(plan.mounts.iter().all(|mount| ours(&mount.target)), "{}", agent.id());
        assert!(plan.files.iter().all(|file| file.path.starts_with("/home/agent/")), "{}", agent.id());
        let program = agent.package().is_some_and(|package| package.needs_node);
        assert_eq!(plan.argv[0].ends_with("/node"), program, "{}", agent.id());
    }
}

#[test]
fn javascript_agents_need_node() {
    for agent in all().filter(|agent| agent.package().is_some_and(|package| package.needs_node)) {
        let without = agent.plan(&LaunchContext { node: None, ..context() });
        assert!(matches!(without, Err(AgentError::NodeMissing(name)) if name == agent.id()));
    }
}

#[test]
fn unsupported_permission_modes_are_rejected() {
    let kept = |agent: &dyn Agent| -> Vec<&str> {
        ["default", "plan", "acceptEdits", "bypass", "yolo"]
            .into_iter()
            .filter(|mode| {
                agent.plan(&LaunchContext { permission_mode: Some((*mode).to_owned()), ..context() }).is_ok()
            })
            .collect()
    };
    let every = [PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits, PermissionMode::Bypass];
    let every: Vec<&str> = every.into_iter().map(PermissionMode::as_str).collect();
    for agent in all() {
        match agent.id() {
            "pi" => assert_eq!(kept(agent), ["bypass"]),
            _ => assert_eq!(kept(agent), every, "{}", agent.id()),
        }
    }
}

#[test]
fn mcp_servers_are_configured_for_agents_that_support_them() {
    let server = json!({"type": "local", "command": ["serve-it", "--quietly"]});
    let mcp = McpServers::read(&[("shop".to_owned(), server)].into()).unwrap();
    for agent in all() {
        let plan = agent.plan(&LaunchContext { mcp: mcp.clone(), ..context() }).unwrap();
        assert_eq!(format!("{plan:?}").contains("serve-it"), agent.takes_mcp(), "{}", agent.id());
    }
}
