//! Tests of the jail through its public interface: making, using and killing a sandbox.
//!
//! The spawner must be forked before any thread exists, so these tests have their own `main`.

#![allow(clippy::expect_used, clippy::panic, clippy::unnecessary_wraps, reason = "a test with its own harness")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jail::{BindMount, ExecEvent, ExecPlan, Jail, JailError, JailPlan, NewJail, ProcessLimits, Spawner, WorkspacePlan};
use libtest_mimic::{Arguments, Failed, Trial};

type Outcome = Result<(), Failed>;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("__hold") {
        hold();
    }
    let spawner = Arc::new(Spawner::fork().expect("spawner"));
    let trial = |name: &str, test: fn(&Spawner) -> Outcome| {
        let spawner = Arc::clone(&spawner);
        Trial::test(name, move || test(&spawner))
    };
    let trials = vec![
        trial("commands_run_as_the_sandbox_user_in_new_namespaces", runs_inside),
        trial("loopback_is_the_only_interface", only_loopback),
        trial("host_accepts_on_the_listeners_inside", listeners),
        trial("overlay_changes_do_not_reach_the_host", overlay),
        trial("masked_files_do_not_exist_inside", masks),
        trial("bind_workspace_is_written_as_its_owner", bind),
        trial("read_only_workspace_cannot_be_written", read_only),
        trial("missing_and_non_executable_programs_fail_differently", missing_programs),
        trial("second_command_runs_in_the_same_sandbox", second_command),
        trial("killing_a_command_kills_its_descendants", kill_exec),
        trial("killing_the_sandbox_kills_all_processes", kill_all),
        trial("missing_host_path_fails_the_start_with_its_name", missing_source),
        trial("symbolic_link_as_host_path_is_refused", link_source),
        trial("writable_space_is_limited", disk_limit),
        trial("long_messages_are_delivered", long_message),
        Trial::test("sandbox_dies_with_its_host", host_dies),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn plan(workspace: WorkspacePlan) -> JailPlan {
    let mut binds = Vec::new();
    let mut links = Vec::new();
    for name in ["usr", "bin", "lib", "lib64", "sbin"] {
        let path = Path::new("/").join(name);
        match std::fs::read_link(&path) {
            Ok(target) => links.push((path, target)),
            Err(_) if path.is_dir() => binds.push(BindMount { source: path.clone(), target: path, writable: false }),
            Err(_) => {}
        }
    }
    let passwd = format!("agent:x:1000:1000::{}:/bin/sh\n", base::HOME);
    JailPlan {
        workspace_at: "/workspace".into(),
        layers: vec![],
        id: "test".into(),
        binds,
        links,
        files: vec![("/etc/passwd".into(), passwd.into())],
        dns: false,
        workspace,
        disk_bytes: 16 << 20,
        disk_inodes: 10_000,
        process: ProcessLimits { nofile: 256, ..ProcessLimits::default() },
        landlock: true,
    }
}

fn make(spawner: &Spawner, workspace: WorkspacePlan) -> NewJail {
    Jail::make(spawner, &plan(workspace), None).expect("sandbox")
}

fn exec_plan(exec: u64, argv: &[&str]) -> ExecPlan {
    let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
    let argv = argv.iter().map(ToString::to_string).collect();
    ExecPlan { exec, argv, env, workdir: base::WORKSPACE.into(), terminal: false, window: None }
}

/// Runs `argv` to its end; returns its output and exit code.
fn run(jail: &Jail, argv: &[&str]) -> (String, Option<i32>) {
    let (mut output, theirs) = std::io::pipe().expect("pipe");
    let null = std::fs::File::open("/dev/null").expect("null");
    jail.exec(exec_plan(1, argv), [null.as_fd(), theirs.as_fd(), theirs.as_fd()]).expect("exec");
    drop(theirs);
    let mut text = String::new();
    output.read_to_string(&mut text).expect("output");
    loop {
        match jail.next_event().expect("event") {
            Some(ExecEvent::Exited { code, .. }) => return (text, code),
            Some(ExecEvent::NotStarted { errno, .. }) => panic!("not started: {errno}"),
            Some(ExecEvent::Started { .. }) => {}
            None => panic!("the sandbox ended: {text}"),
        }
    }
}

fn shell(jail: &Jail, script: &str) -> (String, Option<i32>) {
    run(jail, &["sh", "-c", script])
}

/// Returns a directory that only its owner can enter, with one file.
fn repository() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("kept.txt"), "host\n").expect("file");
    directory
}

fn canonical(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().canonicalize().expect("path")
}

fn runs_inside(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    let (text, code) = shell(
        &made.jail,
        "id -u; pwd; hostname; cat /proc/self/uid_map; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; ls / | tr '\\n' ' '; exit 7",
    );
    assert_eq!(code, Some(7), "{text}");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("1000"));
    assert_eq!(lines.next(), Some(base::WORKSPACE));
    assert_eq!(lines.next(), Some("vivarium"));
    let map: Vec<_> = lines.next().unwrap_or_default().split_whitespace().map(ToOwned::to_owned).collect();
    assert_eq!(map[0], "1000");
    assert_ne!(map[1], "0", "the user inside must never be host root");
    assert!(text.contains("CapEff:\t0000000000000000"), "{text}");
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    assert!(text.contains("Seccomp:\t2"), "{text}");
    assert!(!text.contains("root"), "the host's root directory shows: {text}");
    Ok(())
}

fn only_loopback(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    let (text, _) = shell(&made.jail, "tail -n +3 /proc/net/dev | cut -d: -f1");
    assert_eq!(text.trim(), "lo");
    Ok(())
}

fn listeners(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    for (listener, port) in [(&made.models, base::MODEL_PORT), (&made.egress, base::EGRESS_PORT)] {
        let answer = |listener: TcpListener| {
            std::thread::spawn(move || {
                let (mut socket, _) = listener.accept().expect("accept");
                socket.write_all(b"from the host").expect("write");
            })
        };
        let server = answer(listener.try_clone()?);
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3");
        let (text, code) = run(&made.jail, &["bash", "-c", &script]);
        assert_eq!((text.as_str(), code), ("from the host", Some(0)));
        server.join().expect("server");
    }
    Ok(())
}

fn overlay(spawner: &Spawner) -> Outcome {
    let repository = repository();
    let made =
        make(spawner, WorkspacePlan::Overlay { directory: canonical(&repository), masks: vec![], covers: vec![] });
    let (text, code) =
        shell(&made.jail, "cat kept.txt && echo inside > kept.txt && echo new > new.txt && cat kept.txt new.txt");
    assert_eq!((text.as_str(), code), ("host\ninside\nnew\n", Some(0)));
    assert_eq!(std::fs::read_to_string(repository.path().join("kept.txt"))?, "host\n");
    assert!(!repository.path().join("new.txt").exists());
    // The upper layer outlives the sandbox.
    let upper = made.upper.expect("upper");
    drop(made.jail);
    let mut names: Vec<_> = rustix::fs::Dir::read_from(&upper)?
        .filter_map(|entry| entry.ok().map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    assert_eq!(names, ["kept.txt", "new.txt"]);
    Ok(())
}

fn masks(spawner: &Spawner) -> Outcome {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let repository = repository();
    std::fs::create_dir_all(repository.path().join("deep/er"))?;
    std::fs::write(repository.path().join(".env"), "SECRET=1")?;
    std::fs::write(repository.path().join("deep/er/.env"), "SECRET=2")?;
    let masks = vec![".env".into(), "deep/er/.env".into()];
    let seen_from = |directory: &Path, path: &str| {
        let metadata = std::fs::metadata(directory.join(path)).expect("metadata");
        format!("{:o} {}", metadata.permissions().mode() & 0o7777, metadata.mtime())
    };
    std::fs::set_permissions(repository.path().join("deep"), std::fs::Permissions::from_mode(0o711))?;
    std::fs::set_permissions(repository.path().join("deep/er"), std::fs::Permissions::from_mode(0o2750))?;
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    std::fs::File::open(repository.path().join("deep"))?.set_modified(long_ago)?;
    let made = make(spawner, WorkspacePlan::Overlay { directory: canonical(&repository), masks, covers: vec![] });
    let (shown, _) = shell(&made.jail, "stat -c '%a %Y' deep deep/er; stat -c '%u' deep deep/er kept.txt | uniq");
    let expected: String =
        ["deep", "deep/er"].map(|path| seen_from(repository.path(), path) + "\n").concat() + "1000\n";
    assert_eq!(shown, expected, "a directory above a masked file has the attributes it has on the host");
    let attack = "cat .env deep/er/.env; mv deep other; cat other/er/.env; cp -a other again; ls -a . again/er; cat again/er/.env";
    let (text, _) = shell(&made.jail, attack);
    assert!(!text.contains("SECRET"), "{text}");
    assert_eq!(std::fs::read_to_string(repository.path().join("deep/er/.env"))?, "SECRET=2");
    Ok(())
}

fn bind(spawner: &Spawner) -> Outcome {
    use std::os::unix::fs::MetadataExt;
    let repository = repository();
    let directory = canonical(&repository);
    let made = make(
        spawner,
        WorkspacePlan::Bind { directory: directory.clone(), hidden: vec![], covers: vec![], protected: vec![] },
    );
    let (text, code) =
        shell(&made.jail, "echo inside > new.txt && echo more >> kept.txt && stat -c %u kept.txt new.txt");
    assert_eq!((text.as_str(), code), ("1000\n1000\n", Some(0)));
    assert_eq!(std::fs::read_to_string(directory.join("kept.txt"))?, "host\nmore\n");
    assert_eq!(std::fs::metadata(directory.join("new.txt"))?.uid(), std::fs::metadata(&directory)?.uid());
    Ok(())
}

fn read_only(spawner: &Spawner) -> Outcome {
    let repository = repository();
    let made =
        make(spawner, WorkspacePlan::ReadOnly { directory: canonical(&repository), masks: vec![], covers: vec![] });
    let (text, code) = shell(&made.jail, "cat kept.txt; echo x > new.txt");
    assert!(text.starts_with("host\n") && code != Some(0), "{text}");
    assert!(!repository.path().join("new.txt").exists());

    std::fs::write(repository.path().join(".env"), "SECRET=1")?;
    let masks = vec![".env".into()];
    let made = make(spawner, WorkspacePlan::ReadOnly { directory: canonical(&repository), masks, covers: vec![] });
    let (text, code) = shell(&made.jail, "ls -A; cat .env; echo x > new.txt");
    assert!(text.starts_with("kept.txt\n") && !text.contains("SECRET") && code != Some(0), "{text}");
    Ok(())
}

fn missing_programs(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let stdio = || [null.as_fd(), null.as_fd(), null.as_fd()];
    made.jail.exec(exec_plan(1, &["no-such-program"]), stdio())?;
    assert_eq!(made.jail.next_event()?, Some(ExecEvent::NotStarted { exec: 1, errno: 2 }));
    made.jail.exec(exec_plan(2, &["/etc/passwd"]), stdio())?;
    assert_eq!(made.jail.next_event()?, Some(ExecEvent::NotStarted { exec: 2, errno: 13 }));
    Ok(())
}

fn second_command(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    assert_eq!(shell(&made.jail, "echo one > file").1, Some(0));
    assert_eq!(shell(&made.jail, "cat file").0, "one\n");
    Ok(())
}

/// Runs `argv` in the background. The returned pipe closes when the command and its descendants have ended.
fn background(jail: &Jail, exec: u64, argv: &[&str]) -> std::io::PipeReader {
    let (output, theirs) = std::io::pipe().expect("pipe");
    let null = std::fs::File::open("/dev/null").expect("null");
    jail.exec(exec_plan(exec, argv), [null.as_fd(), theirs.as_fd(), theirs.as_fd()]).expect("exec");
    assert_eq!(jail.next_event().expect("event"), Some(ExecEvent::Started { exec }));
    output
}

const PROCESS_TREE: &str = "(sleep 1000 & sleep 1000) & sleep 1000 & echo up; wait";

fn wait_up(output: &mut std::io::PipeReader) {
    let mut word = [0; 3];
    output.read_exact(&mut word).expect("up");
    assert_eq!(&word, b"up\n");
}

fn kill_exec(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    let mut output = background(&made.jail, 1, &["sh", "-c", PROCESS_TREE]);
    wait_up(&mut output);
    made.jail.kill_exec(1)?;
    output.read_to_end(&mut Vec::new())?;
    assert!(matches!(made.jail.next_event()?, Some(ExecEvent::Exited { exec: 1, signal: Some(9), .. })));
    assert_eq!(shell(&made.jail, "echo alive").0, "alive\n");
    Ok(())
}

fn kill_all(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    let mut output = background(&made.jail, 1, &["sh", "-c", &format!("setsid sh -c '{PROCESS_TREE}'")]);
    wait_up(&mut output);
    made.jail.kill();
    output.read_to_end(&mut Vec::new())?;
    assert_eq!(made.jail.next_event().ok().flatten(), None);
    Ok(())
}

fn missing_source(spawner: &Spawner) -> Outcome {
    let mut plan = plan(WorkspacePlan::Empty);
    plan.binds.push(BindMount { source: "/no/such/path".into(), target: "/deps".into(), writable: false });
    let error = Jail::make(spawner, &plan, None).expect_err("must fail");
    assert_eq!(error.to_string(), "cannot open a host path (`/no/such/path`)");
    Ok(())
}

fn link_source(spawner: &Spawner) -> Outcome {
    let repository = repository();
    std::os::unix::fs::symlink("/etc", repository.path().join("link"))?;
    let directory = canonical(&repository).join("link");
    let error = Jail::make(
        spawner,
        &plan(WorkspacePlan::Bind { directory, hidden: vec![], covers: vec![], protected: vec![] }),
        None,
    )
    .expect_err("must fail");
    assert!(matches!(error, JailError::Setup { ref source, .. } if source.raw_os_error() == Some(40)), "{error:?}");
    Ok(())
}

fn disk_limit(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    let (text, _) = shell(&made.jail, "head -c 20000000 /dev/zero > big; wc -c < big");
    assert!(text.contains("No space left"), "{text}");
    let (text, _) = shell(&made.jail, "rm big; i=0; while : > f$i; do i=$((i+1)); done 2>&1; echo $i");
    assert!(text.contains("No space left"), "{text}");
    Ok(())
}

fn long_message(spawner: &Spawner) -> Outcome {
    let made = make(spawner, WorkspacePlan::Empty);
    let words = "x".repeat(100_000);
    assert_eq!(run(&made.jail, &["echo", &words]).0.trim_end(), words);
    Ok(())
}

/// The child process of `host_dies`: makes a sandbox with running processes, prints `up`, and waits to be killed.
fn hold() -> ! {
    let spawner = Spawner::fork().expect("spawner");
    let made = make(&spawner, WorkspacePlan::Empty);
    let stdout: OwnedFd = std::io::stdout().as_fd().try_clone_to_owned().expect("stdout");
    let null = std::fs::File::open("/dev/null").expect("null");
    made.jail
        .exec(exec_plan(1, &["sh", "-c", PROCESS_TREE]), [null.as_fd(), stdout.as_fd(), stdout.as_fd()])
        .expect("exec");
    loop {
        testkit::hang(Duration::from_secs(60));
    }
}

fn host_dies() -> Outcome {
    let mut host = std::process::Command::new(std::env::current_exe()?)
        .arg("__hold")
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut output = host.stdout.take().expect("stdout");
    let mut word = [0; 3];
    output.read_exact(&mut word)?;
    host.kill()?;
    host.wait()?;
    // The pipe closes only when every process that holds it has ended: host, spawner and all processes inside.
    output.read_to_end(&mut Vec::new())?;
    Ok(())
}
