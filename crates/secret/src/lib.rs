//! A key of ours: used, never shown.
//!
//! A [`Secret`] prints as nothing, a [`Redactor`] keeps it out of what servers answer, and a placeholder of its shape stands
//! where it must not be.

mod placeholder;
mod veil;

use std::fmt;

pub use veil::Redactor;

/// A key or a credential. It prints as `Secret(…)`, and [`Redactor`] keeps it out of answers.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text`, without the line end that a file may have left on it.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().trim().to_owned())
    }

    /// The key itself, for the header it belongs in.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A text of the same shape with nothing of the key in it, always the same, for programs that will not start
    /// without a key.
    pub fn placeholder(&self) -> String {
        placeholder::of(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_trimmed_and_never_printed() {
        assert_eq!(Secret::new("key\n").expose(), "key");
        assert_eq!(format!("{:?}", Secret::new("key")), "Secret(…)");
    }
}
