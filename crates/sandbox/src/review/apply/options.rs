//! The choices of a person who applies changes.

use std::path::{Component, Path, PathBuf};

use policy::FileDenials;

/// The options of one apply. The default applies every change that needs no further consent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Paths relative to the workspace, with everything below them; all changes when empty.
    pub paths: Vec<PathBuf>,
    /// Paths of files that run by themselves and are applied all the same, with everything below them.
    pub confirm: Vec<PathBuf>,
    /// Whether refused and unconfirmed changes are left out. Otherwise one of them stops the apply.
    pub skip_refused: bool,
    /// Whether paths that the repository ignores are applied.
    pub ignored: bool,
    /// The denials of the applying person's policy. The rules passed to `apply` deny paths; these also find links whose
    /// names lead to denied paths.
    pub denials: FileDenials,
}

impl ApplyOptions {
    /// Returns the options that apply only the changes at or below `paths`.
    pub fn only<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self { paths: paths.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Returns whether a path was confirmed by its name or by a directory above it. The whole workspace is not a name.
    pub(crate) fn confirms(&self, path: &Path) -> bool {
        let named = |name: &PathBuf| {
            let name: PathBuf = name.components().filter(|part| *part != Component::CurDir).collect();
            !name.as_os_str().is_empty() && path.starts_with(name)
        };
        self.confirm.iter().any(named)
    }
}
