//! Secrets, which are used and never printed.
//!
//! A [`Secret`] has no readable debug output, a [`Redactor`] removes it from responses, and a placeholder of the same
//! shape replaces it inside a sandbox.

mod base64;
mod escaped;
mod placeholder;
mod redactor;

use std::fmt;

pub use redactor::Redactor;

/// A key or other credential. Its debug output is `Secret(…)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns `text` as a secret, without white space at its ends, such as the newline of a file.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().trim().to_owned())
    }

    /// Returns the secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns a text of the same shape that contains nothing of the secret, for programs that need a key to start. It
    /// is always the same for the same secret.
    pub fn placeholder(&self) -> String {
        placeholder::placeholder(&self.0)
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
    fn secret_is_trimmed_and_never_printed() {
        assert_eq!(Secret::new("key\n").expose(), "key");
        assert_eq!(format!("{:?}", Secret::new("key")), "Secret(…)");
    }
}
