//! What only container engines can get wrong: that they are not there, what they are made of, what they leave.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use engines::{Engine, MountTraces};
use jail::Spawner;
use policy::Preset;
use protocol::ProblemCode;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{ContainerBackend, ContainerSettings, EngineKind, Sandbox, SandboxBackend, SandboxError};

use crate::{Crowd, Subject, shell, spec, text};

/// An engine, and what a test may change of how it is used.
pub(crate) struct Case {
    pub(crate) settings: ContainerSettings,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) scratch: tempfile::TempDir,
}

/// One thing that must hold of an engine, by its name.
pub(crate) type CaseTest = fn(Case) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// A list of cases, from the names of functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => { vec![$((stringify!($name), (|case| Box::pin($name(case))) as CaseTest)),*] };
}

/// What must hold of an engine that an ordinary user runs.
pub(crate) fn rootless() -> Vec<(&'static str, CaseTest)> {
    cases![
        what_an_engine_without_root_cannot_keep_is_refused_by_its_key,
        what_may_be_weaker_without_root_is_and_says_so,
        an_engine_without_root_says_so,
        docker_without_root_is_refused_with_the_reason,
        many_made_at_once_by_several_hosts_are_all_made,
    ]
}

/// What only root can try.
pub(crate) fn of_root() -> Vec<(&'static str, CaseTest)> {
    cases![what_a_host_that_died_left_is_swept]
}

pub(crate) fn cases() -> Vec<(&'static str, CaseTest)> {
    cases![
        an_engine_that_is_not_there_is_named,
        an_engine_of_another_kind_is_none,
        an_image_that_is_not_there_is_not_fetched,
        an_entrypoint_runs_first,
        an_entrypoint_that_fails_is_told_in_its_words,
        a_runtime_that_is_not_there_is_told_in_the_engines_words,
        a_container_whose_host_was_killed_is_swept_by_the_next,
        a_sandbox_that_is_dropped_leaves_nothing,
        nothing_speaks_of_the_host,
    ]
}

impl Case {
    pub(crate) fn of(engine: &Engine, spawner: &Arc<Spawner>) -> Self {
        let scratch = tempfile::tempdir().expect("scratch");
        Self { settings: engine.settings(None), spawner: Arc::clone(spawner), scratch }
    }

    /// What its containers leave.
    fn traces(&self) -> MountTraces {
        MountTraces { place: self.scratch.path().to_owned(), socket: self.settings.sockets[0].clone() }
    }

    fn backend(&self) -> Arc<dyn SandboxBackend> {
        let place = self.scratch.path().to_owned();
        Arc::new(ContainerBackend::new(self.settings.clone(), Arc::clone(&self.spawner), place).expect("backend"))
    }

    async fn create(&self) -> Result<Box<dyn Sandbox>, SandboxError> {
        let backend = self.backend();
        let crowd = Crowd { size: 1, backend: Arc::clone(&backend), traces: None };
        let subject = Subject { name: "one", backend, mode: policy::WorkspaceMode::Overlay, crowd };
        subject.backend.create(spec(&subject, None)).await
    }

    /// The whole error of a sandbox that cannot be had, cause by cause.
    async fn refusal(&self) -> String {
        let error = self.create().await.err().expect("a refusal");
        assert_eq!(error.code(), ProblemCode::SandboxCreateError);
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let fix = if let SandboxError::Unavailable { fix, .. } = &error { format!(" / {fix}") } else { String::new() };
        format!("{error}{}{fix}", cause.unwrap_or_default())
    }
}

/// Whether limits of an engine without root do nothing here, though it takes them.
fn ignores_limits() -> bool {
    !Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

async fn what_an_engine_without_root_cannot_keep_is_refused_by_its_key(case: Case) {
    let backend = case.backend();
    let mut strict = crate::plain_spec("strict");
    strict.policy = crate::policy_of(&Preset::Strict.source());
    let told = backend.create(strict).await.err().expect("a refusal").to_string();
    assert!(told.contains("`proc.memory` cannot be enforced here"), "{told}");
}

async fn what_may_be_weaker_without_root_is_and_says_so(case: Case) {
    let sandbox = case.backend().create(crate::plain_spec("weaker")).await.expect("sandbox");
    let told = sandbox.effective().clone();
    let state = |key: &str| told[key]["state"].as_str().unwrap_or_default().to_owned();
    let limits = ["proc.memory", "proc.pids", "proc.cpus"].map(state);
    assert_eq!(limits, if ignores_limits() { ["weaker", "weaker", "absent"] } else { ["enforced"; 3] }, "{told:?}");
    let rest =
        ["fs.workspace", "fs.read", "fs.write", "fs.deny_read", "fs.deny_write", "net", "proc.disk", "proc.nofile"];
    assert!(rest.into_iter().all(|key| state(key) == "enforced"), "{told:?}");
    // The user who runs the engine, and nobody's root.
    let us = rustix::process::geteuid().as_raw();
    assert_eq!(text(&shell(&*sandbox, "id -u").await.stdout), format!("{us}\n"));
    sandbox.destroy().await.expect("destroy");
}

async fn many_made_at_once_by_several_hosts_are_all_made(case: Case) {
    let hosts = [case.backend(), case.backend()];
    let made = (0..12).map(|at| {
        let backend = Arc::clone(&hosts[at % hosts.len()]);
        tokio::spawn(async move { backend.create(crate::plain_spec(&format!("one-of-many-{at}"))).await })
    });
    for made in made.collect::<Vec<_>>() {
        let sandbox = made.await.expect("task").expect("sandbox");
        sandbox.destroy().await.expect("destroy");
    }
}

async fn docker_without_root_is_refused_with_the_reason(mut case: Case) {
    let docker = Engine::rootless_docker();
    case.settings = docker.settings(None);
    let told = case.refusal().await;
    assert!(told.contains("docker without root shows who owns a workspace as root inside"), "{told}");
    assert!(told.contains("--backend=podman"), "{told}");
}

async fn an_engine_without_root_says_so(case: Case) {
    let place = case.scratch.path().to_owned();
    let backend = ContainerBackend::new(case.settings.clone(), Arc::clone(&case.spawner), place).expect("backend");
    let report = backend.report().await.expect("report");
    assert!(report.rootless, "{report:?}");
    let lost: &[&str] = if ignores_limits() { &["proc.memory", "proc.pids", "proc.cpus"] } else { &[] };
    assert!(lost.iter().all(|key| report.cannot_keep.contains(key)), "{report:?}");
}

async fn an_engine_that_is_not_there_is_named(mut case: Case) {
    let kind = case.settings.kind.as_str();
    case.settings.sockets = vec!["/nowhere/engine.sock".into()];
    let told = case.refusal().await;
    assert!(told.contains(&format!("no {kind} engine answers (/nowhere/engine.sock: ")), "{told}");
    assert!(told.contains(" / ") && told.contains("systemctl") && told.contains(" start "), "{told}");
}

async fn an_engine_of_another_kind_is_none(mut case: Case) {
    use sandbox::EngineKind::{Docker, Podman};
    case.settings.kind = if case.settings.kind == Docker { Podman } else { Docker };
    let told = case.refusal().await;
    assert!(told.contains("what answers is not"), "{told}");
}

async fn an_image_that_is_not_there_is_not_fetched(mut case: Case) {
    case.settings.image = String::from("localhost/viv-test:none");
    let told = case.refusal().await;
    let kind = case.settings.kind.as_str();
    assert!(told.contains("has no image `localhost/viv-test:none`"), "{told}");
    assert!(told.ends_with(&format!("/ {kind} build -t localhost/viv-test:none docs/container")), "{told}");
    case.settings.image = String::from("registry.example.com/some/image:1");
    let told = case.refusal().await;
    assert!(told.ends_with(&format!("/ {kind} pull registry.example.com/some/image:1")), "{told}");
}

async fn an_entrypoint_runs_first(mut case: Case) {
    case.settings.entrypoint = ["/bin/sh", "-c", "echo prepared > /workspace/first"].map(str::to_owned).to_vec();
    let sandbox = case.create().await.expect("sandbox");
    assert_eq!(text(&shell(&*sandbox, "cat first").await.stdout), "prepared\n");
    sandbox.destroy().await.expect("destroy");
}

async fn an_entrypoint_that_fails_is_told_in_its_words(mut case: Case) {
    case.settings.entrypoint = ["/bin/sh", "-c", "echo no licence >&2; exit 3"].map(str::to_owned).to_vec();
    let told = case.refusal().await;
    assert!(told.contains("run its entrypoint") && told.ends_with("it ended with code 3: no licence"), "{told}");
    case.settings.entrypoint = vec!["/no/such/program".to_owned()];
    let told = case.refusal().await;
    assert!(told.contains("run its entrypoint `/no/such/program`: `/no/such/program` is not in"), "{told}");
}

async fn a_runtime_that_is_not_there_is_told_in_the_engines_words(mut case: Case) {
    case.settings.runtime = Some("no-such-runtime".to_owned());
    let told = case.refusal().await;
    assert!(told.contains("no-such-runtime"), "{told}");
}

async fn what_a_host_that_died_left_is_swept(case: Case) {
    // Process 1 was never born at that time.
    let left = case.scratch.path().join("1-1-0/0/stage");
    std::fs::create_dir_all(&left).expect("left");
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount("left", &left, "tmpfs", none, None).expect("mount");
    assert!(is_mounted(&left));
    let sandbox = case.create().await.expect("sandbox");
    assert!(!is_mounted(&left) && !left.exists());
    sandbox.destroy().await.expect("destroy");
}

/// Another host, which makes a sandbox and waits to be killed.
pub(crate) struct Held {
    settings: ContainerSettings,
    scratch: PathBuf,
}

impl Held {
    const ROLE: &str = "__hold";

    /// What a process of that role was told.
    pub(crate) fn of_arguments() -> Option<Self> {
        let mut arguments = std::env::args().skip(1);
        arguments.next().filter(|role| role == Self::ROLE)?;
        let kind = arguments.next()?;
        let kind = [EngineKind::Docker, EngineKind::Podman].into_iter().find(|known| known.as_str() == kind)?;
        Some(Self { settings: engines::settings(kind, arguments.next()?.into()), scratch: arguments.next()?.into() })
    }

    pub(crate) fn live(self, spawner: &Arc<Spawner>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let backend = ContainerBackend::new(self.settings, Arc::clone(spawner), self.scratch).expect("backend");
            let _held = backend.create(crate::plain_spec("held")).await.expect("sandbox");
            println!("up");
            std::future::pending::<()>().await;
        });
    }

    fn start(case: &Case) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("program"));
        command.args([Self::ROLE, case.settings.kind.as_str()]).arg(&case.settings.sockets[0]);
        let mut host = command.arg(case.scratch.path()).stdout(Stdio::piped()).spawn().expect("host");
        host.stdout.take().expect("stdout").read_exact(&mut [0; 3]).expect("up");
        host
    }
}

async fn a_container_whose_host_was_killed_is_swept_by_the_next(case: Case) {
    let socket = case.settings.sockets[0].clone();
    let mut host = Held::start(&case);
    let owner = format!("{}-", host.id());
    let mut theirs =
        engines::running_containers(&socket).await.into_iter().filter(|running| running.owner.starts_with(&owner));
    let left = theirs.next().expect("its container");
    // An init that is stopped does not notice that its host is gone, and nor does the engine.
    let init = Pid::from_raw(left.pid).expect("init");
    kill_process(init, Signal::STOP).expect("stop");
    while !is_stopped(left.pid) {
        std::thread::yield_now();
    }
    host.kill().expect("kill -9");
    host.wait().expect("wait");
    // From here on any other test that meets the same engine may be the one that sweeps the container, but not its mounts.
    assert!(case.traces().count() > 0);

    let sandbox = case.create().await.expect("sandbox");
    let names: Vec<String> = engines::running_containers(&socket).await.into_iter().map(|running| running.id).collect();
    assert!(!names.contains(&left.id), "{left:?} is still there");
    sandbox.destroy().await.expect("destroy");
    assert_eq!(case.traces().count(), 0);
}

/// Whether a process takes no further step; one that has ended fails the test.
fn is_stopped(pid: i32) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it ended by itself, and nothing is left to sweep");
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

async fn a_sandbox_that_is_dropped_leaves_nothing(case: Case) {
    drop(case.create().await.expect("sandbox"));
    let names = || std::fs::read_dir(case.scratch.path()).expect("scratch").count();
    // The engine is asked in the background; it answers in its own time.
    tokio::time::timeout(std::time::Duration::from_secs(60), async {
        while case.traces().count() > 0 || names() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it left something");
}

async fn nothing_speaks_of_the_host(case: Case) {
    let sandbox = case.create().await.expect("sandbox");
    let line = "ls -A /sys; cat /proc/cmdline /proc/keys /proc/modules /etc/resolv.conf; ls -A /proc/bus; \
                cat /etc/hostname; env | grep -c '^HOSTNAME='; touch /x /etc/x /.viv/x /.viv/door/x 2>&1 | grep -c Read-only";
    let seen = text(&shell(&*sandbox, line).await.stdout);
    assert_eq!(seen, "vivarium\n0\n4\n");
    let status = text(&shell(&*sandbox, "grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status").await.stdout);
    let held = |line: &&str| line.starts_with("Cap") && !line.ends_with("0000000000000000");
    assert_eq!(status.lines().find(held), None, "{status}");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    let interfaces = text(&shell(&*sandbox, "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '").await.stdout);
    assert_eq!(interfaces, "lo\n");
    sandbox.destroy().await.expect("destroy");
}

fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|point| Path::new(point) == path)
}
