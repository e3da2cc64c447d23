//! The path of a workspace inside a jail: its own path on the host, where that is possible.
//!
//! Virtual environments, build outputs and error messages hold absolute paths, which are only right at the same path.

use std::path::{Component, Path, PathBuf};

use base::{DEPENDENCIES, HOME, WORKSPACE};
use policy::FsPolicy;

/// Directories of a sandbox that hold nothing of a host directory with the same name.
const OWN: [&str; 5] = [WORKSPACE, DEPENDENCIES, "/proc", "/sys", "/dev"];
/// Directories of a sandbox that a workspace must not cover.
const NEEDED: [&str; 9] = ["/tmp", HOME, "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt/viv"];

/// Returns the path inside for a workspace that is at `path` on the host. It is `/workspace` if a mount at `path` would
/// cover other parts of the sandbox, or if the policy lets commands write the directories above it.
pub(crate) fn workspace_path(path: &Path, fs: &FsPolicy) -> PathBuf {
    let is_plain = path.is_absolute()
        && path.to_str().is_some()
        && path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    let covers = |other: &Path| other.starts_with(path);
    let is_free = !OWN.iter().any(|own| path.starts_with(own) || covers(Path::new(own)))
        && !NEEDED.iter().any(|needed| covers(Path::new(needed)))
        && !fs.read_paths.iter().any(|read| covers(read))
        && !fs.write_paths.iter().any(|write| covers(write) || path.starts_with(write));
    if is_plain && is_free { path.to_owned() } else { PathBuf::from(WORKSPACE) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use policy::{BaseLayer, CeilingLayer, PolicySource, effective};

    use super::workspace_path;

    #[test]
    fn workspace_keeps_its_path_unless_it_covers_the_sandbox() {
        let text = "version: 1\nfs:\n  read: [/usr, /srv/tools]\n  write: [/srv/cache]\n";
        let base = BaseLayer::read(&PolicySource::new("test.yaml", text)).unwrap();
        let fs = effective(&CeilingLayer::built_in().unwrap(), &base, &[]).fs();
        for own in ["/home/you/project", "/tmp/x/y", "/usr/local/src/p", "/home/agent/p", "/srv/project", "/root"] {
            assert_eq!(workspace_path(Path::new(own), &fs), Path::new(own));
        }
        for covering in [
            "/",
            "/usr",
            "/srv",
            "/srv/tools",
            "/srv/cache",
            "/srv/cache/p",
            "/home",
            "/home/agent",
            "/tmp",
            "/dev/shm/x",
        ] {
            assert_eq!(workspace_path(Path::new(covering), &fs), Path::new("/workspace"), "{covering}");
        }
        for strange in ["relative", "/a/../b"] {
            assert_eq!(workspace_path(Path::new(strange), &fs), Path::new("/workspace"), "{strange}");
        }
    }
}
