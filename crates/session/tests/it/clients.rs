//! A program's own way to agents.

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
    a_goal_is_answered_and_its_session_ends,
    a_listener_hears_every_event_of_the_answer,
    a_conversation_remembers_and_is_read_event_by_event,
    what_is_changed_is_told_and_permissions_decide_about_it,
    permissions_can_be_answered_by_hand,
    a_goal_that_takes_too_long_says_so,
    a_process_that_exits_is_told_with_its_code_and_last_words,
    a_process_that_is_killed_is_told_with_its_signal,
    a_model_that_fails_is_no_failure_of_the_agent,
    a_goal_is_tried_again_when_the_model_stumbles,
    a_goal_is_never_tried_again_after_a_tool_call,
    a_refused_model_call_is_not_tried_again,
    a_client_that_lacks_something_is_not_made,
    a_workspace_that_is_not_there_is_refused_before_anything_starts,
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
        other => panic!("it should have failed: {other:?}"),
    }
}

async fn a_goal_is_answered_and_its_session_ends() {
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

async fn a_listener_hears_every_event_of_the_answer() {
    let (scene, heard) = (scene(), Arc::new(Mutex::new(Vec::new())));
    let listener = heard.clone();
    let goal = scene.client.goal("say hello").on_event(move |event| listener.lock().unwrap().push(event.clone()));
    let response = goal.run().await.unwrap();
    assert_eq!(*heard.lock().unwrap(), response.events);
}

async fn a_conversation_remembers_and_is_read_event_by_event() {
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

async fn what_is_changed_is_told_and_permissions_decide_about_it() {
    for (permissions, made) in [(PermissionResponder::Allow, true), (PermissionResponder::Deny, false)] {
        let scene = scene_with(WRITING);
        let workspace = scene.directory.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let goal = scene.client.goal("write").workspace(&workspace).permissions(permissions);
        goal.run().await.unwrap();
        assert_eq!(workspace.join("made.txt").exists(), made, "{permissions:?}");
    }
}

async fn permissions_can_be_answered_by_hand() {
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

async fn a_goal_that_takes_too_long_says_so() {
    let scene =
        scene_with("version: 1\nrules: [{answer: [{text: \"a b c d e f g h\"}], pace: {chars: 1, delay_ms: 60000}}]");
    let limit = Duration::from_millis(300);
    let (failure, response) = failed(scene.client.goal("take your time").timeout(limit).run().await);
    assert_eq!(failure, TurnFailure::TimedOut(limit));
    assert_ne!(response.outcome, TurnOutcome::Completed);
    assert!(scene.client.sessions().get(&response.session).unwrap().ended);
}

async fn a_process_that_exits_is_told_with_its_code_and_last_words() {
    let scene = scene();
    let (failure, _) = failed(scene.client.goal("/exit 3").run().await);
    assert!(matches!(failure, TurnFailure::Exited { code: 3, .. }), "{failure:?}");
}

async fn a_process_that_is_killed_is_told_with_its_signal() {
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

async fn a_model_that_fails_is_no_failure_of_the_agent() {
    let scene = scene_with("version: 1\nrules: [{error: {status: 500, message: out of order}}]");
    let (failure, _) = failed(scene.client.goal("hello").run().await);
    assert!(matches!(failure, TurnFailure::Upstream { status: Some(500), .. }), "{failure:?}");
}

const STUMBLES: &str =
    "version: 1\nrules: [{error: {status: 503, message: later}, times: 1}, {answer: [{text: done}]}]";

async fn a_goal_is_tried_again_when_the_model_stumbles() {
    let scene = scene_with(STUMBLES);
    let (failure, _) = failed(scene.client.goal("hello").run().await);
    assert!(matches!(failure, TurnFailure::Upstream { status: Some(503), .. }), "{failure:?}");
    let scene = scene_with(STUMBLES);
    let response = scene.client.goal("hello").retries(1).run().await.unwrap();
    assert_eq!((response.attempt, response.text.as_str()), (2, "done"));
    assert_eq!(scene.client.sessions().list(None, 10).unwrap().sessions.len(), 2);
}

async fn a_goal_is_never_tried_again_after_a_tool_call() {
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

async fn a_refused_model_call_is_not_tried_again() {
    let scene = scene_with("version: 1\nrules: [{error: {status: 403, message: no}}]");
    let (failure, response) = failed(scene.client.goal("hello").retries(3).run().await);
    assert!(matches!(failure, TurnFailure::Upstream { status: Some(403), .. }), "{failure:?}");
    assert_eq!(response.attempt, 1);
}

async fn a_client_that_lacks_something_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(AgentClient::builder().data_dir(directory.path()).build(), Err(BuildError::NoAgent)));
    assert!(matches!(AgentClient::builder().agent("mock").build(), Err(BuildError::NoDataDir)));
    // This process has threads, so the jail cannot be had, and nothing weaker is taken in its place.
    let jailed = AgentClient::builder().agent("mock").data_dir(directory.path()).build();
    assert!(matches!(jailed, Err(BuildError::Sandbox(_))));
}

async fn a_workspace_that_is_not_there_is_refused_before_anything_starts() {
    let scene = scene();
    let outcome = scene.client.goal("hello").workspace("/nowhere/at/all").run().await;
    assert!(matches!(outcome, Err(GoalError::Session(session::SessionError::Directory { .. }))));
    assert!(scene.client.sessions().list(None, 10).unwrap().sessions.is_empty());
}
