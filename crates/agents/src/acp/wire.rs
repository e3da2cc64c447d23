//! Messages on the wire, in the protocol's own types.
//!
//! What an agent says is read into a type only as far as that loses nothing: what a type cannot say again, it
//! did not understand, and the caller is told.

use agent_client_protocol_schema::{
    ClientNotification, ClientRequest, Error, ErrorCode, JsonRpcMessage, Notification, Request, RequestId,
    RequestPermissionResponse, Response, SessionUpdate, ToolCallUpdate,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A question of ours.
pub(super) fn request(id: i64, request: ClientRequest) -> Value {
    let method = request.method().into();
    message(Request { id: RequestId::Number(id), method, params: Some(request) })
}

/// Something that wants no answer.
pub(super) fn notification(notification: ClientNotification) -> Value {
    let method = notification.method().into();
    message(Notification { method, params: Some(notification) })
}

/// What the person said to something the agent asked.
pub(super) fn permission(id: RequestId, answer: RequestPermissionResponse) -> Value {
    message(Response::new(id, Ok(answer)))
}

/// Something that we do for no agent.
pub(super) fn refusal(id: RequestId) -> Value {
    message(Response::<Value>::new(id, Err(Error::new(ErrorCode::MethodNotFound.into(), "not supported"))))
}

/// As a value, whose keys are sorted: the same message is the same bytes.
fn message(message: impl Serialize) -> Value {
    // The protocol's types are maps with string keys: they always serialize.
    serde_json::to_value(JsonRpcMessage::wrap(message)).unwrap_or_default()
}

/// `value` as one of the protocol's types, if it is one.
pub(super) fn decode<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// What a session has to tell, if the protocol knows it.
pub(super) fn update(update: &Value) -> Option<SessionUpdate> {
    match update["sessionUpdate"].as_str() {
        // The protocol wants a title at the beginning of a call. One without is a call nevertheless.
        Some("tool_call") => decode::<ToolCallUpdate>(update).map(SessionUpdate::ToolCallUpdate),
        _ => decode(update),
    }
}

/// The first place in `said` that `understood` cannot say again, as a path of field names.
pub(super) fn first_unknown_path(said: &Value, understood: &impl Serialize) -> Option<String> {
    let mut understood = serde_json::to_value(understood).unwrap_or_default();
    // The beginning of a call is read as more of it.
    if let Some(name) = understood.get_mut("sessionUpdate").filter(|_| said["sessionUpdate"] == "tool_call") {
        *name = said["sessionUpdate"].clone();
    }
    difference(said, &understood, String::new())
}

fn difference(said: &Value, understood: &Value, path: String) -> Option<String> {
    match (said, understood) {
        (Value::Object(said), understood) => {
            let told = said.iter().filter(|(_, value)| !value.is_null());
            told.map(|(key, value)| difference(value, &understood[key], format!("{path}.{key}"))).find_map(|lost| lost)
        }
        (Value::Array(said), Value::Array(understood)) if said.len() == understood.len() => {
            said.iter().zip(understood).find_map(|(said, understood)| difference(said, understood, format!("{path}[]")))
        }
        _ => (said != understood).then_some(path),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_lost(said: Value, expected: Option<&str>) {
        let understood: ToolCallUpdate = decode(&said).unwrap();
        assert_eq!(first_unknown_path(&said, &understood).as_deref(), expected);
    }

    #[test]
    fn what_a_type_cannot_say_again_is_lost() {
        check_lost(json!({ "toolCallId": "1", "kind": "edit", "title": null, "rawInput": { "any": [1, {}] } }), None);
        check_lost(json!({ "toolCallId": "1", "mood": "good" }), Some(".mood"));
        check_lost(json!({ "toolCallId": "1", "kind": "dream" }), Some(".kind"));
        check_lost(json!({ "toolCallId": "1", "content": [{ "type": "hologram" }] }), Some(".content"));
        let text = json!({ "type": "text", "text": "hi", "size": 12 });
        check_lost(
            json!({ "toolCallId": "1", "content": [{ "type": "content", "content": text }] }),
            Some(".content[].content.size"),
        );
    }
}
