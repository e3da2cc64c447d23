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
#[path = "contract/files.rs"]
mod files;
#[path = "contract/walls.rs"]
mod walls;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use jail::Spawner;
use libtest_mimic::{Arguments, Failed, Trial};
use policy::{Base, Ceiling, Effective, Preset, Source, WorkspaceMode};
use sandbox::{Backend, ExecResult, ExecSpec, JailBackend, Sandbox, SandboxSpec, Unconfined, run};

/// A backend under test, and what it can show of a workspace.
#[derive(Clone)]
struct Subject {
    backend: Arc<dyn Backend>,
    mode: WorkspaceMode,
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
    let arguments = Arguments::from_args();
    let spawner = Arc::new(Spawner::fork().expect("spawner"));
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime"));
    let scratch = tempfile::tempdir().expect("scratch");
    let jail = Subject { backend: Arc::new(JailBackend::new(spawner).expect("jail")), mode: WorkspaceMode::Overlay };
    let unconfined =
        Subject { backend: Arc::new(Unconfined::new(scratch.path().to_owned())), mode: WorkspaceMode::Bind };
    let everywhere = [commands::everywhere(), files::everywhere(), archives::everywhere()].concat();
    let walled = [walls::walled(), changes::walled(), files::walled()].concat();
    let mut trials = Vec::new();
    for (subject, tests) in [(&jail, &everywhere), (&unconfined, &everywhere), (&jail, &walled)] {
        for (name, test) in tests.iter().copied() {
            let (subject, runtime) = (subject.clone(), Arc::clone(&runtime));
            let name = format!("{}::{name}", subject.backend.name());
            trials.push(Trial::test(name, move || -> Result<(), Failed> {
                runtime.block_on(test(subject));
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// The preset that an ordinary user without cgroups can have too, with `changes` of its text.
fn policy(subject: &Subject, changes: &[(&str, &str)]) -> Arc<Effective> {
    let mut text = Preset::Balanced.source().text().replace("overlay", subject.mode.as_str());
    for (old, new) in changes {
        assert!(text.contains(old), "the preset has no `{old}`");
        text = text.replace(old, new);
    }
    let base = Base::read(&Source::new("test", text)).expect("policy");
    Arc::new(policy::effective(&Ceiling::built_in().expect("ceiling"), &base, &[]))
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
