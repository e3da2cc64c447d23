//! Resolution of the host paths that a sandbox mounts besides its workspace.
//!
//! A link in the workspace, or in a directory that `fs.write` names, may have been made by an agent of this or an earlier
//! session. Following such a link would mount a path that the agent chose, so it is refused. Links elsewhere belong to the
//! host, such as `/bin` to `/usr/bin`, and are followed.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::SandboxError;

/// The most links in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Resolves the host paths of one sandbox.
#[derive(Debug)]
pub(crate) struct HostPaths {
    /// The workspace, without links.
    workspace: Option<PathBuf>,
    /// The directories of `fs.write`, without links.
    writable: Vec<PathBuf>,
}

impl HostPaths {
    /// Returns the resolver for a sandbox with this workspace and these paths of `fs.write`. The workspace's mode does not
    /// matter, because an earlier session may have had another one.
    pub(crate) fn new(workspace: Option<&Path>, writable: &[PathBuf]) -> Result<Self, SandboxError> {
        let real = |path: &Path| path.canonicalize().map_err(|source| not_found(path, source));
        // A path that does not exist contains no link. Mounting it fails later.
        let writable = writable.iter().filter_map(|path| path.canonicalize().ok()).collect();
        Ok(Self { workspace: workspace.map(real).transpose()?, writable })
    }

    /// Returns the workspace, without links.
    pub(crate) fn workspace(&self) -> Option<&Path> {
        self.workspace.as_deref()
    }

    /// Returns `path` without links. Fails when it does not exist or passes through an agent's link; `key` is the policy
    /// key or flag that names the path, for the error.
    pub(crate) fn find(&self, key: &str, path: &Path) -> Result<PathBuf, SandboxError> {
        self.resolve(key, path)?.map_err(|source| not_found(path, source))
    }

    /// Returns `path` without links; `None` when it does not exist.
    pub(crate) fn find_existing(&self, key: &str, path: &Path) -> Result<Option<PathBuf>, SandboxError> {
        Ok(self.resolve(key, path)?.ok())
    }

    /// Returns a description of the writable directory that contains `directory`; `None` when agents cannot write there.
    fn writable_parent(&self, directory: &Path) -> Option<String> {
        if self.workspace.as_ref().is_some_and(|workspace| directory.starts_with(workspace)) {
            return Some("the workspace".to_owned());
        }
        let writable = self.writable.iter().find(|writable| directory.starts_with(writable))?;
        Some(format!("`{}`, which `fs.write` names", writable.display()))
    }

    /// Resolves and checks `path` component by component. A path that is checked first and resolved later could change in
    /// between.
    fn resolve(&self, key: &str, path: &Path) -> Result<io::Result<PathBuf>, SandboxError> {
        let mut remaining = match std::path::absolute(path) {
            Ok(path) => reversed(&path),
            Err(error) => return Ok(Err(error)),
        };
        let (mut real, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = remaining.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            let next = real.join(name);
            match next.symlink_metadata() {
                Ok(found) if !found.is_symlink() => real = next,
                Ok(_) => {
                    if let Some(parent) = self.writable_parent(&real) {
                        return Err(link_refused(key, path, &next, &parent));
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
                    remaining.extend(reversed(&target));
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(real))
    }
}

/// Returns the components of a path in reverse order.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned()).collect()
}

fn link_refused(key: &str, path: &Path, link: &Path, parent: &str) -> SandboxError {
    let through = if link == path { String::new() } else { format!(" passes through `{}`, which", link.display()) };
    SandboxError::Unavailable {
        missing: format!(
            "{key}: `{}`{through} is a symbolic link in {parent}, where an agent can change its target",
            path.display()
        ),
        fix: "check the target of the link, and name the target itself if it is the path you mean".to_owned(),
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

    /// Makes a workspace `w`, a writable directory `cache`, and a directory `host` with `secret` in it.
    fn fixture() -> (tempfile::TempDir, PathBuf, HostPaths) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("w/inner")).unwrap();
        fs::create_dir_all(root.join("host/secret")).unwrap();
        fs::create_dir(root.join("cache")).unwrap();
        let sources = HostPaths::new(Some(&root.join("w")), &[root.join("cache"), root.join("nowhere")]).unwrap();
        (directory, root, sources)
    }

    #[test]
    fn link_in_the_workspace_is_refused() {
        let (_directory, root, sources) = fixture();
        let link = root.join("w/deps");
        symlink(root.join("host"), &link).unwrap();
        let refused = sources.find("`--deps`", &link).unwrap_err().to_string();
        let expected = format!("`--deps`: `{}` is a symbolic link in the workspace", link.display());
        assert!(refused.starts_with(&expected), "{refused}");
        assert!(sources.find_existing("`fs.read`", &link).is_err(), "a link is refused for optional paths too");
    }

    #[test]
    fn path_through_a_link_in_the_workspace_is_refused() {
        let (_directory, root, sources) = fixture();
        symlink("../../host", root.join("w/inner/way")).unwrap();
        symlink(root.join("w/inner"), root.join("beside")).unwrap();
        for path in ["w/inner/way/secret", "beside/way/secret", "host/../w/inner/way"] {
            let refused = sources.find("`fs.write`", &root.join(path)).unwrap_err().to_string();
            let link = root.join("w/inner/way");
            assert!(refused.contains(&format!("passes through `{}`", link.display())), "{refused}");
        }
    }

    #[test]
    fn link_in_a_writable_directory_is_refused() {
        let (_directory, root, sources) = fixture();
        let link = root.join("cache/deps");
        symlink(root.join("host"), &link).unwrap();
        for (path, way) in
            [("cache/deps", "is"), ("cache/deps/secret", "passes through"), ("w/../cache/deps", "passes")]
        {
            let refused = sources.find("`fs.read`", &root.join(path)).unwrap_err().to_string();
            let place = format!("in `{}`, which `fs.write` names", root.join("cache").display());
            assert!(refused.contains(&place) && refused.contains(way), "{refused}");
        }
        // The link itself is named by `fs.write`, next to the directory that contains it.
        let writable = [root.join("cache"), link.clone()];
        let sources = HostPaths::new(None, &writable).unwrap();
        assert!(sources.find("`fs.write`", &link).is_err(), "a link that `fs.write` names was accepted");
        assert_eq!(sources.find("`fs.write`", &root.join("cache")).unwrap(), root.join("cache"));
    }

    #[test]
    fn links_elsewhere_are_followed() {
        let (_directory, root, sources) = fixture();
        symlink("host", root.join("link")).unwrap();
        symlink(root.join("w"), root.join("to-workspace")).unwrap();
        // The name of this directory begins like the workspace's.
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
    fn broken_link_is_not_found() {
        let (_directory, root, sources) = fixture();
        symlink("round", root.join("round")).unwrap();
        for path in ["round", "nowhere"] {
            let refused = sources.find("`fs.write`", &root.join(path)).unwrap_err().to_string();
            assert!(refused.contains("find `"), "{refused}");
            assert_eq!(sources.find_existing("`fs.read`", &root.join(path)).unwrap(), None);
        }
    }
}
