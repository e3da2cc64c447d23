//! Host paths that a sandbox shows beside its workspace, followed to where they really are.
//!
//! A link in the workspace, or in a directory that `fs.write` names, may be an agent's: of this session, or of one before
//! it that wrote there. Whoever follows it shows what the agent chose, so it is refused. Links elsewhere are the host's
//! own, as `/bin` is one to `/usr/bin`.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::SandboxError;

/// The kernel follows no more links in one path either.
const MAX_LINKS: usize = 40;

/// Follows the host paths of one sandbox.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Without links.
    workspace: Option<PathBuf>,
    /// Where an agent writes beside it; without links.
    written: Vec<PathBuf>,
}

impl Sources {
    /// For the sandbox with this workspace, whatever its mode: an earlier session may have had another; and with what
    /// `fs.write` names.
    pub(crate) fn beside(workspace: Option<&Path>, written: &[PathBuf]) -> Result<Self, SandboxError> {
        let real = |path: &Path| path.canonicalize().map_err(|source| not_found(path, source));
        // What is not there has no link in it, and is missed when it is to be shown.
        let written = written.iter().filter_map(|path| path.canonicalize().ok()).collect();
        Ok(Self { workspace: workspace.map(real).transpose()?, written })
    }

    /// The workspace itself, without links.
    pub(crate) fn workspace(&self) -> Option<&Path> {
        self.workspace.as_deref()
    }

    /// Where `path` really is, which `key` names.
    pub(crate) fn find(&self, key: &str, path: &Path) -> Result<PathBuf, SandboxError> {
        self.follow(key, path)?.map_err(|source| not_found(path, source))
    }

    /// The same, or nothing where nothing is.
    pub(crate) fn find_if_there(&self, key: &str, path: &Path) -> Result<Option<PathBuf>, SandboxError> {
        Ok(self.follow(key, path)?.ok())
    }

    /// The place where an agent could have made a name in `directory`, in words.
    fn writer_of(&self, directory: &Path) -> Option<String> {
        if self.workspace.as_ref().is_some_and(|workspace| directory.starts_with(workspace)) {
            return Some("the workspace".to_owned());
        }
        let written = self.written.iter().find(|place| directory.starts_with(place))?;
        Some(format!("`{}`, which `fs.write` names", written.display()))
    }

    /// Step by step: a path that was checked first and resolved afterwards could be another one by then.
    fn follow(&self, key: &str, path: &Path) -> Result<io::Result<PathBuf>, SandboxError> {
        let mut ahead = match std::path::absolute(path) {
            Ok(path) => reversed(&path),
            Err(error) => return Ok(Err(error)),
        };
        let (mut real, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = ahead.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            let next = real.join(name);
            match next.symlink_metadata() {
                Ok(found) if !found.is_symlink() => real = next,
                Ok(_) => {
                    if let Some(place) = self.writer_of(&real) {
                        return Err(planted(key, path, &next, &place));
                    }
                    let target = match next.read_link() {
                        Ok(target) if links < MAX_LINKS => target,
                        Ok(_) => return Ok(Err(Errno::LOOP.into())),
                        Err(error) => return Ok(Err(error)),
                    };
                    links += 1;
                    if target.is_absolute() {
                        real = PathBuf::from("/");
                    }
                    ahead.extend(reversed(&target));
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(real))
    }
}

/// The names of a path, the first one last.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned()).collect()
}

fn planted(key: &str, path: &Path, link: &Path, place: &str) -> SandboxError {
    let passing = if link == path { String::new() } else { format!(" passes through `{}`, which", link.display()) };
    SandboxError::Unavailable {
        missing: format!(
            "{key}: `{}`{passing} is a symbolic link in {place}, where an agent can make it lead anywhere",
            path.display()
        ),
        fix: "look where the link leads, and name that place itself if it is the one you mean".to_owned(),
    }
}

fn not_found(path: &Path, source: io::Error) -> SandboxError {
    SandboxError::Create { step: format!("find `{}`", path.display()), source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A workspace `w`, a directory `cache` that is written too, and beside them `host` with something `secret` in it.
    fn place() -> (tempfile::TempDir, PathBuf, Sources) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("w/inner")).unwrap();
        fs::create_dir_all(root.join("host/secret")).unwrap();
        fs::create_dir(root.join("cache")).unwrap();
        let sources = Sources::beside(Some(&root.join("w")), &[root.join("cache"), root.join("nowhere")]).unwrap();
        (directory, root, sources)
    }

    #[test]
    fn a_link_in_the_workspace_is_not_followed() {
        let (_directory, root, sources) = place();
        let link = root.join("w/deps");
        symlink(root.join("host"), &link).unwrap();
        let refused = sources.find("`--deps`", &link).unwrap_err().to_string();
        let said = format!("`--deps`: `{}` is a symbolic link in the workspace", link.display());
        assert!(refused.starts_with(&said), "{refused}");
        assert!(sources.find_if_there("`fs.read`", &link).is_err(), "nor where nothing need be there");
    }

    #[test]
    fn nor_is_one_on_the_way() {
        let (_directory, root, sources) = place();
        symlink("../../host", root.join("w/inner/way")).unwrap();
        symlink(root.join("w/inner"), root.join("beside")).unwrap();
        for path in ["w/inner/way/secret", "beside/way/secret", "host/../w/inner/way"] {
            let refused = sources.find("`fs.write`", &root.join(path)).unwrap_err().to_string();
            let link = root.join("w/inner/way");
            assert!(refused.contains(&format!("passes through `{}`", link.display())), "{refused}");
        }
    }

    #[test]
    fn nor_is_one_in_a_directory_that_is_written_beside_it() {
        let (_directory, root, sources) = place();
        let link = root.join("cache/deps");
        symlink(root.join("host"), &link).unwrap();
        for (path, way) in
            [("cache/deps", "is"), ("cache/deps/secret", "passes through"), ("w/../cache/deps", "passes")]
        {
            let refused = sources.find("`fs.read`", &root.join(path)).unwrap_err().to_string();
            let place = format!("in `{}`, which `fs.write` names", root.join("cache").display());
            assert!(refused.contains(&place) && refused.contains(way), "{refused}");
        }
        // One of two that are written, where the link would make itself one of them.
        let written = [root.join("cache"), link.clone()];
        let sources = Sources::beside(None, &written).unwrap();
        assert!(sources.find("`fs.write`", &link).is_err(), "a link that is named itself");
        assert_eq!(sources.find("`fs.write`", &root.join("cache")).unwrap(), root.join("cache"));
    }

    #[test]
    fn links_elsewhere_lead_where_the_host_means() {
        let (_directory, root, sources) = place();
        symlink("host", root.join("link")).unwrap();
        symlink(root.join("w"), root.join("to-workspace")).unwrap();
        // Its name begins like the workspace's, and it is another directory.
        fs::create_dir(root.join("w2")).unwrap();
        symlink("../host", root.join("w2/deps")).unwrap();
        for (path, real) in
            [("link/secret", "host/secret"), ("to-workspace/inner", "w/inner"), ("w2/deps", "host"), ("w", "w")]
        {
            let found = sources.find("`fs.read`", &root.join(path)).unwrap();
            assert_eq!(found, root.join(real));
            assert_eq!(found, root.join(path).canonicalize().unwrap());
        }
    }

    #[test]
    fn what_leads_nowhere_is_not_found() {
        let (_directory, root, sources) = place();
        symlink("round", root.join("round")).unwrap();
        for path in ["round", "nowhere"] {
            let refused = sources.find("`fs.write`", &root.join(path)).unwrap_err().to_string();
            assert!(refused.contains("find `"), "{refused}");
            assert_eq!(sources.find_if_there("`fs.read`", &root.join(path)).unwrap(), None);
        }
    }
}
