//! The fields of a JSON object of a request, each of which is either read or refused.
//!
//! A decoder takes the fields that it knows. [`Fields::finish`] refuses the first one that is left, so nothing of a
//! request is lost without a word.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Why a request cannot be translated.
#[derive(Debug, thiserror::Error)]
pub(super) enum TranslationError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("`{field}` is missing")]
    Missing { field: String },
    #[error("`{field}` is invalid: {reason}")]
    Invalid { field: String, reason: String },
    #[error("`{field}` has no equivalent there; remove it, or use an upstream with the API of the client")]
    NoEquivalent { field: String },
    #[error("`previous_response_id` is `{0}`, but this upstream stores no responses; send the conversation in `input`")]
    StoredResponse(String),
}

/// An object of a request with its path.
pub(super) struct Fields {
    at: String,
    map: Map<String, Value>,
}

impl Fields {
    /// Reads the body of a request.
    pub(super) fn body(body: &[u8]) -> Result<Self, TranslationError> {
        Ok(Self { at: String::new(), map: serde_json::from_slice(body)? })
    }

    /// Returns the fields of `value`, which lies at the path `at`. Fails if it is not an object.
    pub(super) fn of(value: Value, at: String) -> Result<Self, TranslationError> {
        match value {
            Value::Object(map) => Ok(Self { at, map }),
            _ => Err(TranslationError::Invalid { field: at, reason: "it is not an object".to_owned() }),
        }
    }

    /// Returns the path of a field.
    pub(super) fn path(&self, name: &str) -> String {
        match (self.at.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.at.clone(),
            (false, false) => format!("{}.{name}", self.at),
        }
    }

    /// Takes a field; `None` if it is absent or null.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, TranslationError> {
        match self.map.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value).map(Some).map_err(|error| self.invalid(name, error)),
        }
    }

    /// Takes a field that must be there.
    pub(super) fn need<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, TranslationError> {
        self.take(name)?.ok_or_else(|| TranslationError::Missing { field: self.path(name) })
    }

    /// Takes a text; empty if it is absent.
    pub(super) fn text(&mut self, name: &str) -> Result<String, TranslationError> {
        Ok(self.take(name)?.unwrap_or_default())
    }

    /// Takes an object.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Self>, TranslationError> {
        let path = self.path(name);
        self.take::<Value>(name)?.map(|value| Self::of(value, path)).transpose()
    }

    /// Takes a list of objects; empty if it is absent.
    pub(super) fn objects(&mut self, name: &str) -> Result<Vec<Self>, TranslationError> {
        let path = self.path(name);
        let values: Vec<Value> = self.take(name)?.unwrap_or_default();
        values.into_iter().enumerate().map(|(index, value)| Self::of(value, format!("{path}[{index}]"))).collect()
    }

    /// Takes the content of a message: one text, or a list of objects.
    pub(super) fn content(&mut self, name: &str) -> Result<Content, TranslationError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(Content::Parts(Vec::new())),
            Some(Value::String(_)) => Ok(Content::Text(self.text(name)?)),
            Some(_) => Ok(Content::Parts(self.objects(name)?)),
        }
    }

    /// Returns whether a field is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns the error that a field has no equivalent; the whole object if `name` is empty.
    pub(super) fn no_equivalent(&self, name: &str) -> TranslationError {
        TranslationError::NoEquivalent { field: self.path(name) }
    }

    /// Returns the error that a field is invalid.
    pub(super) fn invalid(&self, name: &str, reason: impl ToString) -> TranslationError {
        TranslationError::Invalid { field: self.path(name), reason: reason.to_string() }
    }

    /// Refuses the first field that was not taken, except `hints`: they change neither the answer nor its form.
    pub(super) fn finish(self, hints: &[&str]) -> Result<(), TranslationError> {
        let is_empty = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        let left = self.map.iter().find(|(name, value)| !hints.contains(&name.as_str()) && !is_empty(value));
        left.map_or(Ok(()), |(name, _)| Err(self.no_equivalent(name)))
    }
}

/// The content of a message.
pub(super) enum Content {
    Text(String),
    Parts(Vec<Fields>),
}
