//! A number in the midst of a text, another each time: nobody asks twice for the same, and a recorder that kept the
//! same bytes only once would have too easy a time.

use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Where the number stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Serial(usize);

impl Serial {
    /// Stands in a text for the number to come.
    pub(crate) const PLACE: &str = "00000000000000000000";

    /// Where the number of `text` belongs.
    pub(crate) fn find(text: &[u8]) -> Option<Self> {
        memmem::find(text, Self::PLACE.as_bytes()).map(Self)
    }

    /// Writes the next number.
    pub(crate) fn write(self, text: &mut [u8]) {
        // Processes follow each other quickly and must not count alike.
        let number = u64::from(std::process::id()) << 40 | NEXT.fetch_add(1, Ordering::Relaxed);
        let digits = format!("{number:020}");
        text[self.0..self.0 + digits.len()].copy_from_slice(digits.as_bytes());
    }
}
