//! Tests of `viv exec`: exit codes, streams, limits, signals and records.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::fixture::viv_fixture;
use crate::processes;
use crate::server::pid_of;
use testkit::{ProgramOutput, VivFixture, wait_for_exit};

#[track_caller]
fn check(place: &VivFixture, arguments: &[&str], command: &[&str], code: i32) -> ProgramOutput {
    let ran = place.run(&[&["exec"], arguments, &["--"], command].concat());
    assert_eq!(ran.code, code, "{arguments:?} {command:?}: {}", ran.stderr);
    ran
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let place = viv_fixture();
    for code in [0, 1, 2, 63, 64, 124, 125, 126, 127, 128, 137, 254, 255] {
        check(&place, &[], &["sh", "-c", &format!("exit {code}")], code);
    }
}

#[test]
fn a_killed_command_exits_with_128_plus_the_signal() {
    let place = viv_fixture();
    for signal in [1, 2, 6, 9, 11, 13, 15] {
        check(&place, &[], &["sh", "-c", &format!("kill -{signal} $$")], 128 + signal);
    }
}

#[test]
fn a_streamed_command_is_killed_at_its_output_limit() {
    let place = viv_fixture();
    let printing = |bytes: &str| ["head", "-c", bytes, "/dev/zero"].map(str::to_owned);
    let limited = ["--narrow", "proc.output=1MiB"];
    let ran =
        place.run(&[&["exec"], &limited[..], &["--"], &printing("1048576").each_ref().map(String::as_str)].concat());
    assert_eq!((ran.code, ran.stdout.len()), (0, 1 << 20), "{}", ran.stderr);
    let ran =
        place.run(&[&["exec"], &limited[..], &["--"], &printing("50000000").each_ref().map(String::as_str)].concat());
    assert_eq!((ran.code, ran.stdout.len()), (137, 1 << 20), "{}", ran.stderr);
    assert!(ran.stderr.contains("more than 1 MiB of output (proc.output)\nhelp: "), "{}", ran.stderr);
}

#[test]
fn failures_before_the_command_have_their_own_exit_codes() {
    let place = viv_fixture();
    let ran = check(&place, &[], &["not-a-program"], 127);
    assert!(ran.stderr.contains("`not-a-program` is not in the sandbox\nhelp: "), "{}", ran.stderr);
    check(&place, &[], &["/etc/passwd"], 126);
    check(&place, &[], &["/usr"], 126);
    check(&place, &["--workspace", "/nowhere/at/all"], &["true"], 125);
    check(&place, &["--policy", "no-such-preset"], &["true"], 125);
    check(&place, &["--narrow", "proc.memory=lots"], &["true"], 125);
    for wider in [["--workspace", ".:bind"], ["--narrow", "proc.memory=1TiB"]] {
        let ran = check(&place, &wider, &["true"], 125);
        assert!(ran.stderr.contains("--policy policy.yaml") && !ran.stderr.contains("trust"), "{}", ran.stderr);
    }
    check(&place, &["--env", "NOVALUE"], &["true"], 125);
}

#[test]
fn the_data_directory_is_neither_a_workspace_nor_visible_in_one() {
    let place = viv_fixture();
    assert_eq!(place.run(&["run", "mock", "hello"]).code, 0);
    let around = place.data_dir().parent().unwrap().to_owned();
    std::fs::write(around.join("seen.txt"), "").unwrap();
    for mode in ["", ":ro"] {
        let workspace = format!("{}{mode}", around.display());
        let ran = check(&place, &["--workspace", &workspace], &["ls", "-A"], 0);
        assert_eq!(ran.stdout, "seen.txt\n");
    }
    for own in [place.data_dir(), place.data_dir().join("trajectory")] {
        let ran = check(&place, &["--workspace", own.to_str().unwrap()], &["true"], 125);
        assert!(ran.stderr.contains("directory_not_allowed"), "{}", ran.stderr);
    }
    let around = around.to_str().unwrap();
    let ran = place.run(&["run", "mock", "/run ls -A", "--perms", "allow", "--workspace", around]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("data\n") && !ran.stderr.contains("data\n"), "{}{}", ran.stdout, ran.stderr);
}

/// Variables of the host, including one that no policy passes.
pub(crate) const HOST_VARIABLES: [(&str, &str); 5] = [
    ("LANG", "de_DE.UTF-8"),
    ("LC_ALL", "C"),
    ("TZ", "Europe/Berlin"),
    ("TERM", "vt100"),
    ("VIV_TEST_TOKEN", "hidden"),
];

#[test]
fn only_variables_that_the_policy_passes_are_set() {
    let place = viv_fixture();
    let told = |arguments: &[&str]| {
        let mut command = place.command(&[&["exec"], arguments, &["--", "env"]].concat());
        command.envs(HOST_VARIABLES);
        let ran = ProgramOutput::from(command.output().unwrap());
        let mut lines: Vec<_> = ran.stdout.lines().map(str::to_owned).collect();
        lines.retain(|line| HOST_VARIABLES.iter().any(|(name, _)| line.starts_with(&format!("{name}="))));
        lines.sort();
        lines
    };
    let passed = ["LANG=de_DE.UTF-8", "LC_ALL=C", "TERM=vt100", "TZ=Europe/Berlin"];
    assert_eq!(told(&["--policy", "balanced"]), passed);
    assert_eq!(told(&["--policy", "balanced", "--narrow", "env.pass=TZ"]), ["LANG=C.UTF-8", "TZ=Europe/Berlin"]);
    // `--env` overrides the host's value.
    assert_eq!(told(&["--policy", "balanced", "--env", "TZ=UTC"]), [&passed[..3], &["TZ=UTC"]].concat());
}

#[test]
fn input_is_streamed_and_stdout_and_stderr_stay_separate() {
    let place = viv_fixture();
    let input: Vec<u8> = (0..3_000_000_u32).map(|number| b'a' + u8::try_from(number % 26).unwrap()).collect();
    let ran = place.run_with_input(&["exec", "--", "sh", "-c", "echo to people >&2; cat"], &input);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "to people\n"));
    assert!(ran.stdout.as_bytes() == input, "the output differs from the input");

    // The answer to the first line comes before the second is written.
    let mut command = place.command(&["exec", "--", "sh", "-c", "while read line; do echo got $line; done"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for word in ["one", "two", "three"] {
        writeln!(stdin, "{word}").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), format!("got {word}"));
    }
    drop(stdin);
    assert_eq!(wait_for_exit(&mut child).code(), Some(0));
}

#[test]
fn a_hundred_megabytes_pass_in_bounded_memory() {
    const BYTES: u64 = 100_000_000;
    let place = viv_fixture();
    let policy = "version: 1\nfs: {read: [/usr, /bin, /lib, /lib64, /etc/ld.so.cache]}\nproc: {output: 128MiB, timeout: 5m, memory: 1GiB, pids: 64, cpus: 2, disk: 64MiB, nofile: 256}\ndegrade: {cpus: none, memory: rlimit, pids: rlimit}\n";
    let path = place.directory().join("large.yaml");
    std::fs::write(&path, policy).unwrap();
    let script = format!("head -c {BYTES} /dev/zero; read line");
    let mut command = place.command(&["exec", "--policy", path.to_str().unwrap(), "--", "sh", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let passed = std::io::copy(&mut stdout.by_ref().take(BYTES), &mut std::io::sink()).unwrap();
    assert_eq!(passed, BYTES);
    // The command waits for a line, so viv still runs and can be measured.
    let peak = processes::peak_resident(child.id()).unwrap();
    assert!(peak < 96 << 20, "viv held {peak} bytes");
    writeln!(child.stdin.take().unwrap()).unwrap();
    assert_eq!(wait_for_exit(&mut child).code(), Some(0));
}

#[test]
fn a_closed_output_ends_the_command_quietly() {
    let place = viv_fixture();
    let mut command = place.command(&["exec", "--", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    // The reader is dropped here, and with it the pipe.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "y\n");
    let status = wait_for_exit(&mut child);
    let mut people = String::new();
    child.stderr.take().unwrap().read_to_string(&mut people).unwrap();
    assert_eq!((status.code(), people.as_str()), (Some(128 + 13), ""));
}

#[test]
fn a_signal_to_viv_kills_all_processes_in_the_sandbox() {
    let place = viv_fixture();
    for (signal, code) in [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)] {
        // A command that ignores signals, and a child that left its process group.
        let script = "trap '' INT TERM HUP; setsid sleep 1000 & echo ready; while :; do sleep 1000; done";
        let mut child = place.command(&["exec", "--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let family = processes::family(child.id());
        assert!(family.len() >= 4, "viv, init, shell and its child, not {family:?}");
        rustix::process::kill_process(pid_of(&child), signal).unwrap();
        assert_eq!(wait_for_exit(&mut child).code(), Some(code));
        processes::check_gone(child.id(), &family);
    }
}

#[test]
fn a_command_over_its_timeout_is_killed() {
    let place = viv_fixture();
    let ran = check(&place, &["--timeout", "200ms"], &["sh", "-c", "echo before; sleep 1000"], 124);
    assert_eq!(ran.stdout, "before\n");
    // Also while viv itself blocks because nobody reads the output.
    let mut command = place.command(&["exec", "--timeout", "200ms", "--", "yes"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let unread = child.stdout.take();
    assert_eq!(wait_for_exit(&mut child).code(), Some(124));
    drop(unread);
}

#[test]
fn a_slow_reader_receives_all_output() {
    let place = viv_fixture();
    let mut command = place.command(&["exec", "--", "head", "-c", "200000", "/dev/zero"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // The command has ended; its output is still in the pipes.
    testkit::pause(Duration::from_millis(500));
    let mut all = Vec::new();
    stdout.read_to_end(&mut all).unwrap();
    assert_eq!((all.len(), wait_for_exit(&mut child).code()), (200_000, Some(0)));
}

#[test]
fn an_overlay_leaves_the_workspace_unchanged() {
    let place = viv_fixture();
    let workspace = place.workspace();
    let script = "cat kept.txt && echo changed > kept.txt && echo new > new.txt && cat kept.txt new.txt";
    let ran = check(&place, &["--workspace", workspace.to_str().unwrap()], &["sh", "-c", script], 0);
    assert_eq!(ran.stdout, "as it was\nchanged\nnew\n");
    assert_eq!(place.workspace_files(), [("kept.txt".to_owned(), "as it was\n".to_owned())]);

    let read_only = format!("{}:ro", workspace.display());
    let ran = check(&place, &["--workspace", &read_only], &["sh", "-c", "cat kept.txt; echo no > new.txt"], 2);
    assert_eq!(ran.stdout, "as it was\n");
    assert!(ran.stderr.contains("Read-only file system") || ran.stderr.contains("Permission denied"), "{}", ran.stderr);
    assert_eq!(place.workspace_files(), [("kept.txt".to_owned(), "as it was\n".to_owned())]);
}

#[test]
fn the_json_report_is_one_line() {
    let place = viv_fixture();
    let ran = place.run(&["--json", "exec", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &report["exit_code"]), (3, &serde_json::json!(3)));
    assert_eq!((report["stdout"].as_str(), report["stderr"].as_str()), (Some("out\n"), Some("err\n")));
}

#[test]
fn the_json_report_lists_denied_connections() {
    let place = viv_fixture();
    let script = "exec 3<>/dev/tcp/127.0.0.1/18081; \
                  printf 'CONNECT evil.example.com:443 HTTP/1.1\\r\\nHost: evil.example.com:443\\r\\n\\r\\n' >&3; \
                  head -n 1 <&3; echo $HTTPS_PROXY";
    let ran = place.run(&["--json", "exec", "--policy=balanced", "--", "bash", "-c", script]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(report["stdout"].as_str().unwrap().starts_with("HTTP/1.1 403"), "{report}");
    assert!(report["stdout"].as_str().unwrap().contains(":18081"), "{report}");
    let denied = &report["denials"][0];
    assert_eq!((&denied["host"], &denied["port"]), (&"evil.example.com".into(), &443.into()), "{report}");
    assert!(denied["rule"].as_str().unwrap().contains("net.enabled"), "{report}");
    let quiet = place.run(&["--json", "exec", "--", "true"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&quiet.stdout).unwrap()["denials"], serde_json::json!([]));
}

#[test]
fn a_command_over_its_idle_timeout_is_killed() {
    let place = viv_fixture();
    let ran = check(&place, &["--idle-timeout", "300ms"], &["sh", "-c", "echo before; sleep 1000"], 124);
    assert_eq!(ran.stdout, "before\n");
    let report = place.run(&["--json", "exec", "--idle-timeout", "300ms", "--", "sleep", "1000"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&report.stdout).unwrap()["timed_out"], true);
}

#[test]
fn exceeding_the_memory_limit_is_reported() {
    let place = viv_fixture();
    let (less, eat) = (["--narrow", "proc.memory=64MiB"], ["tail", "/dev/zero"]);
    let ran = check(&place, &less, &eat, 137);
    assert!(ran.stderr.contains("killed") && ran.stderr.contains("proc.memory"), "{}", ran.stderr);
    let told = place.run(&[&["--json", "exec"], &less[..], &["--"], &eat[..]].concat());
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!((&told["out_of_memory"], &told["signal"]), (&true.into(), &9.into()), "{told}");
}

#[test]
fn the_root_directory_is_rejected_as_workspace() {
    let place = viv_fixture();
    let ran = check(&place, &["--workspace", "/"], &["ls"], 125);
    assert!(ran.stderr.contains("directory `/` is not allowed"), "{}", ran.stderr);
    let ran = place.run(&["run", "--workspace", "/", "mock", "/echo hello"]);
    assert!(ran.code == 4 && ran.stderr.contains("directory `/` is not allowed"), "{}", ran.stderr);
}

/// Shell script that asks the proxy for a host `$1` times.
const REACH: &str = r#"
for _ in $(seq "$1"); do
    exec 3<>/dev/tcp/127.0.0.1/18081
    printf 'CONNECT files.example.com:443 HTTP/1.1\r\nhost: files.example.com:443\r\n\r\n' >&3
    read -r _ status _ <&3
    echo "$status"
done"#;

#[test]
fn denied_connections_are_recorded() {
    let place = viv_fixture();
    let ran = check(&place, &[], &["bash", "-c", REACH, "reach", "3"], 0);
    assert_eq!(ran.stdout, "403\n403\n403\n", "{}", ran.stderr);
    let sentence = ran.stderr.lines().last().unwrap();
    let command = sentence.strip_prefix("viv: 3 connections refused: viv ").unwrap();
    let logged = place.run(&command.split(' ').collect::<Vec<_>>());
    assert!(logged.code == 0 && logged.stdout.contains("files.example.com:443"), "{logged:?}");
    assert_eq!(place.run(&["policy", "log", "@last"]).code, 3, "an exec is never the last session");
    let listed = place.run(&["--json", "sessions", "ls"]).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let session = &listed[0];
    assert_eq!((&session["agent"], &session["ended"]), (&"none".into(), &true.into()), "{listed}");
    let told = place.run(&["policy", "explain", "--session", session["sessionId"].as_str().unwrap()]);
    assert!(told.stdout.contains("enforced by the jail backend:"), "{told:?}");
}

#[test]
fn a_command_without_network_use_leaves_no_record() {
    let place = viv_fixture();
    check(&place, &[], &["true"], 0);
    let kept = std::fs::read_dir(place.data_dir().join("trajectory")).map_or(0, Iterator::count);
    assert_eq!((kept, place.data_dir().join("viv.db").exists()), (0, false));
}

/// Runs a command in the workspace of `place` without naming a workspace.
fn exec_here(place: &VivFixture, options: &[&str], script: &str) -> ProgramOutput {
    let mut command = place.command(&[&["exec"], options, &["--", "sh", "-c", script]].concat());
    ProgramOutput::from(command.current_dir(place.workspace()).output().unwrap())
}

#[test]
fn the_current_directory_is_the_workspace_and_changes_are_kept_for_review() {
    let place = viv_fixture();
    std::fs::write(place.workspace().join("kept.txt"), "as it was\n").unwrap();
    let ran = exec_here(&place, &[], "cat kept.txt; echo more >> kept.txt; echo new > new.txt");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "as it was\n"), "{}", ran.stderr);
    assert_eq!(place.workspace_files(), [("kept.txt".to_owned(), "as it was\n".to_owned())]);
    let line = ran.stderr.lines().last().unwrap();
    assert!(line.starts_with("viv: 2 files changed in the sandbox: viv sessions diff "), "{}", ran.stderr);
    // The two commands of the note work.
    let name = line.rsplit(' ').next().unwrap();
    let diff = place.run(&["sessions", "diff", name, "--stat"]);
    assert!(diff.code == 0 && diff.stdout.contains("new.txt"), "{diff:?}");
    let applied = place.run(&["sessions", "apply", name, "--yes"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(std::fs::read_to_string(place.workspace().join("new.txt")).unwrap(), "new\n");

    // Reading leaves nothing behind, and neither do changes that nobody wants.
    let before = place.run(&["sessions", "ls"]).stdout;
    assert_eq!(exec_here(&place, &[], "cat new.txt; touch t; rm t").stderr, "");
    assert_eq!(exec_here(&place, &["--discard"], "echo x > x.txt").stderr, "");
    assert_eq!(exec_here(&place, &["--empty"], "ls -A").stdout, "");
    assert_eq!(place.run(&["sessions", "ls"]).stdout, before);

    let mut json = place.command(&["--json", "exec", "--", "sh", "-c", "rm new.txt"]);
    let ran = ProgramOutput::from(json.current_dir(place.workspace()).output().unwrap());
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["changes"]["deleted"], serde_json::json!(["new.txt"]), "{report}");
}

#[test]
fn the_home_directory_is_not_shown_unless_it_is_named() {
    let place = viv_fixture();
    std::fs::write(place.workspace().join("history"), "secret").unwrap();
    let mut command = place.command(&["exec", "--", "ls", "-A"]);
    let ran =
        ProgramOutput::from(command.env("HOME", place.workspace()).current_dir(place.workspace()).output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("works in an empty directory"), "{}", ran.stderr);
}
