//! Tests of container engines: missing engines and images, settings, and leftovers.

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

use crate::{ParallelRun, Subject, shell, spec, text};

/// An engine with settings that a test may change.
pub(crate) struct EngineCase {
    pub(crate) settings: ContainerSettings,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) scratch: tempfile::TempDir,
}

/// A test of an engine.
pub(crate) type EngineTest = fn(EngineCase) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a list of tests from function names.
macro_rules! cases {
    ($($name:ident),* $(,)?) => { vec![$((stringify!($name), (|case| Box::pin($name(case))) as EngineTest)),*] };
}

/// Returns the tests of rootless engines.
pub(crate) fn rootless() -> Vec<(&'static str, EngineTest)> {
    cases![
        limit_that_a_rootless_engine_cannot_enforce_is_refused,
        accepted_weaker_limits_are_reported,
        rootless_engine_is_reported,
        rootless_docker_is_refused,
        concurrent_creation_by_several_hosts_succeeds,
    ]
}

/// Returns the tests that need root.
pub(crate) fn of_root() -> Vec<(&'static str, EngineTest)> {
    cases![mounts_of_a_dead_host_are_removed]
}

pub(crate) fn cases() -> Vec<(&'static str, EngineTest)> {
    cases![
        missing_engine_is_named,
        engine_of_another_kind_is_refused,
        missing_image_is_not_pulled,
        entrypoint_runs_first,
        failing_entrypoint_is_reported_with_its_output,
        missing_runtime_is_reported,
        container_of_a_killed_host_is_removed_by_the_next,
        dropped_sandbox_leaves_nothing,
        nothing_inside_reveals_the_host,
    ]
}

impl EngineCase {
    pub(crate) fn of(engine: &Engine, spawner: &Arc<Spawner>) -> Self {
        let scratch = tempfile::tempdir().expect("scratch");
        Self { settings: engine.settings(None), spawner: Arc::clone(spawner), scratch }
    }

    /// Returns the mounts that its containers leave.
    fn traces(&self) -> MountTraces {
        MountTraces { directory: self.scratch.path().to_owned(), socket: self.settings.sockets[0].clone() }
    }

    fn backend(&self) -> Arc<dyn SandboxBackend> {
        let place = self.scratch.path().to_owned();
        Arc::new(ContainerBackend::new(self.settings.clone(), Arc::clone(&self.spawner), place).expect("backend"))
    }

    async fn create(&self) -> Result<Box<dyn Sandbox>, SandboxError> {
        let backend = self.backend();
        let crowd = ParallelRun { size: 1, backend: Arc::clone(&backend), traces: None };
        let subject = Subject { name: "one", backend, mode: policy::WorkspaceMode::Overlay, crowd };
        subject.backend.create(spec(&subject, None)).await
    }

    /// Returns the error of making a sandbox, with its causes and fix.
    async fn refusal(&self) -> String {
        let error = self.create().await.err().expect("a refusal");
        assert_eq!(error.code(), ProblemCode::SandboxCreateError);
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let fix = if let SandboxError::Unavailable { fix, .. } = &error { format!(" / {fix}") } else { String::new() };
        format!("{error}{}{fix}", cause.unwrap_or_default())
    }
}

/// Returns whether a rootless engine ignores limits on this machine.
fn ignores_limits() -> bool {
    !Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

async fn limit_that_a_rootless_engine_cannot_enforce_is_refused(case: EngineCase) {
    let backend = case.backend();
    let mut strict = crate::plain_spec("strict");
    strict.policy = crate::policy_of(&Preset::Strict.source());
    let message = backend.create(strict).await.err().expect("a refusal").to_string();
    assert!(message.contains("`proc.memory` cannot be enforced here"), "{message}");
}

async fn accepted_weaker_limits_are_reported(case: EngineCase) {
    let sandbox = case.backend().create(crate::plain_spec("weaker")).await.expect("sandbox");
    let message = sandbox.effective();
    let state = |key: &str| message.get(key).map(|row| row.state.to_string()).unwrap_or_default();
    let limits = ["proc.memory", "proc.pids", "proc.cpus"].map(state);
    assert_eq!(limits, if ignores_limits() { ["weaker", "weaker", "absent"] } else { ["enforced"; 3] }, "{message:?}");
    let rest =
        ["fs.workspace", "fs.read", "fs.write", "fs.deny_read", "fs.deny_write", "net", "proc.disk", "proc.nofile"];
    assert!(rest.into_iter().all(|key| state(key) == "enforced"), "{message:?}");
    // The user inside is the user who runs the engine.
    let us = rustix::process::geteuid().as_raw();
    assert_eq!(text(&shell(&*sandbox, "id -u").await.stdout), format!("{us}\n"));
    sandbox.destroy().await.expect("destroy");
}

async fn concurrent_creation_by_several_hosts_succeeds(case: EngineCase) {
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

async fn rootless_docker_is_refused(mut case: EngineCase) {
    let docker = Engine::rootless_docker();
    case.settings = docker.settings(None);
    let message = case.refusal().await;
    assert!(message.contains("rootless docker shows the owner of a workspace as root inside"), "{message}");
    assert!(message.contains("--backend=podman"), "{message}");
}

async fn rootless_engine_is_reported(case: EngineCase) {
    let place = case.scratch.path().to_owned();
    let backend = ContainerBackend::new(case.settings.clone(), Arc::clone(&case.spawner), place).expect("backend");
    let report = backend.report().await.expect("report");
    assert!(report.rootless, "{report:?}");
    let lost: &[&str] = if ignores_limits() { &["proc.memory", "proc.pids", "proc.cpus"] } else { &[] };
    assert!(lost.iter().all(|key| report.cannot_keep.contains(key)), "{report:?}");
}

async fn missing_engine_is_named(mut case: EngineCase) {
    let kind = case.settings.kind.as_str();
    case.settings.sockets = vec!["/nowhere/engine.sock".into()];
    let message = case.refusal().await;
    assert!(message.contains(&format!("no {kind} engine answers (/nowhere/engine.sock: ")), "{message}");
    assert!(message.contains(" / ") && message.contains("systemctl") && message.contains(" start "), "{message}");
}

async fn engine_of_another_kind_is_refused(mut case: EngineCase) {
    use sandbox::EngineKind::{Docker, Podman};
    case.settings.kind = if case.settings.kind == Docker { Podman } else { Docker };
    let message = case.refusal().await;
    assert!(message.contains("the engine that answers is not"), "{message}");
}

async fn missing_image_is_not_pulled(mut case: EngineCase) {
    case.settings.image = String::from("localhost/viv-test:none");
    let message = case.refusal().await;
    let kind = case.settings.kind.as_str();
    assert!(message.contains("has no image `localhost/viv-test:none`"), "{message}");
    assert!(message.ends_with(&format!("/ {kind} build -t localhost/viv-test:none docs/container")), "{message}");
    case.settings.image = String::from("registry.example.com/some/image:1");
    let message = case.refusal().await;
    assert!(message.ends_with(&format!("/ {kind} pull registry.example.com/some/image:1")), "{message}");
}

async fn entrypoint_runs_first(mut case: EngineCase) {
    case.settings.entrypoint = ["/bin/sh", "-c", "echo prepared > /workspace/first"].map(str::to_owned).to_vec();
    let sandbox = case.create().await.expect("sandbox");
    assert_eq!(text(&shell(&*sandbox, "cat first").await.stdout), "prepared\n");
    sandbox.destroy().await.expect("destroy");
}

async fn failing_entrypoint_is_reported_with_its_output(mut case: EngineCase) {
    case.settings.entrypoint = ["/bin/sh", "-c", "echo no licence >&2; exit 3"].map(str::to_owned).to_vec();
    let message = case.refusal().await;
    assert!(message.contains("run the entrypoint") && message.ends_with("exited with code 3: no licence"), "{message}");
    case.settings.entrypoint = vec!["/no/such/program".to_owned()];
    let message = case.refusal().await;
    assert!(message.contains("run the entrypoint `/no/such/program`: `/no/such/program` is not in"), "{message}");
}

async fn missing_runtime_is_reported(mut case: EngineCase) {
    case.settings.runtime = Some("no-such-runtime".to_owned());
    let message = case.refusal().await;
    assert!(message.contains("no-such-runtime"), "{message}");
}

async fn mounts_of_a_dead_host_are_removed(case: EngineCase) {
    // No process 1 has this start time, so its owner counts as dead.
    let left = case.scratch.path().join("1-1-0/0/stage");
    std::fs::create_dir_all(&left).expect("left");
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount("left", &left, "tmpfs", none, None).expect("mount");
    assert!(is_mounted(&left));
    let sandbox = case.create().await.expect("sandbox");
    assert!(!is_mounted(&left) && !left.exists());
    sandbox.destroy().await.expect("destroy");
}

/// Another host process, which makes a sandbox and waits to be killed.
pub(crate) struct KilledHost {
    settings: ContainerSettings,
    scratch: PathBuf,
}

impl KilledHost {
    const ROLE: &str = "__hold";

    /// Returns the settings from the arguments of such a process; `None` for any other.
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

    fn start(case: &EngineCase) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("program"));
        command.args([Self::ROLE, case.settings.kind.as_str()]).arg(&case.settings.sockets[0]);
        let mut host = command.arg(case.scratch.path()).stdout(Stdio::piped()).spawn().expect("host");
        host.stdout.take().expect("stdout").read_exact(&mut [0; 3]).expect("up");
        host
    }
}

async fn container_of_a_killed_host_is_removed_by_the_next(case: EngineCase) {
    let socket = case.settings.sockets[0].clone();
    let mut host = KilledHost::start(&case);
    let owner = format!("{}-", host.id());
    let mut theirs =
        engines::running_containers(&socket).await.into_iter().filter(|running| running.owner.starts_with(&owner));
    let left = theirs.next().expect("its container");
    // A stopped init does not notice that its host has ended, so the container stays.
    let init = Pid::from_raw(left.pid).expect("init");
    kill_process(init, Signal::STOP).expect("stop");
    while !is_stopped(left.pid) {
        std::thread::yield_now();
    }
    host.kill().expect("kill -9");
    host.wait().expect("wait");
    // From here on another test with the same engine may remove the container, but not its mounts.
    assert!(case.traces().count() > 0);

    let sandbox = case.create().await.expect("sandbox");
    let names: Vec<String> = engines::running_containers(&socket).await.into_iter().map(|running| running.id).collect();
    assert!(!names.contains(&left.id), "{left:?} is still there");
    sandbox.destroy().await.expect("destroy");
    assert_eq!(case.traces().count(), 0);
}

/// Returns whether a process is stopped. Panics when it has ended.
fn is_stopped(pid: i32) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it ended by itself, and nothing is left to sweep");
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

async fn dropped_sandbox_leaves_nothing(case: EngineCase) {
    drop(case.create().await.expect("sandbox"));
    let names = || std::fs::read_dir(case.scratch.path()).expect("scratch").count();
    // The engine removes the container in the background.
    tokio::time::timeout(std::time::Duration::from_secs(60), async {
        while case.traces().count() > 0 || names() > 0 {
            testkit::poll_pause_async().await;
        }
    })
    .await
    .expect("it left something");
}

async fn nothing_inside_reveals_the_host(case: EngineCase) {
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
