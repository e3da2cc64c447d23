//! An egress proxy on the host for fetching skills, under the policy of the session.
//!
//! The host fetches only from hosts that the session may reach; redirects are checked as new requests. The proxy runs
//! only during a fetch.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use egress::{Egress, EgressAttachment, EgressIdentity, EgressLimits, LivePolicy, ProxyCredentials};
use policy::{Action, EffectivePolicy, Verdict};
use protocol::SessionId;
use store::{MemoryJournal, SystemClock};

use super::SkillError;

/// A proxy on a loopback port with the network policy of one session.
pub(super) struct FetchProxy {
    policy: Arc<EffectivePolicy>,
    address: SocketAddr,
    attachment: EgressAttachment,
}

impl FetchProxy {
    pub(super) fn open(egress: &Egress, session: SessionId, policy: Arc<EffectivePolicy>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let identity = EgressIdentity {
            // The session has no journal yet; refusals are returned to the caller.
            journal: Arc::new(MemoryJournal::new(session.clone(), Arc::new(SystemClock))),
            session,
            turn: Arc::new(|| None),
            policy: LivePolicy::new((*policy).clone()),
            // The host uses its own root certificates, and TLS is not intercepted.
            credentials: ProxyCredentials::default(),
            dns: None,
            limits: EgressLimits::default(),
            in_flight: base::ByteBudget::new(64 << 20),
        };
        Ok(Self { policy, address, attachment: egress.attach(listener, identity)? })
    }

    /// Returns the address of the proxy.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Fails with the policy rule when the session may not reach `host`.
    pub(super) fn check(&self, source_name: &str, host: &str, port: u16) -> Result<(), SkillError> {
        let decision = self.policy.decide(&Action::Net { host: host.to_owned(), port });
        if decision.allowed == Verdict::Allow {
            return Ok(());
        }
        Err(SkillError::Denied { source_name: source_name.to_owned(), rule: decision.rule.to_string() })
    }

    pub(super) async fn close(self) {
        self.attachment.close().await;
    }
}
