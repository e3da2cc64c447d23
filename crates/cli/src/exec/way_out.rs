//! The egress proxy of one command, and what it refused.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use ::policy::Effective;
use egress::{Attachment, Authority, CERTIFICATES, Egress, Identity, Limits, LivePolicy, NameSockets, Outfit};
use protocol::{Code, EventBody, SessionId};
use sandbox::{EGRESS_PORT, Port, Sandbox};
use serde_json::{Value, json};
use store::{Journal, MemoryJournal, SystemClock};

use crate::config::Config;
use crate::failure::Failure;
use crate::world;

/// The way out of a sandbox that is still to be made.
pub(super) struct Way {
    egress: Egress,
    outfit: Outfit,
}

impl Way {
    /// The way that `policy` lets a command take.
    pub(super) fn of(config: &Config, policy: &Effective) -> Result<Self, Failure> {
        let egress = world::egress(config)?;
        let outfit = egress.outfit(policy).map_err(|error| Failure::of(Code::SandboxCreateError, &error))?;
        Ok(Self { egress, outfit })
    }

    /// What is placed in the sandbox.
    pub(super) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let bundle = |authority: &Arc<Authority>| (CERTIFICATES.into(), authority.bundle().into_bytes());
        self.outfit.authority.iter().map(bundle).collect()
    }

    /// Where programs look for the proxy, whom they trust, and what they take for keys.
    pub(super) fn tell(&self, environment: &mut BTreeMap<String, String>) {
        self.outfit.tell(environment, (Ipv4Addr::LOCALHOST, EGRESS_PORT).into());
    }
}

/// The way out of a sandbox for as long as its command runs.
pub(super) struct WayOut {
    attachment: Attachment,
    journal: Arc<MemoryJournal>,
}

impl WayOut {
    /// Serves the proxy's port inside, where a backend has one.
    pub(super) fn open(way: &Way, sandbox: &dyn Sandbox, policy: &Effective) -> Result<Option<Self>, Failure> {
        let Some(listener) = sandbox.take_listener(Port::Egress) else { return Ok(None) };
        let session = SessionId::new(sandbox.id()).map_err(|error| Failure::of(Code::Internal, &error))?;
        let journal = Arc::new(MemoryJournal::new(session.clone(), Arc::new(SystemClock)));
        let identity = Identity {
            session,
            journal: journal.clone(),
            turn: Arc::new(|| None),
            policy: LivePolicy::new(policy.clone()),
            outfit: way.outfit.clone(),
            names: sandbox.take_names().map(|(streams, datagrams)| NameSockets { datagrams, streams }),
            limits: Limits::default(),
        };
        let attached = way.egress.attach(listener, identity);
        let attachment = attached.map_err(|error| Failure::of(Code::ProxyBindError, &error))?;
        Ok(Some(Self { attachment, journal }))
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
