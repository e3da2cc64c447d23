//! What an engine is asked to make, and what is left of it in the end.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountType,
    ResourcesUlimits,
};
use jail::{CgroupLimits, CgroupWatch, GuestSocket, HostUser, MountLayout};

use super::ContainerSettings;
use super::bridge::Bridge;
use super::engine::{Engine, EngineKind};
use super::place::Place;
use super::words::unavailable;
use crate::SandboxError;
use crate::walled::Remains;

/// On every container of ours: which process it belongs to.
pub(super) const OWNER: &str = "vivarium.owner";
/// On every container of ours: the boot and the namespace in which that process has its number.
pub(super) const HOST: &str = "vivarium.host";
/// Where our init and its socket are inside.
const INIT: &str = "/.viv/inside";
const DOOR: &str = "/.viv/door";
/// Processes of the user inside, for engines that would set more than this process may give. The real limit is of
/// the container as a whole.
const MOST_PROCESSES: i64 = 16384;

/// Parts of /proc and /sys that speak of the host; what engines cover by themselves is among them.
const MASKED: [&str; 21] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus",
    "/proc/cmdline",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/tty",
    "/proc/vmallocinfo",
    "/sys",
];

/// What engines loosen in a network of its own, as it is everywhere else: low ports are root's, pings nobody's.
const NETWORK: [(&str, &str); 2] =
    [("net.ipv4.ip_unprivileged_port_start", "1024"), ("net.ipv4.ping_group_range", "1 0")];

/// The container that keeps `limits`.
pub(super) fn create_body(
    settings: &ContainerSettings,
    limits: &CgroupLimits,
    nofile: u64,
    mounts: Vec<Mount>,
    owner: &str,
) -> ContainerCreateBody {
    let user = HostUser::of_our_sandboxes();
    let labels = [(OWNER, owner.to_owned()), (HOST, host_name())];
    ContainerCreateBody {
        image: Some(settings.image.clone()),
        entrypoint: Some(vec![INIT.to_owned(), format!("{DOOR}/{}", GuestSocket::SOCKET)]),
        cmd: Some(Vec::new()),
        env: Some(Vec::new()),
        user: Some(format!("{}:{}", user.uid(), user.gid())),
        working_dir: Some("/".to_owned()),
        hostname: Some("vivarium".to_owned()),
        network_disabled: Some(true),
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
        host_config: Some(host_config(settings, limits, nofile, mounts)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(settings: &ContainerSettings, limits: &CgroupLimits, nofile: u64, mounts: Vec<Mount>) -> HostConfig {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let memory = limits.memory_bytes.map(number);
    HostConfig {
        network_mode: Some("none".to_owned()),
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(security_options(settings.kind)),
        masked_paths: Some(MASKED.map(str::to_owned).to_vec()),
        sysctls: Some(NETWORK.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
        privileged: Some(false),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        memory,
        // Memory and swap together: no swap beside.
        memory_swap: memory,
        nano_cpus: limits.cpu_millis.map(|millis| number(millis.saturating_mul(1_000_000))),
        pids_limit: limits.pids.map(number),
        ulimits: Some(vec![ulimit("nofile", number(nofile)), ulimit("nproc", MOST_PROCESSES)]),
        mounts: Some(mounts),
        runtime: settings.runtime.clone(),
        // Our own init reaps. What it says comes over its socket, so there is nothing to log.
        init: Some(false),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: Some(HashMap::new()) }),
        auto_remove: Some(true),
        ..HostConfig::default()
    }
}

/// No new privileges; and what Podman is told here that Docker has a field for.
fn security_options(kind: EngineKind) -> Vec<String> {
    let none = "no-new-privileges".to_owned();
    match kind {
        EngineKind::Docker => vec![none],
        EngineKind::Podman => vec![none, format!("mask={}", MASKED.join(":"))],
    }
}

fn ulimit(name: &str, limit: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(limit), hard: Some(limit) }
}

/// What is shown inside: our init and its socket, and what was laid out.
pub(super) fn mounts(place: &Place, stage: &MountLayout) -> Vec<Mount> {
    let ours = [(place.init(), INIT), (place.door(), DOOR)];
    let ours = ours.iter().map(|(source, target)| mount(source, Path::new(target), false));
    ours.chain(stage.mounts.iter().map(|staged| mount(&staged.source, &staged.target, staged.writable))).collect()
}

fn mount(source: &Path, target: &Path, writable: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_string_lossy().into_owned()),
        read_only: Some(!writable),
        ..Mount::default()
    }
}

/// Where a process number means what it says: this boot, and this namespace of processes.
pub(super) fn host_name() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), space.display())
}

/// A container with everything that was made for it.
pub(super) struct Container {
    engine: Engine,
    /// By which the engine knows it.
    name: String,
    watch: Option<CgroupWatch>,
    /// Carries what the sandbox cannot pass out.
    bridge: Option<Bridge>,
    // The stage goes before the directory it is in.
    stage: Option<MountLayout>,
    place: Option<Place>,
}

impl Container {
    /// The one that the engine will know by `name`, or does: what was made for it goes with it either way.
    pub(super) fn new(engine: Engine, name: String, place: Place, stage: MountLayout) -> Self {
        Self { engine, name, watch: None, bridge: None, stage: Some(stage), place: Some(place) }
    }

    /// Where its directory is.
    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    pub(super) fn bridge(&mut self, bridge: Bridge) {
        self.bridge = Some(bridge);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn watch(&mut self, watch: CgroupWatch) {
        self.watch = Some(watch);
    }

    /// Whether the kernel has the limit the engine was asked for: some accept it and do nothing.
    pub(super) fn check_limits(&self, asked: &CgroupLimits) -> Result<(), SandboxError> {
        let Some(bytes) = asked.memory_bytes else { return Ok(()) };
        let found = self.watch.as_ref().and_then(CgroupWatch::memory_limit);
        if found.is_some_and(|found| found <= bytes) {
            return Ok(());
        }
        Err(unavailable(
            "`proc.memory` cannot be enforced here: the engine took the limit, and the kernel has none",
            "add `degrade: {memory: rlimit}` to the policy, or use `--backend=jail`",
        ))
    }
}

impl Remains for Container {
    fn oom_kills(&self) -> u64 {
        self.watch.as_ref().map_or(0, CgroupWatch::oom_kills)
    }

    fn cpu_micros(&self) -> Option<u64> {
        self.watch.as_ref().and_then(CgroupWatch::cpu_micros)
    }

    fn clear(mut self: Box<Self>, alone: bool) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            self.engine.remove(&self.name).await;
            let made = (self.stage.take(), self.place.take());
            if alone {
                return drop(made);
            }
            // Unmounting may wait for the kernel.
            let _ = tokio::task::spawn_blocking(move || drop(made)).await;
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // After `clear` there is nothing left. Before it the init has been let go of, and ends the container, which
        // the engine removes by itself; asking for it makes sure where somebody waits.
        if self.stage.is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (engine, name) = (self.engine.clone(), std::mem::take(&mut self.name));
            runtime.spawn(async move { engine.remove(&name).await });
        }
        // What is mounted goes here and now, and is no task's: a host that ends does not wait for its tasks, and what
        // they hold would stay until the next one sweeps it.
    }
}
