//! Many globs compiled into one set, for a quick answer to most paths.

use std::path::Path;

use globset::{GlobSet, GlobSetBuilder};

use super::PathGlob;

/// Globs as one set. A path is then matched once for all globs, and not once for each of them.
#[derive(Debug, Clone)]
pub(crate) struct PathGlobSet {
    /// `None` if the globs must be matched one by one.
    set: Option<GlobSet>,
}

/// Returns `globs` as one set. `None` if they must be matched one by one: the set is too large to build, or has
/// `<secrets>`, which is not a glob, or has a glob that ends with a dot. A set takes a name that ends with a dot for a
/// path without a name, so it would deny too little.
pub(crate) fn build_glob_set<'a>(globs: impl IntoIterator<Item = &'a PathGlob>) -> Option<GlobSet> {
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        for glob in glob.globs().filter(|_| !glob.is_secrets())? {
            if glob.glob().ends_with('.') {
                return None;
            }
            builder.add(glob.clone());
        }
    }
    builder.build().ok()
}

impl PathGlobSet {
    /// Compiles `globs`.
    pub(crate) fn new<'a>(globs: impl IntoIterator<Item = &'a PathGlob>) -> Self {
        Self { set: build_glob_set(globs) }
    }

    /// Returns false if no glob matches `path`, relative to the workspace, or one of its parent directories. A true
    /// result is certain unless the set could not be built.
    pub(crate) fn may_match(&self, path: &Path) -> bool {
        let Some(set) = &self.set else { return true };
        path.ancestors().any(|part| !part.as_os_str().is_empty() && set.is_match(part))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::{PathGlob, PathGlobSet, build_glob_set};

    proptest! {
        #[test]
        fn set_matches_as_its_globs_do(
            globs in prop::collection::vec("(\\*\\*/)?[ab.*?]{1,3}(/[ab*]{1,2})?(/\\*\\*)?", 0..4),
            path in "[ab.]{1,2}(/[ab.]{1,2}){0,3}",
        ) {
            let globs: Vec<PathGlob> = globs.iter().filter_map(|text| PathGlob::parse(text).ok()).collect();
            let path = Path::new(&path);
            if let Some(set) = build_glob_set(&globs) {
                let matched = path.ancestors().any(|part| !part.as_os_str().is_empty() && set.is_match(part));
                prop_assert_eq!(matched, globs.iter().any(|glob| glob.matches(path)));
            }
        }
    }

    #[test]
    fn set_with_secrets_excludes_no_path() {
        let set = PathGlobSet::new([&PathGlob::parse("<secrets>").unwrap()]);
        assert!(set.may_match(Path::new(".env")));
    }

    #[test]
    fn name_that_ends_with_a_dot_is_matched() {
        for glob in ["**/notes.", "*.", "notes./**"] {
            let glob = PathGlob::parse(glob).unwrap();
            assert!(PathGlobSet::new([&glob]).may_match(Path::new("notes.")), "{glob}");
        }
    }
}
