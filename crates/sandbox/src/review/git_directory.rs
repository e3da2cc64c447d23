//! Paths inside a git directory.
//!
//! Files of `.git` are never shown as changes and never applied: commits leave a session through git's own transfer
//! (`commits`). Names are compared without case, because some file systems do not distinguish it.

use std::path::Path;

/// Returns whether a component of `path` is `.git`, in any case.
pub fn is_inside_git_directory(path: &Path) -> bool {
    path.iter().any(|part| part.eq_ignore_ascii_case(".git"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::is_inside_git_directory;

    #[test]
    fn only_whole_components_are_a_git_directory() {
        for inside in [".git", ".git/index", "a/.git/config", "vendor/x/.git", ".GIT/hooks/pre-commit", "a/.Git"] {
            assert!(is_inside_git_directory(Path::new(inside)), "`{inside}`");
        }
        for outside in [".gitignore", "git", "a.git", "a.git/HEAD", ".github/workflows/ci.yml", "src/.gitkeep"] {
            assert!(!is_inside_git_directory(Path::new(outside)), "`{outside}`");
        }
    }
}
