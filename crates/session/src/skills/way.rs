//! The way out of the host while it fetches for a session: the egress proxy, under the policy of that session.
//!
//! What the policy lets the session reach is what is reached for it: names are looked up once, addresses are judged,
//! and a redirect is one more request. It is open only while something is fetched.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use egress::{Egress, EgressAttachment, EgressIdentity, EgressLimits, LivePolicy, ProxyCredentials};
use policy::{Action, EffectivePolicy, Verdict};
use protocol::SessionId;
use store::{MemoryJournal, SystemClock};

use super::SkillError;

/// A proxy on the loopback that reaches what one session may reach.
pub(super) struct Way {
    policy: Arc<EffectivePolicy>,
    address: SocketAddr,
    attachment: EgressAttachment,
}

impl Way {
    pub(super) fn open(egress: &Egress, session: SessionId, policy: Arc<EffectivePolicy>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let identity = EgressIdentity {
            // Its session has no record yet; what is refused is told to whoever makes it.
            journal: Arc::new(MemoryJournal::new(session.clone(), Arc::new(SystemClock))),
            session,
            turn: Arc::new(|| None),
            policy: LivePolicy::new((*policy).clone()),
            // The host fetches by its own trust, and goes where nobody has TLS opened.
            credentials: ProxyCredentials::default(),
            dns: None,
            limits: EgressLimits::default(),
        };
        Ok(Self { policy, address, attachment: egress.attach(listener, identity)? })
    }

    /// Where the proxy is.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the policy lets the session reach `host`; said with the rule, before anybody is called.
    pub(super) fn judge(&self, source_name: &str, host: &str, port: u16) -> Result<(), SkillError> {
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
