//! Every agent with an upstream of every API: it edits a file with a tool, whatever API it speaks itself.
//!
//! The upstream is a stub vendor. It accepts only requests that the real vendor would accept, and the script answers.

use std::path::Path;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use gateway::{
    ModelEndpoint, ModelScript, ScriptedUpstream, SendProgress, Upstream, UpstreamRequest, VendorConfig, VendorKind,
    VendorUpstream,
};
use http::{HeaderMap, Method};
use protocol::{CallId, CreateSession, EventBody, SessionId, TurnOutcome};
use sandbox::SavedChanges;
use secret::Secret;
use serde_json::Value;
use testkit::stub_vendor::{Connection, ReceivedRequest, StubVendor, http_response};
use tokio::io::AsyncWriteExt;

use crate::model_script::{self, EDITED_FILE, EDITED_FILE_CONTENT, NEW_LINE, OLD_LINE, prompts};
use crate::scenario_session::{Scenario, UserReply};

pub(crate) async fn file_is_edited_with_an_anthropic_upstream(scenario: Scenario) {
    check(scenario, VendorKind::Anthropic, "claude-opus-4-6").await;
}

pub(crate) async fn file_is_edited_with_an_openai_upstream(scenario: Scenario) {
    check(scenario, VendorKind::Openai, "gpt-5.2").await;
}

pub(crate) async fn file_is_edited_with_a_gemini_upstream(scenario: Scenario) {
    check(scenario, VendorKind::Gemini, "gemini-3-pro-preview").await;
}

pub(crate) async fn file_is_edited_with_a_compatible_upstream(scenario: Scenario) {
    check(scenario, VendorKind::OpenaiCompatible, "stub-model").await;
}

async fn check(scenario: Scenario, kind: VendorKind, model: &str) {
    // The mock's protocol is that of Claude, which is here as well.
    if scenario.agent.name == "mock" {
        return;
    }
    let rejected = Arc::new(Mutex::new(Vec::new()));
    let vendor = start_vendor(&model_script::script_text(&scenario.agent), rejected.clone()).await;
    let mut config = VendorConfig::new("stub", kind, vendor.url());
    config.key = Some(Secret::new("sk-stub-vendor"));
    config.model = Some(model.to_owned());
    let upstream = Arc::new(VendorUpstream::new(config).unwrap());
    let prepare = |folder: &Path, _: &mut CreateSession| {
        std::fs::write(folder.join("workspace").join(EDITED_FILE), EDITED_FILE_CONTENT).unwrap();
    };
    let session = scenario.open_with_upstream(upstream, prepare).await;
    let turn = session.turn(prompts::EDIT, UserReply::Yes).await;
    let rejected = rejected.lock().unwrap().clone();
    assert_eq!(rejected, Vec::<String>::new(), "{turn:?}");
    // Some agents leave fields out after a refusal, which would hide it.
    assert!(!turn.has(|event| matches!(event, EventBody::UpstreamError(_))), "{turn:?}");
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.text().contains("It is mended."), "{turn:?}");
    let saved = SavedChanges::open(&session.sessions.changes_directory(&session.id)).unwrap();
    let edited = saved.read(Path::new(EDITED_FILE)).unwrap();
    assert_eq!(edited, EDITED_FILE_CONTENT.replace(OLD_LINE, NEW_LINE).as_bytes(), "{turn:?}");
    session.discard().await;
}

/// Starts a vendor whose model is `script`; it notes the requests that it rejects.
async fn start_vendor(script: &str, rejected: Arc<Mutex<Vec<String>>>) -> StubVendor {
    let model = Arc::new(ScriptedUpstream::new(ModelScript::parse(script).unwrap()));
    StubVendor::with_handler(move |request, connection| serve(model.clone(), rejected.clone(), request, connection))
        .await
}

async fn serve(
    model: Arc<ScriptedUpstream>,
    rejected: Arc<Mutex<Vec<String>>>,
    received: ReceivedRequest,
    mut connection: Box<dyn Connection>,
) -> Option<Box<dyn Connection>> {
    let path = received.line().split(' ').nth(1).unwrap().to_owned();
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    if let Err(reason) = testkit::check_vendor_request(&path, &body) {
        rejected.lock().unwrap().push(format!("{path}: {reason}\n{body}"));
        let error = serde_json::json!({"error": {"message": reason}}).to_string();
        connection.write_all(http_response("400 Bad Request", "application/json", &error).as_bytes()).await.ok()?;
        return Some(connection);
    }
    let answer = model.send(upstream_request(&path, &body, received)).await.unwrap();
    let kind = answer.headers["content-type"].to_str().unwrap();
    let head = format!("HTTP/1.1 {}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n", answer.status);
    connection.write_all(head.as_bytes()).await.ok()?;
    let mut frames = answer.frames;
    while let Some(Ok(frame)) = frames.next().await {
        // Newer models of this vendor sign their calls.
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let signed = text.replace("{\"functionCall\":", "{\"thoughtSignature\":\"c3R1Yg==\",\"functionCall\":");
        connection.write_all(signed.as_bytes()).await.ok()?;
    }
    None
}

fn upstream_request(path: &str, body: &Value, received: ReceivedRequest) -> UpstreamRequest {
    let endpoint = match path.split('?').next().unwrap() {
        "/v1/messages" => ModelEndpoint::Messages,
        "/v1/chat/completions" => ModelEndpoint::ChatCompletions,
        "/v1/responses" => ModelEndpoint::Responses,
        path if path.ends_with(":generateContent") => ModelEndpoint::GenerateContent,
        _ => ModelEndpoint::StreamGenerateContent,
    };
    UpstreamRequest {
        endpoint,
        method: Method::POST,
        path_and_query: path.to_owned(),
        headers: HeaderMap::new(),
        body: received.body,
        model: body["model"].as_str().unwrap_or("gemini").to_owned(),
        stream: endpoint == ModelEndpoint::StreamGenerateContent || body["stream"] == true,
        call: CallId::new("call_1").unwrap(),
        session: SessionId::new("stub").unwrap(),
        account: "stub".into(),
        run: "stub".into(),
        attempt: 1,
        user: None,
        progress: SendProgress::default(),
    }
}
