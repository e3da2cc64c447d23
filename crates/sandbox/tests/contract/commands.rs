//! Tests of commands: running, output, timeouts and ends.

use std::time::Duration;

use sandbox::{ExecSpec, ExecUser, OutputStream, SandboxError, WindowSize, run};

use crate::{NamedTest, Subject, make, shell, shell_spec, text};

pub(crate) fn everywhere() -> Vec<NamedTest> {
    crate::tests![
        output_and_exit_code_are_returned,
        arguments_are_not_parsed_by_a_shell,
        standard_input_is_sent_and_closed,
        environment_is_exactly_the_given_one,
        output_is_streamed,
        output_over_the_limit_is_truncated,
        timeout_kills_the_whole_process_tree,
        idle_timeout_spares_a_command_with_output,
        idle_timeout_applies_to_attached_commands,
        attached_command_that_ends_over_its_output_limit_is_reported,
        command_runs_as_the_requested_user_or_is_refused,
        terminal_works_or_is_refused,
        background_processes_are_not_waited_for,
        missing_program_is_reported,
        working_directory_is_used,
        destroy_kills_all_processes_and_can_be_called_twice,
        nothing_runs_after_destroy,
    ]
}

async fn output_and_exit_code_are_returned(subject: Subject) {
    let result = shell(&*make(&subject).await, "echo out; echo err >&2; exit 3").await;
    assert_eq!((text(&result.stdout), text(&result.stderr)), ("out\n".into(), "err\n".into()));
    assert_eq!((result.exit.code, result.exit.signal, result.timed_out), (Some(3), None, false));
}

async fn arguments_are_not_parsed_by_a_shell(subject: Subject) {
    let command = ["/bin/echo", "$HOME; ls", "two words"].map(str::to_owned).to_vec();
    let spec = ExecSpec { command, ..ExecSpec::default() };
    let result = run(&*make(&subject).await, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!(text(&result.stdout), "$HOME; ls two words\n");
}

async fn standard_input_is_sent_and_closed(subject: Subject) {
    let mut spec = shell_spec("cat; echo end");
    spec.stdin = Some(b"given ".to_vec());
    let result = run(&*make(&subject).await, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!(text(&result.stdout), "given end\n");
}

async fn environment_is_exactly_the_given_one(subject: Subject) {
    let mut spec = ExecSpec { command: vec!["/usr/bin/env".into()], ..ExecSpec::default() };
    spec.env.insert("ONLY".into(), "this".into());
    let result = run(&*make(&subject).await, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!(text(&result.stdout), "ONLY=this\n");
}

async fn output_is_streamed(subject: Subject) {
    let sandbox = make(&subject).await;
    // The command continues only when its first line was read.
    let mut process = sandbox.exec(shell_spec("echo first; read answer; echo got $answer")).await.expect("exec");
    let mut heard = [0; 6];
    tokio::io::AsyncReadExt::read_exact(&mut process.stdout, &mut heard).await.expect("read");
    let mut stdin = process.stdin.take().expect("stdin");
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"it\n").await.expect("write");
    let mut rest = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut process.stdout, &mut rest).await.expect("read");
    assert_eq!((&heard, rest.as_str()), (b"first\n", "got it\n"));
}

async fn output_over_the_limit_is_truncated(subject: Subject) {
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

async fn timeout_kills_the_whole_process_tree(subject: Subject) {
    // A background process, one in another session, and one whose parent has ended.
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

async fn idle_timeout_spares_a_command_with_output(subject: Subject) {
    let sandbox = make(&subject).await;
    let mut spec = shell_spec("for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done");
    spec.idle_timeout = Some(Duration::from_secs(5));
    let result = run(&*sandbox, spec, &mut |_, _| {}).await.expect("run");
    assert_eq!((result.timed_out, text(&result.stdout).lines().count()), (false, 6));
    let mut spec = shell_spec("echo one; sleep 1000");
    spec.idle_timeout = Some(Duration::from_millis(200));
    assert!(run(&*sandbox, spec, &mut |_, _| {}).await.expect("run").timed_out);
}

async fn idle_timeout_applies_to_attached_commands(subject: Subject) {
    let sandbox = make(&subject).await;
    let attached = async |line: &str, idle: Duration| {
        let (mut reader, writer) = tokio::io::duplex(1 << 16);
        let outflow = |to| sandbox::OutputSink { to, filter: None };
        let (output, errors) = (outflow(Box::new(writer) as _), outflow(Box::new(tokio::io::sink()) as _));
        let streams = sandbox::StandardStreams { input: Box::new(tokio::io::empty()), output, errors, window: None };
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

async fn attached_command_that_ends_over_its_output_limit_is_reported(subject: Subject) {
    let sandbox = make(&subject).await;
    for (line, exceeds) in [("printf 12345678", false), ("printf 123456789", true), ("yes", true)] {
        let (output, errors) = (tokio::io::sink(), tokio::io::sink());
        let [output, errors] = [output, errors].map(|to| sandbox::OutputSink { to: Box::new(to), filter: None });
        let streams = sandbox::StandardStreams { input: Box::new(tokio::io::empty()), output, errors, window: None };
        let spec = ExecSpec { output_limit: Some(8), ..shell_spec(line) };
        let result = sandbox::attach(&*sandbox, spec, streams).await.expect("attach");
        assert_eq!((result.output_exceeded, result.truncated), (exceeds, exceeds), "{line}");
    }
}

async fn command_runs_as_the_requested_user_or_is_refused(subject: Subject) {
    let sandbox = make(&subject).await;
    let line = "touch mine; test -O mine; id -u";
    let ordinary = shell(&*sandbox, line).await;
    assert_eq!(ordinary.exit.code, Some(0));
    let as_root = ExecSpec { user: ExecUser::Root, ..shell_spec("id -u") };
    match run(&*sandbox, as_root, &mut |_, _| {}).await {
        Ok(result) => assert_eq!(text(&result.stdout), "0\n"),
        Err(SandboxError::Unavailable { missing, fix }) => assert!(missing.contains("root") && !fix.is_empty()),
        Err(other) => panic!("{other}"),
    }
}

async fn terminal_works_or_is_refused(subject: Subject) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let sandbox = make(&subject).await;
    let mut line =
        "trap 'stty size; exit 7' WINCH; test -t 0 && test -t 1 && test -t 2 && tty && test -O \"$(tty)\" && \
                    : > /dev/tty && stty size && read line && echo \"got $line\" && while :; do sleep 0.05; done"
            .to_owned();
    if subject.has_own_kernel() {
        // gVisor's /dev/tty has no terminal behind it.
        line = line.replace(": > /dev/tty && ", "");
    }
    let spec = ExecSpec { terminal: Some(WindowSize { rows: 24, columns: 80 }), ..shell_spec(&line) };
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
    // The output ends when all programs of the terminal have ended.
    process.stdout.read_to_end(&mut shown).await.expect("end");
    let shown = text(&shown).replace('\r', "");
    assert!(shown.contains("/dev/pts/0\n24 80\n") && shown.ends_with("50 132\n"), "{shown}");
    assert_eq!(process.exit.await.expect("exit").code, Some(7));
}

async fn background_processes_are_not_waited_for(subject: Subject) {
    let result = shell(&*make(&subject).await, "sleep 1000 & echo done").await;
    assert_eq!((text(&result.stdout), result.exit.code), ("done\n".into(), Some(0)));
}

async fn missing_program_is_reported(subject: Subject) {
    let sandbox = make(&subject).await;
    let spec = ExecSpec { command: vec!["/no/such/program".into()], ..ExecSpec::default() };
    assert!(matches!(sandbox.exec(spec).await, Err(SandboxError::NotFound(name)) if name == "/no/such/program"));
}

async fn working_directory_is_used(subject: Subject) {
    let mut spec = shell_spec("pwd");
    spec.workdir = Some("/usr".into());
    assert_eq!(text(&run(&*make(&subject).await, spec, &mut |_, _| {}).await.expect("run").stdout), "/usr\n");
}

async fn destroy_kills_all_processes_and_can_be_called_twice(subject: Subject) {
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
