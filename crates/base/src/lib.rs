//! Small building blocks that several crates share: digests, hexadecimal text, error chains, locks, the paths and ports
//! inside a sandbox, text that is safe to print, the host's root certificates, and the limits on the resources of the host
//! process.
//!
//! Only code that is used by at least two crates and knows nothing about sessions, policies or models belongs here.

#[cfg(feature = "byte-budget")]
mod byte_budget;
mod digest;
mod error_chain;
mod escape_filter;
mod hex;
mod host_limit;
mod layout;
mod lock;
mod printable_text;
mod terminal_filter;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "byte-budget")]
pub use byte_budget::{BudgetFull, ByteBudget, ByteReservation};
pub use digest::{Digest, DigestError, DigestReader};
pub use error_chain::error_chain;
pub use escape_filter::EscapeFilter;
pub use hex::encode_hex;
pub use host_limit::{HostLimit, LimitHits};
pub use layout::{DEPENDENCIES, DNS_PORT, EGRESS_PORT, HOME, MODEL_PORT, WORKSPACE};
pub use lock::lock;
pub use printable_text::{PrintableStream, PrintableText, is_plain};
pub use terminal_filter::{FilteredOutput, TerminalFilter};
#[cfg(feature = "tls")]
pub use tls::{system_roots, tls_client};
