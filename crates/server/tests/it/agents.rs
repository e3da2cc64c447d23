//! Agents over the API: modes, models and installation.

use std::sync::{Arc, Mutex};

use protocol::{Problem, ProblemCode};
use serde_json::json;
use server::{AgentInstaller, ServerConfig};

use crate::stage::{Stage, config};

crate::trials!(
    modes_and_models_are_listed,
    output_that_is_not_understood_is_counted,
    admin_can_install_an_agent,
    session_of_a_known_agent_installs_it,
    quickstart_of_the_contract_works
);

async fn modes_and_models_are_listed() {
    let stage = Stage::new();
    let modes = stage.client.get("/v1/agents/mock/modes").await.json();
    let ids: Vec<_> = modes["modes"].as_array().unwrap().iter().map(|mode| mode["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["build", "plan"]);
    let served = stage.client.get("/v1/agents/mock/models").await.json();
    let first = served["models"][0]["id"].as_str().unwrap();
    assert_eq!(served["defaultModel"], first);
    let unknown = stage.client.get("/v1/agents/nobody/modes").await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (400, &"unsupported_agent".into()));
    let missing = stage.client.get("/v1/agents/claude/models").await;
    assert_eq!((missing.status, &missing.json()["code"]), (404, &"agent_not_installed".into()));
    // An unsupported mode is refused, never ignored.
    let made = stage.client.post("/v1/sessions/s1", r#"{"agent":"mock","agentMode":"plan"}"#).await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(stage.client.get("/v1/sessions/s1").await.json()["permissionMode"], "plan");
    let refused = stage.client.post("/v1/sessions/s2", r#"{"agent":"mock","agentMode":"dance"}"#).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"invalid_request".into()));
}

async fn output_that_is_not_understood_is_counted() {
    let stage = Stage::new();
    let before = stage.client.get("/metrics").await.text();
    assert!(!before.contains("viv_agent_drift_total{"), "{before}");
    stage.session("s1").await;
    let body = json!({"message": "/garbage"}).to_string();
    assert_eq!(stage.client.post("/v1/sessions/s1/messages/stream", &body).await.status, 200);
    let listed = stage.client.get("/v1/agents").await.json();
    let mock = listed["agents"].as_array().unwrap().iter().find(|agent| agent["id"] == "mock").unwrap();
    let unparsed = mock["drift"]["built-in"]["unparsed"].as_u64().unwrap();
    assert!(unparsed > 0, "{mock}");
    let returned = stage.client.get("/metrics").await.text();
    let line = format!("viv_agent_drift_total{{agent=\"mock\",version=\"built-in\",kind=\"unparsed\"}} {unparsed}\n");
    assert!(returned.contains(&line), "{returned}");
}

/// The bodies of the contract's own quickstart.
async fn quickstart_of_the_contract_works() {
    let stage = Stage::new();
    let body = r#"{"agent":"mock","agentMode":"build","permissionMode":"default"}"#;
    let made = stage.client.post("/v1/sessions/my-session", body).await;
    assert_eq!((made.status, &made.json()["healthy"]), (200, &true.into()), "{}", made.text());
    assert_eq!(stage.client.get("/v1/sessions/my-session").await.json()["agentMode"], "build");
    let sent = stage.client.post("/v1/sessions/my-session/messages", r#"{"message":"Summarize the repository"}"#).await;
    assert_eq!(sent.status, 204);
    let plan = r#"{"agent":"mock","agentMode":"plan"}"#;
    assert_eq!(stage.client.post("/v1/sessions/planned", plan).await.status, 200);
    assert_eq!(stage.client.post("/v1/agents/mock/install", r#"{"reinstall":true}"#).await.status, 204);
}

async fn session_of_a_known_agent_installs_it() {
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorded = calls.clone();
    let installer = AgentInstaller(Arc::new(move |name: &str, _: bool| {
        recorded.lock().unwrap().push(name.to_owned());
        Err(Box::new(Problem::new(ProblemCode::InstallFailed, "the registry is down")))
    }));
    let stage = Stage::with(ServerConfig { installer: Some(installer), ..config() });
    let made = stage.client.post("/v1/sessions/s1", r#"{"agent":"claude"}"#).await;
    assert_eq!((made.status, &made.json()["code"]), (500, &"install_failed".into()));
    let unknown = stage.client.post("/v1/sessions/s1", r#"{"agent":"nobody"}"#).await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (400, &"unsupported_agent".into()));
    assert_eq!(*calls.lock().unwrap(), ["claude"]);
    // The failed calls used no id.
    stage.session("s1").await;
    let without = Stage::new().client.post("/v1/sessions/s1", r#"{"agent":"claude"}"#).await;
    assert_eq!((without.status, &without.json()["code"]), (404, &"agent_not_installed".into()));
}

async fn admin_can_install_an_agent() {
    let without = Stage::new().client.post("/v1/agents/claude/install", "").await;
    assert_eq!((without.status, &without.json()["code"]), (500, &"install_failed".into()));
    let calls: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
    let recorded = calls.clone();
    let installer = AgentInstaller(Arc::new(move |name: &str, again: bool| {
        recorded.lock().unwrap().push((name.to_owned(), again));
        if name == "amp" { Err(Box::new(Problem::new(ProblemCode::UnsupportedAgent, "not this one"))) } else { Ok(()) }
    }));
    let stage = Stage::with(ServerConfig { installer: Some(installer), ..config() });
    assert_eq!(stage.client.post("/v1/agents/claude/install", "").await.status, 204);
    assert_eq!(stage.client.post("/v1/agents/claude/install", r#"{"reinstall":true}"#).await.status, 204);
    let refused = stage.client.post("/v1/agents/amp/install", "{}").await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"unsupported_agent".into()));
    let expected = [("claude", false), ("claude", true), ("amp", false)].map(|(name, again)| (name.to_owned(), again));
    assert_eq!(*calls.lock().unwrap(), expected);
    assert_eq!(
        stage.client.post("/v1/agents/claude/install", r#"{"other":1}"#).await.json()["code"],
        json!("invalid_request")
    );
}
