//! The jail: the built-in Linux sandbox, made of namespaces, a private root, Landlock, seccomp, cgroups and an init.
//!
//! A sandbox is made by a recipe (`setup.rs`) with one paragraph for each kernel step. A step that fails stops the start
//! with the step's name, so a sandbox is never silently weaker. It works with and without root.
//!
//! Not here: which paths and limits a sandbox gets (`policy`), async code, or anything about agents.

mod bpf;
mod cgroup;
mod cgroup_files;
mod cgroup_watch;
mod console;
mod container_init;
mod engine_namespaces;
mod error;
mod guard;
mod host_user;
mod init;
mod inside_port;
mod jail;
mod kernel_text;
mod landlock_rules;
mod mask;
mod mount_layout;
mod mount_sources;
mod overlay;
mod plan;
mod prewarmed;
mod private_root;
mod probe;
mod process_tag;
mod reap;
mod relay;
mod seccomp;
mod setup;
mod spawner;
mod startup_memory;
mod sys;
mod system_calls;
mod verify;
mod wire;

pub use cgroup::{Cgroup, CgroupController, CgroupLimits, CgroupRoot, CgroupVersion, start_time};
pub use cgroup_watch::CgroupWatch;
pub use container_init::{ContainerKernel, InitSettings, InitSocket, serve_container_init};
pub use engine_namespaces::EngineNamespaces;
pub use error::{JailError, SetupStep};
pub use host_user::HostUser;
pub use jail::{ConnectionOutcome, ExecEvent, Jail, JailEvent, NewJail, OwnKernelChannels};
pub use landlock_rules::landlock_version;
pub use mount_layout::{LayoutMount, MountLayout};
pub use plan::{
    BindMount, CoverFile, ExecPlan, INSIDE_GID, INSIDE_UID, JailPlan, LayerPlan, ProcessLimits, WorkspacePlan,
};
pub use private_root::MAX_TERMINALS;
pub use probe::{FeatureProbe, probe_kernel, probe_limits};
pub use seccomp::filter_bytes;
pub use setup::{isolate_network, listen};
pub use spawner::{Spawner, SpawnerMode, serve_spawner};
pub use startup_memory::{limit_allocator_arenas, release_startup_memory};
pub use system_calls::system_call_tables;
