//! The egress proxy of one command, and what it refused.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ::policy::Effective;
use egress::{Attachment, Egress, Identity, Limits, LivePolicy};
use protocol::{Code, EventBody, SessionId};
use sandbox::{EGRESS_PORT, Port, Sandbox};
use serde_json::{Value, json};
use store::{Journal, MemoryJournal, SystemClock};

use crate::failure::Failure;

/// The way out of a sandbox for as long as its command runs.
pub(super) struct WayOut {
    attachment: Attachment,
    journal: Arc<MemoryJournal>,
}

impl WayOut {
    /// Serves the proxy's port inside, where a backend has one.
    pub(super) fn open(sandbox: &dyn Sandbox, policy: &Effective) -> Result<Option<Self>, Failure> {
        let Some(listener) = sandbox.take_listener(Port::Egress) else { return Ok(None) };
        let session = SessionId::new(sandbox.id()).map_err(|error| Failure::of(Code::Internal, &error))?;
        let journal = Arc::new(MemoryJournal::new(session.clone(), Arc::new(SystemClock)));
        let identity = Identity {
            session,
            journal: journal.clone(),
            turn: Arc::new(|| None),
            policy: LivePolicy::new(policy.clone()),
            limits: Limits::default(),
        };
        let attached = Egress::default().attach(listener, identity);
        let attachment = attached.map_err(|error| Failure::of(Code::ProxyBindError, &error))?;
        Ok(Some(Self { attachment, journal }))
    }

    /// Where programs look for it.
    pub(super) fn environment() -> BTreeMap<String, String> {
        let address = (Ipv4Addr::LOCALHOST, EGRESS_PORT).into();
        egress::proxy_environment(address).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Ends it; what it refused, in order.
    pub(super) async fn close(self) -> Result<Vec<Value>, Failure> {
        self.attachment.close().await;
        let events = self.journal.after(0, usize::MAX).map_err(|error| Failure::of(Code::Internal, &error))?;
        let denied = events.into_iter().filter_map(|event| match event.draft.body {
            EventBody::EgressDenied(connection) => Some(json!({
                "host": connection.host,
                "port": connection.port,
                "rule": connection.rule,
            })),
            _ => None,
        });
        Ok(denied.collect())
    }
}
