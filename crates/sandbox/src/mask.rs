//! Which files of a workspace are hidden.
//!
//! A hidden file does not exist inside, so it cannot be read under any name. What appears on the host later
//! is not among these: a sandbox is made over the tree as it is.

use std::io;
use std::path::{Path, PathBuf};

use policy::DenyGlobs;

use crate::beneath;
use crate::tree::{Next, visit};

/// The paths in `workspace` that `deny` names, relative to it and sorted. What lies in a hidden directory is
/// hidden with it, and not listed.
pub fn masks(workspace: &Path, deny: &DenyGlobs) -> io::Result<Vec<PathBuf>> {
    if deny.is_empty() {
        return Ok(Vec::new());
    }
    let root = beneath::root(&workspace.canonicalize()?)?;
    let mut masks = Vec::new();
    visit(&root, Path::new(""), &mut |path, _| {
        // Its parents were asked about before, or we would not be here.
        if !deny.matches_entry(path) {
            return Ok(Next::Enter);
        }
        masks.push(path.to_owned());
        Ok(Next::Skip)
    })?;
    masks.sort();
    Ok(masks)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use policy::{BaseLayer, CeilingLayer, DenyGlobs, PolicySource, effective};

    use super::masks;

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
        let found = masks(tree(files).path(), &deny(globs)).unwrap();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_denied_is_found_wherever_it_lies() {
        check(
            &[".env", "src/.env.local", "src/main.rs", "a/b/c/key.pem", "env"],
            "'**/.env', '**/.env.*', '**/*.pem'",
            &[".env", "a/b/c/key.pem", "src/.env.local"],
        );
        check(&["a", "b"], "'**/.env'", &[]);
    }

    #[test]
    fn a_hidden_directory_hides_what_is_in_it() {
        check(&["secrets/a/.env", "secrets/b", "public/.env"], "'secrets/**', '**/.env'", &["public/.env", "secrets"]);
    }

    #[test]
    fn links_are_hidden_by_name_and_not_followed() {
        let outside = tree(&["deep/.env"]);
        let directory = tree(&["real/.env"]);
        symlink(outside.path(), directory.path().join("out")).unwrap();
        symlink("real", directory.path().join("in")).unwrap();
        symlink("nowhere", directory.path().join(".env")).unwrap();
        symlink(".", directory.path().join("self")).unwrap();
        let found = masks(directory.path(), &deny("'**/.env'")).unwrap();
        assert_eq!(found, [Path::new(".env"), Path::new("real/.env")]);
    }

    #[test]
    fn names_need_not_be_text() {
        let directory = tree(&[]);
        let name = OsStr::from_bytes(b"\xff.pem");
        fs::write(directory.path().join(name), "x").unwrap();
        assert_eq!(masks(directory.path(), &deny("'**/*.pem'")).unwrap(), [Path::new(name)]);
    }

    #[test]
    fn a_hundred_thousand_files_are_looked_at_in_a_blink() {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for number in 0..1000 {
            let part = directory.path().join(format!("package{number}/src"));
            fs::create_dir_all(&part).unwrap();
            for file in 0..100 {
                fs::File::create(part.join(format!("file{file}.rs"))).unwrap();
            }
        }
        fs::File::create(directory.path().join("package500/src/.env")).unwrap();
        let deny = deny("'**/.env', '**/.env.*', '**/*.pem', '**/id_*'");
        let begun = Instant::now();
        assert_eq!(masks(directory.path(), &deny).unwrap(), [Path::new("package500/src/.env")]);
        // A tenth of this without optimisation and alone on a machine.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}
