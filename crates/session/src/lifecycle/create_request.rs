//! Checks of a request to create a session that need neither the host nor the agent.

use std::collections::BTreeMap;

use protocol::{CreateSession, SessionUpdated};

use crate::SessionError;

/// The sizes of a window that are accepted.
const SIDES: std::ops::RangeInclusive<u16> = 1..=1000;
/// Most characters of a title.
const MAX_TITLE: usize = 1000;
/// Most labels of a session.
const MAX_LABELS: usize = 32;
/// Most bytes of the key of a label.
const MAX_LABEL_KEY: usize = 63;
/// Most characters of the value of a label.
const MAX_LABEL_VALUE: usize = 255;
/// Most bytes of metadata as JSON.
const MAX_METADATA: usize = 16_384;
/// Most environment variables of a request.
const MAX_VARIABLES: usize = 64;
/// Most bytes of their names and values.
const MAX_ENVIRONMENT: usize = 32_768;
/// The longest prompt that is passed as an argument of a program, in bytes.
const LONGEST_PROMPT: usize = 100_000;

/// Fails for fields that no agent supports, rather than ignoring them.
pub(super) fn refuse_unsupported(request: &CreateSession) -> Result<(), SessionError> {
    let CreateSession { title, labels, metadata, .. } = request;
    let labels = Some(labels.clone()).filter(|labels| !labels.is_empty());
    check_description(&SessionUpdated { title: title.clone(), labels, metadata: metadata.clone() })?;
    check_environment(&request.environment)?;
    if request.variant.is_some() {
        let why = "no agent supports model variants";
        return Err(SessionError::NotSupported { field: "variant", why });
    }
    let Some(terminal) = &request.terminal else { return Ok(()) };
    if !SIDES.contains(&terminal.rows) || !SIDES.contains(&terminal.columns) {
        let why = "rows and columns must be from 1 to 1000";
        return Err(SessionError::NotSupported { field: "terminal", why });
    }
    // A NUL byte ends an argument of a program.
    if terminal.prompt.as_deref().is_some_and(|prompt| prompt.contains('\0') || prompt.len() > LONGEST_PROMPT) {
        let why = "the prompt contains a NUL byte or has more than 100,000 bytes";
        return Err(SessionError::NotSupported { field: "terminal", why });
    }
    Ok(())
}

/// Fails for a title, labels or metadata that are too large to be listed, or that cannot be filtered by.
pub(crate) fn check_description(update: &SessionUpdated) -> Result<(), SessionError> {
    let refuse = |field, why| Err(SessionError::NotSupported { field, why });
    if update.title.as_ref().is_some_and(|title| title.chars().count() > MAX_TITLE) {
        return refuse("title", "at most 1000 characters are allowed");
    }
    for (key, value) in update.labels.iter().flatten() {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "._/-".contains(letter);
        if !(1..=MAX_LABEL_KEY).contains(&key.len()) || !key.chars().all(plain) {
            return refuse("labels", "a key has 1 to 63 letters, digits, `.`, `_`, `/` and `-`");
        }
        if value.chars().count() > MAX_LABEL_VALUE || value.chars().any(char::is_control) {
            return refuse("labels", "a value has at most 255 characters and no control characters");
        }
    }
    if update.labels.as_ref().is_some_and(|labels| labels.len() > MAX_LABELS) {
        return refuse("labels", "at most 32 labels are allowed");
    }
    let bytes = |metadata| serde_json::to_string(metadata).map_or(usize::MAX, |text| text.len());
    if update.metadata.as_ref().is_some_and(|metadata| bytes(metadata) > MAX_METADATA) {
        return refuse("metadata", "at most 16384 bytes of JSON are allowed");
    }
    Ok(())
}

/// Fails for variables that cannot be set, or that would lead around the gateway or the egress proxy.
fn check_environment(environment: &BTreeMap<String, String>) -> Result<(), SessionError> {
    let refuse = |why| Err(SessionError::NotSupported { field: "environment", why });
    let bytes: usize = environment.iter().map(|(name, value)| name.len() + value.len()).sum();
    if environment.len() > MAX_VARIABLES || bytes > MAX_ENVIRONMENT {
        return refuse("at most 64 variables with 32768 bytes are allowed");
    }
    for (name, value) in environment {
        let plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if !plain || name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) || value.contains('\0') {
            return refuse("a name has letters, digits and `_`, and a value has no NUL byte");
        }
        let upper = name.to_ascii_uppercase();
        if upper.ends_with("_PROXY") || upper.starts_with("VIV_") || upper.starts_with("SSL_CERT_") {
            return refuse("names that end with _PROXY or start with VIV_ or SSL_CERT_ are reserved");
        }
    }
    Ok(())
}

/// Returns the permission mode. The agent mode `plan` is another name for the permission mode `plan`; `build` and `default`
/// change nothing.
pub(super) fn permission_mode(request: &CreateSession) -> Result<Option<String>, SessionError> {
    match (request.agent_mode.as_deref(), &request.permission_mode) {
        (None | Some("build" | "default"), mode) => Ok(mode.clone()),
        (Some("plan"), None) => Ok(Some("plan".to_owned())),
        (Some("plan"), Some(mode)) if mode == "plan" => Ok(Some("plan".to_owned())),
        _ => Err(SessionError::NotSupported {
            field: "agentMode",
            why: "the agent mode must be `build`, `default` or `plan`",
        }),
    }
}
