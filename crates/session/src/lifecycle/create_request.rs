//! Checks of a request to create a session that need neither the host nor the agent.

use protocol::CreateSession;

use crate::SessionError;

/// The sizes of a window that are accepted.
const SIDES: std::ops::RangeInclusive<u16> = 1..=1000;
/// The longest prompt that is passed as an argument of a program, in bytes.
const LONGEST_PROMPT: usize = 100_000;

/// Fails for fields that no agent supports, rather than ignoring them.
pub(super) fn refuse_unsupported(request: &CreateSession) -> Result<(), SessionError> {
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
