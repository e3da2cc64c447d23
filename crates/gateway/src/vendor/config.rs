//! An upstream over HTTP, as it stands in the configuration.

use std::{collections::BTreeMap, io};

use rustls_pki_types::{CertificateDer, pem::PemObject};

use secret::Secret;

use crate::{endpoint::ModelEndpoint, wire::UpstreamTimeouts};

/// Whose API an upstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendorKind {
    /// The Anthropic API.
    Anthropic,
    /// The `OpenAI` API.
    Openai,
    /// The Gemini API.
    Gemini,
    /// A server that takes `OpenAI` chat completions and nothing else.
    OpenaiCompatible,
    /// A `LiteLLM` proxy: takes them all, and keeps accounts of its own.
    Litellm,
}

impl VendorKind {
    /// Whose models it has, in the words of the price table; none: whatever its server was given.
    pub(super) fn vendor(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("anthropic"),
            Self::Openai => Some("openai"),
            Self::Gemini => Some("gemini"),
            Self::OpenaiCompatible | Self::Litellm => None,
        }
    }

    /// Whether it takes such a call in the words it came in.
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

/// An upstream over HTTP, as it stands in the configuration.
#[derive(Debug, Clone)]
pub struct VendorConfig {
    /// Its name, in records and errors.
    pub name: String,
    /// Whose API it speaks.
    pub kind: VendorKind,
    /// Where it is; a version at the end of the path (`/v1`) is not repeated.
    pub base_url: String,
    /// Its key, if it needs one.
    pub key: Option<Secret>,
    /// Models that are called by another name here: ours → theirs.
    pub aliases: BTreeMap<String, String>,
    /// The model that answers for every name that is no alias.
    pub model: Option<String>,
    /// How long each step may take.
    pub timeouts: UpstreamTimeouts,
    /// How often a connection that could not be made is tried again.
    pub retries: u32,
    /// Certificates trusted beside the system's.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

impl VendorConfig {
    /// An upstream with ordinary timeouts and no key.
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
    /// Trusts the certificates in `pem` beside the system's.
    pub fn trust_certificates(&mut self, pem: &[u8]) -> Result<(), VendorError> {
        self.extra_roots.extend(parse_certificates(pem).ok_or_else(|| VendorError::Roots(self.name.clone()))?);
        Ok(())
    }
}

/// The certificates in `pem`; none where there are none, or something else.
pub fn parse_certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let roots = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    (!roots.is_empty()).then_some(roots)
}

/// Why an upstream cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum VendorError {
    /// The address is none.
    #[error("`{0}` is not the address of an upstream: it must begin with http:// or https:// and name a host")]
    Address(String),
    /// The key cannot stand in a header.
    #[error("the key of the upstream `{0}` has characters no header can hold")]
    Key(String),
    /// What should hold certificates holds none.
    #[error("the roots of the upstream `{0}` are no certificates in PEM")]
    Roots(String),
    /// TLS could not be set up.
    #[error("cannot set up TLS for the upstream `{name}`")]
    Tls {
        /// Its name.
        name: String,
        /// What was wrong.
        #[source]
        source: io::Error,
    },
}
