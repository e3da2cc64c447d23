//! Checks of a request to create a session that need neither the host nor the agent.

use protocol::CreateSession;

use crate::SessionError;

/// Fails for fields that no agent supports, rather than ignoring them.
pub(super) fn refuse_unsupported(request: &CreateSession) -> Result<(), SessionError> {
    if request.variant.is_some() {
        let why = "no agent supports model variants";
        return Err(SessionError::NotSupported { field: "variant", why });
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
