//! What only a sandbox with walls can keep: its listeners, its limits, and that nothing of it is left.

use sandbox::{SandboxError, SandboxPort};

use crate::{Promise, Subject, make, policy, shell, spec, text};

const DEGRADE: (&str, &str) = ("degrade: {cpus: none, memory: rlimit, pids: rlimit}", "");

pub(crate) fn walled() -> Vec<Promise> {
    crate::tests![
        the_cookbooks_policy_for_machines_without_cgroups_starts,
        the_gateway_listener_is_passed_out_once,
        what_is_said_to_a_port_inside_arrives_and_is_answered,
        limits_are_enforced_or_refused,
        memory_over_the_limit_is_not_had,
        a_command_that_ran_out_of_memory_is_told_apart,
        processes_over_the_limit_are_not_had,
        the_processor_time_of_a_command_is_what_the_host_gave_it,
        a_link_that_was_planted_in_the_workspace_leads_nowhere,
        a_link_that_was_planted_where_more_is_written_leads_nowhere,
        what_is_denied_in_a_bind_workspace_is_held_as_it_was_at_the_start,
        many_sandboxes_at_once_leave_nothing
    ]
}

/// Whoever runs this, with cgroups or without.
async fn the_cookbooks_policy_for_machines_without_cgroups_starts(subject: Subject) {
    const DOCUMENT: &str = include_str!("../../../../docs/policy.md");
    let part = DOCUMENT.split_once("**A machine without cgroups.**").expect("its part").1;
    let block = part.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).expect("its block").0;
    let policy = crate::policy_of(&policy::PolicySource::new("docs/policy.md", block));
    let given = sandbox::SandboxSpec { policy, ..spec(&subject, None) };
    let sandbox = subject.backend.create(given).await.expect("what the page says starts");
    assert_eq!(text(&shell(&*sandbox, "echo here").await.stdout), "here\n");
    sandbox.destroy().await.expect("destroy");
}

/// What an earlier session wrote on the host, and somebody names at the next start.
async fn a_link_that_was_planted_in_the_workspace_leads_nowhere(subject: Subject) {
    /// Everybody may write there, and unlike `/tmp` it is shown by name.
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

/// What a command of an earlier session left in a directory that `fs.write` names, and somebody names at the next start.
async fn a_link_that_was_planted_where_more_is_written_leads_nowhere(subject: Subject) {
    let (host, cache) = (tempfile::tempdir().expect("host"), tempfile::tempdir_in("/var/tmp").expect("cache"));
    let link = cache.path().join("deps");
    let key = format!("fs:\n  write: [{}]\n", cache.path().display());
    let writing = || policy(&subject, &[("fs:\n", &key)]);
    let first = sandbox::SandboxSpec { policy: writing(), ..spec(&subject, None) };
    let made = subject.backend.create(first).await;
    if subject.has_own_kernel() {
        let refused = made.err().expect("a refusal").to_string();
        return assert!(refused.contains("`fs.write` cannot be had"), "{refused}");
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

async fn the_gateway_listener_is_passed_out_once(subject: Subject) {
    let sandbox = make(&subject).await;
    assert!(
        sandbox.take_listener(SandboxPort::Models).is_some() && sandbox.take_listener(SandboxPort::Egress).is_some()
    );
    assert!(sandbox.take_listener(SandboxPort::Models).is_none());
}

async fn what_is_said_to_a_port_inside_arrives_and_is_answered(subject: Subject) {
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

async fn what_is_denied_in_a_bind_workspace_is_held_as_it_was_at_the_start(subject: Subject) {
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
        return assert!(refused.contains("`fs.workspace: bind` cannot be had"), "{refused}");
    }
    let sandbox = made.expect("sandbox");
    for key in ["fs.deny_read", "fs.deny_write"] {
        assert_eq!(sandbox.effective()[key]["state"], "weaker", "{key}");
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

/// Whether this machine and user can enforce every limit.
async fn enforceable(subject: &Subject) -> bool {
    let mut strict = spec(subject, None);
    strict.policy = policy(subject, &[DEGRADE]);
    match subject.backend.create(strict).await {
        Ok(sandbox) => sandbox.destroy().await.is_ok(),
        Err(_) => false,
    }
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
            let key = "proc.memory";
            assert!(missing.contains(key) && fix.contains("degrade"), "{missing} / {fix}");
            let effective = make(&subject).await.effective();
            assert_eq!(effective[key]["state"], "weaker", "{effective}");
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
    if subject.has_own_kernel() {
        let after = sandbox.exec(crate::shell_spec("true")).await;
        return assert!(matches!(after, Err(SandboxError::Gone)), "{after:?}");
    }
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

/// Whatever counts inside may take what waits for its turn for running.
async fn the_processor_time_of_a_command_is_what_the_host_gave_it(subject: Subject) {
    let mut slow = spec(&subject, None);
    slow.policy = policy(&subject, &[("cpus: 2.0", "cpus: 0.2")]);
    let sandbox = subject.backend.create(slow).await.expect("sandbox");
    let work = "count() { i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; }\n\
                count & count & count & count & count & count & wait";
    let result = shell(&*sandbox, work).await;
    let is_kept = sandbox.effective()["proc.cpus"]["state"] == "enforced";
    let all = || std::thread::available_parallelism().map_or(1, |count| count.get() as u128) * 1000;
    let millis = if is_kept { 200 } else { all() };
    let (used, had) = (u128::from(result.exit.cpu_micros), result.wall.as_micros() * millis / 1000);
    // Twice, for what a group may have saved, and for ticks.
    assert!(used > 0 && used < had * 2, "{used} of {had} microseconds: {result:?}");
}

async fn many_sandboxes_at_once_leave_nothing(subject: Subject) {
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

/// Mounts and control groups of this process's sandboxes that a dead sandbox must not leave.
async fn leftovers(subject: &Subject) -> (usize, bool) {
    let enforceable = enforceable(subject).await;
    if let Some(traces) = &subject.crowd.traces {
        return (traces.count(), enforceable);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(std::path::Path::new);
    // Engines mount on the host while they work.
    (points.filter(|point| !point.starts_with(std::env::temp_dir())).count(), enforceable)
}
