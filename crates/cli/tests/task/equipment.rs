//! Skills and MCP servers of one session, which other sessions do not see.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::fixture::{TaskFixture, TaskOutput};
use testkit::{ChatStub, StubBehaviour};

/// The skill of the conformance tests.
const SKILL: &str = include_str!("../../../../tests/conformance/equipment/SKILL.md");
const SERVER: &str = include_str!("../../../../tests/conformance/equipment/server.sh");

/// A script that makes the mock agent list its skills.
const LOOKS: &str = r#"
version: 1
rules:
  - when: {step: 1}
    answer: [{tool: {name: run_command, input: {command: [sh, -c, "cat /home/agent/.agents/skills/*/SKILL.md; true"]}}}]
  - answer: [{text: "${tool_result}"}]
"#;

fn mock_place() -> TaskFixture {
    let fixture = TaskFixture::new();
    std::fs::create_dir(fixture.path("data")).unwrap();
    std::fs::create_dir(fixture.path("project")).unwrap();
    fixture.write("model.yaml", LOOKS);
    fixture.write("data/viv.toml", "[model]\nscript = \"../model.yaml\"\n");
    fixture
}

fn skill_at(folder: &Path) {
    std::fs::create_dir_all(folder.join("tidy")).unwrap();
    std::fs::write(folder.join("tidy/SKILL.md"), SKILL).unwrap();
}

fn task(fixture: &TaskFixture, agent: &str, more: Value) -> TaskOutput {
    let mut task = json!({"version": 1, "name": "equipped", "agent": agent, "workspace": "project",
        "prompts": [{"text": "What can you do?"}]});
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fixture.write("task.yaml", &task.to_string());
    fixture.task(&fixture.path("task.yaml"), &[])
}

fn answer(ran: &TaskOutput) -> &str {
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    ran.report["answers"][0]["text"].as_str().unwrap()
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]);
    let output = command.args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_local_skill_is_visible_in_its_session_only() {
    let fixture = mock_place();
    skill_at(&fixture.path("skills"));
    let source = json!({"skills": {"sources": [{"type": "local", "source": fixture.path("skills")}]}});
    assert!(answer(&task(&fixture, "mock", source)).contains("VIVTIDYSKILL"));
    assert!(!answer(&task(&fixture, "mock", json!({}))).contains("VIVTIDYSKILL"));
    let left = std::fs::read_dir(fixture.path("project")).unwrap().count();
    assert_eq!(left, 0, "something was written into the workspace");
}

#[test]
fn a_skill_of_a_repository_is_fetched_at_its_ref_and_removed_with_its_session() {
    let fixture = mock_place();
    let (work, bare) = (fixture.path("work"), fixture.path("skills.git"));
    skill_at(&work.join("skills"));
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "a skill"]);
    git(&work, &["tag", "v1"]);
    std::fs::write(work.join("skills/tidy/SKILL.md"), SKILL.replace("VIVTIDYSKILL", "LATER")).unwrap();
    git(&work, &["commit", "--quiet", "-a", "-m", "another"]);
    git(fixture.path("").as_path(), &["clone", "--quiet", "--bare", "work", "skills.git"]);
    let source = |reference: &str| json!({"skills": {"sources": [{"type": "git", "source": bare, "ref": reference, "skills": ["tidy"]}]}});
    assert!(answer(&task(&fixture, "mock", source("v1"))).contains("VIVTIDYSKILL"));
    assert!(answer(&task(&fixture, "mock", source("main"))).contains("LATER"));
    let kept = std::fs::read_dir(fixture.path("data/skills")).unwrap().count();
    assert_eq!(kept, 0, "what was fetched outlived its session");
    let missing = task(&fixture, "mock", source("no-such-ref"));
    assert_eq!(missing.report["failure"]["class"], "invalid_request", "{missing:#?}");
}

#[test]
fn skills_from_a_denied_host_are_not_fetched() {
    for (kind, source) in [("git", "https://skills.example.com/a.git"), ("github", "owner/name")] {
        let source = json!({"skills": {"sources": [{"type": kind, "source": source}]}});
        let ran = task(&mock_place(), "mock", source);
        assert_eq!((ran.code, &ran.report["failure"]["class"]), (Some(5), &Value::from("policy_denied")), "{ran:#?}");
    }
}

#[test]
fn an_agent_without_mcp_support_rejects_mcp_servers() {
    let servers = json!({"mcp": {"s": {"type": "local", "command": "true"}}});
    let ran = task(&mock_place(), "mock", servers);
    assert_eq!((ran.code, &ran.report["failure"]["class"]), (Some(2), &Value::from("invalid_request")), "{ran:#?}");
    assert!(ran.people.contains("does not support MCP servers"), "{}", ran.people);
}

#[test]
fn claude_sees_skills_and_tools_of_its_session_only() {
    let stub = ChatStub::start(StubBehaviour::Answers, "I can tidy and polish.");
    let fixture = TaskFixture::with_claude();
    fixture.env_file(&stub);
    std::fs::create_dir(fixture.path("project")).unwrap();
    fixture.write("project/server.sh", SERVER);
    skill_at(&fixture.path("skills"));
    let equipped = json!({
        "env_file": ".env",
        "skills": {"sources": [{"type": "local", "source": fixture.path("skills")}]},
        "mcp": {"shop": {"type": "local", "command": ["sh", "/workspace/server.sh"]}},
    });
    answer(&task(&fixture, "claude", equipped));
    let told = stub.calls().iter().map(|call| call.body.to_string()).collect::<String>();
    assert!(told.contains("VIVTIDYSKILL"), "the model never heard of the skill");
    assert!(told.contains("mcp__shop__vivpolish"), "the model never heard of the tool");

    let before = stub.calls().len();
    answer(&task(&fixture, "claude", json!({"env_file": ".env"})));
    let told = stub.calls()[before..].iter().map(|call| call.body.to_string()).collect::<String>();
    assert!(!told.is_empty() && !told.contains("VIVTIDYSKILL") && !told.contains("mcp__shop__vivpolish"));
    let mut left: Vec<_> =
        std::fs::read_dir(fixture.path("project")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["server.sh"], "something was written into the workspace");
}
