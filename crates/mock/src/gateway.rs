//! Model calls, each in its own thread.

use std::io::BufReader;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::{io, thread};

use serde_json::{Value, json};

use crate::inbox::InboxMessage;
use crate::{MockSettings, sse};

/// Bytes of an error body that are shown.
const ERROR_BODY: u64 = 2048;

/// Part of a model response.
#[derive(Debug)]
pub(crate) enum ModelEvent {
    /// One event of the stream.
    Frame(Value),
    /// The call failed.
    Failed {
        /// The error message.
        message: String,
        /// The HTTP status, if there was a response.
        status: Option<u16>,
    },
    /// The stream ended.
    End,
}

/// Returns the body of a model call.
pub(crate) fn request(settings: &MockSettings, history: &[Value], tools: &Value) -> Value {
    let mut body = json!({
        "model": settings.model,
        "max_tokens": 4096,
        "stream": true,
        "system": "You are the mock agent.",
        "messages": history,
    });
    if tools.as_array().is_some_and(|tools| !tools.is_empty()) {
        body["tools"] = tools.clone();
    }
    body
}

/// Starts a call. Its response arrives in the inbox under `number`.
pub(crate) fn call(settings: &MockSettings, body: Value, number: u64, sender: Sender<InboxMessage>) {
    let url = format!("{}/v1/messages", settings.gateway_url.trim_end_matches('/'));
    let authorization = format!("Bearer {}", settings.token);
    thread::spawn(move || {
        let mut forward = |event| sender.send(InboxMessage::Model(number, event)).is_ok();
        let last = match stream(&url, &authorization, &body, &mut forward) {
            Ok(()) => ModelEvent::End,
            Err((message, status)) => ModelEvent::Failed { message, status },
        };
        forward(last);
    });
}

type CallFailure = (String, Option<u16>);

fn stream(
    url: &str,
    authorization: &str,
    body: &Value,
    forward: &mut impl FnMut(ModelEvent) -> bool,
) -> Result<(), CallFailure> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(10)))
        .proxy(None)
        .build();
    let mut response = ureq::Agent::new_with_config(config)
        .post(url)
        .header("authorization", authorization)
        .header("anthropic-version", "2023-06-01")
        .header("accept", "text/event-stream")
        .send_json(body)
        .map_err(|error| (format!("cannot reach the model gateway: {error}"), None))?;
    let status = response.status().as_u16();
    if status != 200 {
        let text = response.body_mut().with_config().limit(ERROR_BODY).lossy_utf8(true).read_to_string();
        return Err((explain(&text.unwrap_or_default(), status), Some(status)));
    }
    let mut frames = BufReader::new(response.into_body().into_reader());
    loop {
        match sse::next_data(&mut frames) {
            Ok(Some(data)) => {
                let frame = serde_json::from_str(&data)
                    .map_err(|error| (format!("invalid JSON in the model's stream: {error}"), Some(status)))?;
                if !forward(ModelEvent::Frame(frame)) {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(error) => return Err((stream_error(&error), Some(status))),
        }
    }
}

/// Returns the error message of the gateway, or the body if there is none.
fn explain(body: &str, status: u16) -> String {
    let message = serde_json::from_str::<Value>(body)
        .ok()
        .and_then(|body| body.pointer("/error/message").and_then(Value::as_str).map(str::to_owned))
        .unwrap_or_else(|| body.trim().to_owned());
    format!("the model gateway answered {status}: {message}")
}

fn stream_error(error: &io::Error) -> String {
    format!("the model's stream failed: {error}")
}
