//! A session's proxy on a real loopback listener, and clients for it.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use egress::{
    CredentialSource, DnsSockets, Egress, EgressAttachment, EgressCredential, EgressIdentity, EgressLimits, LivePolicy,
    ProxyCredentials, SessionCa,
};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource};
use protocol::{SessionId, TurnId};
use secret::Secret;
use serde_json::Value;
use store::{Journal, MemoryJournal, SystemClock};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{origin::Trust, test_network::TestNetwork};

/// Runs `work`; fails the test after 30 seconds.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.unwrap()
}

/// Returns a policy with this `net` section under the built-in ceiling.
pub(crate) fn policy(net: &str) -> EffectivePolicy {
    let source = PolicySource::new("sandbox.policy.yaml", format!("version: 1\n{net}"));
    policy::effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::read(&source).unwrap(), &[])
}

/// Returns a policy that allows these hosts.
pub(crate) fn allowing(hosts: &[&str]) -> EffectivePolicy {
    policy(&format!("net:\n  enabled: true\n  allowlist: {hosts:?}\n"))
}

/// A session's proxy and its simulated network.
pub(crate) struct Sandbox {
    pub(crate) proxy: SocketAddr,
    pub(crate) network: Arc<TestNetwork>,
    pub(crate) policy: LivePolicy,
    pub(crate) egress: Egress,
    pub(crate) session_ca: Option<Arc<SessionCa>>,
    journal: Arc<dyn Journal>,
    attachment: EgressAttachment,
}

impl Sandbox {
    pub(crate) fn new(policy: EffectivePolicy) -> Self {
        Self::limited(policy, EgressLimits::default())
    }

    pub(crate) fn limited(policy: EffectivePolicy, limits: EgressLimits) -> Self {
        Self::start(policy, limits, ProxyCredentials::default())
    }

    /// Starts a session with intercepted TLS, on a host that trusts `root`.
    pub(crate) fn intercepting(policy: EffectivePolicy, root: &Trust) -> Self {
        Self::with_credentials(policy, root, &[])
    }

    /// Starts a session with intercepted TLS and these credentials.
    pub(crate) fn with_credentials(
        policy: EffectivePolicy,
        root: &Trust,
        credentials: &[(&'static str, &'static str)],
    ) -> Self {
        let trust = root.host_trust();
        let known = credentials.to_vec();
        let find: CredentialSource = Arc::new(move |name| {
            let found = known.iter().find(|(known, _)| *known == name);
            let credential = |(name, secret): &(&str, &str)| EgressCredential::from_name(name, Secret::new(secret));
            found.map(credential).ok_or_else(|| "it is not configured".to_owned())
        });
        let egress = Egress::default().with_trust(Arc::new(move || Ok(trust.clone()))).with_credentials(find);
        let credentials = egress.proxy_credentials(&policy).unwrap();
        Self::start(policy, EgressLimits::default(), credentials)
    }

    /// Starts a session with a DNS server, and returns the server's address.
    pub(crate) fn with_dns(policy: EffectivePolicy) -> (Self, SocketAddr) {
        let streams = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = streams.local_addr().unwrap();
        let datagrams = std::net::UdpSocket::bind(address).unwrap();
        let dns = DnsSockets { datagrams, streams };
        (Self::start_with_dns(policy, EgressLimits::default(), ProxyCredentials::default(), Some(dns)), address)
    }

    fn start(policy: EffectivePolicy, limits: EgressLimits, credentials: ProxyCredentials) -> Self {
        Self::start_with_dns(policy, limits, credentials, None)
    }

    fn start_with_dns(
        policy: EffectivePolicy,
        limits: EgressLimits,
        credentials: ProxyCredentials,
        dns: Option<DnsSockets>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let session = SessionId::new("s1").unwrap();
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(session.clone(), Arc::new(SystemClock)));
        let policy = LivePolicy::new(policy);
        let turn = Arc::new(|| Some(TurnId::new("trn_1").unwrap()));
        let session_ca = credentials.session_ca.clone();
        let identity = EgressIdentity {
            session,
            journal: journal.clone(),
            turn,
            policy: policy.clone(),
            credentials,
            dns,
            limits,
            in_flight: base::ByteBudget::new(64 << 20),
        };
        let network = Arc::new(TestNetwork::default());
        let egress = Egress::new(network.clone());
        let attachment = egress.attach(listener, identity).unwrap();
        Self { proxy, network, policy, egress, session_ca, journal, attachment }
    }

    /// Connects to the proxy.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy).await.unwrap()
    }

    /// Sends `bytes` to the proxy and reads until it closes.
    pub(crate) async fn send(&self, bytes: impl AsRef<[u8]>) -> ProxyResponse {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        ProxyResponse::read(stream).await
    }

    /// Returns the type and data of each record, oldest first.
    pub(crate) fn records(&self) -> Vec<(String, Value)> {
        records(&*self.journal)
    }

    /// Waits until a record of this type is written, and returns its data.
    pub(crate) async fn record(&self, kind: &str) -> Value {
        let mut last = self.journal.last();
        loop {
            if let Some((_, data)) = self.records().into_iter().find(|(found, _)| found == kind) {
                return data;
            }
            soon(last.changed()).await.unwrap();
        }
    }

    /// Drops the proxy and returns the record of its open connection.
    pub(crate) async fn abandon(self) -> Value {
        drop(self.attachment);
        let mut last = self.journal.last();
        soon(last.wait_for(|last| *last > 0)).await.unwrap();
        records(&*self.journal).remove(0).1
    }

    /// Closes the proxy and returns everything it recorded.
    pub(crate) async fn close(self) -> Vec<(String, Value)> {
        soon(self.attachment.close()).await;
        records(&*self.journal)
    }
}

fn records(journal: &dyn Journal) -> Vec<(String, Value)> {
    let events = journal.after(0, usize::MAX).unwrap();
    let values = events.iter().map(|event| serde_json::to_value(event).unwrap());
    values.map(|event| (event["type"].as_str().unwrap().to_owned(), event["data"].clone())).collect()
}

/// The complete response of the proxy.
#[derive(Debug)]
pub(crate) struct ProxyResponse {
    pub(crate) bytes: Vec<u8>,
}

impl ProxyResponse {
    pub(crate) async fn read(mut stream: impl AsyncRead + Unpin) -> Self {
        let mut bytes = Vec::new();
        // A reset ends the response too; the bytes before it count.
        let _ = soon(stream.read_to_end(&mut bytes)).await;
        Self { bytes }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Returns the status; `None` if the response is not HTTP.
    pub(crate) fn status(&self) -> Option<u16> {
        self.text().strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
    }

    pub(crate) fn body(&self) -> String {
        self.text().split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }
}

/// Reads up to and including the first empty line.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(soon(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(bytes).unwrap()
}
