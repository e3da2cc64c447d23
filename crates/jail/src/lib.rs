//! The Linux sandbox itself: namespaces, a private root, Landlock, seccomp, and the init inside.
//!
//! A sandbox is made by following a recipe (`setup.rs`), one paragraph a kernel step, and any step that
//! fails stops the start with its name: nothing is ever silently weaker. Works as root and without.
//!
//! Not here: which paths and limits a sandbox gets (`policy`), async, or anything about agents.

mod blank;
mod bpf;
mod cgroup;
mod cgroup_watch;
mod console;
mod error;
mod guard;
mod guest;
mod host_user;
mod idle;
mod init;
mod jail;
mod kernel_text;
mod landlock_rules;
mod layering;
mod mark;
mod mask;
mod plan;
mod probe;
mod quarters;
mod reaped;
mod relay;
mod root;
mod seccomp;
mod setup;
mod source;
mod spawner;
mod stage;
mod sys;
mod verify;
mod wire;

pub use cgroup::{Cgroup, CgroupController, CgroupLimits, CgroupRoot, CgroupVersion, start_time};
pub use cgroup_watch::CgroupWatch;
pub use error::{JailError, SetupStep};
pub use guest::{GuestKernel, GuestOrder, GuestSocket, serve_guest};
pub use host_user::HostUser;
pub use idle::{give_back_what_the_start_needed, share_memory};
pub use jail::{ExecEvent, GuestChannels, Jail, NewJail};
pub use landlock_rules::landlock_version;
pub use plan::{BindMount, ExecPlan, INSIDE_GID, INSIDE_UID, JailPlan, ProcessLimits, WorkspacePlan};
pub use probe::{FeatureProbe, probe_kernel, probe_limits};
pub use quarters::EngineNamespaces;
pub use seccomp::filter_bytes;
pub use setup::{leave_network, listen};
pub use spawner::{Spawner, serve_spawner};
pub use stage::{LayoutMount, MountLayout};
