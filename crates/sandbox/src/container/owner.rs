//! Whose an engine is, and where what it mounts can be laid out: root's lives in the host's own tree, that of an
//! ordinary user in namespaces of that user's.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use jail::EngineNamespaces;
use rustix::net::{UCred, sockopt::socket_peercred};

use super::create;
use super::engine::EngineKind;
use super::words::unavailable;
use crate::SandboxError;

/// Who listens at `socket`.
pub(super) fn listener(socket: &Path) -> io::Result<UCred> {
    Ok(socket_peercred(UnixStream::connect(socket)?)?)
}

/// Where the engine behind `socket` lives, when it is ours and we are not root; nothing when both are root.
pub(super) fn quarters(kind: EngineKind, socket: &Path) -> Result<Option<EngineNamespaces>, SandboxError> {
    let looked = |source| create("find where the engine lives", source);
    let (us, engine) = (rustix::process::geteuid(), listener(socket).map_err(looked)?);
    match (us.is_root(), engine.uid.is_root()) {
        (true, true) => Ok(None),
        (false, false) if us == engine.uid => {
            let processes = [Some(engine.pid.as_raw_nonzero().get()), holder(socket)];
            for pid in processes.into_iter().flatten() {
                if let Some(quarters) = EngineNamespaces::of(pid).map_err(looked)? {
                    return Ok(Some(quarters));
                }
            }
            let nobody = io::Error::new(io::ErrorKind::NotFound, "nobody holds its namespaces");
            Err(looked(nobody))
        }
        (false, true) => Err(unavailable(
            format!("`fs.workspace` cannot be laid out by an ordinary user for a {} that is root's", kind.as_str()),
            format!("sudo viv exec --backend={} -- true", kind.as_str()),
        )),
        _ => Err(unavailable(
            format!("this {} is another user's (uid {}), whose files are not ours to give", kind.as_str(), engine.uid),
            format!("sudo -u '#{}' viv exec --backend={} -- true", engine.uid, kind.as_str()),
        )),
    }
}

/// The process that holds the namespaces of a user's Podman, as that notes it: where systemd opened the socket, systemd
/// is who listens.
fn holder(socket: &Path) -> Option<i32> {
    let note = socket.parent()?.parent()?.join("libpod/tmp/pause.pid");
    std::fs::read_to_string(note).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_beside_the_usual_socket() {
        let runtime = tempfile::tempdir().expect("directory");
        let socket = runtime.path().join("podman/podman.sock");
        assert_eq!(holder(&socket), None);
        std::fs::create_dir_all(runtime.path().join("libpod/tmp")).expect("directory");
        std::fs::write(runtime.path().join("libpod/tmp/pause.pid"), "4711\n").expect("note");
        assert_eq!(holder(&socket), Some(4711));
    }
}
