//! What every backend must keep, whichever runs the commands.
//!
//! The spawner is forked before any thread exists, so these tests bring their own `main`.
#![allow(clippy::expect_used, clippy::panic, clippy::unnecessary_wraps, reason = "a test that brings its own harness")]

#[path = "contract/archives.rs"]
mod archives;
#[path = "contract/changes.rs"]
mod changes;
#[path = "contract/commands.rs"]
mod commands;
#[path = "contract/containers.rs"]
mod containers;
#[path = "contract/files.rs"]
mod files;
#[path = "contract/walls.rs"]
mod walls;

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

/// A container of Docker whose kernel is gVisor.
const GVISOR: &str = "gvisor";

/// A backend under test, and what it can show of a workspace.
#[derive(Clone)]
struct Subject {
    /// What it is called here: one engine can have several runtimes.
    name: &'static str,
    backend: Arc<dyn SandboxBackend>,
    mode: WorkspaceMode,
    /// For many sandboxes at once.
    crowd: Crowd,
}

impl Subject {
    /// Whether commands meet a kernel of the sandbox's own: what leaves no trace in a file of the host's is inside
    /// alone, and what takes too much ends all of it.
    fn has_own_kernel(&self) -> bool {
        self.name == GVISOR
    }
}

/// Many sandboxes of a backend, and where they could leave something.
#[derive(Clone)]
struct Crowd {
    /// How many are many.
    size: usize,
    /// One that nobody else uses meanwhile, where that can be told by what it leaves.
    backend: Arc<dyn SandboxBackend>,
    /// What its containers could leave; a backend of its own mount namespace has no place for it.
    traces: Option<MountTraces>,
}

/// One thing that must hold, by its name.
type Promise = (&'static str, Test);
type Test = fn(Subject) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// A list of promises, from the names of functions.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { vec![$((stringify!($name), (|subject| Box::pin($name(subject))) as $crate::Test)),*] };
}

fn main() {
    let spawner = Arc::new(Spawner::fork().expect("spawner"));
    if let Some(held) = containers::Held::of_arguments() {
        return held.live(&spawner);
    }
    let arguments = Arguments::from_args();
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime"));
    let scratch = tempfile::tempdir().expect("scratch");
    let engines = if arguments.list { Vec::new() } else { Engine::start_all() };
    let everywhere = [commands::everywhere(), files::everywhere(), archives::everywhere()].concat();
    let walled = [walls::walled(), changes::walled(), files::walled()].concat();
    let mut trials = Vec::new();
    for (subject, has_walls) in subjects(&spawner, scratch.path(), &engines) {
        let tests = if has_walls { [everywhere.clone(), walled.clone()].concat() } else { everywhere.clone() };
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
            let (case, runtime) = (containers::Case::of(engine, &spawner), Arc::clone(&runtime));
            trials.push(Trial::test(format!("{}::{name}", engine.name()), move || -> Result<(), Failed> {
                runtime.block_on(test(case));
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Before the end of the process, which would drop nothing.
    drop((engines, scratch));
    conclusion.exit();
}

/// Every backend there is, and whether it has walls.
fn subjects(spawner: &Arc<Spawner>, scratch: &Path, engines: &[Engine]) -> Vec<(Subject, bool)> {
    let jail: Arc<dyn SandboxBackend> = Arc::new(JailBackend::new(Arc::clone(spawner)).expect("jail"));
    let unconfined: Arc<dyn SandboxBackend> = Arc::new(UnconfinedBackend::new(scratch.to_owned()));
    let crowd = |backend: &Arc<dyn SandboxBackend>| Crowd { size: 100, backend: Arc::clone(backend), traces: None };
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
                // Its service has one runtime for all containers.
                continue;
            }
            let apart = scratch.join(name);
            let backend = engine.backend(spawner, runtime, &apart);
            let crowd = Crowd { size, backend, traces: Some(MountTraces { place: apart, socket: engine.socket() }) };
            let backend = engine.backend(spawner, runtime, &scratch.join("all"));
            subjects.push((Subject { name, backend, mode: WorkspaceMode::Overlay, crowd }, true));
        }
    }
    subjects
}

/// A sandbox as the preset has it, with nothing in it.
fn plain_spec(id: &str) -> SandboxSpec {
    let policy = policy_of(&Preset::Balanced.source());
    SandboxSpec { id: id.to_owned(), workspace: None, mounts: vec![], files: vec![], policy }
}

/// What a session may do whose policy says `source`.
fn policy_of(source: &PolicySource) -> Arc<EffectivePolicy> {
    let base = BaseLayer::read(source).expect("policy");
    Arc::new(policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]))
}

/// The preset that an ordinary user without cgroups can have too, with `changes` of its text.
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
    SandboxSpec { id, workspace: directory, mounts: vec![], files: vec![], policy: policy(subject, &[]) }
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
