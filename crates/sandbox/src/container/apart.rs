//! A container with a kernel of its own, such as gVisor: it lets no descriptor out, so what other containers pass out is
//! made on this side.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use jail::{CgroupController, GuestChannels, GuestKernel, GuestOrder, GuestSocket, Jail, NewJail};
use policy::WorkspaceMode;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use super::body::Container;
use super::bridge::Bridge;
use super::engine::{Engine, EngineKind};
use super::place::Place;
use super::words::unavailable;
use super::{blocking, create};
use crate::limits::Keeper;
use crate::{SandboxError, refusal};

/// By what limits are kept in a container.
pub(super) fn keeper(kernel: GuestKernel, by: &dyn Fn(CgroupController) -> Option<String>) -> Keeper<'_> {
    Keeper { by, why: "the engine has no cgroup that it could", around_kernel: kernel == GuestKernel::Own }
}

/// Whether what is inside learns the names of the host's control groups: a row of `policy.effective`.
pub(super) fn cgroup_names(kernel: GuestKernel, jail: &Jail, engine: EngineKind) -> Value {
    let (state, by) = match kernel {
        GuestKernel::Own => ("weaker", "a kernel of its own, which has the container's name"),
        GuestKernel::Host if jail.sees_cgroups() => ("absent", engine.as_str()),
        GuestKernel::Host => ("enforced", "cgroup namespace"),
    };
    json!({"state": state, "by": by})
}

/// The sockets to which the two ports of such a container are carried.
pub(super) struct Ways([UnixListener; 2]);

impl Ways {
    /// Opens them beside the socket of the init, where they are needed.
    pub(super) fn open(kernel: GuestKernel, place: &Place) -> io::Result<Option<Self>> {
        (kernel == GuestKernel::Own).then(|| GuestSocket::open_ways(&place.door()).map(Self)).transpose()
    }

    /// Takes over the sandbox whose init has called on `control`.
    pub(super) async fn adopt(
        self,
        engine: &Engine,
        container: &mut Container,
        control: OwnedFd,
        order: GuestOrder,
    ) -> Result<NewJail, SandboxError> {
        let kernel = engine.pid(container.name()).await?;
        let workspace = container.place().map(|place| place.stage().join("workspace")).ok_or(SandboxError::Gone)?;
        let (bridge, made) = blocking(move || {
            let (bridge, [models, egress]) =
                Bridge::start(self.0).map_err(|source| create("carry its ports", source))?;
            let workspace = open_directory(&workspace).map_err(|source| create("open its workspace", source))?;
            let stand_in = GuestChannels { kernel, models, egress, workspace };
            let made = Jail::adopt_apart(control, &order, stand_in).map_err(refusal::explain)?;
            Ok((bridge, made))
        })
        .await?;
        container.bridge(bridge);
        Ok(made)
    }
}

/// Refuses what such a container cannot have: whoever serves its files is root, and has no number where the owner of
/// a directory of the host was mapped; and one that opens files by itself does not meet mounts that hide or keep them.
pub(super) fn check(kernel: GuestKernel, fs: &policy::FsPolicy) -> Result<(), SandboxError> {
    let (key, instead) = match (kernel, fs.workspace_mode, fs.write_paths.as_slice()) {
        (GuestKernel::Own, WorkspaceMode::Bind, _) => ("fs.workspace: bind", "write `fs: {workspace: overlay}` in"),
        (GuestKernel::Own, _, [_, ..]) => ("fs.write", "take `fs.write` out of"),
        _ => return Ok(()),
    };
    Err(unavailable(
        format!("`{key}` cannot be had in a sandbox with a kernel of its own: files made there have no owner"),
        format!("{instead} the policy, or use `--backend=jail`"),
    ))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
