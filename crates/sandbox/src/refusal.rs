//! Explanations of jail errors, with a command that fixes the cause where there is one.

use std::io;
use std::net::Ipv4Addr;

use base::DNS_PORT;
use jail::{JailError, SetupStep};
use rustix::io::Errno;

use crate::SandboxError;

/// Converts a jail error, adding a fix where the kernel refused one of the first steps.
pub(crate) fn explain(error: JailError) -> SandboxError {
    match error {
        JailError::Setup { step: SetupStep::CloneNamespaces | SetupStep::MapIds, source, .. } => no_namespaces(&source),
        // Mapping the owner of a workspace needs a user namespace too.
        JailError::Setup { step: SetupStep::IdMapOwner, source, .. } if is(&source, Errno::NOSPC) => {
            no_namespaces(&source)
        }
        JailError::Setup { step: SetupStep::OpenSource, source, .. } if is(&source, Errno::PERM) => no_mounts(&source),
        JailError::Setup { step: SetupStep::BindListeners, subject, source } if subject == DNS_PORT.to_string() => {
            SandboxError::Unavailable {
                missing: format!("`net.dns: stub` needs port {DNS_PORT} inside, which cannot be bound here ({source})"),
                fix: "set `net.dns: none`, or use another backend".to_owned(),
            }
        }
        JailError::Setup { step: SetupStep::BindListeners, subject, source } => match subject.parse() {
            Ok(port) => SandboxError::Bind { address: (Ipv4Addr::LOCALHOST, port).into(), source },
            Err(_) => SandboxError::Create { step: SetupStep::BindListeners.to_string(), source },
        },
        JailError::Setup { step, subject, source } => {
            let subject = if subject.is_empty() { String::new() } else { format!(" (`{subject}`)") };
            SandboxError::Create { step: format!("{step}{subject}"), source }
        }
        other => SandboxError::Create { step: other.to_string(), source: io::Error::other(other) },
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

/// Returns the error for user namespaces that cannot be made: their number is limited, or the distribution forbids them.
fn no_namespaces(source: &io::Error) -> SandboxError {
    let fix = if is(source, Errno::NOSPC) || namespaces_are_forbidden() {
        "sudo sysctl -w user.max_user_namespaces=15000"
    } else {
        "sudo sysctl -e -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0"
    };
    SandboxError::Unavailable {
        missing: format!("this user may not make user namespaces on this machine ({source})"),
        fix: fix.to_owned(),
    }
}

/// Returns the error for a caller that is root only in a container or user namespace, and may not clone mounts.
fn no_mounts(source: &io::Error) -> SandboxError {
    if namespaces_are_forbidden() {
        return no_namespaces(source);
    }
    SandboxError::Unavailable {
        missing: format!("this process is root in a container that does not allow mounts ({source})"),
        fix:
            "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined IMAGE \
              viv doctor"
                .to_owned(),
    }
}

fn namespaces_are_forbidden() -> bool {
    std::fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|limit| limit.trim() == "0")
}
