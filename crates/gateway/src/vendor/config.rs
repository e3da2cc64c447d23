//! Configuration of an upstream over HTTP.

use std::{collections::BTreeMap, io};

use rustls_pki_types::{CertificateDer, pem::PemObject};

use secret::Secret;

use crate::{endpoint::ModelEndpoint, http_client::UpstreamTimeouts};

/// The API of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendorKind {
    /// The Anthropic API.
    Anthropic,
    /// The `OpenAI` API.
    Openai,
    /// The Gemini API.
    Gemini,
    /// A server with only `OpenAI` chat completions.
    OpenaiCompatible,
    /// A `LiteLLM` proxy: has all APIs except Gemini, and keeps its own spend logs.
    Litellm,
}

impl VendorKind {
    /// Returns the vendor's name in the price table; `None` if the server can have any models.
    pub(super) fn vendor(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("anthropic"),
            Self::Openai => Some("openai"),
            Self::Gemini => Some("gemini"),
            Self::OpenaiCompatible | Self::Litellm => None,
        }
    }

    /// Returns whether the upstream accepts calls to `endpoint` without translation.
    pub fn accepts(self, endpoint: ModelEndpoint) -> bool {
        use ModelEndpoint::{
            ChatCompletions, CountTokens, GenerateContent, Messages, Responses, StreamGenerateContent,
        };
        match endpoint {
            Messages | CountTokens => matches!(self, Self::Anthropic | Self::Litellm),
            ChatCompletions => matches!(self, Self::Openai | Self::OpenaiCompatible | Self::Litellm),
            Responses => matches!(self, Self::Openai | Self::Litellm),
            GenerateContent | StreamGenerateContent => self == Self::Gemini,
        }
    }
}

/// Configuration of an upstream over HTTP.
#[derive(Debug, Clone)]
pub struct VendorConfig {
    /// Name in records and errors.
    pub name: String,
    /// API of the upstream.
    pub kind: VendorKind,
    /// Base URL; a version at the end of its path (`/v1`) is not repeated.
    pub base_url: String,
    /// API key, if one is needed.
    pub key: Option<Secret>,
    /// Model aliases: name used by clients → name at the upstream.
    pub aliases: BTreeMap<String, String>,
    /// Model to use for every name that is not an alias.
    pub model: Option<String>,
    /// Timeouts of each step.
    pub timeouts: UpstreamTimeouts,
    /// Number of further attempts after a failed connection.
    pub retries: u32,
    /// Root certificates to trust in addition to the system's.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

impl VendorConfig {
    /// Creates a configuration with default timeouts and no key.
    pub fn new(name: impl Into<String>, kind: VendorKind, base_url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: base_url.into(),
            key: None,
            aliases: BTreeMap::new(),
            model: None,
            timeouts: UpstreamTimeouts::default(),
            retries: 2,
            extra_roots: Vec::new(),
        }
    }
}

impl VendorConfig {
    /// Trusts the certificates in `pem` in addition to the system's; fails if there are none.
    pub fn trust_certificates(&mut self, pem: &[u8]) -> Result<(), VendorError> {
        self.extra_roots.extend(parse_certificates(pem).ok_or_else(|| VendorError::Roots(self.name.clone()))?);
        Ok(())
    }
}

/// Returns the certificates in `pem`; `None` if there are none or one is invalid.
pub fn parse_certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let roots = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    (!roots.is_empty()).then_some(roots)
}

/// Error of configuring an upstream.
#[derive(Debug, thiserror::Error)]
pub enum VendorError {
    /// The base URL is invalid.
    #[error("invalid upstream address `{0}`: it must start with http:// or https:// and name a host")]
    Address(String),
    /// The key is not a valid header value.
    #[error("the key of the upstream `{0}` has characters that an HTTP header cannot hold")]
    Key(String),
    /// The root certificates are not valid PEM.
    #[error("the root certificates of the upstream `{0}` are not valid PEM")]
    Roots(String),
    /// TLS cannot be set up.
    #[error("cannot set up TLS for the upstream `{name}`")]
    Tls {
        /// Name of the upstream.
        name: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
}
