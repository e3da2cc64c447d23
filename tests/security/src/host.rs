//! Attacks on the machine, and on the person at its terminal.

mod terminal_text;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jail::Spawner;
use rustix::process::{Pid, Resource, Rlimit, Signal};

use crate::attack::{Attack, Control, Group::Host, Place, Verdict, Walls, program, scenario};
use crate::lead::Lead;
use crate::maker::Maker;
use crate::raw::{self, Arg};
use crate::stage::{Stage, command};

pub(crate) fn attacks() -> Vec<Attack> {
    let alone = |attack: Attack| attack.shown(Control::Namespaced);
    vec![
        scenario(Host, "host_dies", "outlive the host's process", "a plain child outlives its parent", host_dies),
        scenario(
            Host,
            "host_terminal_escapes",
            "control the person's terminal by escape sequences in the output",
            "printed as they are, the sequences arrive",
            terminal_text::escapes,
        ),
        scenario(
            Host,
            "host_terminal_text",
            "control or deceive the person by text in tables, prompts, errors, streams and JSON",
            "printed as it is, the text arrives",
            terminal_text::deceit,
        ),
        program(Host, "host_terminal", "open the person's terminal", terminal).shown(Control::Probe(
            own_terminal,
            "the suite may run without a terminal; a process that has one opens it by the same name",
        )),
        scenario(
            Host,
            "host_stdin",
            "read the person's typed input",
            "a plain child that inherits it reads it",
            standard_input,
        ),
        program(Host, "host_signal", "kill a process of the host", signal),
        program(Host, "host_signal_all", "kill everything there is", signal_all).shown(Control::Namespaced),
        program(Host, "host_clock", "set the clock", clock).shown(Control::Root),
        program(Host, "host_clock_settime", "set it by the other calls", clock_settime).shown(Control::Root),
        alone(program(Host, "host_reboot", "reboot", reboot)),
        program(Host, "host_module", "load a module into the kernel", module)
            .shown(Control::RootWhere("the kernel takes modules")),
        program(Host, "host_kexec", "load another kernel", kexec)
            .shown(Control::RootWhere("the kernel can be replaced")),
        alone(program(Host, "host_name", "rename the host", name)),
        alone(program(Host, "host_domain", "rename its domain", domain)),
        program(Host, "host_limits", "raise one's own limits", limits).shown(Control::Probe(
            limits_probe,
            "it takes CAP_SYS_RESOURCE, which even root may lack; up to the limit it works",
        )),
        program(Host, "host_accounting", "have the kernel write a file for every process", accounting)
            .shown(Control::Root),
        program(Host, "host_swap", "take a file as swap", swap).shown(Control::Root),
        program(Host, "host_quota", "change quotas", quota).shown(Control::Root),
        program(Host, "host_hangup", "hang up the terminal", hangup).shown(Control::Root),
    ]
}

/// The second host process of `host_dies`: creates a sandbox with a busy process, and waits until it is killed.
pub(crate) fn hold() {
    let spawner = Arc::new(Spawner::fork().expect("spawner"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
    let mut arguments = std::env::args().skip(2);
    let root = PathBuf::from(arguments.next().expect("root"));
    let told: Vec<String> = arguments.collect();
    let stage = Stage {
        runtime: Arc::new(runtime),
        maker: Maker::from_arguments(&told, &spawner, &containers_of(&root)),
        program: std::env::current_exe().expect("program"),
        secret: String::new(),
        root,
    };
    let sandbox = stage.sandbox(Walls::Usual, &stage.root).expect("sandbox");
    // The sandbox has its own pipe and the host forwards the output, so that our pipe closes with the host.
    stage.runtime.block_on(async {
        let mark = stage.root.display().to_string();
        let mut process = sandbox.exec(command(&["__survive", "proc_deafen", &mark])).await.expect("exec");
        let mut line = [0; 5];
        tokio::io::AsyncReadExt::read_exact(&mut process.stdout, &mut line).await.expect("line");
        println!("{} {}", stage.root.display(), std::process::id());
        std::future::pending::<()>().await;
    });
}

/// Returns the scratch directory of a host over `workspace`.
fn containers_of(workspace: &Path) -> PathBuf {
    workspace.with_file_name("containers")
}

/// Returns the host's process ids of survivors with the argument `mark`.
fn survivors(mark: &str) -> Vec<i32> {
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    let told = listed.filter_map(|entry| {
        let pid = entry.file_name().to_string_lossy().parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let marked = [environment, line].iter().any(|text| String::from_utf8_lossy(text).contains(mark));
        marked.then_some(pid)
    });
    told.collect()
}

/// Returns whether a process runs. A zombie, which its new parent may reap late, does not count.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn host_dies(stage: &Stage, place: Place) -> Verdict {
    let scene = stage.scene();
    let workspace = scene.workspace();
    let mut host = Command::new(&stage.program);
    match place {
        Place::Inside => host.args(["__hold".as_ref(), workspace.as_os_str()]).args(stage.maker.to_arguments()),
        Place::Outside => host.args(["__survive", "proc_deafen"]).env("MARK", &workspace),
    };
    let mut host = host.stdout(Stdio::piped()).spawn().expect("host");
    let mut output = host.stdout.take().expect("stdout");
    output.read_exact(&mut [0; 5]).expect("a word");
    let group = fs::read_to_string(format!("/proc/{}/task/{0}/children", host.id())).unwrap_or_default();
    host.kill().expect("kill");
    host.wait().expect("wait");
    if place == Place::Outside {
        let left = survivors(&workspace.to_string_lossy());
        for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        return Verdict::when(!left.is_empty(), format!("{left:?} after the end"));
    }
    // The spawner ends first, and its sandboxes with it. A container ends when its init loses the control socket.
    let mut left: Vec<String> = Vec::new();
    testkit::becomes_true(|| {
        left = group.split_whitespace().filter(|pid| lives(pid)).map(str::to_owned).collect();
        left.extend(survivors(&workspace.to_string_lossy()).iter().map(i32::to_string));
        left.is_empty()
    });
    // The next host removes its mounts.
    drop(stage.maker.again(&containers_of(&workspace)));
    Verdict::when(!left.is_empty(), format!("{group:?} were there, {left:?} are left"))
}

fn terminal(_: &Lead) -> Verdict {
    let names = ["/dev/tty", "/dev/console", "/dev/tty0", "/dev/pts/0", "/dev/pts/1"];
    let opened = names.map(|path| Verdict::of(path, fs::OpenOptions::new().read(true).write(true).open(path)));
    let streams = (0..3)
        .map(|number| Verdict::when(rustix::termios::isatty(raw::borrow(number)), format!("descriptor {number}")));
    Verdict::any(opened.into_iter().chain(streams))
}

/// Runs in a new session with a new terminal, like a shell.
fn own_terminal(lead: &Lead) -> Verdict {
    crate::proc::take_terminal().expect("terminal");
    terminal(lead)
}

/// The host's standard input contains a line for the host.
fn standard_input(stage: &Stage, place: Place) -> Verdict {
    let scene = stage.scene();
    if place == Place::Outside {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn");
        child.stdin.take().expect("stdin").write_all(stage.secret.as_bytes()).expect("write");
        let output = child.wait_with_output().expect("output");
        return Verdict::when(String::from_utf8_lossy(&output.stdout).contains(&stage.secret), "its input");
    }
    // A command's input must be its own pipe, never the host's descriptor.
    let own = fs::metadata("/proc/self/fd/0").map(|data| (data.dev(), data.ino())).ok();
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let mut spec = command(&[]);
    spec.command = ["stat", "-L", "-c", "%d %i", "/proc/self/fd/0", "/proc/1/fd/0"].map(str::to_owned).to_vec();
    let told = stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut |_, _| {})).expect("run").stdout;
    stage.destroy(&*sandbox);
    let told = String::from_utf8_lossy(&told).into_owned();
    let same = own.is_some_and(|(device, inode)| told.lines().any(|line| line == format!("{device} {inode}")));
    Verdict::when(same || told.is_empty(), told)
}

fn signal(lead: &Lead) -> Verdict {
    let victim = Pid::from_raw(lead.victim).expect("a number");
    let sent = rustix::process::kill_process(victim, Signal::KILL);
    testkit::pause(Duration::from_millis(50));
    Verdict::of("kill", sent)
}

/// The control runs in a separate PID namespace, where one child represents all processes.
fn signal_all(lead: &Lead) -> Verdict {
    let child = raw::fork().expect("fork");
    if child == 0 {
        testkit::hang(Duration::from_secs(30));
        raw::exit(0);
    }
    raw::ignore(libc::SIGTERM);
    let sent = raw::call(libc::SYS_kill, &mut [Arg::Number(-1), Arg::Number(libc::SIGTERM.into())]);
    let status = raw::wait(child).expect("wait");
    // Inside, only the own child dies; the host checks that its process lives.
    Verdict::when(!lead.inside && sent.is_ok(), format!("{sent:?}, child {status}"))
}

/// Sets the clock by an offset of zero, which needs the privilege and changes nothing.
fn clock(_: &Lead) -> Verdict {
    let mut timex = vec![0; size_of::<libc::timex>()];
    timex[..4].copy_from_slice(&0x0100_u32.to_ne_bytes()); // ADJ_SETOFFSET
    let mut again = timex.clone();
    Verdict::any([
        Verdict::of("adjtimex", raw::call(libc::SYS_adjtimex, &mut [Arg::Buffer(&mut timex)])),
        Verdict::of(
            "clock_adjtime",
            raw::call(libc::SYS_clock_adjtime, &mut [Arg::Number(0), Arg::Buffer(&mut again)]),
        ),
    ])
}

/// Sets an invalid time. The kernel checks the privilege first, so nothing is set.
fn clock_settime(_: &Lead) -> Verdict {
    let never: Vec<u8> = [0_i64, 2_000_000_000].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let zone = [0, 0, 0, 0, 0, 0, 0, 0];
    let refused = [
        raw::call(libc::SYS_clock_settime, &mut [Arg::Number(0), Arg::Bytes(&never)]),
        // Sets the usual time zone and no time, so that only the privilege is tested.
        raw::call(libc::SYS_settimeofday, &mut [Arg::Number(0), Arg::Bytes(&zone)]),
    ];
    Verdict::any(refused.map(reached))
}

/// Returns success when the kernel passed the privilege check: the call succeeded or failed for another reason.
fn reached(result: std::io::Result<i64>) -> Verdict {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) => {
            Verdict::Blocked(error.to_string())
        }
        other => Verdict::Succeeded(format!("{other:?}")),
    }
}

fn reboot(lead: &Lead) -> Verdict {
    let here = fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino());
    assert!(here.is_ok_and(|here| here != lead.pid_namespace) || lead.inside || std::process::id() == 1, "not here");
    let (first, second, restart) = (0xfee1_dead, 672_274_793, 0x0123_4567);
    let mut arguments = [Arg::Number(first), Arg::Number(second), Arg::Number(restart), Arg::Number(0)];
    Verdict::of("reboot", raw::call(libc::SYS_reboot, &mut arguments))
}

/// Loads an invalid module. The kernel checks the privilege before the module.
fn module(_: &Lead) -> Verdict {
    let init = raw::call(libc::SYS_init_module, &mut [Arg::Bytes(b"none"), Arg::Number(4), Arg::Text(c"")]);
    let remove = raw::call(libc::SYS_delete_module, &mut [Arg::Text(c"viv_no_such_module"), Arg::Number(0)]);
    Verdict::any([reached(init), reached(remove)])
}

fn kexec(_: &Lead) -> Verdict {
    let mut arguments = [Arg::Number(-1), Arg::Number(-1), Arg::Number(0), Arg::Text(c""), Arg::Number(0)];
    reached(raw::call(libc::SYS_kexec_file_load, &mut arguments))
}

fn name(_: &Lead) -> Verdict {
    Verdict::of("sethostname", rustix::system::sethostname(b"taken"))
}

fn domain(_: &Lead) -> Verdict {
    Verdict::of("setdomainname", rustix::system::setdomainname(b"taken"))
}

fn limits(_: &Lead) -> Verdict {
    Verdict::any([Resource::Nofile, Resource::Core, Resource::Rtprio, Resource::Nice].map(|resource| {
        let hard = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX - 1);
        let above = Some(hard + 1);
        let set = rustix::process::setrlimit(resource, Rlimit { current: above, maximum: above });
        // A success code does not prove the effect.
        let raised = rustix::process::getrlimit(resource).maximum == above;
        Verdict::when(raised, format!("{set:?}"))
    }))
}

fn limits_probe(_: &Lead) -> Verdict {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Verdict::of("setrlimit", rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }))
}

fn accounting(_: &Lead) -> Verdict {
    // A missing file: the kernel checks the privilege first.
    reached(raw::call(libc::SYS_acct, &mut [Arg::Text(c"/no/such/file")]))
}

fn swap(_: &Lead) -> Verdict {
    reached(raw::call(libc::SYS_swapon, &mut [Arg::Text(c"/no/such/file"), Arg::Number(0)]))
}

fn quota(_: &Lead) -> Verdict {
    // Q_SYNC of a missing device would succeed; Q_QUOTAON checks privileges.
    let command = i64::from(0x0080_0002_u32 << 8);
    let mut arguments = [Arg::Number(command), Arg::Text(c"/no/such/device"), Arg::Number(0), Arg::Number(0)];
    reached(raw::call(libc::SYS_quotactl, &mut arguments))
}

/// A session without a terminal cannot be hung up.
fn hangup(_: &Lead) -> Verdict {
    let _ = rustix::process::setsid();
    Verdict::of("vhangup", raw::call(libc::SYS_vhangup, &mut []))
}
