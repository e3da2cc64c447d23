//! The proxy of the product, in front of the internet of the suite.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use egress::{Egress, EgressCredential, EgressIdentity, EgressLimits, Internet, LivePolicy, TrustStore};
use policy::{BaseLayer, CeilingLayer, PolicySource};
use protocol::SessionId;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use secret::Secret;
use store::{MemoryJournal, SystemClock};

use super::internet;

/// The addresses and names of the suite, with real connections.
struct Hermetic;

impl Internet for Hermetic {
    fn resolve<'a>(&'a self, name: &'a str) -> futures_util::future::BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let found = internet::resolve(name);
        Box::pin(async move { if found.is_empty() { Err(io::Error::other("no such name")) } else { Ok(found) } })
    }

    fn is_local(&self, address: IpAddr) -> bool {
        internet::is_own(address)
    }

    fn connect(&self, address: SocketAddr) -> futures_util::future::BoxFuture<'_, io::Result<tokio::net::TcpStream>> {
        Box::pin(tokio::net::TcpStream::connect(address))
    }
}

/// Serves `listener` with the policy `text` until the process ends. The host trusts `roots`, and `secret` is its
/// credential.
pub(super) fn serve(listener: TcpListener, text: &str, roots: Vec<CertificateDer<'static>>, secret: &str) {
    let base = BaseLayer::read(&PolicySource::new("attack", text)).expect("policy");
    let policy = policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]);
    let session = SessionId::new("attack").expect("id");
    let key = Secret::new(secret);
    let egress = Egress::new(Arc::new(Hermetic))
        .with_trust(Arc::new(move || Ok(trust(&roots))))
        .with_credentials(Arc::new(move |name| Ok(EgressCredential::from_name(name, key.clone()))));
    let outfit = egress.proxy_credentials(&policy).expect("outfit");
    let identity = EgressIdentity {
        session: session.clone(),
        journal: Arc::new(MemoryJournal::new(session, Arc::new(SystemClock))),
        turn: Arc::new(|| None),
        policy: LivePolicy::new(policy),
        // A short timeout for silent clients, so that the test can observe it.
        credentials: outfit,
        dns: None,
        limits: EgressLimits { head_timeout: Duration::from_millis(500), ..EgressLimits::default() },
        in_flight: base::ByteBudget::new(64 << 20),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let _attachment = egress.attach(listener, identity).expect("proxy");
        std::future::pending::<()>().await;
    });
}

fn trust(roots: &[CertificateDer<'static>]) -> TrustStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.expect("versions").with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TrustStore { roots: roots.to_vec(), client: Arc::new(config) }
}
