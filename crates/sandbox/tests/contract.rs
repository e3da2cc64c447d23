//! The contract of the sandbox port, tested with every backend.
//!
//! The spawner must be forked before any thread exists, so these tests have their own `main`.
#![allow(clippy::expect_used, clippy::panic, clippy::unnecessary_wraps, reason = "a test with its own harness")]

#[path = "contract/archives.rs"]
mod archives;
#[path = "contract/changes.rs"]
mod changes;
#[path = "contract/commands.rs"]
mod commands;
#[path = "contract/confinement.rs"]
mod confinement;
#[path = "contract/containers.rs"]
mod containers;
#[path = "contract/file_safety.rs"]
mod file_safety;
#[path = "contract/files.rs"]
mod files;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engines::{Engine, MountTraces};
use jail::Spawner;
use libtest_mimic::{Arguments, Failed, Trial};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource, Preset, WorkspaceMode};
use sandbox::{
    EngineKind, ExecResult, ExecSpec, JailBackend, Sandbox, SandboxBackend, SandboxSpec, UnconfinedBackend, run,
};

/// The name of a Docker container with gVisor as its kernel.
const GVISOR: &str = "gvisor";

/// A backend under test.
#[derive(Clone)]
struct Subject {
    /// The name in the tests. One engine can have several runtimes.
    name: &'static str,
    backend: Arc<dyn SandboxBackend>,
    mode: WorkspaceMode,
    /// The setting for many concurrent sandboxes.
    crowd: ParallelRun,
}

impl Subject {
    /// Returns whether the sandbox has its own kernel. Then named pipes exist only inside, and exceeding a limit ends the
    /// whole sandbox.
    fn has_own_kernel(&self) -> bool {
        self.name == GVISOR
    }
}

/// The setting for many concurrent sandboxes.
#[derive(Clone)]
struct ParallelRun {
    /// The number of sandboxes.
    size: usize,
    /// A backend that no other test uses, so that its leftovers can be counted.
    backend: Arc<dyn SandboxBackend>,
    /// The mounts that its containers could leave; `None` for backends without containers.
    traces: Option<MountTraces>,
}

/// A test of the contract, with its name.
type NamedTest = (&'static str, Test);
type Test = fn(Subject) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a list of tests from function names.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { vec![$((stringify!($name), (|subject| Box::pin($name(subject))) as $crate::Test)),*] };
}

fn main() {
    let spawner = Arc::new(Spawner::fork().expect("spawner"));
    if let Some(held) = containers::KilledHost::of_arguments() {
        return held.live(&spawner);
    }
    let arguments = Arguments::from_args();
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime"));
    let scratch = tempfile::tempdir().expect("scratch");
    let engines = if arguments.list { Vec::new() } else { Engine::start_all() };
    let everywhere =
        [commands::everywhere(), files::everywhere(), file_safety::everywhere(), archives::everywhere()].concat();
    let confined = [confinement::confined(), changes::confined(), file_safety::confined()].concat();
    let mut trials = Vec::new();
    for (subject, is_confined) in subjects(&spawner, scratch.path(), &engines) {
        let tests = if is_confined { [everywhere.clone(), confined.clone()].concat() } else { everywhere.clone() };
        for (name, test) in tests {
            let (subject, runtime) = (subject.clone(), Arc::clone(&runtime));
            let name = format!("{}::{name}", subject.name);
            trials.push(Trial::test(name, move || -> Result<(), Failed> {
                runtime.block_on(test(subject));
                Ok(())
            }));
        }
    }
    for engine in &engines {
        let cases =
            [containers::cases(), if engine.is_rootless() { containers::rootless() } else { containers::of_root() }];
        for (name, test) in cases.concat() {
            let (case, runtime) = (containers::EngineCase::of(engine, &spawner), Arc::clone(&runtime));
            trials.push(Trial::test(format!("{}::{name}", engine.name()), move || -> Result<(), Failed> {
                runtime.block_on(test(case));
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // `exit` would not drop these.
    drop((engines, scratch));
    conclusion.exit();
}

/// Returns every backend, and whether it is confined.
fn subjects(spawner: &Arc<Spawner>, scratch: &Path, engines: &[Engine]) -> Vec<(Subject, bool)> {
    let jail: Arc<dyn SandboxBackend> = Arc::new(JailBackend::new(Arc::clone(spawner)).expect("jail"));
    let unconfined: Arc<dyn SandboxBackend> = Arc::new(UnconfinedBackend::new(scratch.to_owned()));
    let crowd =
        |backend: &Arc<dyn SandboxBackend>| ParallelRun { size: 100, backend: Arc::clone(backend), traces: None };
    let mut subjects = vec![
        (Subject { name: "jail", crowd: crowd(&jail), backend: jail, mode: WorkspaceMode::Overlay }, true),
        (
            Subject { name: "unconfined", crowd: crowd(&unconfined), backend: unconfined, mode: WorkspaceMode::Bind },
            false,
        ),
    ];
    for engine in engines {
        for (name, runtime, size) in [(engine.name(), None, 8), (GVISOR, Some(engines::GVISOR), 4)] {
            if name == GVISOR && engine.kind() != EngineKind::Docker {
                // Podman's service has one runtime for all containers.
                continue;
            }
            let apart = scratch.join(name);
            let backend = engine.backend(spawner, runtime, &apart);
            let crowd =
                ParallelRun { size, backend, traces: Some(MountTraces { directory: apart, socket: engine.socket() }) };
            let backend = engine.backend(spawner, runtime, &scratch.join("all"));
            subjects.push((Subject { name, backend, mode: WorkspaceMode::Overlay, crowd }, true));
        }
    }
    subjects
}

/// Returns the spec of an empty sandbox with the preset `balanced`.
fn plain_spec(id: &str) -> SandboxSpec {
    let policy = policy_of(&Preset::Balanced.source());
    SandboxSpec {
        id: id.to_owned(),
        workspace: None,
        workspace_at: "/workspace".into(),
        toolchains: sandbox::Toolchains::default(),
        mounts: vec![],
        files: vec![],
        policy,
    }
}

/// Returns the effective policy of the base layer `source`.
fn policy_of(source: &PolicySource) -> Arc<EffectivePolicy> {
    let base = BaseLayer::read(source).expect("policy");
    Arc::new(policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]))
}

/// Returns the preset `balanced`, which also works without cgroups, with text replacements.
fn policy(subject: &Subject, changes: &[(&str, &str)]) -> Arc<EffectivePolicy> {
    let mut text = Preset::Balanced.source().text().replace("overlay", subject.mode.as_str());
    for (old, new) in changes {
        assert!(text.contains(old), "the preset has no `{old}`");
        text = text.replace(old, new);
    }
    policy_of(&PolicySource::new("test", text))
}

fn spec(subject: &Subject, directory: Option<PathBuf>) -> SandboxSpec {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let id = format!("sbx_{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let policy_here = policy(subject, &[]);
    let workspace_at = directory
        .as_deref()
        .map_or_else(|| "/workspace".into(), |path| subject.backend.workspace_path(path, &policy_here));
    SandboxSpec {
        id,
        workspace: directory,
        workspace_at,
        toolchains: sandbox::Toolchains::default(),
        mounts: vec![],
        files: vec![],
        policy: policy(subject, &[]),
    }
}

async fn make(subject: &Subject) -> Box<dyn Sandbox> {
    subject.backend.create(spec(subject, None)).await.expect("sandbox")
}

fn shell_spec(line: &str) -> ExecSpec {
    ExecSpec { command: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(), ..ExecSpec::default() }
}

async fn shell(sandbox: &dyn Sandbox, line: &str) -> ExecResult {
    run(sandbox, shell_spec(line), &mut |_, _| {}).await.expect("run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
