//! Attacks on secrets of the host.

use std::fs;
use std::path::{Path, PathBuf};

use crate::attack::{Attack, Control, Group::Secrets, Place, Verdict, Walls, program, scenario};
use crate::lead::Lead;
use crate::raw::{self, Arg};
use crate::stage::{Stage, command};

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Secrets, "secrets_environment", "find the host's environment in one's own", environment),
        program(Secrets, "secrets_environment_of_others", "read /proc/PID/environ", environment_of_others),
        program(Secrets, "secrets_arguments", "read the arguments of the host's processes", arguments),
        program(Secrets, "secrets_processes", "see the host's processes at all", processes),
        program(Secrets, "secrets_home", "list homes of the host", home),
        program(Secrets, "secrets_ssh_key", "read an ssh key by every path that might lead there", ssh_key),
        program(Secrets, "secrets_shadow", "read the host's passwords", shadow).shown(Control::Root),
        program(Secrets, "secrets_users", "learn the host's users", users),
        program(Secrets, "secrets_machine_files", "read identifiers of the machine", machine_files),
        program(Secrets, "secrets_mounts", "learn host paths from the mount table", mounts),
        program(Secrets, "secrets_mounts_host", "learn the other mounts of the host", mounts_of_host),
        program(Secrets, "secrets_hostname", "learn the host's name", hostname),
        program(Secrets, "secrets_shared_memory", "read a shared memory segment of the host", shared_memory),
        program(Secrets, "secrets_unix_sockets", "list unix sockets of the host", unix_sockets),
        program(Secrets, "secrets_connections", "list connections of the host", connections),
        program(Secrets, "secrets_kernel_addresses", "learn kernel addresses", kernel_addresses).shown(Control::Root),
        program(Secrets, "secrets_kernel_log", "read the kernel's log", kernel_log).shown(Control::Root),
        program(Secrets, "secrets_kernel_memory", "open the kernel's memory", kernel_memory).shown(Control::Root),
        program(Secrets, "secrets_kernel_keys", "list keys and their users", kernel_keys),
        program(Secrets, "secrets_kernel_tables", "read kernel information about the whole machine", kernel_tables),
        scenario(
            Secrets,
            "secrets_token_of_other",
            "find the gateway token of another session",
            "a plain process finds it in that session's environment",
            token_of_other,
        ),
    ]
}

fn environment(_: &Lead) -> Verdict {
    Verdict::Blocked(format!("{:?}", std::env::vars_os().collect::<Vec<_>>()))
}

/// Prints the readable content of a file; the host searches it for the secret.
fn show(path: &Path) -> Verdict {
    match fs::read(path) {
        Ok(bytes) => Verdict::Blocked(String::from_utf8_lossy(&bytes).replace('\0', " ")),
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

fn environment_of_others(lead: &Lead) -> Verdict {
    let text = lead.processes().into_iter().map(|pid| show(Path::new(&format!("/proc/{pid}/environ"))));
    Verdict::any(text)
}

fn arguments(lead: &Lead) -> Verdict {
    let text = lead.processes().into_iter().map(|pid| show(Path::new(&format!("/proc/{pid}/cmdline"))));
    Verdict::any(text)
}

fn processes(lead: &Lead) -> Verdict {
    // Inside there are only init and this process.
    let count = fs::read_dir("/proc").expect("/proc").flatten();
    let count = count.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()).count();
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    Verdict::when(count > 2 || !(0..=1).contains(&parent), format!("{count} processes, victim {}", lead.victim))
}

fn home(lead: &Lead) -> Verdict {
    let homes = ["/root", "/home", "/var/lib", "/mnt", "/media", "/opt", "/srv", "/var/log", "/boot", "/var/spool"];
    let seen = homes.map(PathBuf::from).into_iter().chain([lead.outside.join("home")]).flat_map(|home| {
        let listed = fs::read_dir(home).into_iter().flatten().flatten();
        listed.map(|entry| entry.path()).filter(|path| !path.ends_with("home/agent"))
    });
    let seen: Vec<_> = seen.collect();
    Verdict::when(!seen.is_empty(), format!("{seen:?}"))
}

fn ssh_key(lead: &Lead) -> Verdict {
    let secret = lead.secret();
    let known = secret.strip_prefix("/").expect("absolute");
    let ways = ["/", "/proc/self/root", "/proc/thread-self/root", "/proc/1/root", "/workspace/way-out/../../../.."];
    let tries = ways.map(|way| match fs::read_to_string(Path::new(way).join(known)) {
        Ok(text) => Verdict::Succeeded(text),
        Err(error) => Verdict::Blocked(error.to_string()),
    });
    Verdict::any(tries)
}

fn shadow(_: &Lead) -> Verdict {
    Verdict::any(["/etc/shadow", "/etc/gshadow", "/etc/sudoers"].map(|path| Verdict::of(path, fs::read(path))))
}

fn users(_: &Lead) -> Verdict {
    let text = fs::read_to_string("/etc/passwd").expect("passwd");
    let more: Vec<_> =
        text.lines().filter(|line| !line.starts_with("agent:") && !line.starts_with("nobody:")).collect();
    Verdict::when(!more.is_empty(), format!("{} users", more.len()))
}

fn machine_files(_: &Lead) -> Verdict {
    let files = ["/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/fstab", "/etc/os-release", "/etc/debian_version"];
    Verdict::any(files.map(|path| Verdict::of(path, fs::read(path))))
}

/// The mount table reveals the host path of bind mounts and of the workspace by design. Other paths, such as those of the
/// workspace's layers, must not appear.
fn mounts(lead: &Lead) -> Verdict {
    let scene_directory = lead.outside.parent().expect("scene");
    let scene = scene_directory.file_name().expect("scene").to_string_lossy().into_owned();
    let workspace = scene_directory.join("workspace").to_string_lossy().into_owned();
    let text = ["mountinfo", "mounts", "mountstats"]
        .map(|name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default());
    // On the host the table names no scene before one is mounted, so the control checks the list itself.
    let told = text.concat().replace(&workspace, "");
    let host = !lead.inside && told.lines().count() > 1;
    Verdict::when(host || told.contains(&scene), told)
}

fn mounts_of_host(lead: &Lead) -> Verdict {
    let paths = lead.processes().into_iter().filter(|pid| !lead.inside || *pid == 1 || *pid == lead.victim);
    let told: String =
        paths.map(|pid| fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default()).collect();
    let points = told.lines().filter_map(|line| line.split(' ').nth(4));
    let host: Vec<_> = points.filter(|point| point.starts_with("/sys") || point.starts_with("/boot")).collect();
    Verdict::when(!host.is_empty(), format!("{host:?}"))
}

fn hostname(lead: &Lead) -> Verdict {
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let files = ["/etc/hostname", "/proc/sys/kernel/hostname", "/etc/hosts"];
    let told = files.map(|path| fs::read_to_string(path).unwrap_or_default()).concat();
    Verdict::when(own == lead.hostname || told.contains(&lead.hostname), own)
}

fn shared_memory(lead: &Lead) -> Verdict {
    match raw::read_segment(lead.segment, lead.victim_memory.1) {
        Ok(bytes) => Verdict::Succeeded(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

fn unix_sockets(lead: &Lead) -> Verdict {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    Verdict::when(text.contains(&lead.abstract_name), format!("{} sockets", text.lines().count()))
}

fn connections(lead: &Lead) -> Verdict {
    let text = ["tcp", "tcp6", "udp"].map(|table| fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
    let port = format!(":{:04X} ", lead.ports[0]);
    Verdict::when(text.concat().contains(&port), "a port of the host")
}

fn kernel_addresses(_: &Lead) -> Verdict {
    match fs::read_to_string("/proc/kallsyms") {
        Ok(text) => {
            let told = text.lines().take(1000).any(|line| !line.starts_with("0000000000000000"));
            Verdict::when(told, "addresses (os error 1)")
        }
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

fn kernel_log(_: &Lead) -> Verdict {
    let mut bytes = [0; 256];
    let mut arguments = [Arg::Number(3), Arg::Buffer(&mut bytes), Arg::Number(256)];
    let called = raw::call(libc::SYS_syslog, &mut arguments);
    Verdict::any([Verdict::of("syslog", called), Verdict::of("/dev/kmsg", fs::File::open("/dev/kmsg"))])
}

fn kernel_memory(_: &Lead) -> Verdict {
    let files = ["/proc/kcore", "/dev/mem", "/dev/kmem", "/proc/kpagecount", "/proc/kpageflags"];
    let tries = files.map(|path| {
        // A masked file reads as empty.
        let read = fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut [0; 8]));
        Verdict::of(path, read)
    });
    Verdict::any(tries)
}

fn kernel_keys(_: &Lead) -> Verdict {
    let told: String =
        ["/proc/keys", "/proc/key-users"].map(|path| fs::read_to_string(path).unwrap_or_default()).concat();
    Verdict::when(!told.trim().is_empty(), told)
}

/// Files about all processes, drivers or users of the machine.
fn kernel_tables(_: &Lead) -> Verdict {
    let files = [
        "/proc/cmdline",
        "/proc/modules",
        "/proc/interrupts",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/fs",
        "/proc/bus",
        "/proc/irq",
        "/proc/tty",
    ];
    let told = files.into_iter().filter(|path| {
        let path = Path::new(path);
        let entries = fs::read_dir(path).map_or(0, Iterator::count);
        entries > 0 || fs::read(path).is_ok_and(|bytes| !bytes.is_empty())
    });
    let told: Vec<_> = told.collect();
    Verdict::when(!told.is_empty(), format!("{told:?}"))
}

/// The other session has its token in its environment, like an agent.
fn token_of_other(stage: &Stage, place: Place) -> Verdict {
    let (scene, other) = (stage.scene(), stage.scene());
    if place == Place::Outside {
        let environ = fs::read(format!("/proc/{}/environ", scene.victim.pid())).unwrap_or_default();
        return Verdict::when(String::from_utf8_lossy(&environ).contains(&stage.secret), "its environment");
    }
    stage.runtime.block_on(async {
        let neighbour = stage.make(Walls::Usual, &other.workspace()).await.expect("sandbox");
        let mut spec = command(&[]);
        spec.command = ["sh", "-c", "echo $TOKEN > /tmp/token; echo up; sleep 60"].map(str::to_owned).to_vec();
        spec.env.insert("PATH".into(), "/usr/bin:/bin".into());
        spec.env.insert("TOKEN".into(), stage.secret.clone());
        let mut session = neighbour.exec(spec).await.expect("exec");
        tokio::io::AsyncReadExt::read_exact(&mut session.stdout, &mut [0; 3]).await.expect("up");
        let attacker = stage.make(Walls::Usual, &scene.workspace()).await.expect("sandbox");
        let search = "cat /proc/*/environ /tmp/* /proc/*/roo?/tmp/* /dev/shm/* /home/agent/* 2>/dev/null; true";
        let mut spec = command(&[]);
        spec.command = ["sh", "-c", search].map(str::to_owned).to_vec();
        let found = sandbox::run(&*attacker, spec, &mut |_, _| {}).await.expect("run");
        attacker.destroy().await.expect("destroy");
        neighbour.destroy().await.expect("destroy");
        Verdict::when(String::from_utf8_lossy(&found.stdout).contains(&stage.secret), "searched files and processes")
    })
}
