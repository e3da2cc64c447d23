//! The part of the host's system that commands inside need: programs, libraries, certificates.
//!
//! Everything is read-only. Names are copied as they are on the host, so that `/lib` stays the link it is
//! where `/usr` is merged. Users, hosts and resolvers are ours: the host's are nobody's business.

use std::path::{Path, PathBuf};

use base::HOME;
use jail::{BindMount, INSIDE_GID, INSIDE_UID};

use crate::SandboxError;
use crate::source::Sources;

/// What a sandbox shows of the host's system.
#[derive(Debug, Default)]
pub(crate) struct System {
    pub(crate) binds: Vec<BindMount>,
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
}

impl System {
    /// Shows `read` as it is on the host now. What is not there is not shown, which is never wider.
    pub(crate) fn showing(read: &[PathBuf], sources: &Sources) -> Result<Self, SandboxError> {
        let mut system = Self::of_user(INSIDE_UID, INSIDE_GID);
        for path in read {
            system.show(path, read, sources)?;
        }
        Ok(system)
    }

    /// Shows nothing but who there is: one user, with these numbers.
    pub(crate) fn of_user(uid: u32, gid: u32) -> Self {
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

    /// Has programs ask the server inside for names that `/etc/hosts` does not know.
    pub(crate) fn ask_for_names(&mut self) {
        for (path, content) in &mut self.files {
            match path.to_str() {
                Some("/etc/nsswitch.conf") => *content = b"passwd: files\ngroup: files\nhosts: files dns\n".to_vec(),
                Some("/etc/resolv.conf") => *content = b"nameserver 127.0.0.1\noptions attempts:1\n".to_vec(),
                _ => {}
            }
        }
    }

    /// Shows `path` under its own name: a link as a link where what it says is shown too, else what it leads to.
    pub(crate) fn show(&mut self, path: &Path, read: &[PathBuf], sources: &Sources) -> Result<(), SandboxError> {
        let source = sources.find_if_there("`fs.read`", path)?;
        if let Ok(target) = std::fs::read_link(path) {
            let leads_to = path.parent().unwrap_or(Path::new("/")).join(&target);
            if read.iter().any(|place| leads_to.starts_with(place) && leads_to != path) {
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
