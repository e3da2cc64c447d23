//! System files inside a sandbox: the host's programs, libraries and certificates, and generated files of `/etc`.
//!
//! Everything is read-only. Links of the host stay links, so that `/lib` stays a link where `/usr` is merged. The user,
//! host and resolver files are generated and contain nothing of the host.

use std::path::{Path, PathBuf};

use base::HOME;
use jail::{BindMount, INSIDE_GID, INSIDE_UID};

use crate::SandboxError;
use crate::host_paths::HostPaths;

/// The system files of a sandbox.
#[derive(Debug, Default)]
pub(crate) struct SystemFiles {
    pub(crate) binds: Vec<BindMount>,
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
}

impl SystemFiles {
    /// Returns the generated files and the host paths of `read`. Paths that do not exist are left out.
    pub(crate) fn with_paths(read: &[PathBuf], host_paths: &HostPaths) -> Result<Self, SandboxError> {
        let mut system = Self::for_user(INSIDE_UID, INSIDE_GID);
        for path in read {
            system.add_path(path, read, host_paths)?;
        }
        Ok(system)
    }

    /// Returns only the generated files, with one user that has these ids.
    pub(crate) fn for_user(uid: u32, gid: u32) -> Self {
        let mut system = Self::default();
        let passwd = format!("agent:x:{uid}:{gid}:agent:{HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n");
        let group = format!("agent:x:{gid}:\nnogroup:x:65534:\n");
        for (path, content) in [
            ("/etc/passwd", passwd.as_str()),
            ("/etc/group", &group),
            ("/etc/hosts", "127.0.0.1 localhost vivarium\n::1 localhost\n"),
            ("/etc/hostname", "vivarium\n"),
            ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
            ("/etc/resolv.conf", ""),
        ] {
            system.files.push((path.into(), content.into()));
        }
        system
    }

    /// Makes programs ask the name server inside for names that are not in `/etc/hosts`.
    pub(crate) fn use_name_server(&mut self) {
        for (path, content) in &mut self.files {
            match path.to_str() {
                Some("/etc/nsswitch.conf") => *content = b"passwd: files\ngroup: files\nhosts: files dns\n".to_vec(),
                Some("/etc/resolv.conf") => *content = b"nameserver 127.0.0.1\noptions attempts:1\n".to_vec(),
                _ => {}
            }
        }
    }

    /// Adds the host path `path`. A link stays a link when its target is in `read` too; otherwise its target is mounted.
    pub(crate) fn add_path(
        &mut self,
        path: &Path,
        read: &[PathBuf],
        host_paths: &HostPaths,
    ) -> Result<(), SandboxError> {
        let source = host_paths.find_existing("`fs.read`", path)?;
        if let Ok(target) = std::fs::read_link(path) {
            let target_path = path.parent().unwrap_or(Path::new("/")).join(&target);
            if read.iter().any(|readable| target_path.starts_with(readable) && target_path != path) {
                self.links.push((path.to_owned(), target));
                return Ok(());
            }
        }
        if let Some(source) = source {
            self.binds.push(BindMount { source, target: path.to_owned(), writable: false });
        }
        Ok(())
    }
}
