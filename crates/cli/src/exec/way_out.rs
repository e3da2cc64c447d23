//! The egress proxy of one command.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use ::policy::EffectivePolicy;
use base::EGRESS_PORT;
use egress::{
    CERTIFICATES, DnsSockets, Egress, EgressAttachment, EgressIdentity, EgressLimits, LivePolicy, ProxyCredentials,
    SessionCa,
};
use protocol::ProblemCode;
use sandbox::{Sandbox, SandboxPort};

use super::record::Record;
use crate::config::Config;
use crate::failure::Failure;
use crate::world;

/// The way out of a sandbox that is still to be made.
pub(super) struct Way {
    egress: Egress,
    outfit: ProxyCredentials,
}

impl Way {
    /// The way that `policy` lets a command take.
    pub(super) fn of(config: &Config, policy: &EffectivePolicy) -> Result<Self, Failure> {
        let egress = world::egress(config)?;
        let outfit = egress.outfit(policy).map_err(|error| Failure::of(ProblemCode::SandboxCreateError, &error))?;
        Ok(Self { egress, outfit })
    }

    /// What is placed in the sandbox.
    pub(super) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let bundle = |authority: &Arc<SessionCa>| (CERTIFICATES.into(), authority.bundle().into_bytes());
        self.outfit.authority.iter().map(bundle).collect()
    }

    /// Where programs look for the proxy, whom they trust, and what they take for keys.
    pub(super) fn tell(&self, environment: &mut BTreeMap<String, String>) {
        self.outfit.tell(environment, (Ipv4Addr::LOCALHOST, EGRESS_PORT).into());
    }
}

/// The way out of a sandbox for as long as its command runs.
pub(super) struct WayOut {
    attachment: EgressAttachment,
}

impl WayOut {
    /// Serves the proxy's port inside, where a backend has one. What is tried goes into `record`.
    pub(super) fn open(
        way: &Way,
        sandbox: &dyn Sandbox,
        policy: &EffectivePolicy,
        record: &Arc<Record>,
    ) -> Result<Option<Self>, Failure> {
        let Some(listener) = sandbox.take_listener(SandboxPort::Egress) else { return Ok(None) };
        let identity = EgressIdentity {
            session: record.session().clone(),
            journal: record.clone(),
            turn: Arc::new(|| None),
            policy: LivePolicy::new(policy.clone()),
            outfit: way.outfit.clone(),
            names: sandbox.take_dns_sockets().map(|(streams, datagrams)| DnsSockets { datagrams, streams }),
            limits: EgressLimits::default(),
        };
        let attached = way.egress.attach(listener, identity);
        let attachment = attached.map_err(|error| Failure::of(ProblemCode::ProxyBindError, &error))?;
        Ok(Some(Self { attachment }))
    }

    /// Ends it, where there is one; everything that was tried is on record then.
    pub(super) async fn close(open: Option<Self>) {
        if let Some(Self { attachment }) = open {
            attachment.close().await;
        }
    }
}
