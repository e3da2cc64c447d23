//! Sessions that name their upstream.

use serde_json::json;

use crate::fixture::viv_fixture;
use crate::server::Server;
use testkit::{ChatStub, StubBehaviour};
use testkit::{ProgramOutput, VivFixture};

/// Returns an environment with two configured upstreams, neither of which is the default.
fn place() -> (VivFixture, [ChatStub; 2]) {
    let place = viv_fixture();
    let stubs = ["one", "two"].map(|_| ChatStub::start(StubBehaviour::Answers, "From a model of its own."));
    let section = |name: &str, stub: &ChatStub| {
        format!(
            "[upstreams.{name}]\nkind = \"openai-compatible\"\nbase_url = \"http://{}/v1\"\nkey = \"sk-{name}\"\n\
             model = \"gpt-4o-mini\"\n",
            stub.address
        )
    };
    std::fs::create_dir_all(place.data_dir()).unwrap();
    let text = section("one", &stubs[0]) + &section("two", &stubs[1]);
    std::fs::write(place.data_dir().join("viv.toml"), text).unwrap();
    (place, stubs)
}

#[track_caller]
fn good(ran: ProgramOutput) -> String {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

#[track_caller]
fn tell(place: &VivFixture, session: &str) {
    let message = json!({"message": "hello"}).to_string();
    good(place.run(&["api", "POST", &format!("/v1/sessions/{session}/messages/stream"), "--data", &message]));
}

#[track_caller]
fn check_calls(stubs: &[ChatStub; 2], expected: [usize; 2]) {
    assert_eq!([stubs[0].calls().len(), stubs[1].calls().len()], expected);
    for (stub, key) in stubs.iter().zip(["Bearer sk-one", "Bearer sk-two"]) {
        assert!(stub.calls().iter().all(|call| call.authorization.as_deref() == Some(key)));
    }
}

#[test]
fn two_sessions_of_a_server_use_different_upstreams() {
    let (place, stubs) = place();
    let server = Server::start(&place);
    let client = server.client();
    for (session, name) in [("s1", "one"), ("s2", "two")] {
        let body = json!({"agent": "mock", "upstream": name}).to_string();
        assert_eq!(client.post(&format!("/v1/sessions/{session}"), &body).status, 200);
        tell(&place, session);
    }
    check_calls(&stubs, [1, 1]);
    let refused = client.post("/v1/sessions/s3", r#"{"agent":"mock","upstream":"three"}"#);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.json().to_string().contains("unknown upstream `three`; known upstreams: one, two"), "{refused:?}");

    // The upstream is kept after a resume and in a fork.
    server.kill(&place.data_dir());
    let server = Server::start(&place);
    tell(&place, "s1");
    check_calls(&stubs, [2, 1]);
    let forked = server.client().post("/v1/sessions/s2/fork", r#"{"sessionId":"f2"}"#);
    assert_eq!(forked.status, 200, "{forked:?}");
    tell(&place, "f2");
    check_calls(&stubs, [2, 2]);
    server.stop();
}

#[test]
fn a_run_and_a_task_name_their_upstream_too() {
    let (place, stubs) = place();
    let ran = place.run(&["run", "--workspace", "workspace", "--upstream", "two", "mock", "hello"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("model: upstream two"), "{}", ran.stderr);
    check_calls(&stubs, [0, 1]);
    let task = "{version: 1, name: t, agent: mock, upstream: one, prompts: [{text: hello, expect: {contains: model}}]}";
    std::fs::write(place.workspace().join("task.yaml"), task).unwrap();
    let ran = place.run(&["task", "workspace/task.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    check_calls(&stubs, [1, 1]);
    let ran = place.run(&["run", "--workspace", "workspace", "--upstream", "three", "mock", "hello"]);
    assert!(ran.code == 2 && ran.stderr.contains("one, two"), "{}: {}", ran.code, ran.stderr);
}

#[test]
fn the_environment_can_describe_the_upstream() {
    let (place, stubs) = place();
    let run = ["run", "--workspace", "workspace", "mock", "hello"];
    let mut command = place.command(&run);
    command.env("BASE_URL", format!("http://{}/v1", stubs[0].address)).env("API_KEY", "sk-one");
    let output = command.env("MODEL_NAME", "gpt-4o-mini").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_calls(&stubs, [1, 0]);
    // The command line takes precedence.
    let mut command = place.command(&[&run[..], &["--upstream", "two"]].concat());
    command.env("BASE_URL", format!("http://{}/v1", stubs[0].address)).env("API_KEY", "sk-one");
    let output = command.env("MODEL_NAME", "gpt-4o-mini").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_calls(&stubs, [1, 1]);
}

/// Runs the mock agent with a model server whose model has no known price.
fn run_without_price(place: &VivFixture, stub: &ChatStub, more: &[&str]) -> ProgramOutput {
    let mut command = place.command(&[&["run", "--workspace", "workspace", "mock", "hello"], more].concat());
    command.env("BASE_URL", format!("http://{}/v1", stub.address)).env("MODEL_NAME", "my \"own\" model");
    ProgramOutput::from(command.env("API_KEY", "sk-1").output().unwrap())
}

#[test]
fn a_model_without_a_price_is_billed_as_unpriced_and_the_run_says_how_to_price_it() {
    let place = viv_fixture();
    let stub = ChatStub::start(StubBehaviour::Answers, "From a model of its own.");
    let ran = run_without_price(&place, &stub, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("no price is known for").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("tokens in, 5 out · unpriced\n"), "{}", ran.stderr);
    let lines = ["[prices.", "input = ", "output = "];
    let pasted: Vec<&str> =
        ran.stderr.lines().map(str::trim).filter(|line| lines.iter().any(|begin| line.starts_with(begin))).collect();
    assert_eq!(pasted.len(), 3, "{}", ran.stderr);
    let (usage, listed) = (good(place.run(&["usage", "--by", "model"])), good(place.run(&["sessions", "ls"])));
    assert!(usage.contains("unpriced") && listed.contains("unpriced"), "{usage}{listed}");
    assert!(good(place.run(&["logs", "@last"])).contains(" · unpriced · "));
    let usage = good(place.run(&["--json", "usage", "--by", "model"]));
    assert!(usage.replace(' ', "").contains(r#""unpriced":1"#), "{usage}");

    // The lines of the notice, pasted, give the model a price.
    std::fs::write(place.data_dir().join("viv.toml"), pasted.join("\n")).unwrap();
    let ran = run_without_price(&place, &stub, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("out · $0.0001\n") && !ran.stderr.contains("unpriced"), "{}", ran.stderr);
}

#[test]
fn an_agent_uses_the_upstream_and_the_model_of_its_section() {
    let (place, stubs) = place();
    let path = place.data_dir().join("viv.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text + "[agents.mock]\nupstream = \"two\"\nmodel = \"gpt-4o\"\n").unwrap();
    let ran = place.run(&["run", "--workspace", "workspace", "mock", "hello"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("model: gpt-4o of upstream two"), "{}", ran.stderr);
    check_calls(&stubs, [0, 1]);
    // The command line comes first, and a model of another upstream does not follow it.
    let ran = place.run(&["run", "--workspace", "workspace", "--upstream", "one", "mock", "hello"]);
    assert!(ran.code == 0 && ran.stderr.contains("model: upstream one"), "{}", ran.stderr);
    check_calls(&stubs, [1, 1]);
    // A server's sessions use the section too.
    let server = Server::start(&place);
    let created = server.client().post("/v1/sessions/s1", r#"{"agent":"mock"}"#);
    assert_eq!(created.status, 200, "{created:?}");
    let session = server.client().get("/v1/sessions/s1").json();
    assert_eq!(session["model"], "gpt-4o", "{session}");
    tell(&place, "s1");
    check_calls(&stubs, [1, 2]);
    server.stop();
}
