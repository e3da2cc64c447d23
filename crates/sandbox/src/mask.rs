//! The search for files of a workspace that globs of a policy match.
//!
//! Files that appear on the host after the sandbox was made are not found. Not here: hidden files (`hidden_files`).

use std::io;
use std::path::{Path, PathBuf};

use policy::DenyGlobs;

use crate::beneath;
use crate::tree::{VisitNext, visit};

/// Returns the paths in `workspace` that `deny` matches, relative to it and sorted. Entries of a denied directory are not
/// listed: they are denied with it.
pub(crate) fn denied_paths(workspace: &Path, deny: &DenyGlobs) -> io::Result<Vec<PathBuf>> {
    if deny.is_empty() {
        return Ok(Vec::new());
    }
    let root = beneath::root(&workspace.canonicalize()?)?;
    let mut denied = Vec::new();
    visit(&root, Path::new(""), &mut |path, _| {
        // The parents do not match, because a matching directory is skipped.
        if !deny.matches_entry(path) {
            return Ok(VisitNext::Enter);
        }
        denied.push(path.to_owned());
        Ok(VisitNext::Skip)
    })?;
    denied.sort();
    Ok(denied)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use policy::{BaseLayer, CeilingLayer, DenyGlobs, PolicySource, effective};

    use super::denied_paths;

    fn deny(globs: &str) -> DenyGlobs {
        let source = PolicySource::new("test.yaml", format!("version: 1\nfs:\n  deny_read: [{globs}]\n"));
        effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::read(&source).unwrap(), &[]).fs().deny_read
    }

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        directory
    }

    #[track_caller]
    fn check(files: &[&str], globs: &str, expected: &[&str]) {
        let found = denied_paths(tree(files).path(), &deny(globs)).unwrap();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn denied_files_are_found_at_any_depth() {
        check(
            &[".env", "src/.env.local", "src/main.rs", "a/b/c/key.pem", "env"],
            "'**/.env', '**/.env.*', '**/*.pem'",
            &[".env", "a/b/c/key.pem", "src/.env.local"],
        );
        check(&["a", "b"], "'**/.env'", &[]);
    }

    #[test]
    fn entries_of_a_denied_directory_are_not_listed() {
        check(&["secrets/a/.env", "secrets/b", "public/.env"], "'secrets/**', '**/.env'", &["public/.env", "secrets"]);
    }

    #[test]
    fn links_are_matched_by_name_and_not_followed() {
        let outside = tree(&["deep/.env"]);
        let directory = tree(&["real/.env"]);
        symlink(outside.path(), directory.path().join("out")).unwrap();
        symlink("real", directory.path().join("in")).unwrap();
        symlink("nowhere", directory.path().join(".env")).unwrap();
        symlink(".", directory.path().join("self")).unwrap();
        let found = denied_paths(directory.path(), &deny("'**/.env'")).unwrap();
        assert_eq!(found, [Path::new(".env"), Path::new("real/.env")]);
    }

    #[test]
    fn names_that_are_not_utf8_are_matched() {
        let directory = tree(&[]);
        let name = OsStr::from_bytes(b"\xff.pem");
        fs::write(directory.path().join(name), "x").unwrap();
        assert_eq!(denied_paths(directory.path(), &deny("'**/*.pem'")).unwrap(), [Path::new(name)]);
    }

    /// Returns a directory with a hundred thousand files, and one `package500/src/.env`.
    pub(crate) fn large_tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for number in 0..1000 {
            let part = directory.path().join(format!("package{number}/src"));
            fs::create_dir_all(&part).unwrap();
            for file in 0..100 {
                fs::File::create(part.join(format!("file{file}.rs"))).unwrap();
            }
        }
        fs::File::create(directory.path().join("package500/src/.env")).unwrap();
        directory
    }

    #[test]
    fn a_hundred_thousand_files_are_searched_quickly() {
        let directory = large_tree();
        let deny = deny("'**/.env', '**/.env.*', '**/*.pem', '**/id_*'");
        let started = Instant::now();
        assert_eq!(denied_paths(directory.path(), &deny).unwrap(), [Path::new("package500/src/.env")]);
        // An unoptimised build on an idle machine takes a tenth of this.
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}
