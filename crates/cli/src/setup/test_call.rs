//! One call through the gateway: the same identity, hold, upstream and settlement as the calls of agents.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use protocol::ProblemCode;
use serde_json::{Value, json};
use store::{KeyStore, NewKey, SystemClock};

use crate::config::Config;
use crate::failure::Failure;
use crate::gateway::KeyAuth;
use crate::issued_secret::{IssuedSecret, lifetime_ms};
use crate::{host, upstream};

/// Time limit of the call.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls `model` at the upstream `name` and returns the status of its answer. Fails if the status is not a success.
pub(super) async fn make(config: &Config, name: &str, kind: &str, model: &str) -> Result<u16, Failure> {
    let directory = host::data_dir(config)?;
    let gateway = host::gateway(config)?;
    let internal = |error: &dyn std::error::Error| {
        Failure::new(ProblemCode::UpstreamError, "the test call failed; viv.toml was not changed").because(error)
    };
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| internal(&error))?;
    let address = listener.local_addr().map_err(|error| internal(&error))?;
    let key = IssuedSecret::issue("viv_key_", "key");
    let keys = KeyStore::open(&directory, Arc::new(SystemClock))?;
    keys.create(&NewKey {
        id: key.id.clone(),
        digest: key.token.digest(),
        account: "setup".to_owned(),
        user: None,
        models: vec!["*".to_owned()],
        budget_picos: None,
        requests_a_minute: None,
        ttl_ms: lifetime_ms(Some(LIMIT)),
    })?;
    let (upstream, journal_bytes) =
        (upstream::find_upstream(config, name)?, config.file.limits.budget().key_journal_bytes);
    let auth = Arc::new(KeyAuth::open(directory, upstream, host::limits(config)?, journal_bytes)?);
    let authenticate = Arc::new(move |token: &str| auth.authenticate(token));
    let attachment = gateway.serve(listener, host::limits(config)?, authenticate).map_err(|error| internal(&error))?;
    let answered = tokio::time::timeout(LIMIT, call(address, key.reveal(), kind, model)).await;
    attachment.close().await;
    keys.revoke(&key.id)?;
    let (status, body) = match answered {
        Ok(answered) => answered.map_err(|error| internal(&*error))?,
        Err(_) => return Err(no_answer(name)),
    };
    if (200..300).contains(&status) { Ok(status) } else { Err(refused(name, model, status, &body)) }
}

async fn call(
    address: std::net::SocketAddr,
    token: &str,
    kind: &str,
    model: &str,
) -> Result<(u16, Bytes), Box<dyn std::error::Error>> {
    let hi = json!([{"role": "user", "content": "hi"}]);
    let (path, body) = match kind {
        "anthropic" => ("/v1/messages".to_owned(), json!({"model": model, "max_tokens": 16, "messages": hi})),
        "gemini" => {
            let contents = json!([{"role": "user", "parts": [{"text": "hi"}]}]);
            let body = json!({"contents": contents, "generationConfig": {"maxOutputTokens": 16}});
            (format!("/v1beta/models/{model}:generateContent"), body)
        }
        "openai" => {
            ("/v1/chat/completions".to_owned(), json!({"model": model, "messages": hi, "max_completion_tokens": 16}))
        }
        _ => ("/v1/chat/completions".to_owned(), json!({"model": model, "messages": hi, "max_tokens": 16})),
    };
    let stream = tokio::net::TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(path)
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .header("anthropic-version", "2023-06-01")
        .header("authorization", format!("Bearer {token}"))
        .body(Full::new(Bytes::from(body.to_string())))?;
    let answered = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        // Ends the connection, so that its future ends.
        drop(sender);
        Ok::<_, hyper::Error>((status, body))
    };
    let (answered, _) = tokio::join!(answered, connection);
    Ok(answered?)
}

fn no_answer(name: &str) -> Failure {
    let what = format!("the upstream {name} did not answer within {} s; viv.toml was not changed", LIMIT.as_secs());
    Failure::new(ProblemCode::UpstreamError, what).help("viv credentials --check")
}

fn refused(name: &str, model: &str, status: u16, body: &[u8]) -> Failure {
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = ["/error/message", "/detail", "/message"].iter().find_map(|at| document.pointer(at)?.as_str());
    let what = format!("the test call to {name} failed with status {status}; viv.toml was not changed");
    let failure = Failure::new(ProblemCode::UpstreamError, what).detail(message.unwrap_or_default());
    if message.is_some_and(|message| message.contains("no known price")) {
        let key = crate::shell_word::shell_word(&format!("prices.\"{model}\""));
        return failure.help(format!("viv config set {key} '{{ input = 1.0, output = 2.0 }}'"));
    }
    failure.help("viv credentials --check")
}
