//! The part of the host's system that commands inside need: programs, libraries, certificates.
//!
//! Everything is read-only. Names are copied as they are on the host, so that `/lib` stays the link it is
//! where `/usr` is merged. Users, hosts and resolvers are ours: the host's are nobody's business.

use std::path::{Path, PathBuf};

use jail::{Bind, HOME, INSIDE_GID, INSIDE_UID};

/// Where programs and libraries are, on any distribution.
const PLACES: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];
/// Settings that programs read and that say nothing about the host's users or secrets.
const SETTINGS: [&str; 9] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/terminfo",
];

/// What a sandbox shows of the host's system.
#[derive(Debug, Default)]
pub(crate) struct System {
    pub(crate) binds: Vec<Bind>,
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
}

impl System {
    /// Looks at the host as it is now.
    pub(crate) fn of_this_host() -> Self {
        let mut system = Self::default();
        for path in PLACES.into_iter().chain(SETTINGS).map(Path::new) {
            system.show(path);
        }
        let passwd =
            format!("agent:x:{INSIDE_UID}:{INSIDE_GID}:agent:{HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n");
        let group = format!("agent:x:{INSIDE_GID}:\nnogroup:x:65534:\n");
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

    /// Shows `path` under its own name: a link as a link where what it says is shown too, else what it leads to.
    pub(crate) fn show(&mut self, path: &Path) {
        if let Ok(target) = std::fs::read_link(path) {
            let leads_to = path.parent().unwrap_or(Path::new("/")).join(&target);
            if PLACES.iter().any(|place| leads_to.starts_with(place) && leads_to != path) {
                self.links.push((path.to_owned(), target));
                return;
            }
        }
        if let Ok(source) = path.canonicalize() {
            self.binds.push(Bind { source, target: path.to_owned(), writable: false });
        }
    }
}
