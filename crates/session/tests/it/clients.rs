//! The agent client with the mock agent, unconfined.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway::{ModelScript, ScriptedUpstream};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource, Preset};
use protocol::{EventBody, PermissionReply, TurnOutcome};
use session::{
    AgentClient, AgentClientBuilder, BuildError, GoalError, PermissionResponder, SandboxChoice, TurnFailure,
};
use tempfile::TempDir;

use crate::trials;

trials![
    goal_returns_a_response_and_ends_its_session,
    listener_gets_every_event,
    conversation_streams_several_turns,
    permission_responder_decides_about_changes,
    permissions_can_be_answered_manually,
    goal_over_its_timeout_fails_as_timed_out,
    process_exit_fails_with_its_code,
    killed_process_fails_with_its_signal,
    model_error_is_an_upstream_failure,
    goal_is_retried_after_a_temporary_model_error,
    goal_is_not_retried_after_a_tool_call,
    refused_model_call_is_not_retried,
    incomplete_client_is_not_built,
    missing_workspace_is_refused_before_anything_starts,
];

struct Scene {
    directory: TempDir,
    client: AgentClient,
}

fn builder(directory: &TempDir) -> AgentClientBuilder {
    AgentClient::builder()
        .agent("mock")
        .data_dir(directory.path().join("data"))
        .mock_program(std::env::current_exe().unwrap())
        .sandbox(SandboxChoice::Unconfined)
        .policy(policy())
}

fn policy() -> EffectivePolicy {
    let text = Preset::Balanced.source().text().replace("overlay", "bind");
    policy::effective(
        &CeilingLayer::built_in().unwrap(),
        &BaseLayer::read(&PolicySource::new("test", text)).unwrap(),
        &[],
    )
}

fn scene() -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let client = builder(&directory).build().unwrap();
    Scene { directory, client }
}

fn scene_with(script: &str) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let model = Arc::new(ScriptedUpstream::new(ModelScript::parse(script).unwrap()));
    let client = builder(&directory).upstream(model).build().unwrap();
    Scene { directory, client }
}

#[track_caller]
pub(crate) fn failed(outcome: Result<session::AgentResponse, GoalError>) -> (TurnFailure, session::AgentResponse) {
    match outcome {
        Err(GoalError::Failed { failure, response }) => (failure, *response),
        other => panic!("expected a failure: {other:?}"),
    }
}

async fn goal_returns_a_response_and_ends_its_session() {
    let scene = scene();
    let response = scene.client.goal("say hello").task("greeting").run().await.unwrap();
    assert!(response.is_success() && response.attempt == 1);
    assert!(!response.text.is_empty());
    assert!(response.usage.output_tokens > 0, "{:?}", response.usage);
    assert!(scene.client.sessions().get(&response.session).unwrap().ended);
    let journal = scene.client.sessions().journal(&response.session).unwrap();
    let registered = journal.after(0, usize::MAX).unwrap().into_iter().find_map(|event| match event.draft.body {
        EventBody::SessionRegistered(registered) => Some(registered),
        _ => None,
    });
    assert_eq!(registered.unwrap().task_name.as_deref(), Some("greeting"));
}

async fn listener_gets_every_event() {
    let (scene, heard) = (scene(), Arc::new(Mutex::new(Vec::new())));
    let listener = heard.clone();
    let goal = scene.client.goal("say hello").on_event(move |event| listener.lock().unwrap().push(event.clone()));
    let response = goal.run().await.unwrap();
    assert_eq!(*heard.lock().unwrap(), response.events);
}

async fn conversation_streams_several_turns() {
    let scene = scene();
    let conversation = scene.client.conversation().open().await.unwrap();
    let first = conversation.ask("say hello").await.unwrap();
    let mut reading = conversation.stream("say hello").await.unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = reading.next().await.unwrap() {
        kinds.push(event.draft.body.kind().to_owned());
    }
    let second = reading.finish().await.unwrap();
    assert_eq!(first.session, second.session);
    assert_eq!(kinds.first().map(String::as_str), Some("turn.started"));
    assert!(kinds.iter().any(|kind| kind == "llm.call"), "{kinds:?}");
    assert_eq!(kinds.last().map(String::as_str), Some("turn.ended"));
    assert_eq!(kinds.len(), second.events.len());
    let id = conversation.id().clone();
    conversation.end().await.unwrap();
    assert!(scene.client.sessions().get(&id).unwrap().ended);
}

const WRITING: &str = "
version: 1
rules:
  - when: {step: 1}
    answer: [{tool: {name: run_command, input: {command: [touch, made.txt]}}}]
  - answer: [{text: done}]
";

async fn permission_responder_decides_about_changes() {
    for (permissions, made) in [(PermissionResponder::Allow, true), (PermissionResponder::Deny, false)] {
        let scene = scene_with(WRITING);
        let workspace = scene.directory.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let goal = scene.client.goal("write").workspace(&workspace).permissions(permissions);
        goal.run().await.unwrap();
        assert_eq!(workspace.join("made.txt").exists(), made, "{permissions:?}");
    }
}

async fn permissions_can_be_answered_manually() {
    let scene = scene_with(WRITING);
    let goal = scene.client.goal("write").permissions(PermissionResponder::Manual);
    let (conversation, mut reading) = goal.stream().await.unwrap();
    let mut asked = 0;
    while let Some(event) = reading.next().await.unwrap() {
        if let EventBody::PermissionRequested(permission) = &event.draft.body {
            asked += 1;
            let id = permission.permission_id.clone();
            conversation.reply_permission(&id, PermissionReply::Reject).await.unwrap();
        }
    }
    assert_eq!(asked, 1);
    assert!(reading.finish().await.unwrap().is_success());
    conversation.end().await.unwrap();
}

async fn goal_over_its_timeout_fails_as_timed_out() {
    let scene =
        scene_with("version: 1\nrules: [{answer: [{text: \"a b c d e f g h\"}], pace: {chars: 1, delay_ms: 60000}}]");
    let limit = Duration::from_millis(300);
    let (failure, response) = failed(scene.client.goal("take your time").timeout(limit).run().await);
    assert_eq!(failure, TurnFailure::TimedOut(limit));
    assert_ne!(response.outcome, TurnOutcome::Completed);
    assert!(scene.client.sessions().get(&response.session).unwrap().ended);
}

async fn process_exit_fails_with_its_code() {
    let scene = scene();
    let (failure, _) = failed(scene.client.goal("/exit 3").run().await);
    assert!(matches!(failure, TurnFailure::Exited { code: 3, .. }), "{failure:?}");
}

async fn killed_process_fails_with_its_signal() {
    let script = r#"
version: 1
rules:
  - answer: [{tool: {name: run_command, input: {command: [sh, -c, "kill -9 $PPID"]}}}]
"#;
    let scene = scene_with(script);
    let goal = scene.client.goal("go").permissions(PermissionResponder::Allow).retries(3);
    let (failure, response) = failed(goal.run().await);
    assert!(matches!(failure, TurnFailure::Signal { signal: 9, .. }), "{failure:?}");
    assert_eq!(response.attempt, 1);
}

async fn model_error_is_an_upstream_failure() {
    let scene = scene_with("version: 1\nrules: [{error: {status: 500, message: out of order}}]");
    let (failure, _) = failed(scene.client.goal("hello").run().await);
    assert!(matches!(failure, TurnFailure::Upstream { status: Some(500), .. }), "{failure:?}");
}

const TEMPORARY_ERROR: &str =
    "version: 1\nrules: [{error: {status: 503, message: later}, times: 1}, {answer: [{text: done}]}]";

async fn goal_is_retried_after_a_temporary_model_error() {
    let scene = scene_with(TEMPORARY_ERROR);
    let (failure, _) = failed(scene.client.goal("hello").run().await);
    assert!(matches!(failure, TurnFailure::Upstream { status: Some(503), .. }), "{failure:?}");
    let scene = scene_with(TEMPORARY_ERROR);
    let response = scene.client.goal("hello").retries(1).run().await.unwrap();
    assert_eq!((response.attempt, response.text.as_str()), (2, "done"));
    assert_eq!(scene.client.sessions().list(None, 10).unwrap().sessions.len(), 2);
}

async fn goal_is_not_retried_after_a_tool_call() {
    let script = "
version: 1
rules:
  - when: {step: 1}
    answer: [{tool: {name: run_command, input: {command: [echo, once]}}}]
  - error: {status: 503, message: later}
";
    let scene = scene_with(script);
    let goal = scene.client.goal("go").permissions(PermissionResponder::Allow).retries(3);
    let (failure, response) = failed(goal.run().await);
    assert!(matches!(failure, TurnFailure::Upstream { status: Some(503), .. }), "{failure:?}");
    assert_eq!(response.attempt, 1);
    assert_eq!(scene.client.sessions().list(None, 10).unwrap().sessions.len(), 1);
}

async fn refused_model_call_is_not_retried() {
    let scene = scene_with("version: 1\nrules: [{error: {status: 403, message: no}}]");
    let (failure, response) = failed(scene.client.goal("hello").retries(3).run().await);
    assert!(matches!(failure, TurnFailure::Upstream { status: Some(403), .. }), "{failure:?}");
    assert_eq!(response.attempt, 1);
}

async fn incomplete_client_is_not_built() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(AgentClient::builder().data_dir(directory.path()).build(), Err(BuildError::NoAgent)));
    assert!(matches!(AgentClient::builder().agent("mock").build(), Err(BuildError::NoDataDir)));
    // This process has threads, so the jail cannot be forked, and no weaker sandbox replaces it.
    let jailed = AgentClient::builder().agent("mock").data_dir(directory.path()).build();
    assert!(matches!(jailed, Err(BuildError::Sandbox(_))));
}

async fn missing_workspace_is_refused_before_anything_starts() {
    let scene = scene();
    let outcome = scene.client.goal("hello").workspace("/nowhere/at/all").run().await;
    assert!(matches!(outcome, Err(GoalError::Session(session::SessionError::Directory { .. }))));
    assert!(scene.client.sessions().list(None, 10).unwrap().sessions.is_empty());
}
