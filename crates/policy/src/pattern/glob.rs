//! Globs of `deny_read` and `deny_write`, relative to the workspace.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use globset::{Glob, GlobBuilder, GlobMatcher};

use crate::secret_files::{SECRETS_ENTRY, is_secret_by_name};
use crate::value::InvalidValue;

/// One glob, or `<secrets>`. `*` does not match `/`, `**` does; matching is case-sensitive. Clones share the compiled form.
#[derive(Clone)]
pub(crate) struct PathGlob(Arc<LazyGlob>);

/// A glob that is compiled on first use. Policies have hundreds of globs, and most sessions never match one of them.
struct LazyGlob {
    text: String,
    /// `None` if the glob cannot be compiled.
    globs: OnceLock<Option<Vec<Glob>>>,
    matchers: OnceLock<Vec<GlobMatcher>>,
}

/// Characters with a special meaning. A text without them is always a valid glob.
const SYNTAX: [char; 5] = ['[', ']', '{', '}', '\\'];

impl PathGlob {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let bad = |why: &str| InvalidValue::new(format!("`{text}` is not a glob: {why}"));
        let relative = "globs are relative to the workspace, as in `**/.env` or `.git/hooks/**`";
        if text.is_empty() {
            return Err(bad("it is empty").with_help(relative));
        }
        if text.starts_with('/') {
            return Err(bad("it starts with `/`").with_help(relative));
        }
        if text.split('/').any(|part| part == ".." || part == ".") {
            return Err(bad("it contains `.` or `..`").with_help(relative));
        }
        let text = text.trim_end_matches('/');
        let globs = OnceLock::new();
        if text.contains(SYNTAX) {
            let _ = globs.set(Some(build_all(text).map_err(|why| bad(&why))?));
        }
        Ok(Self(Arc::new(LazyGlob { text: text.to_owned(), globs, matchers: OnceLock::new() })))
    }

    /// Parses an entry of a list that does not accept `<secrets>`.
    pub(crate) fn parse_path(text: &str) -> Result<Self, InvalidValue> {
        if text == SECRETS_ENTRY {
            let bad = InvalidValue::new(format!("`{SECRETS_ENTRY}` is an entry of `fs.deny_read` only"));
            return Err(bad.with_help("name the files by globs, as in `**/.env`"));
        }
        Self::parse(text)
    }

    /// Returns whether this is the entry for recognised secrets, which depends on more than the path.
    pub(crate) fn is_secrets(&self) -> bool {
        self.0.text == SECRETS_ENTRY
    }

    /// Returns whether the glob matches `path`, relative to the workspace, or one of its parent directories.
    pub(crate) fn matches(&self, path: &Path) -> bool {
        if self.is_secrets() {
            return is_secret_by_name(path);
        }
        // A glob that cannot be compiled matches everything, so that it never denies too little.
        let Some(globs) = self.globs() else { return true };
        let matchers = self.0.matchers.get_or_init(|| globs.iter().map(Glob::compile_matcher).collect());
        path.ancestors()
            .filter(|part| !part.as_os_str().is_empty())
            .any(|part| matchers.iter().any(|matcher| matcher.is_match(part)))
    }

    /// Returns the compiled globs. `None` cannot happen for a glob from [`parse`](Self::parse).
    pub(crate) fn globs(&self) -> Option<&[Glob]> {
        self.0.globs.get_or_init(|| build_all(&self.0.text).ok()).as_deref()
    }
}

fn build_all(text: &str) -> Result<Vec<Glob>, String> {
    if text == SECRETS_ENTRY {
        return Ok(Vec::new());
    }
    let mut globs = vec![build(text)?];
    // `hooks/**` also protects `hooks` itself, so that it cannot be replaced by a symbolic link.
    if let Some(directory) = text.strip_suffix("/**").filter(|directory| !directory.is_empty()) {
        globs.push(build(directory)?);
    }
    Ok(globs)
}

fn build(text: &str) -> Result<Glob, String> {
    GlobBuilder::new(text).literal_separator(true).build().map_err(|error| error.kind().to_string())
}

impl PartialEq for PathGlob {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for PathGlob {}

impl PartialOrd for PathGlob {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathGlob {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.text.cmp(&other.0.text)
    }
}

/// Shows the text only; the compiled automata are very long.
impl fmt::Debug for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text.fmt(f)
    }
}

impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::{PathGlob, SYNTAX, build_all};

    #[track_caller]
    fn check(glob: &str, path: &str, expected: bool) {
        assert_eq!(PathGlob::parse(glob).unwrap().matches(Path::new(path)), expected, "{glob} on {path}");
    }

    #[test]
    fn globs_match_as_documented() {
        check("**/.env", ".env", true);
        check("**/.env", "a/b/.env", true);
        check("**/.env", "a/.env.d", false);
        check("**/.env.*", "a/.env.local", true);
        check("**/*.pem", "certs/key.PEM", false);
        check("*.pem", "certs/key.pem", false);
        check(".git/hooks/**", ".git/hooks/pre-commit", true);
        check(".git/hooks/**", ".git/hooks", true);
        check(".git/hooks/**", ".git", false);
        check(".git/config", ".git/config", true);
        check("secrets", "secrets/deep/file", true);
        check("secrets/", "secrets", true);
        check("{a,b}.txt", "b.txt", true);
    }

    proptest! {
        #[test]
        fn a_text_without_syntax_is_always_a_glob(text in "[a-z*?!^,./~ -]{1,12}|\\PC{1,12}") {
            prop_assume!(!text.contains(SYNTAX));
            prop_assert!(build_all(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn invalid_globs_are_rejected() {
        for text in ["", "/etc", "a/../b", "./a", "a[", "{a", "a{b"] {
            assert!(PathGlob::parse(text).is_err(), "{text}");
        }
    }
}
