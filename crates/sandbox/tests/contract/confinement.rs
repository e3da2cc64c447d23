//! Tests of confined sandboxes: listeners, limits, guarded files and leftovers.

use protocol::{EnforcementState, KeyEnforcements};
use sandbox::{SandboxError, SandboxPort};

use crate::{NamedTest, Subject, make, policy, shell, spec, text};

const DEGRADE: (&str, &str) = ("degrade: {cpus: none, memory: rlimit, pids: rlimit}", "");

pub(crate) fn confined() -> Vec<NamedTest> {
    crate::tests![
        documented_policy_without_cgroups_starts,
        listeners_are_passed_out_once,
        connections_to_ports_inside_are_answered,
        limits_are_enforced_or_refused,
        output_of_an_agent_cannot_be_forged,
        command_can_open_its_own_streams_again,
        memory_over_the_limit_is_refused,
        out_of_memory_is_reported,
        processes_over_the_limit_are_refused,
        processor_time_is_what_the_host_granted,
        planted_link_in_the_workspace_is_refused,
        planted_link_in_a_writable_directory_is_refused,
        denied_files_of_a_bind_workspace_are_guarded,
        many_concurrent_sandboxes_leave_nothing
    ]
}

async fn documented_policy_without_cgroups_starts(subject: Subject) {
    const DOCUMENT: &str = include_str!("../../../../docs/policy.md");
    let part = DOCUMENT.split_once("**A machine without cgroups.**").expect("its part").1;
    let block = part.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).expect("its block").0;
    let policy = crate::policy_of(&policy::PolicySource::new("docs/policy.md", block));
    let given = sandbox::SandboxSpec { policy, ..spec(&subject, None) };
    let sandbox = subject.backend.create(given).await.expect("what the page says starts");
    assert_eq!(text(&shell(&*sandbox, "echo here").await.stdout), "here\n");
    sandbox.destroy().await.expect("destroy");
}

/// An earlier session made a link on the host, and the user names the link at the next start.
async fn planted_link_in_the_workspace_is_refused(subject: Subject) {
    /// A directory that every user may write and that, unlike `/tmp`, can be mounted.
    const PLACE: &str = "/var/tmp";
    let (host, workspace) = (tempfile::tempdir().expect("host"), tempfile::tempdir_in(PLACE).expect("workspace"));
    let link = workspace.path().join("deps");
    std::os::unix::fs::symlink(host.path(), &link).expect("link");
    let shown = |source: &std::path::Path| sandbox::SandboxSpec {
        mounts: vec![(source.to_owned(), base::DEPENDENCIES.into())],
        ..spec(&subject, Some(workspace.path().to_owned()))
    };
    let refused = subject.backend.create(shown(&link)).await.err().expect("it is refused").to_string();
    assert!(refused.contains("--deps") && refused.contains(link.to_str().expect("path")), "{refused}");
    let key = format!("fs:\n  write: [{}]\n", link.display());
    let policy = policy(&subject, &[("fs:\n", &key)]);
    let refused = subject.backend.create(sandbox::SandboxSpec { policy, ..shown(host.path()) }).await;
    let refused = refused.err().expect("it is refused").to_string();
    assert!(refused.contains("fs.write"), "{refused}");
    let sandbox = subject.backend.create(shown(host.path())).await.expect("what is named itself is shown");
    sandbox.destroy().await.expect("destroy");
}

/// A command of an earlier session left a link in a directory of `fs.write`, and the user names it at the next start.
async fn planted_link_in_a_writable_directory_is_refused(subject: Subject) {
    let (host, cache) = (tempfile::tempdir().expect("host"), tempfile::tempdir_in("/var/tmp").expect("cache"));
    let link = cache.path().join("deps");
    let key = format!("fs:\n  write: [{}]\n", cache.path().display());
    let writing = || policy(&subject, &[("fs:\n", &key)]);
    let first = sandbox::SandboxSpec { policy: writing(), ..spec(&subject, None) };
    let made = subject.backend.create(first).await;
    if subject.has_own_kernel() {
        let refused = made.err().expect("a refusal").to_string();
        return assert!(refused.contains("`fs.write` is not supported"), "{refused}");
    }
    let sandbox = made.expect("sandbox");
    let plant = format!("ln -s {} {}", host.path().display(), link.display());
    assert_eq!(shell(&*sandbox, &plant).await.exit.code, Some(0), "an agent can do that");
    sandbox.destroy().await.expect("destroy");

    let next = |source: &std::path::Path| sandbox::SandboxSpec {
        mounts: vec![(source.to_owned(), base::DEPENDENCIES.into())],
        policy: writing(),
        ..spec(&subject, None)
    };
    let refused = subject.backend.create(next(&link)).await.err().expect("it is refused").to_string();
    assert!(refused.contains("--deps") && refused.contains("which `fs.write` names"), "{refused}");
    let read = format!("ld.so.cache, {}]", link.display());
    let policy = policy(&subject, &[("fs:\n", &key), ("ld.so.cache]", &read)]);
    let refused = subject.backend.create(sandbox::SandboxSpec { policy, ..spec(&subject, None) }).await;
    let refused = refused.err().expect("it is refused").to_string();
    assert!(refused.contains("`fs.read`") && refused.contains("which `fs.write` names"), "{refused}");
    let sandbox = subject.backend.create(next(host.path())).await.expect("what is named itself is shown");
    sandbox.destroy().await.expect("destroy");
}

async fn listeners_are_passed_out_once(subject: Subject) {
    let sandbox = make(&subject).await;
    assert!(
        sandbox.take_listener(SandboxPort::Models).is_some() && sandbox.take_listener(SandboxPort::Egress).is_some()
    );
    assert!(sandbox.take_listener(SandboxPort::Models).is_none());
}

async fn connections_to_ports_inside_are_answered(subject: Subject) {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let sandbox = make(&subject).await;
    let doors = [SandboxPort::Models, SandboxPort::Egress].map(|port| sandbox.take_listener(port).expect("listener"));
    let answering = tokio::spawn(async move {
        for (number, door) in doors.into_iter().enumerate() {
            door.set_nonblocking(true).expect("door");
            let (visitor, _) = tokio::net::TcpListener::from_std(door).expect("door").accept().await.expect("visitor");
            let (mut visitor, mut line) = (BufReader::new(visitor), String::new());
            visitor.read_line(&mut line).await.expect("line");
            visitor.write_all(format!("{number} heard {line}").as_bytes()).await.expect("answer");
        }
    });
    let knock =
        "exec 3<>/dev/tcp/127.0.0.1/18080; echo a >&3; cat <&3; exec 4<>/dev/tcp/127.0.0.1/18081; echo b >&4; cat <&4";
    let mut spec = crate::shell_spec("");
    spec.command = ["bash", "-c", knock].map(str::to_owned).to_vec();
    let result = sandbox::run(&*sandbox, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!(text(&result.stdout), "0 heard a\n1 heard b\n", "{}", text(&result.stderr));
    answering.await.expect("answers");
}

async fn denied_files_of_a_bind_workspace_are_guarded(subject: Subject) {
    let host = tempfile::tempdir().expect("workspace");
    for file in [".env", ".git/config", ".git/hooks/old", "secrets/key", "free"] {
        std::fs::create_dir_all(host.path().join(file).parent().expect("parent")).expect("directory");
        std::fs::write(host.path().join(file), "before\n").expect("file");
    }
    let denied =
        "ld.so.cache]\n  deny_read: [\"**/.env\", \"secrets/**\"]\n  deny_write: [\".git/hooks/**\", \".git/config\"]";
    let mut bind = spec(&subject, Some(host.path().to_owned()));
    bind.policy = policy(&subject, &[("workspace: overlay", "workspace: bind"), ("ld.so.cache]", denied)]);
    let made = subject.backend.create(bind).await;
    if subject.has_own_kernel() {
        let refused = made.err().expect("a refusal").to_string();
        return assert!(refused.contains("`fs.workspace: bind` is not supported"), "{refused}");
    }
    let sandbox = made.expect("sandbox");
    for key in ["fs.deny_read", "fs.deny_write"] {
        assert_eq!(state(&sandbox.effective(), key), EnforcementState::Weaker, "{key}");
    }
    let read = text(&shell(&*sandbox, "cat .env free; ls -A secrets").await.stdout);
    assert_eq!(read, "before\n", "what is hidden was seen");
    for attack in [
        "echo x > .git/config",
        "echo x > .git/hooks/pre-commit",
        "rm -f .git/config",
        "mv .git/hooks elsewhere",
        "ln -f free .git/hooks/old",
        "umount .git/config",
        "echo x > .env",
    ] {
        let result = shell(&*sandbox, attack).await;
        assert_ne!(result.exit.code, Some(0), "`{attack}` went through");
    }
    assert_eq!(shell(&*sandbox, "echo after > free").await.exit.code, Some(0));
    let on_host = |file: &str| std::fs::read_to_string(host.path().join(file)).expect("file");
    for file in [".env", ".git/config", ".git/hooks/old", "secrets/key"] {
        assert_eq!(on_host(file), "before\n", "{file}");
    }
    assert_eq!(on_host("free"), "after\n");
}

/// Returns whether this machine and user can enforce every limit.
async fn enforceable(subject: &Subject) -> bool {
    let mut strict = spec(subject, None);
    strict.policy = policy(subject, &[DEGRADE]);
    match subject.backend.create(strict).await {
        Ok(sandbox) => sandbox.destroy().await.is_ok(),
        Err(_) => false,
    }
}

/// A tool runs as the same user as its agent. It must not reach the agent's streams or memory.
async fn output_of_an_agent_cannot_be_forged(subject: Subject) {
    if subject.has_own_kernel() {
        return;
    }
    let sandbox = make(&subject).await;
    let tool = r"exec < /dev/null > /dev/null 2> refused; for n in 0 1 2; do echo forged > /proc/$PPID/fd/$n; done; dd if=/proc/$PPID/fd/0 of=/dev/null count=1";
    let agent = format!("sh -c '{tool}'; echo real; cat");
    let input = Some(b"answer".to_vec());
    let command = |streams| sandbox::ExecSpec { streams, stdin: input.clone(), ..crate::shell_spec(&agent) };
    let sockets = command(sandbox::StreamKind::Sockets);
    let protected = sandbox::run(&*sandbox, sockets, &mut |_, _| {}).await.expect("run");
    assert_eq!(text(&protected.stdout), "real\nanswer", "{protected:?}");
    let refused = shell(&*sandbox, "grep -c 'No such device' refused").await;
    assert_eq!(text(&refused.stdout), "4\n", "each attempt is refused");
    let pipes = command(sandbox::StreamKind::Pipes);
    let unprotected = sandbox::run(&*sandbox, pipes, &mut |_, _| {}).await.expect("run");
    assert!(text(&unprotected.stdout).starts_with("forged\n"), "the attempt works with pipes: {unprotected:?}");
    sandbox.destroy().await.expect("destroy");
}

async fn command_can_open_its_own_streams_again(subject: Subject) {
    let sandbox = make(&subject).await;
    let result = shell(&*sandbox, "echo out > /dev/stdout; echo error > /dev/stderr; echo in | cat /dev/stdin").await;
    assert_eq!((text(&result.stdout), text(&result.stderr)), ("out\nin\n".to_owned(), "error\n".to_owned()));
    sandbox.destroy().await.expect("destroy");
}

fn state(effective: &KeyEnforcements, key: &str) -> EnforcementState {
    effective.get(key).expect("a row").state.clone()
}

async fn limits_are_enforced_or_refused(subject: Subject) {
    let mut strict = spec(&subject, None);
    strict.policy = policy(&subject, &[DEGRADE]);
    match subject.backend.create(strict).await {
        Ok(sandbox) => {
            let effective = sandbox.effective();
            for key in ["proc.memory", "proc.pids", "proc.cpus", "proc.disk", "proc.nofile", "proc.sockets"] {
                assert!(effective.is_enforced(key), "{key} in {effective:?}");
            }
        }
        Err(SandboxError::Unavailable { missing, fix }) => {
            let key = "proc.memory";
            assert!(missing.contains(key) && fix.contains("degrade"), "{missing} / {fix}");
            let effective = make(&subject).await.effective();
            assert_eq!(state(&effective, key), EnforcementState::Weaker, "{effective:?}");
            assert_eq!(state(&effective, "proc.sockets"), EnforcementState::Absent, "{effective:?}");
        }
        Err(other) => panic!("{other}"),
    }
}

async fn memory_over_the_limit_is_refused(subject: Subject) {
    let mut small = spec(&subject, None);
    small.policy = policy(&subject, &[("4GiB\n  pids", "64MiB\n  pids")]);
    let sandbox = subject.backend.create(small).await.expect("sandbox");
    let result = shell(&*sandbox, "head -c 200000000 /dev/zero | tail -c 150000000 | wc -c").await;
    assert_ne!(text(&result.stdout).trim(), "150000000", "{result:?}");
}

async fn out_of_memory_is_reported(subject: Subject) {
    let mut small = spec(&subject, None);
    small.policy = policy(&subject, &[("4GiB\n  pids", "64MiB\n  pids")]);
    let sandbox = subject.backend.create(small).await.expect("sandbox");
    // With a cgroup the kernel kills the command; without one its allocation fails and it exits.
    let by_kernel = sandbox.effective().get("proc.memory").is_some_and(|memory| memory.by.contains("cgroup"));
    let greedy = shell(&*sandbox, "exec tail /dev/zero").await;
    assert_eq!(greedy.exit.out_of_memory, by_kernel, "{greedy:?}");
    if subject.has_own_kernel() {
        let after = sandbox.exec(crate::shell_spec("true")).await;
        return assert!(matches!(after, Err(SandboxError::Gone)), "{after:?}");
    }
    let killed = shell(&*sandbox, "kill -9 $$").await;
    assert_eq!((killed.exit.signal, killed.exit.out_of_memory), (Some(9), false), "{killed:?}");
}

async fn processes_over_the_limit_are_refused(subject: Subject) {
    let mut small = spec(&subject, None);
    small.policy = policy(&subject, &[("pids: 512", "pids: 20")]);
    let sandbox = subject.backend.create(small).await.expect("sandbox");
    let result = shell(&*sandbox, "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all").await;
    assert!(text(&result.stderr).contains("fork"), "{result:?}");
}

/// A kernel inside may count waiting as running.
async fn processor_time_is_what_the_host_granted(subject: Subject) {
    let mut slow = spec(&subject, None);
    slow.policy = policy(&subject, &[("cpus: 2.0", "cpus: 0.2")]);
    let sandbox = subject.backend.create(slow).await.expect("sandbox");
    let work = "count() { i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; }\n\
                count & count & count & count & count & count & wait";
    let result = shell(&*sandbox, work).await;
    let is_kept = sandbox.effective().is_enforced("proc.cpus");
    let all = || std::thread::available_parallelism().map_or(1, |count| count.get() as u128) * 1000;
    let millis = if is_kept { 200 } else { all() };
    let (used, had) = (u128::from(result.exit.cpu_micros), result.wall.as_micros() * millis / 1000);
    // Twice the share, because a cgroup may use saved time and clock ticks are coarse.
    assert!(used > 0 && used < had * 2, "{used} of {had} microseconds: {result:?}");
}

async fn many_concurrent_sandboxes_leave_nothing(subject: Subject) {
    let subject = Subject { backend: subject.crowd.backend.clone(), ..subject };
    let before = leftovers(&subject).await;
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..subject.crowd.size {
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

/// Returns the number of mounts, and whether limits can still be enforced.
async fn leftovers(subject: &Subject) -> (usize, bool) {
    let enforceable = enforceable(subject).await;
    if let Some(traces) = &subject.crowd.traces {
        return (traces.count(), enforceable);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(std::path::Path::new);
    // Engines mount in the temporary directory while they work.
    (points.filter(|point| !point.starts_with(std::env::temp_dir())).count(), enforceable)
}
