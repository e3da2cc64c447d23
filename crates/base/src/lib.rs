//! Small building blocks that several crates share: digests, hexadecimal text, error chains, locks, the paths and ports
//! inside a sandbox, and the host's root certificates.
//!
//! Only code that is used by at least two crates and knows nothing about sessions, policies or models belongs here.

mod digest;
mod error_chain;
mod hex;
mod layout;
mod lock;
#[cfg(feature = "tls")]
mod tls;

pub use digest::{Digest, DigestError, DigestReader};
pub use error_chain::error_chain;
pub use hex::encode_hex;
pub use layout::{DEPENDENCIES, DNS_PORT, EGRESS_PORT, HOME, MODEL_PORT, WORKSPACE};
pub use lock::lock;
#[cfg(feature = "tls")]
pub use tls::{system_roots, tls_client};
