//! The host's root certificates, and a TLS client that trusts them.

use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// Returns the root certificates that this host trusts.
pub fn system_roots() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// Returns a TLS client configuration for HTTP/1.1 that trusts the host's roots and `extra_roots`.
///
/// Fails when there is no root certificate at all, or when one of `extra_roots` cannot be read.
pub fn tls_client(extra_roots: &[CertificateDer<'static>]) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(system_roots());
    for root in extra_roots {
        roots.add(root.clone()).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::other("the system has no root certificates; install ca-certificates"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
