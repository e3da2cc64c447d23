//! The agent client with the agent in the jail: every kind of failure has its own type.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use gateway::{ModelScript, ScriptedUpstream, Upstream, UpstreamFailure, UpstreamRequest, UpstreamResponse};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource, Preset};
use protocol::{Event, EventBody, TurnOutcome};
use sandbox::JailBackend;
use session::{AgentClient, PermissionResponder, SandboxChoice, SessionTimeouts, TurnFailure};
use tempfile::TempDir;

use crate::clients::failed;
use crate::trials;

trials![
    exceeding_the_memory_limit_fails_as_out_of_memory,
    silent_agent_times_out,
    exhausted_money_budget_fails_as_budget,
    exhausted_call_budget_fails_as_budget,
    exit_and_signal_are_different_failures,
    model_error_has_its_status,
    process_exit_is_retried_only_before_the_first_tool_call,
];

static JAIL: OnceLock<JailBackend> = OnceLock::new();

/// Forks the jail's spawner. Must run before the first thread.
pub(crate) fn prepare() {
    assert!(JAIL.set(JailBackend::fork().unwrap()).is_ok(), "prepared twice");
}

/// A scripted model whose calls are billed by the price list.
struct PaidUpstream(ScriptedUpstream);

impl Upstream for PaidUpstream {
    fn name(&self) -> &'static str {
        "paid"
    }

    fn models(&self) -> Vec<String> {
        self.0.models()
    }

    fn send(&self, request: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>> {
        self.0.send(request)
    }
}

/// Returns a client with the default sandbox. Must run before the first thread.
pub(crate) fn default_client(directory: &TempDir) -> AgentClient {
    let builder = AgentClient::builder().agent("mock").data_dir(directory.path().join("data"));
    builder.mock_program(std::env::current_exe().unwrap()).build().unwrap()
}

/// The jail works on this machine, so it is the default.
pub(crate) async fn default_sandbox_is_the_first_that_works(client: AgentClient) {
    let response = client.goal("say hello").run().await.unwrap();
    let journal = client.sessions().journal(&response.session).unwrap().after(0, usize::MAX).unwrap();
    let backend = journal.iter().find_map(|event| match &event.draft.body {
        EventBody::PolicyEffective(effective) => Some(effective.backend.as_str()),
        _ => None,
    });
    assert_eq!(backend, Some("jail"));
    client.close().await;
}

struct Scene {
    _directory: TempDir,
    client: AgentClient,
}

/// Returns a client with a jailed agent, under the default preset with `old` replaced by `new`.
fn scene(model: impl Upstream + 'static, timing: SessionTimeouts, (old, new): (&str, &str)) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let client = AgentClient::builder()
        .agent("mock")
        .data_dir(directory.path().join("data"))
        .mock_program(std::env::current_exe().unwrap())
        .sandbox(SandboxChoice::Backend(Arc::new(JAIL.get().unwrap().clone())))
        .policy(policy(old, new))
        .upstream(Arc::new(model))
        .timeouts(timing)
        .build();
    Scene { _directory: directory, client: client.unwrap() }
}

fn scripted(script: &str) -> ScriptedUpstream {
    ScriptedUpstream::new(ModelScript::parse(script).unwrap())
}

fn plain(script: &str) -> Scene {
    scene(scripted(script), SessionTimeouts::default(), ("", ""))
}

fn policy(old: &str, new: &str) -> EffectivePolicy {
    let preset = Preset::Balanced.source();
    assert!(preset.text().contains(old), "the preset has no `{old}`");
    let base = BaseLayer::read(&PolicySource::new("test", preset.text().replacen(old, new, 1))).unwrap();
    policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[])
}

const BRIEF: &str = "version: 1\nrules: [{answer: [{text: Well.}]}]";

/// Returns a script with a tool call in the first step, and `rest` after it.
fn after_a_tool_call(rest: &str) -> String {
    let call = "{tool: {name: run_command, input: {command: [echo, once]}}}";
    format!(
        "version: 1\nrules:\n  - when: {{step: 1}}\n    answer: [{call}]\n    usage: {{input: 10, output: 4000}}\n  - {rest}\n"
    )
}

/// Returns whether a cgroup limits the memory of the session; else each process has its own limit.
fn has_memory_cgroup(events: &[Event]) -> bool {
    let effective = events.iter().find_map(|event| match &event.draft.body {
        EventBody::PolicyEffective(effective) => Some(&effective.keys),
        _ => None,
    });
    effective.unwrap().get("proc.memory").is_some_and(|memory| memory.by.contains("cgroup"))
}

async fn exceeding_the_memory_limit_fails_as_out_of_memory() {
    let scene = scene(scripted(BRIEF), SessionTimeouts::default(), ("memory: 4GiB", "memory: 64MiB"));
    let goal = scene.client.goal("/memory 300000000").retries(3);
    let (failure, response) = failed(goal.run().await);
    let journal = scene.client.sessions().journal(&response.session).unwrap();
    if has_memory_cgroup(&journal.after(0, usize::MAX).unwrap()) {
        assert_eq!(failure, TurnFailure::OutOfMemory);
        assert_eq!(response.attempt, 1, "a retry would need the same memory");
    } else {
        // A process that exceeds its own limit aborts.
        assert!(matches!(failure, TurnFailure::Signal { signal: 6, .. }), "{failure:?}");
    }
    assert_eq!(response.outcome, TurnOutcome::Failed);
}

async fn silent_agent_times_out() {
    let second = Duration::from_secs(1);
    let timing = SessionTimeouts { silence: second, stop_grace: second, ..SessionTimeouts::default() };
    let scene = scene(scripted(BRIEF), timing, ("", ""));
    let (failure, response) = failed(scene.client.goal("/hang").retries(3).run().await);
    assert_eq!(failure, TurnFailure::Silent);
    assert_eq!((response.outcome, response.attempt), (TurnOutcome::TimedOut, 1));
    assert!(scene.client.sessions().get(&response.session).unwrap().ended);
}

/// Runs a goal whose second model call exceeds the limit that `limit` sets in the policy.
async fn check_budget(limit: (&str, &str), named: &str) {
    let model = PaidUpstream(scripted(&after_a_tool_call("answer: [{text: done}]")));
    let scene = scene(model, SessionTimeouts::default(), limit);
    let goal = scene.client.goal("go").model("claude-sonnet-4-5").permissions(PermissionResponder::Allow).retries(3);
    let (failure, response) = failed(goal.run().await);
    let TurnFailure::Budget(message) = &failure else { panic!("{failure:?}") };
    assert!(message.contains(named), "{message}");
    let calls = response.events.iter().filter(|event| matches!(event.draft.body, EventBody::LlmCall(_)));
    assert_eq!((calls.count(), response.attempt), (1, 1), "expected exactly one call");
}

async fn exhausted_money_budget_fails_as_budget() {
    // The first call costs six cents and leaves too little for a second one.
    check_budget(("budget_usd: 5.00", "budget_usd: 0.10"), "models.budget_usd").await;
}

async fn exhausted_call_budget_fails_as_budget() {
    check_budget(("max_requests: 1000", "max_requests: 1"), "models.max_requests").await;
}

async fn exit_and_signal_are_different_failures() {
    let scene = plain(BRIEF);
    let (failure, _) = failed(scene.client.goal("/exit 3").run().await);
    assert!(matches!(failure, TurnFailure::Exited { code: 3, .. }), "{failure:?}");
    let (failure, _) = failed(scene.client.goal("/crash").run().await);
    assert!(matches!(failure, TurnFailure::Signal { signal: 6, .. }), "{failure:?}");
}

async fn model_error_has_its_status() {
    let scene = plain("version: 1\nrules: [{error: {status: 500, message: out of order}}]");
    let (failure, _) = failed(scene.client.goal("hello").run().await);
    assert!(matches!(failure, TurnFailure::Upstream { status: Some(500), .. }), "{failure:?}");
}

async fn process_exit_is_retried_only_before_the_first_tool_call() {
    let scene = plain(BRIEF);
    let (failure, response) = failed(scene.client.goal("/exit 3").retries(1).run().await);
    assert!(matches!(failure, TurnFailure::Exited { code: 3, .. }), "{failure:?}");
    assert_eq!(response.attempt, 2);
    let rest = r#"answer: [{tool: {name: run_command, input: {command: [sh, -c, "kill -9 $PPID"]}}}]"#;
    let scene = plain(&after_a_tool_call(rest));
    let goal = scene.client.goal("go").permissions(PermissionResponder::Allow).retries(3);
    let (failure, response) = failed(goal.run().await);
    assert!(matches!(failure, TurnFailure::Signal { signal: 9, .. }), "{failure:?}");
    assert_eq!(response.attempt, 1);
    assert_eq!(scene.client.sessions().list(None, 10).unwrap().sessions.len(), 1);
}
