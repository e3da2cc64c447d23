//! The request with which an engine creates a container.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountType,
    ResourcesUlimits,
};
use jail::{CgroupLimits, HostUser, InitSocket, MountLayout};

use super::ContainerSettings;
use super::container_dir::ContainerDir;
use super::engine::EngineKind;

/// The label of our containers that names the process that made them.
pub(super) const OWNER: &str = "vivarium.owner";
/// The label of our containers that names the boot and the PID namespace of that process.
pub(super) const HOST: &str = "vivarium.host";
/// The path of our init inside the sandbox.
const INIT: &str = "/.viv/inside";
/// The directory of the init's sockets inside the sandbox.
const SOCKETS: &str = "/.viv/door";
/// The process limit of the sandbox user. Some engines would otherwise set more than this process may grant. The limit of
/// the policy applies to the whole container.
const MAX_USER_PROCESSES: i64 = 16384;

/// Entries of /proc and /sys that reveal the host, including those that engines mask by default.
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

/// Kernel defaults that engines relax in a container's network: low ports need root, and nobody may ping.
const NETWORK_SYSCTLS: [(&str, &str); 2] =
    [("net.ipv4.ip_unprivileged_port_start", "1024"), ("net.ipv4.ping_group_range", "1 0")];

/// Returns the request for a container with `limits`.
pub(super) fn create_body(
    settings: &ContainerSettings,
    limits: &CgroupLimits,
    nofile: u64,
    mounts: Vec<Mount>,
    owner: &str,
) -> ContainerCreateBody {
    let user = HostUser::for_sandboxes();
    let labels = [(OWNER, owner.to_owned()), (HOST, host_name())];
    ContainerCreateBody {
        image: Some(settings.image.clone()),
        entrypoint: Some(vec![INIT.to_owned(), format!("{SOCKETS}/{}", InitSocket::SOCKET)]),
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
        sysctls: Some(NETWORK_SYSCTLS.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
        privileged: Some(false),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        memory,
        // The limit of memory and swap together, so that no swap is used.
        memory_swap: memory,
        nano_cpus: limits.cpu_millis.map(|millis| number(millis.saturating_mul(1_000_000))),
        pids_limit: limits.pids.map(number),
        ulimits: Some(vec![ulimit("nofile", number(nofile)), ulimit("nproc", MAX_USER_PROCESSES)]),
        mounts: Some(mounts),
        runtime: settings.runtime.clone(),
        // Our own init reaps processes. Output goes over its socket, so there is nothing to log.
        init: Some(false),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: Some(HashMap::new()) }),
        auto_remove: Some(true),
        ..HostConfig::default()
    }
}

/// Returns the security options: no new privileges, and for Podman the masked paths, which Docker has a field for.
fn security_options(kind: EngineKind) -> Vec<String> {
    let no_new_privileges = "no-new-privileges".to_owned();
    match kind {
        EngineKind::Docker => vec![no_new_privileges],
        EngineKind::Podman => vec![no_new_privileges, format!("mask={}", MASKED.join(":"))],
    }
}

fn ulimit(name: &str, limit: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(limit), hard: Some(limit) }
}

/// Returns the mounts of a container: our init and its sockets, and the layout.
pub(super) fn mounts(directory: &ContainerDir, layout: &MountLayout) -> Vec<Mount> {
    let ours = [(directory.init(), INIT), (directory.sockets(), SOCKETS)];
    let ours = ours.iter().map(|(source, target)| mount(source, Path::new(target), false));
    ours.chain(layout.mounts.iter().map(|laid_out| mount(&laid_out.source, &laid_out.target, laid_out.writable)))
        .collect()
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

/// Returns the boot id and the PID namespace. Within them, a process id and its start time identify a process.
pub(super) fn host_name() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), namespace.display())
}
