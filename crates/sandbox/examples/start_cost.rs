//! Measures the cost of a sandbox for a running host. Prints JSON with one list of microseconds for each step.
//!
//! `cargo xtask bench sandbox` runs this and compares the figures with those of other programs.
#![allow(clippy::expect_used, reason = "a measurement that fails has no result")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jail::Spawner;
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, Preset};
use sandbox::{ExecSpec, JailBackend, Sandbox, SandboxBackend, SandboxSpec};

const ROUNDS: usize = 200;
const MANY: usize = 1000;
const AT_ONCE: usize = 100;

fn main() {
    let spawner = Arc::new(Spawner::fork().expect("spawner"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let report = runtime.block_on(measure(&JailBackend::new(spawner).expect("jail")));
    println!("{}", serde_json::to_string(&report).expect("report"));
}

async fn measure(backend: &JailBackend) -> BTreeMap<&'static str, serde_json::Value> {
    let policy = policy();
    let host = tempfile::tempdir().expect("workspace");
    std::fs::write(host.path().join("file"), "content").expect("file");
    let spec = || SandboxSpec {
        workspace_at: "/workspace".into(),
        toolchains: sandbox::Toolchains::default(),
        id: "bench".into(),
        workspace: Some(host.path().to_owned()),
        mounts: vec![],
        files: vec![],
        policy: Arc::clone(&policy),
    };
    let mut steps: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
    let running = backend.create(spec()).await.expect("sandbox");
    for _ in 0..ROUNDS {
        let mut keep = |name, started: Instant| steps.entry(name).or_default().push(micros(started));

        let started = Instant::now();
        let status = std::process::Command::new("/bin/true").status().expect("true");
        assert!(status.success());
        keep("fork_exec", started);

        let started = Instant::now();
        let sandbox = backend.create(spec()).await.expect("sandbox");
        let process = sandbox.exec(nothing()).await.expect("exec");
        keep("to_execve", started);
        assert_eq!(process.exit.await.expect("exit").code, Some(0));
        sandbox.destroy().await.expect("destroy");
        keep("whole_life", started);

        let started = Instant::now();
        let process = running.exec(nothing()).await.expect("exec");
        assert_eq!(process.exit.await.expect("exit").code, Some(0));
        keep("further_command", started);
    }
    running.destroy().await.expect("destroy");

    let mut report: BTreeMap<_, _> = steps.into_iter().map(|(name, times)| (name, serde_json::json!(times))).collect();
    // The same number of concurrent sandboxes runs before and after, so that the first use of threads is not counted.
    let at_once = || futures_util::future::join_all((0..AT_ONCE).map(|_| life(backend, spec())));
    at_once().await;
    let before = (resident_kib(), mounts(), groups());
    for _ in 0..MANY {
        life(backend, spec()).await;
    }
    at_once().await;
    report.insert("resident_kib_before", before.0.into());
    report.insert("resident_kib_after", resident_kib().into());
    report.insert("left_behind", (mounts() - before.1 + groups() - before.2).into());
    report
}

async fn life(backend: &JailBackend, spec: SandboxSpec) {
    let sandbox: Box<dyn Sandbox> = backend.create(spec).await.expect("sandbox");
    let process = sandbox.exec(nothing()).await.expect("exec");
    assert_eq!(process.exit.await.expect("exit").code, Some(0));
    sandbox.destroy().await.expect("destroy");
}

fn nothing() -> ExecSpec {
    ExecSpec { command: vec!["/bin/true".into()], ..ExecSpec::default() }
}

fn policy() -> Arc<EffectivePolicy> {
    let base = BaseLayer::preset(Preset::Balanced).expect("preset");
    Arc::new(policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]))
}

fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).expect("VmRSS")
}

fn mounts() -> i64 {
    i64::try_from(std::fs::read_to_string("/proc/self/mountinfo").expect("mounts").lines().count()).expect("count")
}

/// Returns the number of cgroups that this process has made and not removed.
fn groups() -> i64 {
    let mine = format!("{}-", std::process::id());
    let mut found = 0;
    let mut open = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found += i64::from(entry.file_name().to_string_lossy().starts_with(&mine));
                open.push(entry.path());
            }
        }
    }
    found
}
