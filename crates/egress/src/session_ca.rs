//! The certificate authority of one session, by which its TLS is opened.
//!
//! It is made for one sandbox and believed in that one alone: its certificate is placed there and nowhere else, its
//! key is in the memory of this process and ends with the session.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Mutex},
};

use base::lock;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use policy::Host;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ClientConfig, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
};
use time::{Duration, OffsetDateTime};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

/// Where the certificates that programs inside trust are placed.
pub const CERTIFICATES: &str = "/viv/certificates.pem";

/// How long a certificate counts, from a day ago: no session lives so long.
const LIFE: Duration = Duration::days(397);
/// Hosts whose certificates are kept; a wildcard can stand for any number.
const KEPT: usize = 256;

/// Whom this host trusts.
#[derive(Clone)]
pub struct TrustStore {
    /// The roots, which are also trusted inside.
    pub roots: Vec<CertificateDer<'static>>,
    /// A TLS client that trusts them, and speaks HTTP/1.1.
    pub client: Arc<ClientConfig>,
}

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum SessionCaError {
    /// A key or a certificate could not be made.
    #[error("a certificate cannot be made")]
    Certificate(#[from] rcgen::Error),
    /// TLS takes no such certificate.
    #[error("TLS cannot be spoken with the certificate")]
    Tls(#[from] rustls::Error),
}

/// The authority of one session.
pub struct SessionCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// The key of every certificate that is not the authority's own.
    leaf_key: KeyPair,
    leaves: Mutex<HashMap<Host, Arc<ServerConfig>>>,
    trust: TrustStore,
}

impl fmt::Debug for SessionCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl SessionCa {
    /// A new authority that nobody trusts yet, and which trusts whom the host trusts.
    pub fn new(trust: TrustStore) -> Result<Self, SessionCaError> {
        let key = KeyPair::generate()?;
        let mut params = named("Vivarium sandbox");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.der().clone();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, certificate, leaf_key: KeyPair::generate()?, leaves: Mutex::default(), trust })
    }

    /// What programs inside trust, in PEM: the roots of the host, and this authority.
    pub fn bundle(&self) -> String {
        self.trust.roots.iter().chain([&self.certificate]).map(pem).collect()
    }

    /// Its own certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Answers a client as `host`.
    pub(crate) fn acceptor(&self, host: &Host) -> Result<TlsAcceptor, SessionCaError> {
        let mut leaves = lock(&self.leaves);
        if let Some(config) = leaves.get(host) {
            return Ok(config.clone().into());
        }
        let config = Arc::new(self.leaf(host)?);
        if leaves.len() >= KEPT {
            leaves.clear();
        }
        leaves.insert(host.clone(), config.clone());
        Ok(config.into())
    }

    fn leaf(&self, host: &Host) -> Result<ServerConfig, SessionCaError> {
        let name = match host {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        };
        let mut params = named("Vivarium sandbox, TLS opened");
        params.subject_alt_names = CertificateParams::new([name])?.subject_alt_names;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.leaf_key, &self.issuer)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Speaks TLS to the real host; an error when it is not who it should be.
    pub(crate) async fn connect(&self, host: &Host, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
            Host::Address(address) => ServerName::from(*address),
        };
        TlsConnector::from(self.trust.client.clone()).connect(name, stream).await
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = OffsetDateTime::now_utc() - Duration::DAY;
    params.not_after = params.not_before + LIFE;
    params
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = BASE64_STANDARD.encode(certificate);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
