//! Ids of new sessions.

use protocol::{ProblemCode, SessionId};

use crate::failure::Failure;

/// Returns a new id; ids sort by time.
pub(crate) fn new_session_id() -> Result<SessionId, Failure> {
    SessionId::new(uuid::Uuid::now_v7().to_string()).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))
}
