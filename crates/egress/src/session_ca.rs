//! The certificate authority of one session, used to intercept its TLS.
//!
//! Only one sandbox trusts the authority: its certificate is placed there and nowhere else. Its key exists only in the
//! memory of this process and ends with the session.

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

/// Path inside the sandbox of the file with the trusted certificates.
pub const CA_BUNDLE_PATH: &str = "/viv/certificates.pem";

/// Validity of a certificate, starting a day in the past. Longer than any session.
const VALIDITY: Duration = Duration::days(397);
/// Hosts whose certificates are cached. A wildcard rule can match any number of hosts.
const CACHED_HOSTS: usize = 256;

/// The roots that this host trusts.
#[derive(Clone)]
pub struct TrustStore {
    /// The roots. The sandbox trusts them too.
    pub roots: Vec<CertificateDer<'static>>,
    /// A TLS client configuration that trusts them and offers HTTP/1.1.
    pub client: Arc<ClientConfig>,
}

/// Failure to make a certificate.
#[derive(Debug, thiserror::Error)]
pub enum SessionCaError {
    /// A key or certificate could not be generated.
    #[error("cannot generate a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library refused the certificate.
    #[error("the TLS library refused the generated certificate")]
    Tls(#[from] rustls::Error),
}

/// The certificate authority of one session.
pub struct SessionCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// The key of all host certificates.
    leaf_key: KeyPair,
    leaves: Mutex<HashMap<Host, Arc<ServerConfig>>>,
    trust: TrustStore,
}

impl fmt::Debug for SessionCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCa").finish_non_exhaustive()
    }
}

impl SessionCa {
    /// Generates a new authority. Connections to real hosts trust `trust`.
    pub fn new(trust: TrustStore) -> Result<Self, SessionCaError> {
        let key = KeyPair::generate()?;
        let mut params = certificate_params("Vivarium sandbox");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.der().clone();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, certificate, leaf_key: KeyPair::generate()?, leaves: Mutex::default(), trust })
    }

    /// Returns the certificates for programs inside, in PEM: the roots of the host and this authority.
    pub fn ca_bundle(&self) -> String {
        self.trust.roots.iter().chain([&self.certificate]).map(pem).collect()
    }

    /// Returns the certificate of the authority.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns a TLS acceptor with a certificate for `host`.
    pub(crate) fn acceptor(&self, host: &Host) -> Result<TlsAcceptor, SessionCaError> {
        let mut leaves = lock(&self.leaves);
        if let Some(config) = leaves.get(host) {
            return Ok(config.clone().into());
        }
        let config = Arc::new(self.server_config(host)?);
        if leaves.len() >= CACHED_HOSTS {
            leaves.clear();
        }
        leaves.insert(host.clone(), config.clone());
        Ok(config.into())
    }

    fn server_config(&self, host: &Host) -> Result<ServerConfig, SessionCaError> {
        let name = match host {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        };
        let mut params = certificate_params("Vivarium sandbox, TLS opened");
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

    /// Connects with TLS to the real host; fails if its certificate is not trusted or not for `host`.
    pub(crate) async fn connect(&self, host: &Host, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
            Host::Address(address) => ServerName::from(*address),
        };
        TlsConnector::from(self.trust.client.clone()).connect(name, stream).await
    }
}

fn certificate_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = OffsetDateTime::now_utc() - Duration::DAY;
    params.not_after = params.not_before + VALIDITY;
    params
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = BASE64_STANDARD.encode(certificate);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
