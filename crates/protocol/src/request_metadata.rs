//! Typed metadata of permission requests and questions: the fields that the host writes and reads back.
//!
//! Fields that an agent added are passed through unchanged.

use serde_json::{Map, Value};

/// Metadata of `permission.*` and `question.*` events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestMetadata {
    /// The grant that answered the request.
    pub granted_by: Option<String>,
    /// The policy rule that denied the request.
    pub denied_by: Option<String>,
    /// The policy rule that asks a person about the request.
    pub asked_by: Option<String>,
    /// The caller that answered the request: a token, a user or a program.
    pub answered_by: Option<String>,
    /// Why the request was resolved without a person.
    pub reason: Option<String>,
    /// The event that kept a person from answering.
    pub cause: Option<String>,
    agent_fields: Map<String, Value>,
}

/// Why a request was resolved without a person.
#[derive(Debug, Clone, Copy)]
pub struct Resolution<'a> {
    /// The reason.
    pub reason: &'a str,
    /// The event that kept a person from answering.
    pub cause: Option<&'a str>,
}

/// The resolution reason of a request that nobody answered in time.
const EXPIRED: &str = "expired";

impl<'a> Resolution<'a> {
    /// Returns a resolution with a reason alone.
    pub fn new(reason: &'a str) -> Self {
        Self { reason, cause: None }
    }

    /// Returns the resolution of a request that can no longer be answered because of `cause`.
    pub fn expired(cause: &'a str) -> Self {
        Self { reason: EXPIRED, cause: Some(cause) }
    }
}

impl RequestMetadata {
    /// Reads the metadata of an event. A value that is not an object is kept as the field `asked`.
    pub fn read(metadata: Option<&Value>) -> Self {
        let mut agent_fields = match metadata {
            Some(Value::Object(fields)) => fields.clone(),
            Some(other) => Map::from_iter([("asked".to_owned(), other.clone())]),
            None => Map::new(),
        };
        let mut take = |name: &str| match agent_fields.remove(name) {
            Some(Value::String(text)) => Some(text),
            Some(other) => {
                agent_fields.insert(name.to_owned(), other);
                None
            }
            None => None,
        };
        let (granted_by, denied_by, asked_by) = (take("granted_by"), take("denied_by"), take("asked_by"));
        let (answered_by, reason, cause) = (take("answered_by"), take("reason"), take("cause"));
        Self { granted_by, denied_by, asked_by, answered_by, reason, cause, agent_fields }
    }

    /// Returns `metadata` with the fields of `resolution` added.
    pub fn resolved(metadata: Option<&Value>, resolution: Option<Resolution<'_>>) -> Option<Value> {
        let Some(Resolution { reason, cause }) = resolution else { return metadata.cloned() };
        let mut resolved = Self::read(metadata);
        resolved.reason = Some(reason.to_owned());
        resolved.cause = cause.map(str::to_owned).or(resolved.cause);
        Some(resolved.into_value())
    }

    /// Returns `metadata` with the caller that answered; `None` when the caller is not known. An agent cannot set the caller.
    pub fn answered(metadata: Option<&Value>, by: Option<&str>) -> Option<Value> {
        let mut answered = Self::read(metadata);
        if by.is_none() && answered.answered_by.is_none() {
            return metadata.cloned();
        }
        answered.answered_by = by.map(str::to_owned);
        Some(answered.into_value())
    }

    /// Returns the metadata as it is written to the journal.
    pub fn into_value(self) -> Value {
        let Self { granted_by, denied_by, asked_by, answered_by, reason, cause, mut agent_fields } = self;
        let rules = [("granted_by", granted_by), ("denied_by", denied_by), ("asked_by", asked_by)];
        let fields = rules.into_iter().chain([("answered_by", answered_by), ("reason", reason), ("cause", cause)]);
        let present = fields.filter_map(|(name, text)| Some((name.to_owned(), Value::String(text?))));
        agent_fields.extend(present);
        Value::Object(agent_fields)
    }

    /// Returns whether a grant or the policy answered the request, so that it waits for nobody.
    pub fn is_answered(&self) -> bool {
        self.granted_by.is_some() || self.denied_by.is_some()
    }

    /// Returns whether the request was resolved without a person, other than by its deadline.
    pub fn was_resolved_by_session(&self) -> bool {
        self.reason.as_deref().is_some_and(|reason| reason != EXPIRED)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_the_agent_survive_a_resolution() {
        let asked = json!({"tool": "Bash", "reason": 5});
        let resolved = RequestMetadata::resolved(Some(&asked), Some(Resolution::expired("deadline")));
        assert_eq!(resolved, Some(json!({"tool": "Bash", "reason": "expired", "cause": "deadline"})));
        assert_eq!(RequestMetadata::resolved(Some(&asked), None), Some(asked.clone()));
        let by_a_caller = RequestMetadata::answered(Some(&asked), Some("token t1"));
        assert_eq!(by_a_caller, Some(json!({"tool": "Bash", "reason": 5, "answered_by": "token t1"})));
        let forged = json!({"tool": "Bash", "answered_by": "token t1"});
        assert_eq!(RequestMetadata::answered(Some(&forged), None), Some(json!({"tool": "Bash"})));
        let text = RequestMetadata::resolved(Some(&json!("text")), Some(Resolution::new("policy")));
        assert_eq!(text, Some(json!({"asked": "text", "reason": "policy"})));
    }
}
