//! Messages of the protocol, encoded and decoded with its types.
//!
//! A decoded message is encoded again and compared with the original. Fields that are lost are unknown to the protocol,
//! and the caller records them.

use agent_client_protocol_schema::{
    ClientNotification, ClientRequest, Error, ErrorCode, JsonRpcMessage, Notification, Request, RequestId,
    RequestPermissionResponse, Response, SessionUpdate, ToolCallUpdate,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns a request.
pub(super) fn request(id: i64, request: ClientRequest) -> Value {
    let method = request.method().into();
    encode(Request { id: RequestId::Number(id), method, params: Some(request) })
}

/// Returns a notification.
pub(super) fn notification(notification: ClientNotification) -> Value {
    let method = notification.method().into();
    encode(Notification { method, params: Some(notification) })
}

/// Returns the answer to a permission request.
pub(super) fn permission(id: RequestId, answer: RequestPermissionResponse) -> Value {
    encode(Response::new(id, Ok(answer)))
}

/// Returns an error response to a request that is not supported.
pub(super) fn refusal(id: RequestId) -> Value {
    encode(Response::<Value>::new(id, Err(Error::new(ErrorCode::MethodNotFound.into(), "not supported"))))
}

/// Serializes a message with sorted keys, so that equal messages have equal bytes.
fn encode(message: impl Serialize) -> Value {
    // The types of the protocol are maps with string keys, which always serialize.
    serde_json::to_value(JsonRpcMessage::wrap(message)).unwrap_or_default()
}

/// Decodes `value` as a type of the protocol; `None` if it does not fit.
pub(super) fn decode<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// Decodes a session update; `None` if it is unknown.
pub(super) fn update(update: &Value) -> Option<SessionUpdate> {
    match update["sessionUpdate"].as_str() {
        // The schema requires a title at the start of a call. A call without a title is accepted.
        Some("tool_call") => decode::<ToolCallUpdate>(update).map(SessionUpdate::ToolCallUpdate),
        _ => decode(update),
    }
}

/// Returns the path of the first field of `message` that `decoded` lacks.
pub(super) fn first_unknown_path(message: &Value, decoded: &impl Serialize) -> Option<String> {
    let mut decoded = serde_json::to_value(decoded).unwrap_or_default();
    // The start of a call is decoded as an update of a call.
    if let Some(name) = decoded.get_mut("sessionUpdate").filter(|_| message["sessionUpdate"] == "tool_call") {
        *name = message["sessionUpdate"].clone();
    }
    difference(message, &decoded, String::new())
}

fn difference(message: &Value, decoded: &Value, path: String) -> Option<String> {
    match (message, decoded) {
        (Value::Object(message), decoded) => {
            let present = message.iter().filter(|(_, value)| !value.is_null());
            present.map(|(key, value)| difference(value, &decoded[key], format!("{path}.{key}"))).find_map(|lost| lost)
        }
        (Value::Array(message), Value::Array(decoded)) if message.len() == decoded.len() => {
            message.iter().zip(decoded).find_map(|(message, decoded)| difference(message, decoded, format!("{path}[]")))
        }
        _ => (message != decoded).then_some(path),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_unknown(message: Value, expected: Option<&str>) {
        let decoded: ToolCallUpdate = decode(&message).unwrap();
        assert_eq!(first_unknown_path(&message, &decoded).as_deref(), expected);
    }

    #[test]
    fn unknown_fields_and_values_are_found() {
        check_unknown(
            json!({ "toolCallId": "1", "kind": "edit", "title": null, "rawInput": { "any": [1, {}] } }),
            None,
        );
        check_unknown(json!({ "toolCallId": "1", "mood": "good" }), Some(".mood"));
        check_unknown(json!({ "toolCallId": "1", "kind": "dream" }), Some(".kind"));
        check_unknown(json!({ "toolCallId": "1", "content": [{ "type": "hologram" }] }), Some(".content"));
        let text = json!({ "type": "text", "text": "hi", "size": 12 });
        check_unknown(
            json!({ "toolCallId": "1", "content": [{ "type": "content", "content": text }] }),
            Some(".content[].content.size"),
        );
    }
}
