//! The changes that an apply leaves out.

use std::fmt;

use serde::Serialize;

use super::refusal::RefusedPath;

/// The changes that an apply left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The number of paths that the repository ignores.
    pub ignored: usize,
    /// Refused and unconfirmed paths, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedPath>,
}

impl LeftOut {
    /// Returns whether everything was applied.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Shows one line for each refused path, and one for all ignored paths.
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for refused in &self.refused {
            writeln!(f, "left out {refused}")?;
        }
        match self.ignored {
            0 => Ok(()),
            1 => writeln!(f, "1 ignored path is left out; --ignored includes it"),
            count => writeln!(f, "{count} ignored paths are left out; --ignored includes them"),
        }
    }
}
