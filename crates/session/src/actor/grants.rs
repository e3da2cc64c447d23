//! What a person allowed for the rest of a session.
//!
//! A grant is held here and never by the agent, which hears each time that it may, once: so it can be listed and
//! taken back. It covers the same action with the same input and nothing else. Both are on record, so that a session
//! that is resumed knows them again.

use protocol::{EventBody, Grant, Permission, PermissionId};
use serde_json::{Value, json};

use super::Actor;
use crate::SessionError;

impl Actor {
    /// Keeps what was just allowed for the rest of the session.
    pub(super) fn grant(&mut self, asked: &Permission) -> Result<(), SessionError> {
        if self.granted(asked).is_some() {
            return Ok(());
        }
        let grant =
            Grant { grant_id: asked.permission_id.clone(), action: asked.action.clone(), matching: matching(asked) };
        self.recorder.daemon(EventBody::GrantCreated(grant.clone()))?;
        self.grants.push(grant);
        Ok(())
    }

    /// Takes a grant back; the next time the agent asks again.
    pub(super) async fn revoke(&mut self, id: &PermissionId) -> Result<(), SessionError> {
        let place = self.grants.iter().position(|grant| grant.grant_id == *id);
        let no_grant = || SessionError::NoGrant { id: self.plan.id.clone(), grant: id.clone() };
        let place = place.ok_or_else(no_grant)?;
        self.recorder.daemon(EventBody::GrantRevoked(self.grants[place].clone()))?;
        self.grants.remove(place);
        Ok(self.recorder.sync().await?)
    }

    /// What allows it, if something does.
    pub(super) fn granted(&self, asked: &Permission) -> Option<&Grant> {
        let wanted = matching(asked);
        self.grants.iter().find(|grant| grant.action == asked.action && grant.matching == wanted)
    }
}

/// What must be the same for a grant to hold.
fn matching(asked: &Permission) -> Value {
    let of = |name: &str| asked.metadata.as_ref().and_then(|metadata| metadata.get(name)).cloned();
    json!({"tool": of("tool"), "input": of("input")})
}
