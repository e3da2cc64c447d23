//! The owner of an engine, and the namespaces in which mounts for it are laid out.
//!
//! Root's engine uses the host's own mounts. The engine of an ordinary user has its own namespaces.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use jail::EngineNamespaces;
use rustix::net::{UCred, sockopt::socket_peercred};

use super::create;
use super::engine::EngineKind;
use super::engine_error::unavailable;
use crate::SandboxError;

/// Returns the credentials of the process that listens on `socket`.
pub(super) fn socket_owner(socket: &Path) -> io::Result<UCred> {
    Ok(socket_peercred(UnixStream::connect(socket)?)?)
}

/// Returns the namespaces of the calling user's own engine; `None` when caller and engine are root. Fails when the engine
/// belongs to another user.
pub(super) fn engine_namespaces(kind: EngineKind, socket: &Path) -> Result<Option<EngineNamespaces>, SandboxError> {
    let failed = |source| create("find the namespaces of the engine", source);
    let (us, engine) = (rustix::process::geteuid(), socket_owner(socket).map_err(failed)?);
    match (us.is_root(), engine.uid.is_root()) {
        (true, true) => Ok(None),
        (false, false) if us == engine.uid => {
            let processes = [Some(engine.pid.as_raw_nonzero().get()), pause_process(socket)];
            for pid in processes.into_iter().flatten() {
                if let Some(namespaces) = EngineNamespaces::of(pid).map_err(failed)? {
                    return Ok(Some(namespaces));
                }
            }
            Err(failed(io::Error::new(io::ErrorKind::NotFound, "no process is in the engine's namespaces")))
        }
        (false, true) => Err(unavailable(
            format!("an ordinary user cannot lay out `fs.workspace` for the {} of root", kind.as_str()),
            format!("sudo viv exec --backend={} -- true", kind.as_str()),
        )),
        _ => Err(unavailable(
            format!("this {} belongs to another user (uid {})", kind.as_str(), engine.uid),
            format!("sudo -u '#{}' viv exec --backend={} -- true", engine.uid, kind.as_str()),
        )),
    }
}

/// Returns the process that keeps the namespaces of a rootless Podman alive, from Podman's pid file. It is needed when
/// systemd opened the socket, because then systemd is the process that listens.
fn pause_process(socket: &Path) -> Option<i32> {
    let pid_file = socket.parent()?.parent()?.join("libpod/tmp/pause.pid");
    std::fs::read_to_string(pid_file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_process_is_read_from_podmans_pid_file() {
        let runtime = tempfile::tempdir().expect("directory");
        let socket = runtime.path().join("podman/podman.sock");
        assert_eq!(pause_process(&socket), None);
        std::fs::create_dir_all(runtime.path().join("libpod/tmp")).expect("directory");
        std::fs::write(runtime.path().join("libpod/tmp/pause.pid"), "4711\n").expect("pid file");
        assert_eq!(pause_process(&socket), Some(4711));
    }
}
