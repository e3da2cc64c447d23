//! Containers with their own kernel, such as gVisor.
//!
//! Such a container cannot pass descriptors out, so the host makes the listeners and opens the workspace itself.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use jail::{CgroupController, ContainerKernel, InitSettings, InitSocket, Jail, NewJail, OwnKernelChannels};
use policy::WorkspaceMode;
use protocol::{EnforcementState, KeyEnforcement};
use rustix::fs::{Mode, OFlags};

use super::bridge::PortBridge;
use super::container_dir::ContainerDir;
use super::engine::{ContainerEngine, EngineKind};
use super::engine_container::EngineContainer;
use super::engine_error::unavailable;
use super::{blocking, create};
use crate::limits::LimitEnforcer;
use crate::{SandboxError, refusal};

/// Returns how limits are enforced in a container.
pub(super) fn limit_enforcer(
    kernel: ContainerKernel,
    cgroup: &dyn Fn(CgroupController) -> Option<String>,
) -> LimitEnforcer<'_> {
    LimitEnforcer { cgroup, missing: "the engine has no cgroup to", wraps_own_kernel: kernel == ContainerKernel::Own }
}

/// Returns the rows of `policy.effective` that depend on the kernel of a container.
pub(super) fn kernel_rows(
    kernel: ContainerKernel,
    jail: &Jail,
    engine: EngineKind,
) -> [(&'static str, KeyEnforcement); 2] {
    [("terminals", terminals(kernel)), ("cgroup names", cgroup_names(kernel, jail, engine))]
}

/// Returns whether terminals are limited, as a row of `policy.effective`.
fn terminals(kernel: ContainerKernel) -> KeyEnforcement {
    match kernel {
        ContainerKernel::Own => KeyEnforcement::enforced("the container's own kernel"),
        ContainerKernel::Host => KeyEnforcement::new(EnforcementState::Absent, "the engine's devpts has no limit"),
    }
}

/// Returns whether processes inside see the names of the host's cgroups, as a row of `policy.effective`.
fn cgroup_names(kernel: ContainerKernel, jail: &Jail, engine: EngineKind) -> KeyEnforcement {
    let (state, by) = match kernel {
        ContainerKernel::Own => {
            (EnforcementState::Weaker, "the container's own kernel, which shows the container's name")
        }
        ContainerKernel::Host if jail.sees_cgroups() => (EnforcementState::Absent, engine.as_str()),
        ContainerKernel::Host => (EnforcementState::Enforced, "cgroup namespace"),
    };
    KeyEnforcement::new(state, by)
}

/// The sockets to which the init of such a container relays its two ports.
pub(super) struct PortSockets([UnixListener; 2]);

impl PortSockets {
    /// Opens the sockets beside that of the init; `None` for a container on the host's kernel.
    pub(super) fn open(kernel: ContainerKernel, directory: &ContainerDir) -> io::Result<Option<Self>> {
        (kernel == ContainerKernel::Own)
            .then(|| InitSocket::open_port_sockets(&directory.sockets()).map(Self))
            .transpose()
    }

    /// Takes over the container whose init has connected on `control`.
    pub(super) async fn adopt(
        self,
        engine: &ContainerEngine,
        container: &mut EngineContainer,
        control: OwnedFd,
        settings: InitSettings,
    ) -> Result<NewJail, SandboxError> {
        let kernel = engine.pid(container.name()).await?;
        let directory = container.directory().ok_or(SandboxError::Gone)?;
        let workspace = directory.layout().join("workspace");
        let (bridge, made) = blocking(move || {
            let (bridge, [models, egress]) =
                PortBridge::start(self.0).map_err(|source| create("forward the ports of the container", source))?;
            let workspace = open_directory(&workspace).map_err(|source| create("open the workspace", source))?;
            let channels = OwnKernelChannels { kernel, models, egress, workspace };
            let made = Jail::adopt_with_own_kernel(control, &settings, channels).map_err(refusal::explain)?;
            Ok((bridge, made))
        })
        .await?;
        container.set_bridge(bridge);
        Ok(made)
    }
}

/// Refuses policy keys that such a container cannot enforce.
///
/// gVisor opens files as root, whose id is not in the map of a writable host directory, so new files would have no owner.
/// It also opens some files without passing the mounts that hide or protect them.
pub(super) fn check(kernel: ContainerKernel, fs: &policy::FsPolicy) -> Result<(), SandboxError> {
    let (key, remedy) = match (kernel, fs.workspace_mode, fs.write_paths.as_slice()) {
        (ContainerKernel::Own, WorkspaceMode::Bind, _) => ("fs.workspace: bind", "write `fs: {workspace: overlay}` in"),
        (ContainerKernel::Own, _, [_, ..]) => ("fs.write", "remove `fs.write` from"),
        _ => return Ok(()),
    };
    Err(unavailable(
        format!("`{key}` is not supported in a container with its own kernel: files made there would have no owner"),
        format!("{remedy} the policy, or use `--backend=jail`"),
    ))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
