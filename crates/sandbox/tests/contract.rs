//! What every backend must keep, whichever runs the commands.
//!
//! The spawner is forked before any thread exists, so these tests bring their own `main`.
#![allow(clippy::expect_used, clippy::panic, clippy::unnecessary_wraps, reason = "a test that brings its own harness")]

#[path = "contract/archives.rs"]
mod archives;
#[path = "contract/changes.rs"]
mod changes;
#[path = "contract/files.rs"]
mod files;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jail::Spawner;
use libtest_mimic::{Arguments, Failed, Trial};
use policy::{Base, Ceiling, Effective, Preset, Source, WorkspaceMode};
use sandbox::{
    Backend, ChangeKind, ExecResult, ExecSpec, JailBackend, OutputStream, Port, Sandbox, SandboxError, SandboxSpec,
    SavedChanges, Unconfined, User, WindowSize, run,
};

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
    let everywhere = tests![
        output_and_exit_code_come_back,
        arguments_are_words_never_a_shell_line,
        standard_input_is_given_and_closed,
        the_environment_is_only_what_was_given,
        output_is_heard_as_it_comes,
        output_over_the_limit_is_cut_and_said,
        a_timeout_ends_the_whole_tree_and_says_so,
        an_idle_timeout_spares_what_still_talks,
        an_idle_timeout_holds_between_somebody_elses_streams,
        a_command_is_who_was_asked_for_or_refused,
        a_terminal_is_had_or_refused,
        what_a_command_leaves_behind_is_not_waited_for,
        a_program_that_is_not_there_is_told,
        the_working_directory_is_honoured,
        destroy_ends_everything_and_can_be_called_twice,
        nothing_runs_after_destroy,
    ];
    let everywhere = [everywhere, files::everywhere(), archives::everywhere()].concat();
    let walled = tests![
        changes_of_an_overlay_are_listed_deletions_first,
        what_is_saved_and_applied_is_what_the_sandbox_saw,
        the_gateway_listener_is_passed_out_once,
        limits_are_enforced_or_refused,
        memory_over_the_limit_is_not_had,
        a_command_that_ran_out_of_memory_is_told_apart,
        processes_over_the_limit_are_not_had,
        a_hundred_sandboxes_at_once_leave_nothing,
    ];
    let walled = [walled, changes::walled(), files::walled()].concat();
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

const DEGRADE: (&str, &str) = ("degrade: {cpus: none, memory: rlimit, pids: rlimit}", "");

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

async fn output_and_exit_code_come_back(subject: Subject) {
    let result = shell(&*make(&subject).await, "echo out; echo err >&2; exit 3").await;
    assert_eq!((text(&result.stdout), text(&result.stderr)), ("out\n".into(), "err\n".into()));
    assert_eq!((result.exit.code, result.exit.signal, result.timed_out), (Some(3), None, false));
}

async fn arguments_are_words_never_a_shell_line(subject: Subject) {
    let command = ["/bin/echo", "$HOME; ls", "two words"].map(str::to_owned).to_vec();
    let spec = ExecSpec { command, ..ExecSpec::default() };
    let result = run(&*make(&subject).await, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!(text(&result.stdout), "$HOME; ls two words\n");
}

async fn standard_input_is_given_and_closed(subject: Subject) {
    let mut spec = shell_spec("cat; echo end");
    spec.stdin = Some(b"given ".to_vec());
    let result = run(&*make(&subject).await, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!(text(&result.stdout), "given end\n");
}

async fn the_environment_is_only_what_was_given(subject: Subject) {
    let mut spec = ExecSpec { command: vec!["/usr/bin/env".into()], ..ExecSpec::default() };
    spec.env.insert("ONLY".into(), "this".into());
    let result = run(&*make(&subject).await, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!(text(&result.stdout), "ONLY=this\n");
}

async fn output_is_heard_as_it_comes(subject: Subject) {
    let sandbox = make(&subject).await;
    // The command goes on only when its first line was heard: told through a file it waits for.
    let mut process = sandbox.exec(shell_spec("echo first; read answer; echo got $answer")).await.expect("exec");
    let mut heard = [0; 6];
    tokio::io::AsyncReadExt::read_exact(&mut process.stdout, &mut heard).await.expect("read");
    let mut stdin = process.stdin.take().expect("stdin");
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"it\n").await.expect("write");
    let mut rest = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut process.stdout, &mut rest).await.expect("read");
    assert_eq!((&heard, rest.as_str()), (b"first\n", "got it\n"));
}

async fn output_over_the_limit_is_cut_and_said(subject: Subject) {
    let mut spec = shell_spec("head -c 100000 /dev/zero; echo err >&2");
    spec.output_limit = Some(1000);
    let mut heard = 0;
    let sandbox = make(&subject).await;
    let result = run(&*sandbox, spec, &mut |stream, bytes| {
        heard += if stream == OutputStream::Stdout { bytes.len() } else { 0 };
    })
    .await
    .expect("run");
    assert_eq!((result.stdout.len(), heard, result.truncated), (1000, 100_000, true));
    assert_eq!(text(&result.stderr), "err\n");
}

async fn a_timeout_ends_the_whole_tree_and_says_so(subject: Subject) {
    // One that is simply there, one that left its session, one whose parent is gone.
    let mut spec = shell_spec("sleep 1000 & echo $!; setsid sleep 1000 & echo $!; (sleep 1000 & echo $!); wait");
    spec.timeout = Some(Duration::from_millis(300));
    let sandbox = make(&subject).await;
    let result = run(&*sandbox, spec, &mut |_, _| {}).await.expect("run");
    assert!(result.timed_out, "{result:?}");
    assert_eq!(result.exit.signal, Some(9));
    let pids: Vec<String> = text(&result.stdout).lines().map(str::to_owned).collect();
    assert_eq!(pids.len(), 3, "{pids:?}");
    for pid in pids {
        let line = format!("tr '\\0' ' ' < /proc/{pid}/cmdline");
        assert!(!text(&shell(&*sandbox, &line).await.stdout).contains("sleep 1000"), "{pid} lives");
    }
}

async fn an_idle_timeout_spares_what_still_talks(subject: Subject) {
    let sandbox = make(&subject).await;
    let mut spec = shell_spec("for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done");
    spec.idle_timeout = Some(Duration::from_secs(5));
    let result = run(&*sandbox, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!((result.timed_out, text(&result.stdout).lines().count()), (false, 6));
    let mut spec = shell_spec("echo one; sleep 1000");
    spec.idle_timeout = Some(Duration::from_millis(200));
    assert!(run(&*sandbox, spec, &mut |_, _| {}).await.expect("run").timed_out);
}

async fn an_idle_timeout_holds_between_somebody_elses_streams(subject: Subject) {
    let sandbox = make(&subject).await;
    let attached = async |line: &str, idle: Duration| {
        let (mut reader, writer) = tokio::io::duplex(1 << 16);
        let outflow = |to| sandbox::Outflow { to, filter: None };
        let (output, errors) = (outflow(Box::new(writer) as _), outflow(Box::new(tokio::io::sink()) as _));
        let streams = sandbox::Streams { input: Box::new(tokio::io::empty()), output, errors, window: None };
        let spec = ExecSpec { idle_timeout: Some(idle), ..shell_spec(line) };
        let result = sandbox::attach(&*sandbox, spec, streams).await.expect("attach");
        let mut said = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut reader, &mut said).await.expect("read");
        (result.timed_out, said)
    };
    let talks = attached("for i in 1 2 3; do echo $i; sleep 0.1; done", Duration::from_secs(5)).await;
    assert_eq!(talks, (false, "1\n2\n3\n".to_owned()));
    assert_eq!(attached("echo one; sleep 1000", Duration::from_millis(200)).await, (true, "one\n".to_owned()));
}

async fn a_command_is_who_was_asked_for_or_refused(subject: Subject) {
    let sandbox = make(&subject).await;
    let line = "touch mine; test -O mine; id -u";
    let ordinary = shell(&*sandbox, line).await;
    assert_eq!(ordinary.exit.code, Some(0));
    let as_root = ExecSpec { user: User::Root, ..shell_spec("id -u") };
    match run(&*sandbox, as_root, &mut |_, _| {}).await {
        Ok(result) => assert_eq!(text(&result.stdout), "0\n"),
        Err(SandboxError::Unavailable { missing, fix }) => assert!(missing.contains("root") && !fix.is_empty()),
        Err(other) => panic!("{other}"),
    }
}

async fn a_terminal_is_had_or_refused(subject: Subject) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let sandbox = make(&subject).await;
    let line = "trap 'stty size; exit 7' WINCH; test -t 0 && test -t 1 && test -t 2 && tty && test -O \"$(tty)\" && \
                : > /dev/tty && stty size && read line && echo \"got $line\" && while :; do sleep 0.05; done";
    let spec = ExecSpec { terminal: Some(WindowSize { rows: 24, columns: 80 }), ..shell_spec(line) };
    let mut process = match sandbox.exec(spec).await {
        Ok(process) => process,
        Err(SandboxError::Unavailable { missing, .. }) => return assert!(missing.contains("terminal"), "{missing}"),
        Err(other) => panic!("{other}"),
    };
    let (mut stdin, mut shown) = (process.stdin.take().expect("stdin"), Vec::new());
    for (awaited, typed) in [("24 80", "typed\n"), ("got typed", "")] {
        while !text(&shown).contains(awaited) {
            assert_ne!(process.stdout.read_buf(&mut shown).await.expect("read"), 0, "{}", text(&shown));
        }
        stdin.write_all(typed.as_bytes()).await.expect("type");
    }
    (process.resize)(WindowSize { rows: 50, columns: 132 });
    // The end of a terminal whose programs are gone.
    process.stdout.read_to_end(&mut shown).await.expect("end");
    let shown = text(&shown).replace('\r', "");
    assert!(shown.contains("/dev/pts/0\n24 80\n") && shown.ends_with("50 132\n"), "{shown}");
    assert_eq!(process.exit.await.expect("exit").code, Some(7));
}

async fn what_a_command_leaves_behind_is_not_waited_for(subject: Subject) {
    let result = shell(&*make(&subject).await, "sleep 1000 & echo done").await;
    assert_eq!((text(&result.stdout), result.exit.code), ("done\n".into(), Some(0)));
}

async fn a_program_that_is_not_there_is_told(subject: Subject) {
    let sandbox = make(&subject).await;
    let spec = ExecSpec { command: vec!["/no/such/program".into()], ..ExecSpec::default() };
    assert!(matches!(sandbox.exec(spec).await, Err(SandboxError::NotFound(name)) if name == "/no/such/program"));
}

async fn the_working_directory_is_honoured(subject: Subject) {
    let mut spec = shell_spec("pwd");
    spec.workdir = Some("/usr".into());
    assert_eq!(text(&run(&*make(&subject).await, spec, &mut |_, _| {}).await.expect("run").stdout), "/usr\n");
}

async fn destroy_ends_everything_and_can_be_called_twice(subject: Subject) {
    let sandbox = make(&subject).await;
    let mut process = sandbox.exec(shell_spec("sleep 1000 & echo up; wait")).await.expect("exec");
    let mut up = [0; 3];
    tokio::io::AsyncReadExt::read_exact(&mut process.stdout, &mut up).await.expect("up");
    sandbox.destroy().await.expect("destroy");
    sandbox.destroy().await.expect("again");
    // The pipe ends only when everything that held it is dead.
    tokio::io::AsyncReadExt::read_to_end(&mut process.stdout, &mut Vec::new()).await.expect("end");
    assert_eq!(process.exit.await.expect("exit").signal, Some(9));
}

async fn nothing_runs_after_destroy(subject: Subject) {
    let sandbox = make(&subject).await;
    sandbox.destroy().await.expect("destroy");
    assert!(matches!(sandbox.exec(shell_spec("true")).await, Err(SandboxError::Gone)));
}

async fn changes_of_an_overlay_are_listed_deletions_first(subject: Subject) {
    let host = tempfile::tempdir().expect("host");
    std::fs::create_dir_all(host.path().join("old/deep")).expect("dir");
    for name in ["same", "edited", "removed", "old/deep/file"] {
        std::fs::write(host.path().join(name), "before\n").expect("file");
    }
    let sandbox = subject.backend.create(spec(&subject, Some(host.path().to_owned()))).await.expect("sandbox");
    let script = "echo after > edited; rm removed; rm -r old; mkdir old; echo x > old/new; ln -s /etc/passwd link";
    assert_eq!(shell(&*sandbox, script).await.exit.code, Some(0));
    sandbox.destroy().await.expect("destroy");
    let layers = sandbox.layers().expect("layers");
    let changes: Vec<_> = layers
        .changes()
        .expect("changes")
        .into_iter()
        .map(|change| (change.kind, text(change.path.as_os_str().as_encoded_bytes())))
        .collect();
    let expect = [
        (ChangeKind::Deleted, "old/deep"),
        (ChangeKind::Deleted, "old/deep/file"),
        (ChangeKind::Deleted, "removed"),
        (ChangeKind::Modified, "edited"),
        (ChangeKind::Added, "link"),
        (ChangeKind::Added, "old/new"),
    ];
    assert_eq!(changes, expect.map(|(kind, path)| (kind, path.to_owned())));
    assert_eq!(layers.after("edited".as_ref(), 100).expect("read"), Some(b"after\n".to_vec()));
    assert_eq!(layers.before("edited".as_ref(), 100).expect("read"), Some(b"before\n".to_vec()));
    assert_eq!(layers.after("link".as_ref(), 100).expect("a link is not followed"), None);
}

/// Names, types, permissions, link targets and digests of everything.
const LISTING: &str = "find . -mindepth 1 -printf '%P %y %m %l\\n' | LC_ALL=C sort; \
                       find . -type f -exec sha256sum {} + | LC_ALL=C sort";

fn listing_on_host(directory: &std::path::Path) -> String {
    let output = std::process::Command::new("/bin/sh").args(["-c", LISTING]).current_dir(directory).output();
    text(&output.expect("listing").stdout)
}

async fn what_is_saved_and_applied_is_what_the_sandbox_saw(subject: Subject) {
    let (host, saved) = (tempfile::tempdir().expect("host"), tempfile::tempdir().expect("saved"));
    for name in [
        "same",
        "edited",
        "removed",
        "touched",
        "mode",
        "old/deep/file",
        "again/sub/a",
        "again/b",
        "moved/x",
        "file",
        "dir/y",
    ] {
        let path = host.path().join(name);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("dir");
        std::fs::write(path, format!("{name}\n")).expect("file");
    }
    let before = listing_on_host(host.path());
    let sandbox = subject.backend.create(spec(&subject, Some(host.path().to_owned()))).await.expect("sandbox");
    let script = "set -e; echo after >> edited; rm removed; touch touched; chmod 700 mode; rm -r old; \
        rm -r again; mkdir again again/sub; echo new > again/sub/c; mv moved elsewhere; ln edited hard; \
        rm file; mkdir -p file/now; echo x > file/now/x; rm -r dir; ln -s same dir; ln -s ../same again/link; \
        mkdir -m 711 closed; : > closed/empty; mv same renamed; printf x > \"$(printf 'odd\\377\\nname')\"";
    let result = shell(&*sandbox, script).await;
    assert_eq!((text(&result.stderr), result.exit.code), (String::new(), Some(0)));
    let seen = text(&shell(&*sandbox, LISTING).await.stdout);
    sandbox.destroy().await.expect("destroy");
    let layers = sandbox.layers().expect("layers");
    assert_eq!(listing_on_host(host.path()), before);
    let directory = saved.path().join("changes");
    let mut changes = SavedChanges::save_final(&layers, &directory).expect("save");
    drop((sandbox, layers));
    assert!(changes.change("touched".as_ref()).is_none(), "a file that was only touched did not change");
    sandbox::apply(&mut changes, host.path(), None, &|_| None).expect("apply");
    assert_eq!(listing_on_host(host.path()), seen);
    sandbox::undo(&directory).expect("undo");
    assert_eq!(listing_on_host(host.path()), before);
}

async fn the_gateway_listener_is_passed_out_once(subject: Subject) {
    let sandbox = make(&subject).await;
    assert!(sandbox.take_listener(Port::Models).is_some() && sandbox.take_listener(Port::Egress).is_some());
    assert!(sandbox.take_listener(Port::Models).is_none());
}

/// Whether this machine and user can enforce every limit.
async fn enforceable(subject: &Subject) -> bool {
    let mut strict = spec(subject, None);
    strict.policy = policy(subject, &[DEGRADE]);
    subject.backend.create(strict).await.is_ok()
}

async fn limits_are_enforced_or_refused(subject: Subject) {
    let mut strict = spec(&subject, None);
    strict.policy = policy(&subject, &[DEGRADE]);
    match subject.backend.create(strict).await {
        Ok(sandbox) => {
            let effective = sandbox.effective();
            for key in ["proc.memory", "proc.pids", "proc.cpus", "proc.disk", "proc.nofile"] {
                assert_eq!(effective[key]["state"], "enforced", "{key} in {effective}");
            }
        }
        Err(SandboxError::Unavailable { missing, fix }) => {
            assert!(missing.contains("proc.memory") && fix.contains("degrade"), "{missing} / {fix}");
            let effective = make(&subject).await.effective();
            assert_eq!(effective["proc.memory"]["state"], "weaker", "{effective}");
        }
        Err(other) => panic!("{other}"),
    }
}

async fn memory_over_the_limit_is_not_had(subject: Subject) {
    let mut small = spec(&subject, None);
    small.policy = policy(&subject, &[("4GiB\n  pids", "64MiB\n  pids")]);
    let sandbox = subject.backend.create(small).await.expect("sandbox");
    let result = shell(&*sandbox, "head -c 200000000 /dev/zero | tail -c 150000000 | wc -c").await;
    assert_ne!(text(&result.stdout).trim(), "150000000", "{result:?}");
}

async fn a_command_that_ran_out_of_memory_is_told_apart(subject: Subject) {
    let mut small = spec(&subject, None);
    small.policy = policy(&subject, &[("4GiB\n  pids", "64MiB\n  pids")]);
    let sandbox = subject.backend.create(small).await.expect("sandbox");
    // With a cgroup the kernel kills it; without one the allocation fails, and the program ends by itself.
    let by_kernel = sandbox.effective()["proc.memory"]["by"].as_str().is_some_and(|by| by.contains("cgroup"));
    let greedy = shell(&*sandbox, "exec tail /dev/zero").await;
    assert_eq!(greedy.exit.out_of_memory, by_kernel, "{greedy:?}");
    let killed = shell(&*sandbox, "kill -9 $$").await;
    assert_eq!((killed.exit.signal, killed.exit.out_of_memory), (Some(9), false), "{killed:?}");
}

async fn processes_over_the_limit_are_not_had(subject: Subject) {
    let mut small = spec(&subject, None);
    small.policy = policy(&subject, &[("pids: 512", "pids: 20")]);
    let sandbox = subject.backend.create(small).await.expect("sandbox");
    let result = shell(&*sandbox, "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all").await;
    assert!(text(&result.stderr).contains("fork"), "{result:?}");
}

async fn a_hundred_sandboxes_at_once_leave_nothing(subject: Subject) {
    let before = leftovers(&subject).await;
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let subject = subject.clone();
        running.spawn(async move {
            let sandbox = make(&subject).await;
            let result = shell(&*sandbox, "echo $$").await;
            sandbox.destroy().await.expect("destroy");
            result.exit.code
        });
    }
    while let Some(code) = running.join_next().await {
        assert_eq!(code.expect("task"), Some(0));
    }
    assert_eq!(leftovers(&subject).await, before);
}

/// Mounts and control groups of this process's sandboxes that a dead sandbox must not leave.
async fn leftovers(subject: &Subject) -> (usize, bool) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts").lines().count();
    (mounts, enforceable(subject).await)
}
