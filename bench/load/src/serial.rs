//! A serial number in a request or answer. It makes all bodies different, so that a recorder that stores equal bytes
//! once has no advantage.

use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The offset of the serial number in a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Serial(usize);

impl Serial {
    /// The placeholder for the number.
    pub(crate) const PLACEHOLDER: &str = "00000000000000000000";

    /// Returns the position of the placeholder in `text`.
    pub(crate) fn find(text: &[u8]) -> Option<Self> {
        memmem::find(text, Self::PLACEHOLDER.as_bytes()).map(Self)
    }

    /// Writes the next number into `text`.
    pub(crate) fn write(self, text: &mut [u8]) {
        // The process id keeps numbers of consecutive processes apart.
        let number = u64::from(std::process::id()) << 40 | NEXT.fetch_add(1, Ordering::Relaxed);
        let digits = format!("{number:020}");
        text[self.0..self.0 + digits.len()].copy_from_slice(digits.as_bytes());
    }
}
